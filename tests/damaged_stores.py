"""Small stores with a run of every kind, and what can happen to their files: a generator of damages from a seed.

`damages(count, seed)` gives reproducible ones; a `Damage` is applied to a copy of `small_store` and says what it did.
Several may be applied to the same copy."""

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import structs

from charted_runs import records_of, samples_of
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.judge.limits import judge_plan
from inferometer.measure.inputs import Facts
from inferometer.measure.offline import MeasuredCase, latency_summary, throughput_summary
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.record.encoding import environment_from
from inferometer.record.log import LogWriter
from inferometer.record.record import Record
from inferometer.record.summary import Pass, Startup, Summary, Value
from inferometer.record.verdict import Verdict
from inferometer.store.experiments import SweepDefinition, SweepResult, new_experiment
from inferometer.store.folder import new_run
from inferometer.store.save import keep
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Store, open_store

START = datetime(2026, 9, 1, 3, 0, tzinfo=UTC)
INDEX_FILE = "index.sqlite"
PASS = Pass(elapsed_s=10.0, requests=100, input_tokens=51200, output_tokens=12800)
VALID = Verdict(status="valid")


@dataclass(frozen=True)
class SmallStore:
    """What is in one: the runs in whose folders the damages happen, and those that must stay as they are."""

    folder: Path
    victims: tuple[str, ...]
    healthy: tuple[str, ...]
    experiment: str

    def copy(self, to: Path) -> "SmallStore":
        """As it is on disk, with its links and times."""
        shutil.copytree(self.folder, to, symlinks=True)
        return SmallStore(to, self.victims, self.healthy, self.experiment)


def small_store(folder: Path) -> SmallStore:
    """Seven runs that may be damaged, three that must survive, an experiment, a baseline, a calibration, an index."""
    store = open_store(folder)
    keep_curve(curve_of([]), folder)
    with patch("inferometer.store.save.sync"):
        serving = [_serving(store, day) for day in range(4)]
        latency = [_latency(store, 4 + at, (size,)) for at, size in enumerate((1, 2))]
        throughput, startup = _throughput(store, 6), _startup(store, 7)
    partial = _partial(folder, 8)
    experiment = new_experiment(folder, "sweep", "sizes", SweepDefinition(experiment={"axes": {"batch_size": [1, 2]}}))
    for size, run in zip((1, 2), latency, strict=True):
        experiment.add(ExperimentCase(name=f"bs{size}", parameters={"batch_size": size}, run=run))
        store.set_case(run, experiment.id, f"bs{size}")
    experiment.finish(SweepResult(cases={"complete": 2}))
    store.tag(serving[0], ["nightly"])
    store.tag(serving[1], ["nightly"])
    store.set_baseline("main", serving[1])
    store.runs()
    store.close()
    victims = (serving[0], serving[3], latency[0], throughput, startup, partial)
    return SmallStore(folder, victims, (serving[1], serving[2], latency[1]), experiment.id)


def _serving(store: Store, day: int) -> str:
    asked = {
        "target": {"url": ["http://127.0.0.1:8000"], "model": "m"},
        "workload": {"type": "synthetic", "input_tokens": 64, "output_tokens": 8},
        "load": {"type": "poisson", "rate": 100.0},
        "limits": ["ttft p50 < 5s"],
    }
    plan, records = plan_from(asked, where="test"), records_of(60, seed=day)
    facts = Facts(start_at=int(records.scheduled_at[0]))
    summary = summarize(records, plan, facts)
    summary = structs.replace(summary, limits=judge_plan(plan, summary))
    target = {"urls": ["http://127.0.0.1:8000"], "model": "m", "server": "vLLM", "version": "0.24.0"}
    return keep(
        store,
        kind="serving",
        plan=plan.model_dump(mode="json"),
        environment=environment_from(
            {"target": target, "machine": {"cpu": "EPYC", "cores": 8}, "gpus": [{"name": "H200"}]}
        ),
        summary=summary,
        verdict=verdict(summary, facts, plan),
        started=START + timedelta(days=day),
        records=records,
        samples=samples_of(10, 1, 2.0),
        files={"server.log": b"INFO started\n"},
    ).id


