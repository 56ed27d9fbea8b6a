"""What a harness left in its folder, as one imported run; and such a folder as a kept run, for a load that ran
elsewhere."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from inferometer.documents.document import settings_of
from inferometer.errors import DataError
from inferometer.exchange.harness.harness import Harness
from inferometer.exchange.importing.importer import checksum, read_result, summary_of, verdict_of
from inferometer.exchange.importing.recognise import format_named
from inferometer.exchange.importing.source import ImportedRun
from inferometer.plan.model import Plan
from inferometer.plan.text import to_mapping
from inferometer.record.environment import HarnessRun, ImportOrigin
from inferometer.record.run import Run
from inferometer.store.manifest import MARKS, Marks, checked_label, marks_bytes
from inferometer.store.save import keep
from inferometer.store.store import Place

LOG = "harness.log"


@dataclass(frozen=True, slots=True)
class Result:
    """A result file of a harness, and its content."""

    path: Path
    imported: ImportedRun

    @property
    def stored_name(self) -> str:
        """Its name in the folder of a run."""
        return f"source{self.path.suffix or '.txt'}"


def result_in(harness: Harness, folder: Path) -> Result:
    """The result in a folder, with every request where a second file has them; a `DataError` where there is none."""
    path = _first(folder, harness.results)
    if path is None:
        listed = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        got = f"there are {', '.join(listed[:8])}" if listed else "the folder is empty"
        raise DataError(f"{harness.name}: wrote no {harness.results[0]}: {got}")
    runs = read_result(path, harness.format).runs
    imported = runs[-1]  # of several, such as warm-up and measurement, the last is what the plan asked for
    if imported.records is None and harness.requests is not None:
        imported = _with_requests(harness, folder, imported)
    return Result(path, imported)


def _first(folder: Path, patterns: Iterable[str]) -> Path | None:
    return next((file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()), None)


def _with_requests(harness: Harness, folder: Path, imported: ImportedRun) -> ImportedRun:
    """The tool's own numbers stay what they are: records only allow to take our measures too."""
    assert harness.requests is not None
    pattern, name = harness.requests
    path = _first(folder, [pattern])
    if path is None:
        return imported
    try:
        requests = read_result(path, name).runs[0]
    except DataError:
        return imported
    return replace(
        imported,
        records=requests.records,
        underivable=requests.underivable,
        started=imported.started or requests.started,
    )


def import_folder(
    harness: Harness, folder: Path, store: Place, *, plan: Plan | None = None, tags: Iterable[str] = ()
) -> Run:
    """Keep what a harness left in a folder, with the log in it, as a run. Nothing else was sampled."""
    result = result_in(harness, folder)
    imported = result.imported
    summary = summary_of(imported)
    content = result.path.read_bytes()
    files = {result.stored_name: content}
    if (log := folder / LOG).is_file():
        files[LOG] = log.read_bytes()
    if marks := [checked_label(tag, "tag") for tag in tags]:
        files[MARKS] = marks_bytes(Marks().tagged(*marks))
    environment = structs.replace(
        imported.environment,
        imported=ImportOrigin(format=harness.format, file=result.path.name, sha256=checksum(content)),
        harness=HarnessRun(name=harness.name, result=result.stored_name, log=LOG if LOG in files else None),
    )
    return keep(
        store,
        kind="serving",
        plan=to_mapping(plan) if plan is not None else settings_of(imported.plan),
        environment=environment,
        summary=summary,
        verdict=verdict_of(imported, summary, format_named(harness.format).title),
        started=imported.started,
        source=harness.format,
        records=imported.records,
        samples=imported.samples,
        files=files,
    )
