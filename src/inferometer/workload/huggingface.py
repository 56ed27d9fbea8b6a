"""Datasets of the Hugging Face hub, or saved ones, through the package `datasets`, which is an extra."""

from importlib import import_module
from typing import Any

from inferometer.errors import DataError, MissingExtra
from inferometer.plan.workloads.dataset import HuggingFace

REMEDY = "check repo, subset and split; without a network, give the path of a dataset that was saved with save_to_disk"


class HubRows:
    """Rows of a dataset in Arrow files, which the package maps into memory and does not hold."""

    def __init__(self, name: str, rows: Any) -> None:
        self.name = name
        self.facts = (name, str(getattr(rows, "_fingerprint", "")), len(rows))
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        return dict(self._rows[number])

    def where(self, number: int) -> str:
        return f"{self.name}: row {number + 1}"


def hub_rows(spec: HuggingFace) -> HubRows:
    """The rows of one split."""
    name = spec.repo or spec.path or ""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise MissingExtra(f"the Hugging Face dataset {name}", "datasets") from None
    try:
        rows = _loaded(datasets, spec)
    except Exception as error:  # the hub has a class for each of no network, no such name, no permission, bad files
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{name}: cannot be loaded: {why}", REMEDY) from None
    return HubRows(f"{name} ({spec.split})", rows)


def _loaded(datasets: Any, spec: HuggingFace) -> Any:
    if spec.repo is not None:
        return datasets.load_dataset(spec.repo, spec.subset, split=spec.split)
    saved = datasets.load_from_disk(spec.path)
    if isinstance(saved, dict) and spec.split not in saved:
        raise ValueError(f"there is no split {spec.split!r}, there are {', '.join(saved)}")
    return saved[spec.split] if isinstance(saved, dict) else saved
