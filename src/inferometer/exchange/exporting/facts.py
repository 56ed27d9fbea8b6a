"""What exporters need of a run besides its numbers and its subject: rate, lengths, duration. A run of another tool may
have none of it: then None, never a default."""

from datetime import UTC, datetime

from pydantic import ValidationError

from inferometer.documents.document import Document
from inferometer.measure.inputs import Facts
from inferometer.measure.rosetta.definition import SeenRequests
from inferometer.measure.server import SourceSeries, all_series
from inferometer.measure.values import quantities
from inferometer.measure.window import warmup_end
from inferometer.plan.model import Lengths, Plan
from inferometer.record.columns import Records
from inferometer.record.run import Run


def label_of(run: Run, name: str | None) -> str | None:
    """A name in a file of another tool; of a predicted run also by what, because nothing else there would say so."""
    if not run.environment.known_target.is_predicted:
        return name
    return " · ".join(filter(None, (name, run.subject.engine_text)))


def gpu_text(run: Run) -> str | None:
    """`NVIDIA H200 x 1`, as other tools write it; a mix is spelled out."""
    return ", ".join(f"{name} x {count}" for name, count in run.subject.accelerator_counts.items()) or None


def traffic_of(run: Run) -> Document:
    """The plan of the one class, or of the first of several: with its defaults if it is ours, for they were used."""
    if (plan := _own_plan(run)) is not None:
        return Document(plan.classes[0].model_dump(mode="json"))
    return run.plan.classes[0] if run.plan.classes else run.plan


def server_of(run: Run) -> Document:
    """What the plan starts, with its defaults if it is ours."""
    plan = _own_plan(run)
    if plan is None or plan.server is None:
        return run.plan.server
    return Document(plan.server.model_dump(mode="json"))


def _own_plan(run: Run) -> Plan | None:
    """The plan of a run of ours; what another tool has in its place may be read as one by accident."""
    return run.plan.checked if run.source is None and run.kind == "serving" else None


def strategy_of(run: Run) -> str | None:
    """The routing policy in front of a fleet."""
    plan = _own_plan(run)
    if plan is not None and plan.server is not None:
        return plan.server.policy
    return run.plan.server.section("router").text("policy")


def load_of(run: Run) -> Document:
    return traffic_of(run).section("load")


def rate_of(run: Run) -> float | None:
    """Requests per second asked for; None in a closed loop."""
    return load_of(run).number("rate")


def concurrency_of(run: Run) -> int | None:
    """Requests in flight asked for, or the cap of an open loop."""
    load = load_of(run)
    return load.count("concurrency") or load.count("max_concurrency")


def started(run: Run) -> datetime:
    """When the run began, in UTC; without a start time it began in 1970."""
    try:
        moment = datetime.fromisoformat(run.started_at)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def duration_of(run: Run) -> float | None:
    """Seconds from start to end of the whole run; of an imported one as its tool counted them."""
    summary = run.summary
    rate = summary.reported.rates.get("request_rate") if summary.reported else None
    answered = summary.outcomes.get("ok")
    if rate and rate.value and answered:
        return answered / rate.value
    duration = summary.values.get("duration")
    return summary.window.run_s or (duration.value if duration else None)


def served_lengths(run: Run) -> tuple[int | None, int | None]:
    """Mean input and output tokens as they were *served*; what was asked for is another number."""
    values = quantities(run.summary)
    means = (values.get("input_tokens.mean"), values.get("output_tokens.mean"))
    inputs, outputs = (None if mean is None else round(mean.value) for mean in means)
    return inputs, outputs


def lengths_of(run: Run, side: str) -> Lengths | None:
    """What the plan asks for as `input_tokens` or `output_tokens`; None where a dataset decides."""
    requested = traffic_of(run).section("workload").get(side)
    try:
        return None if requested is None else Lengths.model_validate(requested)
    except ValidationError:
        return None


def requested_lengths(run: Run) -> tuple[int | None, int | None]:
    """Mean input and output tokens that the plan asks for."""
    lengths = (lengths_of(run, "input_tokens"), lengths_of(run, "output_tokens"))
    inputs, outputs = (
        None if length is None or length.mean_value is None else round(length.mean_value) for length in lengths
    )
    return inputs, outputs


def seen_by_others(run: Run, records: Records) -> SeenRequests:
    """The records as other tools would have had them: behind the warm-up, which they do not report either."""
    plan = run.plan.checked
    warm = plan is not None and (plan.warmup.requests or plan.warmup.duration)
    begin_at = warmup_end(records, plan, Facts()) if plan is not None and warm else None
    known_s = None if warm or run.source is None else duration_of(run)
    on_one_clock = run.source is None or run.summary.window.start_s is not None
    return SeenRequests.of(records, run.plan.api, begin_at, known_s, _mean_gap_s(plan), on_one_clock=on_one_clock)


def _mean_gap_s(plan: Plan | None) -> float:
    """Between the requests of an open loop at one rate; 0 for any other load."""
    if plan is None or len(plan.classes) != 1:
        return 0.0
    load = plan.classes[0].load
    return 1 / load.rate if load.type in ("constant", "poisson", "gamma") and load.rate else 0.0


def server_series(run: Run) -> list[SourceSeries]:
    """The servers' own metrics during the run; empty if they were not sampled."""
    samples = run.samples
    sources = [] if samples is None else [source for source in samples.source.categories if "://" in source]
    return all_series(samples, sources) if samples is not None and sources else []