def _latency(store: Store, day: int, sizes: tuple[int, ...]) -> str:
    cases = [MeasuredCase(size, 512, 128, 4, f"latency_bs{size}", [0.6, 0.61, 0.62, 0.65]) for size in sizes]
    plan = {"model": "m", "batch_sizes": list(sizes)}
    return _kept(store, day, "latency", plan, latency_summary(cases))


def _throughput(store: Store, day: int) -> str:
    return _kept(store, day, "throughput", {"model": "m"}, throughput_summary([PASS]))


def _startup(store: Store, day: int) -> str:
    ready = Value(value=40.0, unit="s", direction="lower", title="Time to ready")
    summary = Summary(values={"time_to_ready": ready}, startup=Startup(engine="vllm", model="m"))
    return _kept(store, day, "startup", {"server": {"type": "vllm", "model": "m"}}, summary)


def _kept(store: Store, day: int, kind: Any, plan: dict[str, Any], summary: Summary) -> str:
    environment = environment_from({"target": {"model": "m", "server": "vLLM", "version": "0.24.0"}})
    started = START + timedelta(days=day)
    kept = keep(store, kind=kind, plan=plan, environment=environment, summary=summary, verdict=VALID, started=started)
    return kept.id


def _partial(folder: Path, day: int) -> str:
    """Killed in the middle of its load: a plan and a log."""
    made = new_run(folder, START + timedelta(days=day))
    made.write_plan({"name": "killed", "target": {"url": ["http://127.0.0.1:8000"]}, "load": {"rate": 10}})
    log = LogWriter(made.log_path(0))
    for number in range(20):
        log.append(Record(session=number, scheduled_at=10**9 + number * 10**8, outcome="cancelled"))
    log.flush()
    log.close()
    return made.id


# -- damages ----------------------------------------------------------------------------------------------------

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", [], {}, [1], [[]], {"a": 1}, 0, -1, 1.5, -0.0, 1e308, -1e308, 2**53, 2**63, -(2**63) - 1),
    *(2**64, 10**400, float("inf"), float("-inf"), float("nan"), "\x1b[2J", "\ud800", "ü" * 300, ["x", None, 3]),
    *({"value": "x"}, {"p50": []}, [{"name": 1}], "2026-13-45", "inf", "1" * 5000),
)
ODD_CONTENTS: tuple[bytes, ...] = (
    *(b"", b"\n", b"foo", b'"x"', b"null", b"[]", b"{}", b"3", b"true", b"\xff\xfe\x00", b'{"a": "\xff"}', b"[[[["),
    *(b"[" * 5000 + b"]" * 5000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"- " * 3000, b'{"schema": null}'),
    *(b'{"schema": NaN}', b"9" * 5000, b"a: &a [*a]", b"!!python/object:os.system x", b"PAR1", b"PAR1" * 3),
    *(b"\x00" * 4096, b"SQLite format 3\x00" + b"\x00" * 200, b"# schema: inferometer/plan/99\n", b"\xef\xbb\xbf{}"),
    *(b"# schema: x\nfoo: [", b"{" * 40, b"0x10: {1: 2}\n? [a, b]\n: 3\n", b"2026-01-01: 2026-01-01\n"),
)


@dataclass(frozen=True)
class Damage:
    """One thing that happens to one file or folder of a store, the same for the same seed."""

    seed: int

    def apply(self, store: SmallStore) -> str:
        """What was done, for whoever reads the failure."""
        draw = random.Random(self.seed)
        place, do = draw.choices(_PLACES, weights=[weight for weight, _, _ in _PLACES])[0][1:]
        target = place(draw, store)
        if target is None:
            return "nothing"
        return f"{target.relative_to(store.folder)}: {do(draw, target)}"


def damages(count: int, seed: int = 15) -> Iterator[Damage]:
    return (Damage(seed * 1_000_003 + number) for number in range(count))


