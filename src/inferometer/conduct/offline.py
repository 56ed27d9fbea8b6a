"""Conducts offline runs: an engine in this process runs batches or a whole workload, and the result is stored as one
run."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from inferometer.documents.json_text import json_value
from inferometer.errors import InferometerError, PlanError, TargetError
from inferometer.measure.offline import (
    MeasuredCase,
    latency_summary,
    latency_verdict,
    throughput_summary,
    throughput_verdict,
)
from inferometer.observe.environment import environment
from inferometer.plan.model import Plan, Server
from inferometer.plan.offline import BatchShape, EngineChoice, LatencyPlan, ThroughputPlan, check_context, written
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run, RunKind, State
from inferometer.record.summary import Pass, Summary
from inferometer.record.verdict import Verdict
from inferometer.store.save import keep
from inferometer.store.store import Place, Store, open_store
from inferometer.target.lock import Claim, gpu_claims, held
from inferometer.target.offline import (
    ENGINES,
    BatchProgress,
    EngineFacts,
    EngineHolder,
    EngineSettings,
    OfflineEngine,
    one_line,
    open_engine,
)
from inferometer.workload.session import Request, Workload, WorkloadContext, workload_of
from inferometer.workload.synthetic import VOCABULARY, as_batch, random_batches, requests_of

MOST_LOG = 4 * 2**20  # bytes kept of the engine's log, counted from the end
NONCE = "offline"  # constant: an engine that starts with the run has no old cache
BATCH_AT_ONCE = 16  # prompts per call of transformers in a throughput run, unless `batch_size` is set

Open = Callable[[str, EngineSettings], OfflineEngine]
Notes = Callable[[str], None]
Watch = Callable[[BatchProgress], None]
Measured = tuple[Summary, Verdict, State]  # summary, verdict, and whether it ran to its end
MeasureEngine = Callable[[EngineHolder], Measured]


def _silent(_value: object) -> None:
    """Ignores all events."""


def offline(
    plan: LatencyPlan | ThroughputPlan,
    *,
    store: Place = None,
    watch: Watch = _silent,
    notes: Notes = _silent,
    open_engine: Open = open_engine,
    wait_for_target_s: float = 0.0,
) -> Run:
    """Run the plan on an engine in this process, and store the run."""
    kept_in = open_store(store)
    kept_in.check_writable()
    kind: RunKind
    if isinstance(plan, LatencyPlan):
        kind, measure = "latency", _latency(plan, watch, notes)
    else:
        plan = _with_batch_size(plan, notes)
        kind, measure = "throughput", _throughput(plan, watch, notes)
    started = datetime.now(UTC)
    with _held(plan.on, wait_for_target_s, notes), _running_engine(plan.on, watch, open_engine) as (harness, log):
        facts = harness.facts
        summary, judged, state = measure(harness)
    return _kept(kept_in, kind, plan, facts, summary, judged, started, state, log())


# -- latency -------------------------------------------------------------------------------------------------


def _latency(plan: LatencyPlan, watch: Watch, notes: Notes) -> MeasureEngine:
    """Every batch size of the plan on one engine; a failed case is a result, and the others continue."""
    check_context(plan, known_context(plan.on), "the model's context")

    def measure(harness: EngineHolder) -> Measured:
        check_context(plan, harness.facts.max_model_len, "the model's context")
        cases, state = _measured_cases(plan, harness, watch, notes)
        summary = latency_summary(cases, harness.starts, plan.confidence)
        return summary, latency_verdict(summary), state

    return measure


def _measured_cases(
    plan: LatencyPlan, harness: EngineHolder, watch: Watch, notes: Notes
) -> tuple[list[MeasuredCase], State]:
    """Ctrl-C ends it with the results so far; if an engine cannot be revived, all remaining cases fail."""
    cases: list[MeasuredCase] = []
    dead: str | None = None
    for number, shape in enumerate(plan.shapes):
        case = MeasuredCase(*shape, plan.iters, plan.name_of(shape), n=plan.on.n)
        cases.append(case)
        if dead is not None:
            case.state, case.error = "failed", f"not measured: {dead}"
            continue
        try:
            _measure_case(case, shape, plan, harness, partial(_case_progress, watch, case, number, len(plan.shapes)))
        except KeyboardInterrupt:
            case.state, case.error = (
                "interrupted",
                f"interrupted after {len(case.latencies)} of {case.iters} iterations",
            )
            return _without_empty(cases), "interrupted"
        except Exception as error:  # any error of the engine, most often out of memory
            case.state, case.error = "failed", one_line(error)
            notes(f"{case.text} failed: {case.error}")
            dead = _revived(harness, notes)
    return cases, "complete" if any(case.measured for case in cases) else "failed"


def _without_empty(cases: list[MeasuredCase]) -> list[MeasuredCase]:
    """A case that was interrupted before its first iteration has no result; if no case has one, nothing is kept."""
    kept = [case for case in cases if case.latencies or case.state == "failed"]
    if not any(case.measured for case in kept):
        raise KeyboardInterrupt
    return kept


def _revived(harness: EngineHolder, notes: Notes) -> str | None:
    """Why the engine is lost for good; `None` if it runs."""
    try:
        if note := harness.revived():
            notes(note)
    except InferometerError as error:
        notes(error.message)
        return error.message
    return None


def _measure_case(
    case: MeasuredCase, shape: BatchShape, plan: LatencyPlan, harness: EngineHolder, on_progress: Callable[..., None]
) -> None:
    make = random_batches(*shape, plan.on.seed, harness.facts.vocabulary)
    lengths = [shape.output_len] * shape.batch_size
    for warm in range(plan.warmup):
        on_progress("warmup", warm, plan.warmup)
        harness.timed(make(warm), lengths)
    if plan.on.profile is not None:
        on_progress("profile", 0, 1)
        harness.profiled(Path(plan.on.profile), make(plan.warmup), lengths)
    for number in range(plan.iters):
        on_progress("measure", number, plan.iters)
        timed = harness.timed(make(plan.warmup + 1 + number), lengths)
        case.latencies.append(timed.elapsed_s)
        case.output_tokens = sum(answer.output_tokens for answer in timed.answers)


def _case_progress(
    watch: Watch, case: MeasuredCase, number: int, cases: int, phase: Any, part: int, parts: int
) -> None:
    last = case.latencies[-1] if case.latencies else None
    watch(BatchProgress(phase, case.text, part, parts, number, cases, last))


def known_context(on: EngineChoice) -> int | None:
    """The maximum context, if it is known before the engine starts: from its settings, or from the model's folder."""
    if isinstance(requested := on.args.get("max_model_len"), int):
        return requested
    config = Path(on.model or "") / "config.json"
    if on.engine == "simulator" or not on.model or not config.is_file():
        return None
    try:
        settings = json_value(config.read_text(encoding="utf-8"))[0]
    except (ValueError, OSError):
        return None  # the engine will report the error
    room = settings.get("max_position_embeddings") if isinstance(settings, dict) else None
    return room if isinstance(room, int) else None


