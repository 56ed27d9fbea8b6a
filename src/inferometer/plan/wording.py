"""Short descriptions of a plan: `20 req/s Poisson for 60 s`, `512 in, 128 out`; for complete plans, and for the partial
plans of imported runs."""

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from inferometer.documents.document import Document, JsonValue, number_of
from inferometer.plan.load import Load, Stage, Stop, Warmup
from inferometer.plan.model import Synthetic, Traffic, Workload
from inferometer.plan.stored import StoredPlan
from inferometer.plan.workloads.lengths import Lengths
from inferometer.plan.workloads.synthetic import Prefix
from inferometer.vocabulary import duration_text, number_text, percent_text
from inferometer.wire.api import api_of

UNIT_OF_RATE, UNIT_IN_FLIGHT = " req/s", " in flight"

# -- whole plans -----------------------------------------------------------------------------------------------------


def plan_texts(plan: StoredPlan, own: bool) -> tuple[str, str]:
    """Workload and load: `("512 in, 128 out", "20 req/s Poisson")`. With `own`, defaults of the plan count,
    because Inferometer sent the load; otherwise only the fields that the plan contains."""
    classes = plan.checked.classes if own and plan.checked is not None else []
    if classes:
        generates = api_of(plan.api).generates
        workloads = [_named(part, lengths_text(part.workload, generates)) for part in classes]
        return " + ".join(workloads), " + ".join(arrivals_text(part.load) for part in classes)
    arrivals = arrivals_text(plan.load) if plan.load else _batches_text(plan)
    return stored_lengths_text(plan.section("workload") or plan), arrivals


def _named(traffic: Traffic, text: str) -> str:
    return text if traffic.name == "default" else f"{traffic.name}: {text}"


def _batches_text(plan: StoredPlan) -> str:
    """The text for a run without a server: `batch size 8`, `1,000 prompts`."""
    if sizes := plan.batch_sizes:
        return f"batch size {sizes[0]}" if len(sizes) == 1 else f"batch sizes {', '.join(map(str, sizes))}"
    return "" if plan.prompts is None else f"{plan.prompts:,} prompts"


# -- a plan with its defaults ----------------------------------------------------------------------------------------


def load_text(load: Load, stop: Stop) -> str:
    """The arrivals and the duration of a load."""
    return " ".join(filter(None, [arrivals_text(load), _extent(stop) if load.type != "stages" else ""]))


def arrivals_text(load: Load) -> str:
    """The arrivals of a load: `20 req/s Poisson`, `16 in flight`."""
    cap = f", at most {load.max_concurrency:,} in flight" if load.max_concurrency else ""
    match load.type:
        case "concurrency":
            return f"{load.concurrency:,} in flight" if load.concurrency else ""
        case "replay":
            return f"replay at {load.speed:g} times the speed{cap}" if load.speed != 1 else f"replay as recorded{cap}"
        case "stages":
            return f"stages {_stages(load.stages)}{cap}"
        case "ramp":
            return f"{number_text(load.rate)} to {number_text(load.to)} req/s ramp{cap}"
        case "gamma":
            return f"{number_text(load.rate)} req/s gamma (cv {load.cv:g}){cap}"
    return f"{number_text(load.rate)} req/s {'Poisson' if load.type == 'poisson' else load.type}{cap}"


def _stages(stages: list[Stage]) -> str:
    """`stages 5 > 10 > 20 req/s`, with the common unit once."""
    levels = [stage_text(stage) for stage in stages]
    shown = levels if len(levels) <= 4 else [*levels[:2], "..", levels[-1]]
    unit = UNIT_OF_RATE if stages[0].concurrency is None else UNIT_IN_FLIGHT
    return " > ".join(level.removesuffix(unit) for level in shown) + unit


def stage_text(stage: Stage) -> str:
    """`5 req/s`, `5 to 10 req/s`, `16 in flight`."""
    if stage.concurrency is not None:
        return f"{stage.concurrency:,}{UNIT_IN_FLIGHT}"
    ramp = f" to {number_text(stage.to)}" if stage.to is not None else ""
    return f"{number_text(stage.rate)}{ramp}{UNIT_OF_RATE}"


def _extent(stop: Stop) -> str:
    if stop.precision is not None:
        return f"until {stop.precision}, at most {duration_text(stop.longest)}"
    ends = [
        f"{stop.requests:,} requests" if stop.requests else "",
        f"{stop.sessions:,} sessions" if stop.sessions else "",
        duration_text(stop.duration) if stop.duration else "",
    ]
    known = [end for end in ends if end]
    return f"for {' or '.join(known)}" if known else ""


def workload_text(workload: Workload, generates: bool = True) -> str:
    """The text of a workload; APIs that generate nothing have no output length."""
    if not isinstance(workload, Synthetic):
        return " ".join(filter(None, [workload.type, _place(workload), _output_text(workload) if generates else ""]))
    more = "".join(_more(workload))
    if not generates:
        return f"{workload.type}, {_inputs(workload)} input tokens{more}"
    if workload.pairs:
        pairs = ", ".join(f"{pair.input:,}:{pair.output:,}" for pair in workload.pairs)
        return f"{workload.type}, {pairs} input:output tokens{more}"
    inputs = _inputs(workload)
    if workload.output_tokens is None:
        return f"{workload.type}, {inputs} input tokens, output length set by the server{more}"
    return f"{workload.type}, {inputs} input + {workload.output_tokens} output tokens{more}"


