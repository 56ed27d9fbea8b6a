"""The folder of an experiment, `<store>/experiments/<id>`: what was asked for, a line per case as it was done, and
what came of it. Its runs are runs like any other. Any prefix of the lines is valid: it can go on later."""

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from inferometer.errors import UNREACHABLE, StoreError
from inferometer.judge.ending import exit_code
from inferometer.measure.values import Quantity, quantities
from inferometer.record.files import replacing, told
from inferometer.record.run import Run
from inferometer.record.schema import schema_of
from inferometer.store.damage import Damaged, damaged_by, file_bytes, is_there
from inferometer.store.folder import read_json, run_id
from inferometer.store.shapes import checked
from inferometer.store.store import Store

Kind = Literal["sweep", "search", "ab"]

ABOUT, CASES, RESULT, LOCK = "experiment.json", "cases.jsonl", "result.json", ".lock"


@dataclass(frozen=True)
class KeptExperiment:
    """What is known of an experiment. A case is a mapping with at least `name`, `parameters` and `run` (an id, or None
    where it failed before there was one)."""

    id: str
    kind: Kind
    name: str | None
    started_at: str
    definition: dict[str, Any]
    cases: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None  # None: it is not over
    folder: Path | None = None

    @property
    def latest(self) -> list[dict[str, Any]]:
        """The cases, each as it was done last: one that was interrupted may have been done again."""
        return list({case["name"]: case for case in self.cases}.values())


