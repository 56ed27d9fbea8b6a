"""The work of a launcher pod: reads a plan from a file, measures it into its own folder on the volume; and later, as a
collector pod, prints that folder."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from inferometer.conduct.run import run
from inferometer.errors import InferometerError, PlanError, StoreError
from inferometer.judge.limits import exit_code
from inferometer.load.shard import Watch
from inferometer.plan.model import Plan
from inferometer.plan.reading import file_text, mapping_in, plan_from
from inferometer.record.files import replacing, translated_errors
from inferometer.record.run import Run
from inferometer.scale.kubernetes.carrying import PIECE_BYTES, Cursor, printed
from inferometer.vocabulary import attribute_at

ABOUT = "worker.json"
STORE = "store"
INFEROMETER = "inferometer"
OTHERS = "inferometer.conduct.harness:run_harness"
TOOL_FOLDER = "INFEROMETER_TOOL_FOLDER"  # set where another container of the pod has the tool
TOOL = "inferometer.exchange.harness.tool_container:tool_container"
INDEX_VARIABLES = ("JOB_COMPLETION_INDEX", "INFEROMETER_INDEX")
Notes = Callable[[str], None]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the work in a results folder."""

    key: str  # of the plan, so that results of another plan are not mistaken for its own
    launch: str = ""  # the Job of the pod: its pods do not repeat work at which one of them failed
    state: str = "running"  # finally that of the run, or `error`
    run: str | None = None
    exit_code: int = 0
    error: str | None = None
    pod: str | None = None
    node: str | None = None
    index: int = 0
    pods: int = 1


def index_in(environ: Mapping[str, str]) -> int:
    for name in INDEX_VARIABLES:
        if environ.get(name):
            if not environ[name].isdigit():
                raise PlanError(f"{name} must be a whole number, got {environ[name]}")
            return int(environ[name])
    return 0


def results_folder(results: Path, index: int, pods: int) -> Path:
    """llm-d's names: `_1` to `_N` if there are several pods."""
    return results if pods == 1 else results.with_name(f"{results.name}_{index + 1}")


def work(
    plan_file: Path,
    results: Path,
    pods: int = 1,
    *,
    tool: str = INFEROMETER,
    stack: str | None = None,
    watch: Watch | None = None,
    notes: Notes | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Work, Run | None]:
    """Run the plan, see `_work`. However that ends, a second container of the pod is stopped."""
    try:
        return _work(plan_file, results, pods, tool, stack, watch, notes or (lambda _text: None), environ)
    finally:
        if environ.get(TOOL_FOLDER):
            attribute_at(TOOL)(environ).end()


def _work(
    plan_file: Path,
    results: Path,
    pods: int,
    tool: str,
    stack: str | None,
    watch: Watch | None,
    notify: Notes,
    environ: Mapping[str, str],
) -> tuple[Work, Run | None]:
    """Run the plan, unless its results exist already. Every pod has its own seed: the same requests from all of them
    would be answered from the server's caches. `stack` is a namespace whose replicas the first pod watches."""
    index = index_in(environ)
    if index >= pods:
        raise PlanError(f"the pod's number must be below {pods}, got {index}")
    text = file_text(plan_file)
    folder = results_folder(results, index, pods)
    key = plan_key(text)
    before = read_work(folder)
    if before is not None and before.key != key:
        hint = "choose another id: LLMDBENCH_RUN_EXPERIMENT_ID; or remove them: inferometer k8s clean --data"
        raise StoreError(f"{folder}: contains results of another plan", hint)
    if before is not None and before.state == "complete":
        notify(f"the results already exist: run {before.run}")
        return before, None
    launch = environ.get("INFEROMETER_LAUNCH", "")
    if before is not None and launch and before.launch == launch:
        notify(f"an earlier pod of this Job did not finish ({before.state}): nothing is repeated")
        return before, None
    about = Work(
        key=key,
        launch=launch,
        pod=environ.get("INFEROMETER_POD"),
        node=environ.get("INFEROMETER_NODE"),
        index=index,
        pods=pods,
    )
    with translated_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _write(folder, about)
    plan = _seeded(plan_from(mapping_in(text, str(plan_file))[0], where=str(plan_file)), index)
    try:
        with _stack_watched(stack if index == 0 else None, results, notify):
            made = _generator(tool)(plan, store=folder / STORE, watch=watch, notes=notify)
    except InferometerError as error:
        _write(folder, msgspec.structs.replace(about, state="error", error=error.message, exit_code=error.exit_code))
        raise
    done = msgspec.structs.replace(about, state=made.state, run=made.id, exit_code=exit_code(made))
    _write(folder, done)
    return done, made


@contextmanager
def _stack_watched(namespace: str | None, results: Path, notify: Notes) -> Iterator[None]:
    """As the client does if it waits; missing rights to watch the stack do not prevent the measurement."""
    if namespace is None:
        yield
        return
    from inferometer.scale.kubernetes.client import open_cluster
    from inferometer.scale.kubernetes.stack_watch import StackWatch, processed

    try:
        cluster = open_cluster()
    except InferometerError as error:
        notify(f"the stack could not be watched: {error.message}")
        yield
        return
    with cluster, StackWatch(cluster, namespace) as watch:
        yield
    if watch.trouble:
        notify(f"the stack could not be watched: {watch.trouble}")
    watch.write(processed(results))


def _generator(tool: str) -> Callable[..., Run]:
    """The function that sends the load: ours, or another tool that is installed in the image."""
    if tool == INFEROMETER:
        return run
    other: Callable[..., Run] = attribute_at(OTHERS)
    return partial(_by_other, other, tool)


def _by_other(run_harness: Callable[..., Run], tool: str, plan: Plan, **settings: Any) -> Run:
    return run_harness(plan, tool, **settings)


def plan_key(text: str) -> str:
    """The key of what is measured. The sampled metrics are excluded: the pods of a stack have other addresses after a
    restart, and the results belong to the same plan."""
    plan, _ = mapping_in(text, "plan")
    observed = plan.get("observe")
    if isinstance(observed, dict):
        plan = {**plan, "observe": {name: value for name, value in observed.items() if name != "metrics"}}
    kept = {name: value for name, value in plan.items() if value != {}}
    return hashlib.sha256(msgspec.json.encode(kept, order="deterministic")).hexdigest()[:16]


def _seeded(plan: Plan, index: int) -> Plan:
    return plan.model_copy(update={"seed": plan.seed + index}) if index else plan


def read_work(folder: Path) -> Work | None:
    try:
        return msgspec.json.decode((folder / ABOUT).read_bytes(), type=Work)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"{folder / ABOUT}: cannot be read: {error}") from error


def _write(folder: Path, about: Work) -> None:
    with replacing(folder / ABOUT) as draft:
        draft.write_bytes(msgspec.json.encode(about))


def print_results(results: Path, start: Cursor, most: int = PIECE_BYTES) -> int:
    """Prints a piece of the folders of all pods, for a collector that reads our log; returns the number of folders."""
    name = results.name
    with translated_errors(results.parent):
        there = (
            sorted(path.name for path in results.parent.iterdir() if path.is_dir()) if results.parent.is_dir() else []
        )
    names = [other for other in there if other == name or _of_pod(other, name)]
    for line in printed(results.parent, names, start, most):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return len(names)


def _of_pod(folder: str, name: str) -> bool:
    return folder.startswith(f"{name}_") and folder.removeprefix(f"{name}_").isdigit()