def lengths_text(workload: Workload, generates: bool = True) -> str:
    """The shortest text of a workload: `512 in, 128 out`, `sharegpt from chats.json`."""
    if not isinstance(workload, Synthetic):
        output = f", {workload.requested_output} out" if generates and workload.requested_output is not None else ""
        return " ".join(filter(None, [workload.type, _place(workload)])) + output
    more = "".join(_more(workload))
    if workload.pairs and generates:
        return f"{', '.join(f'{pair.input:,}:{pair.output:,}' for pair in workload.pairs)} in:out{more}"
    outputs = f", {workload.output_tokens} out" if generates and workload.output_tokens is not None else ""
    return f"{_inputs(workload)} in{outputs}{more}"


def _inputs(workload: Synthetic) -> str:
    if workload.pairs:
        return "/".join(f"{pair.input:,}" for pair in workload.pairs)
    if workload.prefix is not None and workload.prefix.suffix_tokens is not None:
        return f"{workload.prefix.tokens} + {workload.prefix.suffix_tokens}"
    return str(workload.input_tokens)


def _more(workload: Synthetic) -> Iterator[str]:
    if workload.prefix is not None:
        yield f", {_shared(workload.prefix)}"
    if workload.turns.short() != 1:
        yield f", {workload.turns} turns"
    if workload.images is not None:
        sizes = " or ".join(f"{size.width}x{size.height}" for size in workload.images.options)
        yield f", {_counted(workload.images.count, 'image')} of {sizes}"
    if workload.videos is not None:
        sizes = " or ".join(f"{one.frames} frames of {one.width}x{one.height}" for one in workload.videos.options)
        yield f", {_counted(workload.videos.count, 'video')} of {sizes}"
    if workload.audio is not None:
        lengths = " or ".join(duration_text(one.duration) for one in workload.audio.options)
        yield f", {_counted(workload.audio.count, 'audio clip')} of {lengths}"


def _counted(count: Lengths, one: str) -> str:
    return f"{count} {one}" if count.short() == 1 else f"{count} {one}s"


def _shared(prefix: Prefix) -> str:
    """`128 shared of 8 groups`; with a hit rate the share of all tokens, `60% shared`."""
    if prefix.tokens is None:
        return f"{percent_text(prefix.hit_rate or 0)} shared" + (
            f" in {prefix.groups:,} groups" if prefix.groups > 1 else ""
        )
    groups = f" of {prefix.groups:,} groups" if prefix.groups > 1 else ""
    return f"{prefix.tokens} shared{groups}" + (f", {percent_text(prefix.hit_rate)} of all" if prefix.hit_rate else "")


def _place(workload: Workload) -> str:
    place = next((value for name in ("path", "url", "repo") if (value := getattr(workload, name, None))), "")
    return f"from {place}" if place else ""


def _output_text(workload: Workload) -> str:
    return f"+ {workload.requested_output} output tokens" if workload.requested_output is not None else ""


def warmup_text(warmup: Warmup) -> str:
    """The text of the warm-up; empty if there is none."""
    parts = [
        f"{warmup.requests:,} requests" if warmup.requests else "",
        duration_text(warmup.duration) if warmup.duration else "",
    ]
    return " and ".join(part for part in parts if part)


def traffic_text(traffic: Traffic, generates: bool = True) -> str:
    """One traffic class of several on one line."""
    return f"{traffic.name}: {workload_text(traffic.workload, generates)}; {load_text(traffic.load, traffic.stop)}"


# -- stored plans ------------------------------------------------------------------------------------------------------


def stored_load(load: Document) -> Load | None:
    """The load of a stored plan, also of another tool's; None if it has no known load."""
    try:
        return Load.model_validate(dict(load)) if load else None
    except ValidationError:
        return None


def stored_lengths_text(workload: Document) -> str:
    """The lengths that a plan states, without defaults: `300 in, 100 out`."""
    prefix = workload.section("prefix")
    shared = f"{_length(prefix['tokens'])} shared + " if prefix.get("tokens") else ""
    inputs = _length(prefix.get("suffix_tokens") or workload.get("input_tokens") or workload.get("input_lens"))
    outputs = _length(workload.get("output_tokens") or workload.get("output_lens"))
    parts = [
        workload.text("path") or "",
        f"{shared}{inputs or '?'} in" if shared or inputs else "",
        f"{outputs} out" if outputs else "",
        f"{workload['turns']} turns" if workload.get("turns") else "",
    ]
    return ", ".join(filter(None, parts))


def _length(length: JsonValue) -> str:
    if isinstance(length, Mapping) and "mean" in length and "std" in length:
        return f"{number_text(number_of(length['mean']))} ± {number_text(number_of(length['std']))}"
    try:
        return "" if length is None else str(Lengths.of(length))
    except ValidationError:
        return str(length)