@dataclass(frozen=True)
class CaseRow:
    """A case that was done, and all its numbers: what tables, charts and files of an experiment are made of."""

    name: str
    label: str  # without the number of the repeat
    parameters: dict[str, Any]
    repeat: int
    state: str  # of its run; "failed" where there is none
    run: str | None = None
    verdict: str | None = None
    error: str | None = None
    wall_s: float | None = None
    limits_missed: tuple[str, ...] = ()
    exit_code: int = 0  # what its run alone would have ended with
    values: dict[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentFolder:
    """An experiment being done."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def add(self, case: Mapping[str, Any]) -> None:
        """A case that is done, in one piece and on disk before the next begins."""
        line = orjson.dumps(dict(case), option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        with told(self.path), (self.path / CASES).open("ab", buffering=0) as file:
            whole = _whole(self.path / CASES)
            file.truncate(whole)  # half a line of a writer that was killed
            try:
                written = file.write(line)
                if written < len(line):  # the disk is full in the middle of it; the next write says so
                    file.write(line[written:])
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise

    def redefine(self, definition: Mapping[str, Any]) -> None:
        """The file of the experiment was edited, and it goes on with the new one; the old one is kept beside it."""
        about = read_json(self.path / ABOUT, "experiment")
        earlier = [*about.get("earlier", []), about.get("definition")]
        _write(self.path / ABOUT, {**about, "definition": dict(definition), "earlier": earlier})

    @contextmanager
    def held(self) -> Iterator[None]:
        """For one process alone: two that resume it would do the same cases."""
        with told(self.path), (self.path / LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"experiment {self.id} is being done by another process", "wait for its end") from None
            yield

    def finish(self, result: Mapping[str, Any]) -> None:
        _write(self.path / RESULT, result)

    def load(self) -> KeptExperiment:
        return load_experiment(self.path)


def new_experiment(store: Path, kind: Kind, name: str | None, definition: Mapping[str, Any]) -> ExperimentFolder:
    """A folder of its own for an experiment that starts now."""
    started = datetime.now(UTC)
    path = store / "experiments" / run_id(started)
    about = {"kind": kind, "name": name, "started": started.isoformat(timespec="milliseconds")}
    with told(path):
        path.mkdir(parents=True)
    _write(path / ABOUT, {**about, "definition": dict(definition)})
    return ExperimentFolder(path)


def _write(file: Path, content: Mapping[str, Any]) -> None:
    with replacing(file) as draft:
        whole = {"schema": schema_of("experiment"), **content}
        draft.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


def load_experiment(path: Path) -> KeptExperiment:
    """A `DamagedError` says what is wrong with one that cannot be read."""
    read = read_experiment(path)
    if isinstance(read, Damaged):
        raise read.error
    return read


def read_experiment(path: Path) -> KeptExperiment | Damaged:
    """From its folder; this is the one place where that is read."""
    try:
        if not is_there(path / ABOUT):
            raise StoreError(f"{path}: not the folder of an experiment", "inferometer sweep makes one")
        about = read_json(path / ABOUT, "experiment")
        result = read_json(path / RESULT, "experiment") if is_there(path / RESULT) else None
        cases = list(_cases(path / CASES))
    except StoreError as error:
        return damaged_by(error, path)
    return KeptExperiment(
        id=path.resolve().name,
        kind=about.get("kind", "sweep"),
        name=about.get("name"),
        started_at=about.get("started", ""),
        definition=about.get("definition", {}),
        cases=cases,
        result=result,
        folder=path,
    )


def experiments_of(store: Path, warn: Callable[[Damaged], None] = lambda _damaged: None) -> list[KeptExperiment]:
    """The newest first; folders that are none are passed over, and so are damaged ones, once `warn` knows of them."""
    known = []
    for file in sorted((store / "experiments").glob(f"*/{ABOUT}"), reverse=True):
        read = read_experiment(file.parent)
        if isinstance(read, Damaged):
            warn(read)
        else:
            known.append(read)
    return known


def find_experiment(store: Path, wanted: str) -> KeptExperiment:
    """By its id, the beginning of its id, its name (the newest of that name) or `latest`."""
    damaged: list[Damaged] = []
    known = experiments_of(store, damaged.append)
    if named := [each for each in damaged if wanted and each.id.startswith(wanted)]:
        raise named[0].error
    found = [each for each in known if wanted in ("latest", each.id, each.name)]
    if found:
        return found[0]
    found = [each for each in known if each.id.startswith(wanted) or each.id.endswith(f"-{wanted}")]
    if len(found) > 1:
        some = ", ".join(each.id for each in found[:3])
        raise StoreError(f"{wanted!r} means {len(found)} experiments", f"give more of its id: {some}, ...")
    if not found:
        hint = f"the latest is {known[0].id}" if known else "inferometer sweep makes one"
        raise StoreError(f"no experiment {wanted!r}", hint)
    return found[0]


_OF_ONE_SIZE = re.compile(r"latency_bs\d+(_in\d+_out\d+)?")


def case_row(case: Mapping[str, Any], run: Run | None) -> CaseRow:
    """A line of an experiment with the numbers of its run."""
    limits = run.summary.limits if run else []
    return CaseRow(
        name=case["name"],
        label=case.get("label") or case["name"],
        parameters=dict(case.get("parameters") or {}),
        repeat=case.get("repeat", 1),
        state=case.get("state") or (run.state if run else "failed"),
        run=case.get("run"),
        verdict=run.status if run else None,
        error=case.get("error"),
        wall_s=case.get("wall_s"),
        limits_missed=tuple(each.limit for each in limits if each.met is False),
        exit_code=exit_code(run) if run else UNREACHABLE,
        values=case_values(run) if run else {},
    )


def case_values(run: Run) -> dict[str, Quantity]:
    """As `quantities` names them; the batch size of a latency run is a parameter, so that it is `latency.p50` in all
    cases and they make one column."""
    found = quantities(run.summary)
    if run.kind != "latency" or len({each.name for each in found.values()}) != 1:
        return found
    return {_OF_ONE_SIZE.sub("latency", key, count=1): each for key, each in found.items()}


def rows_of(kept: KeptExperiment, store: Store) -> list[CaseRow]:
    """Every case as it was done last. A run that was deleted since leaves its parameters."""
    return [case_row(case, _run_of(case, store)) for case in kept.latest]


def _run_of(case: Mapping[str, Any], store: Store) -> Run | None:
    try:
        return store.load(case["run"]) if case.get("run") else None
    except StoreError:
        return None


def _whole(file: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return file.read_bytes().rfind(b"\n") + 1


def _cases(file: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; the last of a killed writer may be half of one."""
    lines = file_bytes(file).splitlines(keepends=True) if is_there(file) else []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        try:
            case = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StoreError(f"{file}: line {number}: not JSON: {error}") from error
        if not isinstance(case, dict) or not isinstance(case.get("name"), str):
            raise StoreError(f"{file}: line {number}: not a case: it has no name")
        yield checked(case, "case", f"{file}: line {number}")