# -- throughput ----------------------------------------------------------------------------------------------


def _throughput(plan: ThroughputPlan, watch: Watch, notes: Notes) -> MeasureEngine:
    """A whole workload on one engine: requests and tokens over the total time."""
    workload_plan = _workload_plan(plan)
    requests_of(_workload(workload_plan, WorkloadContext(plan.on.model)), 0, 1)  # reports a mistake before a long start

    def measure(harness: EngineHolder) -> Measured:
        warm, requests = _prompts(plan, workload_plan, harness.facts, notes)
        passes, state = _passes(plan, harness, warm, requests, watch, notes)
        summary = throughput_summary(passes, plan.confidence)
        wanted = len(passes) * plan.on.n * sum(request.output_tokens or 0 for request in requests)
        return summary, throughput_verdict(summary, wanted), state

    return measure


def _with_batch_size(plan: ThroughputPlan, notes: Notes) -> ThroughputPlan:
    """transformers batches whatever one call gets, and a whole dataset would not fit."""
    if plan.on.engine != "transformers" or "batch_size" in plan.on.args:
        return plan
    notes(f"transformers gets {BATCH_AT_ONCE} prompts at a time; --args batch_size=N for another number")
    args = {**plan.on.args, "batch_size": BATCH_AT_ONCE}
    return replace(plan, on=replace(plan.on, args=args))


def _workload_plan(plan: ThroughputPlan) -> Plan:
    target = {"target": {"api": "chat"}} if plan.on.chat else {}
    return plan_from({"workload": dict(plan.workload), "seed": plan.on.seed, **target}, where="offline throughput")


def _workload(workload_plan: Plan, context: WorkloadContext) -> Workload:
    return workload_of(workload_plan.workload, workload_plan.seed, 0, NONCE, context)


