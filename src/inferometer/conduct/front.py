"""The functions of `import inferometer`: the commands, with a plan made from keywords if none is given."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from inferometer.conduct.ab import Compared, Design
from inferometer.conduct.ab import ab as compare_in_turns
from inferometer.conduct.compare import check_run, compare_runs, runs_named
from inferometer.conduct.offline import offline as measure_offline
from inferometer.conduct.prepare import begin, prepare, resume, unfinished
from inferometer.conduct.report import report as write_report
from inferometer.conduct.run import Notes
from inferometer.conduct.run import run as measure
from inferometer.conduct.run import simulate as simulated
from inferometer.conduct.search import Searched, own_start
from inferometer.conduct.search import search as search_load
from inferometer.conduct.sweep import Swept
from inferometer.conduct.sweep import sweep as do_cases
from inferometer.errors import PlanError, StoreError
from inferometer.exchange.exporting import write
from inferometer.exchange.importing.importer import import_file as import_results
from inferometer.judge.check_result import CheckResult
from inferometer.judge.compare import Comparison
from inferometer.judge.compare import compare as compare_groups
from inferometer.judge.search import WITHIN, SearchBounds
from inferometer.load.shard import Watch
from inferometer.plan.model import Plan, Server
from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan
from inferometer.plan.opening import open_plan
from inferometer.plan.overrides import Flags
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping
from inferometer.record.run import Run
from inferometer.store.folder import load_run as run_in
from inferometer.store.store import Place, open_store
from inferometer.vocabulary import percent, seconds

PlanLike = Plan | Mapping[str, Any] | str | Path | None
KEYWORDS = tuple(field.name for field in fields(Flags) if field.name != "defaults")
_LISTS = ("url", "limit", "header", "output")  # lists for which a single value may be given


def make_plan(plan: PlanLike = None, *, settings: Sequence[str] = (), **flags: Any) -> Plan:
    """A plan from a file, a profile's name, a mapping or another plan, changed by flags as on the command line (`url`,
    `model`, `rate`, `concurrency`, `requests`, `duration`, `input_tokens`, `output_tokens`, `limit` and the others of
    `KEYWORDS`) and by `settings` such as `"load.rate=5"`. Without URL and server the simulator is measured."""
    given = _flags(flags)
    if isinstance(plan, str | Path):
        made = open_plan([str(plan)], settings, given).plan
    else:
        mapping = to_mapping(plan) if isinstance(plan, Plan) else dict(plan or {})
        made = plan_from(mapping, settings, "the plan", given)
    if made.target.url or made.server is not None:
        return made
    return made.model_copy(update={"server": Server(type="simulator")})


def _flags(given: Mapping[str, Any]) -> Flags:
    unknown = [name for name in given if name not in KEYWORDS]
    if unknown:
        raise PlanError([f"no keyword {name!r}{_meant(name)}" for name in unknown], f"there are {', '.join(KEYWORDS)}")
    typed = {name: value for name, value in given.items() if value is not None}
    typed |= {name: [typed[name]] for name in _LISTS if isinstance(typed.get(name), str)}
    return Flags(**typed)


def _meant(name: str) -> str:
    close = get_close_matches(name, KEYWORDS, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def run(
    plan: PlanLike = None,
    *,
    store: Place = None,
    notes: Notes | None = None,
    watch: Watch | None = None,
    settings: Sequence[str] = (),
    **flags: Any,
) -> Run:
    """Measure a server: `inferometer.run(url="http://localhost:8000", rate=10, duration="60s")`. The run is stored."""
    return measure(make_plan(plan, settings=settings, **flags), store=store, notes=notes, watch=watch)


def simulate(plan: PlanLike = None, *, settings: Sequence[str] = (), **flags: Any) -> Run:
    """The same plan against the simulator in virtual time: an hour of load in seconds; not stored."""
    return simulated(make_plan(plan, settings=settings, **flags))


def search(
    plan: PlanLike = None,
    *,
    over: Literal["rate", "concurrency"] = "rate",
    step: str | float | None = None,
    within: str | float | None = None,
    steps: int = 12,
    budget: str | float | None = None,
    least: float | None = None,
    most: float | None = None,
    store: Place = None,
    notes: Notes | None = None,
    settings: Sequence[str] = (),
    **flags: Any,
) -> Searched:
    """Find the highest load that meets the plan's limits; every load tried is a run of its own. It starts where a probe
    of two seconds suggests, or at the given `rate` (or `concurrency`)."""
    made = make_plan(plan, settings=settings, **flags)
    bounds = SearchBounds(
        start=None if flags.get(over) is None else own_start(made, over),
        least=least or 0.0,
        most=float("inf") if most is None else most,
        within=percent(within) if isinstance(within, str) else within or WITHIN,
        any_width=budget is not None and within is None,
        steps=steps,
        budget_s=float("inf") if budget is None else seconds(budget),
        whole=over == "concurrency",
    )
    step_s = None if step is None else seconds(step)
    return search_load(made, bounds, axis=over, step_s=step_s, store=store, notes=notes)


def sweep(
    experiment: str | Path | Mapping[str, Any], *, store: Place = None, notes: Notes | None = None, fresh: bool = False
) -> Swept:
    """Run an experiment: every case is a run of its own. An unfinished experiment is continued, unless `fresh`."""
    prepared = prepare(experiment)
    kept = None if fresh else unfinished(prepared, store)
    folder = begin(prepared, store) if kept is None else resume(prepared, kept)
    return do_cases(prepared, folder, store=store, notes=notes)


def ab(
    a: PlanLike, b: PlanLike, *, design: Design | None = None, store: Place = None, notes: Notes | None = None
) -> Compared:
    """Compare two plans alternately, block by block, so that a drift of the machine affects both."""
    return compare_in_turns(make_plan(a), make_plan(b), design, store=store, notes=notes)


def offline(
    *,
    engine: str = "simulator",
    model: str | None = None,
    batch_sizes: Sequence[int] | None = None,
    input_len: int = 512,
    output_len: int = 128,
    requests: int | None = None,
    settings: Mapping[str, Any] | None = None,
    store: Place = None,
) -> Run:
    """Measure an engine in this process: the latency of batches, or with `requests` the throughput of that many
    requests."""
    on = EngineChoice(engine, model=model, args=dict(settings or {}))
    if requests is None:
        sizes = tuple(batch_sizes or (1, 8))
        return measure_offline(LatencyPlan(on, sizes, (input_len,), (output_len,)), store=store)
    lengths = {"input_tokens": input_len, "output_tokens": output_len}
    return measure_offline(ThroughputPlan(on, workload=lengths, num_prompts=requests), store=store)


def load_run(run: str | Path = "latest", *, store: Place = None) -> Run:
    """A stored run by its id or the start of one, its name, `latest` or a tag; or any run folder by its path."""
    if isinstance(run, Path) or Path(run).is_dir():
        return run_in(run)
    return open_store(store).load(run)


def compare(before: Run | str, after: Run | str, *, store: Place = None, **options: Any) -> Comparison:
    """Compare two runs (or `"a1,a2,a3"`, tags, `"baseline:NAME"`), measure by measure: better, worse, same or unclear.
    Runs that are not stored, such as those of `simulate`, are compared without a history."""
    if any(isinstance(side, Run) and side.folder is None for side in (before, after)):
        sides = [[side] if isinstance(side, Run) else runs_named(side, store) for side in (before, after)]
        return compare_groups(sides[0], sides[1], **options)
    return compare_runs(_name(before), _name(after), store, **options)


def check(run: Run | str = "latest", *, against: str = "history", store: Place = None, **options: Any) -> CheckResult:
    """Check whether this run is worse than earlier ones."""
    return check_run(_name(run), store, against=against, **options)


def report(*runs: Run | str, output: str | Path | None = None, store: Place = None) -> list[Path]:
    """Write runs or an experiment as one file: `.html`, `.md`, `.csv` or `.xlsx` by the suffix of `output`."""
    names = [_name(run) for run in runs] or ["latest"]
    return write_report(names, Path(output) if output else None, store)


def import_file(path: str | Path, *, store: Place = None, **options: Any) -> list[Run]:
    """Import results of another tool as stored runs; for a file that the store already has, returns its runs."""
    kept_in = open_store(store)
    imported = import_results(path, kept_in, **options)
    return imported.runs or [kept_in.load(name) for name in imported.before]


def export(run: Run | Sequence[Run], format: str, path: str | Path, *, detailed: bool = False) -> list[Path]:  # noqa: A002 - the word that users know
    """Write runs in another tool's format; returns the written files."""
    runs = [run] if isinstance(run, Run) else list(run)
    return write(format, runs, Path(path), detailed=detailed)[0]


def _name(run: Run | str) -> str:
    if isinstance(run, str):
        return run
    if run.folder is None:
        raise StoreError(f"the run {run.id!r} is not stored", "inferometer.run stores its runs; simulate does not")
    return run.id