def _file_of_run(draw: random.Random, store: SmallStore) -> Path | None:
    folder = store.folder / "runs" / draw.choice(store.victims)
    found = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    return draw.choice(found) if found else None


def _json_of_run(draw: random.Random, store: SmallStore) -> Path | None:
    """Where what is read from it is used most."""
    folder = store.folder / "runs" / draw.choice(store.victims)
    names = ("summary.json", "summary.json", "environment.json", "verdict.json", "run.json", "manifest.json")
    found = [folder / name for name in (*names, "marks.json", "shards.json") if (folder / name).is_file()]
    return draw.choice(found) if found else None


def _plan_of_run(draw: random.Random, store: SmallStore) -> Path | None:
    file = store.folder / "runs" / draw.choice(store.victims) / "plan.yaml"
    return file if file.is_file() else None


def _folder_of_run(draw: random.Random, store: SmallStore) -> Path | None:
    folder = store.folder / "runs" / draw.choice(store.victims)
    return folder if folder.is_dir() and not folder.is_symlink() else None


def _file_of_experiment(draw: random.Random, store: SmallStore) -> Path | None:
    found = sorted(path for path in (store.folder / "experiments" / store.experiment).iterdir() if path.is_file())
    return draw.choice(found) if found else None


def _calibration(draw: random.Random, store: SmallStore) -> Path | None:
    return next((file for file in sorted((store.folder / "calibration").glob("*.json")) if file.is_file()), None)


def _index(draw: random.Random, store: SmallStore) -> Path | None:
    file = store.folder / INDEX_FILE
    return file if file.is_file() else None


def _any_way(draw: random.Random, file: Path) -> str:
    return draw.choice(_WAYS)(draw, file)


def _truncated(draw: random.Random, file: Path) -> str:
    content = file.read_bytes()
    kept = draw.randrange(len(content) + 1)
    file.write_bytes(content[:kept])
    return f"truncated to {kept} of {len(content)} bytes"


def _flipped(draw: random.Random, file: Path) -> str:
    content = bytearray(file.read_bytes())
    for _ in range(draw.choice((1, 3, 40))):
        if content:
            content[draw.randrange(len(content))] = draw.randrange(256)
    file.write_bytes(content)
    return "bytes changed"


def _other_content(draw: random.Random, file: Path) -> str:
    content = draw.choice(ODD_CONTENTS)
    file.write_bytes(content)
    return f"contains {content[:30]!r}, {len(content)} bytes"


def _garbage(draw: random.Random, file: Path) -> str:
    file.write_bytes(draw.randbytes(draw.choice((1, 100, 10_000))))
    return "random bytes"


def _missing(draw: random.Random, file: Path) -> str:
    file.unlink()
    return "deleted"


def _became_folder(draw: random.Random, file: Path) -> str:
    file.unlink()
    file.mkdir()
    return "became a folder"


def _loops(draw: random.Random, file: Path) -> str:
    _remove(file)
    file.symlink_to(file.name)
    return "became a link to itself"


def _dangles(draw: random.Random, file: Path) -> str:
    _remove(file)
    file.symlink_to("nowhere/at/all")
    return "became a link to nothing"


def _pipe(draw: random.Random, file: Path) -> str:
    """Whoever opens it without a look waits for ever."""
    _remove(file)
    os.mkfifo(file)
    return "became a pipe"


def _became_file(draw: random.Random, folder: Path) -> str:
    _remove(folder)
    folder.write_bytes(draw.choice(ODD_CONTENTS))
    return "became a file"


def _emptied(draw: random.Random, folder: Path) -> str:
    _remove(folder)
    folder.mkdir()
    return "emptied"