def _prompts(
    plan: ThroughputPlan, workload_plan: Plan, facts: EngineFacts, notes: Notes
) -> tuple[list[Request], list[Request]]:
    """Prompts for the warm-up and for the measurement: different sessions of one workload."""
    if getattr(workload_plan.workload, "prompt_as", None) == "token_ids" and facts.vocabulary is not None:
        fitting = workload_plan.workload.model_copy(update={"vocabulary": min(facts.vocabulary, VOCABULARY)})
        workload_plan = workload_plan.model_copy(update={"workload": fitting})
    context = WorkloadContext(facts.model, max_model_len=facts.max_model_len, note=notes)
    made = _workload(workload_plan, context)
    return requests_of(made, plan.num_prompts, plan.warmup), requests_of(made, 0, plan.num_prompts)


def _passes(
    plan: ThroughputPlan,
    harness: EngineHolder,
    warm: list[Request],
    requests: list[Request],
    watch: Watch,
    notes: Notes,
) -> tuple[list[Pass], State]:
    passes: list[Pass] = []
    what = f"{len(requests):,} prompts"
    try:
        if warm:
            watch(BatchProgress("warmup", what, 0, plan.repeats))
            harness.timed(*as_batch(warm, plan.on.chat))
        for number in range(plan.repeats):
            last = passes[-1].elapsed_s if passes else None
            watch(BatchProgress("measure", what, number, plan.repeats, last_s=last))
            passes.append(_pass(harness, requests, plan.on.chat))
        if plan.on.profile is not None:
            watch(BatchProgress("profile", what, 0, 1))
            harness.profiled(Path(plan.on.profile), *as_batch(requests, plan.on.chat))
    except KeyboardInterrupt:
        if not passes:
            raise
        return passes, "interrupted"
    except Exception as error:  # any error of the engine
        if not passes:
            raise TargetError(f"the engine failed: {one_line(error)}") from error
        notes(f"the engine failed after {len(passes)} of {plan.repeats} passes: {one_line(error)}")
        return passes, "failed"
    return passes, "complete"


def _pass(harness: EngineHolder, requests: list[Request], chat: bool) -> Pass:
    timed = harness.timed(*as_batch(requests, chat))
    input_tokens = sum(answer.input_tokens for answer in timed.answers)
    output_tokens = sum(answer.output_tokens for answer in timed.answers)
    return Pass(
        elapsed_s=timed.elapsed_s, requests=len(requests), input_tokens=input_tokens, output_tokens=output_tokens
    )


# -- both ----------------------------------------------------------------------------------------------------


def _held(on: EngineChoice, wait_s: float, notes: Notes) -> AbstractContextManager[None]:
    """Locks the GPUs that the engine will use; virtual time needs no lock."""
    claims: list[Claim] = [] if on.engine == "simulator" else gpu_claims(Server(type="vllm"), os.environ)
    return held(claims, f"offline {on.engine} {on.model}", wait_s, notes)


@contextmanager
def _running_engine(
    on: EngineChoice, watch: Watch, open_engine: Open
) -> Iterator[tuple[EngineHolder, Callable[[], bytes]]]:
    """The running engine; and a function that reads its output, also after it is closed."""
    if on.engine not in ENGINES:
        raise PlanError(f"--engine: must be one of {', '.join(ENGINES)}, got {on.engine}")
    profile = None if on.profile is None else Path(on.profile)
    args, adapter = dict(on.args), on.adapter
    settings = EngineSettings(on.model, on.seed, on.n, on.beam_search, on.detokenize, profile, args, adapter)
    with tempfile.TemporaryDirectory(prefix="inferometer-offline-") as folder:
        log = Path(folder) / "engine.log"
        watch(BatchProgress("load", f"{on.engine} {on.model or ''}".strip()))
        os.environ.update(on.env)  # the engine runs in this process
        harness = EngineHolder(lambda: open_engine(on.engine, settings), log)
        kept: list[bytes] = []
        try:
            yield harness, lambda: kept[0] if kept else _end_of(log)
        finally:
            harness.close()
            kept.append(_end_of(log))


def _end_of(log: Path) -> bytes:
    return log.read_bytes()[-MOST_LOG:] if log.exists() else b""


def _kept(
    store: Store,
    kind: RunKind,
    plan: LatencyPlan | ThroughputPlan,
    facts: EngineFacts,
    summary: Summary,
    judged: Verdict,
    started: datetime,
    state: State,
    log: bytes,
) -> Run:
    where = structs.replace(environment(Plan(), facts.measured), hardware=facts.device)
    files = {"engine.log": log} if log.strip() else {}
    return keep(
        store,
        kind=kind,
        plan=written(plan),
        environment=where,
        summary=summary,
        verdict=judged,
        started=started,
        state=state,
        files=files,
    )
