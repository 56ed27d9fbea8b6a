"""What a plan does, in a few words: `poisson 10/s for 60 s`, `256 input + 64 output tokens`; and what was done: the
target, the workload, the load and the window."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from rich.table import Table

from inferometer.plan.model import Load, Plan, Stage, Stop, Synthetic, Traffic, Warmup, Workload
from inferometer.plan.workloads.synthetic import Prefix
from inferometer.record.run import Run
from inferometer.show.console import facts_table
from inferometer.vocabulary import duration_text, number_text
from inferometer.wire.api import api_of

# -- deeds -----------------------------------------------------------------------------------------------------------


def load_text(load: Load, stop: Stop) -> str:
    """How the requests come, and for how long."""
    return " ".join(filter(None, [_arrivals(load), _extent(stop) if load.type != "stages" else ""]))


def _arrivals(load: Load) -> str:
    cap = f", at most {load.max_concurrency} at once" if load.max_concurrency else ""
    match load.type:
        case "concurrency":
            return f"{load.concurrency} at once"
        case "replay":
            return f"replay at {load.speed:g} times the speed{cap}" if load.speed != 1 else f"replay as recorded{cap}"
        case "stages":
            return f"stages {_stages(load.stages)}{cap}"
        case "ramp":
            return f"ramp {number_text(load.rate)} to {number_text(load.to)}/s{cap}"
        case "gamma":
            return f"gamma {number_text(load.rate)}/s (cv {load.cv:g}){cap}"
    return f"{load.type} {number_text(load.rate)}/s{cap}"


def _stages(stages: list[Stage]) -> str:
    levels = [stage_text(stage) for stage in stages]
    return " > ".join(levels if len(levels) <= 4 else [*levels[:2], "..", levels[-1]])


def stage_text(stage: Stage) -> str:
    """`5/s`, `5 to 10/s`, `16 at once`."""
    if stage.concurrency is not None:
        return f"{stage.concurrency} at once"
    ramp = f" to {number_text(stage.to)}" if stage.to is not None else ""
    return f"{number_text(stage.rate)}{ramp}/s"


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
    """What is sent. An API that generates nothing is asked for no output."""
    if not isinstance(workload, Synthetic):
        return " ".join(filter(None, [workload.type, _place(workload), _asked(workload) if generates else ""]))
    more = "".join(_more(workload))
    if not generates:
        return f"{workload.type}, {_inputs(workload)} input tokens{more}"
    if workload.pairs:
        pairs = ", ".join(f"{pair.input:,}:{pair.output:,}" for pair in workload.pairs)
        return f"{workload.type}, {pairs} input:output tokens{more}"
    inputs = _inputs(workload)
    if workload.output_tokens is None:
        return f"{workload.type}, {inputs} input tokens, output as the server likes{more}"
    return f"{workload.type}, {inputs} input + {workload.output_tokens} output tokens{more}"


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
        yield f", {workload.images.count} images of {workload.images.width}x{workload.images.height}"


def _shared(prefix: Prefix) -> str:
    """`128 shared of 8 groups`; with a hit rate the share of all tokens, `60% shared`."""
    if prefix.tokens is None:
        return f"{prefix.hit_rate or 0:.0%} shared" + (f" in {prefix.groups:,} groups" if prefix.groups > 1 else "")
    groups = f" of {prefix.groups:,} groups" if prefix.groups > 1 else ""
    return f"{prefix.tokens} shared{groups}" + (f", {prefix.hit_rate:.0%} of all" if prefix.hit_rate else "")


def _place(workload: Workload) -> str:
    place = next((each for name in ("path", "url", "repo") if (each := getattr(workload, name, None))), "")
    return f"from {place}" if place else ""


def _asked(workload: Workload) -> str:
    return f"+ {workload.asked_output} output tokens" if workload.asked_output is not None else ""


def warmup_text(warmup: Warmup) -> str:
    """What is left out at the start, or nothing."""
    parts = [
        f"{warmup.requests:,} requests" if warmup.requests else "",
        duration_text(warmup.duration) if warmup.duration else "",
    ]
    return " and ".join(part for part in parts if part)


def traffic_text(traffic: Traffic, generates: bool = True) -> str:
    """One traffic class of several on one line."""
    return f"{traffic.name}: {workload_text(traffic.workload, generates)}; {load_text(traffic.load, traffic.stop)}"


# -- own plan --------------------------------------------------------------------------------------------------------


def own_plan(run: Run) -> Plan | None:
    """None of a run without requests of ours, and of one whose plan another version of us wrote."""
    if run.kind != "serving" or run.source is not None:
        return None
    try:
        return Plan.model_validate(run.plan)
    except ValidationError:
        return None


def plan_in_words(run: Run) -> Iterator[tuple[str, str]]:
    """What its plan and its file say, word by word."""
    imported = run.environment.get("imported") or {}
    if run.source:
        yield (
            "imported",
            ", ".join(str(each) for each in (run.source, imported.get("file"), imported.get("part")) if each),
        )
    for name, said in run.plan.items():
        if said not in (None, "", [], {}):
            yield str(name), _in_words(said)
    if startup := run.summary.startup:
        facts = {"engine": startup.engine, "version": startup.version, "model": startup.model}
        yield from ((name, text) for name, text in (facts | {"load format": startup.load_format}).items() if text)


def _in_words(said: Any) -> str:
    if isinstance(said, Mapping):
        return ", ".join(f"{name} {_in_words(value)}" for name, value in said.items() if value not in (None, {}, []))
    return ", ".join(map(_in_words, said)) if isinstance(said, list) else str(said)


# -- done ------------------------------------------------------------------------------------------------------------


def done_table(run: Run, plan: Plan) -> Table:
    table = facts_table()
    for name, value in _facts(run, plan):
        table.add_row(name, value)
    return table


def _facts(run: Run, plan: Plan) -> Iterator[tuple[str, str]]:
    generates = api_of(plan.target.api).generates
    if plan.name:
        yield "plan", plan.name
    yield "target", _target(run, plan)
    if len(plan.classes) == 1:
        only = plan.classes[0]
        yield "workload", workload_text(only.workload, generates)
        yield "load", f"{load_text(only.load, only.stop)} ({'open' if only.load.open_loop else 'closed'} loop)"
    else:
        for traffic in plan.classes:
            yield "traffic", traffic_text(traffic, generates)
    yield "window", _window(run, plan)


def _target(run: Run, plan: Plan) -> str:
    target, found = plan.target, run.environment.get("target") or {}
    where = ", ".join(target.url) or f"the {plan.server.type if plan.server else 'simulator'}"
    model = target.model or found.get("model") or run.environment.get("model")
    server = " ".join(filter(None, [found.get("server"), found.get("version")])) if target.url else ""
    streaming = ("streaming" if target.stream else "not streaming") if api_of(target.api).generates else ""
    return ", ".join(filter(None, [where, server, f"model {model}" if model else "", target.api, streaming]))


def _window(run: Run, plan: Plan) -> str:
    window = run.summary.window
    warmup = warmup_text(plan.warmup)
    left_out = f"; the first {warmup} are warm-up" if warmup else ""
    whole = f" of {duration_text(window.run_s)}" if window.run_s else ""
    return f"{duration_text(window.length_s)}{whole}, {window.requests or 0:,} requests{left_out}"