def _only_one_file_left(draw: random.Random, folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if not files:
        return "empty as before"
    kept = draw.choice(files)
    for path in files:
        if path != kept:
            path.unlink()
    return f"only {kept.name} left"


def _changed_inside(draw: random.Random, file: Path) -> str:
    """A value deep in a JSON or YAML file becomes an odd one, or goes: what shape checks are for. The manifest often
    goes too, so that its sizes do not tell."""
    import yaml

    is_yaml = file.suffix == ".yaml"
    try:
        text = file.read_bytes().decode()
        content = yaml.safe_load(text) if is_yaml else json.loads(text)
    except (ValueError, yaml.YAMLError, RecursionError):
        return _other_content(draw, file)
    changes = [_change_one(draw, content) for _ in range(draw.choice((1, 1, 2, 5)))]
    changed = yaml.dump(content, allow_unicode=False) if is_yaml else json.dumps(content)
    first_line = text.partition("\n")[0] + "\n" if is_yaml and text.startswith("#") else ""
    file.write_bytes((first_line + changed).encode("utf-8", "surrogatepass"))
    manifest = file.parent / "manifest.json"
    if draw.random() < 0.9 and manifest.is_file() and file != manifest:
        manifest.unlink()
    return "; ".join(changes)


def _change_one(draw: random.Random, content: Any) -> str:
    """Walks down to a random place."""
    at, path = content, ""
    while isinstance(at, dict | list) and at:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        path += f"[{key!r}]"
        if not (isinstance(at[key], dict | list) and at[key]) or draw.random() < 0.25:
            return _replace_one(draw, at, key, path)
        at = at[key]
    return "nothing in it to change"


def _replace_one(draw: random.Random, container: Any, key: Any, path: str) -> str:
    if draw.random() < 0.2:
        del container[key]
        return f"{path} is gone"
    container[key] = value = deepcopy(draw.choice(ODD_VALUES))  # the next change may be inside of it
    return f"{path} is {str(value)[:40]!r}"


def _broken_pages(draw: random.Random, file: Path) -> str:
    """The header stays, so that only a question to some table comes upon it."""
    content = bytearray(file.read_bytes())
    for _ in range(draw.choice((1, 10, 200)) if len(content) > 100 else 0):
        content[draw.randrange(100, len(content))] = draw.randrange(256)
    file.write_bytes(content)
    _without_log(file)
    return "bytes of its pages changed"


_OTHER_TABLES = (
    "drop table runs",
    "drop table tags",
    "drop table quantities",
    "alter table runs drop column headline",
    "update runs set headline = 'x'",
    "update runs set headline = '[]'",
    "update runs set location = 'file://'",
    "update runs set requests = 'many'",
    "update runs set state = 3",
    "pragma user_version = 0",
    "pragma user_version = 1",
    "pragma user_version = 2",
    "update runs set started_as = x'ff'",
)


def _other_tables(draw: random.Random, file: Path) -> str:
    wrong = draw.choice(_OTHER_TABLES)
    try:
        with closing(sqlite3.connect(file)) as db, db:
            db.execute(wrong)
    except sqlite3.Error:  # damaged already
        return _other_content(draw, file)
    return wrong


def _without_log(file: Path) -> None:
    for tail in ("-wal", "-shm"):
        file.with_name(file.name + tail).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


Place = Callable[[random.Random, SmallStore], Path | None]
Way = Callable[[random.Random, Path], str]
_WAYS: tuple[Way, ...] = (
    *(_truncated, _flipped, _other_content, _other_content, _garbage, _missing, _became_folder, _loops, _dangles),
    _pipe,
)
_PLACES: tuple[tuple[int, Place, Way], ...] = (
    (40, _json_of_run, _changed_inside),
    (10, _plan_of_run, _changed_inside),
    (30, _file_of_run, _any_way),
    (4, _folder_of_run, _became_file),
    (2, _folder_of_run, _loops),
    (2, _folder_of_run, _dangles),
    (2, _folder_of_run, _pipe),
    (2, _folder_of_run, _emptied),
    (4, _folder_of_run, _only_one_file_left),
    (6, _file_of_experiment, _any_way),
    (6, _file_of_experiment, _changed_inside),
    (4, _calibration, _any_way),
    (4, _calibration, _changed_inside),
    (4, _index, _any_way),
    (4, _index, _broken_pages),
    (6, _index, _other_tables),
)
