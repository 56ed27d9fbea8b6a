"""What a plan does, in a few words: `poisson 10/s for 60 s`, `256 input + 64 output tokens`."""

from inferometer.plan.model import Load, Plan, Stage, Stop, Traffic, Warmup, Workload
from inferometer.vocabulary import duration_text, number_text


def load_text(load: Load, stop: Stop) -> str:
    """How the requests come, and for how long."""
    return " ".join(filter(None, [_arrivals(load), _extent(stop) if load.type != "stages" else ""]))


def _arrivals(load: Load) -> str:
    cap = f", at most {load.max_concurrency} at once" if load.max_concurrency else ""
    match load.type:
        case "concurrency":
            return f"{load.concurrency} at once"
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
    ends = [
        f"{stop.requests:,} requests" if stop.requests else "",
        f"{stop.sessions:,} sessions" if stop.sessions else "",
        duration_text(stop.duration) if stop.duration else "",
    ]
    known = [end for end in ends if end]
    return f"for {' or '.join(known)}" if known else ""


def workload_text(workload: Workload) -> str:
    """What is sent."""
    output = f" + {workload.output_tokens:,} output" if workload.output_tokens else ", output as the server likes"
    return f"{workload.type}, {workload.input_tokens:,} input{output} tokens"


def warmup_text(warmup: Warmup) -> str:
    """What is left out at the start, or nothing."""
    parts = [
        f"{warmup.requests:,} requests" if warmup.requests else "",
        duration_text(warmup.duration) if warmup.duration else "",
    ]
    return " and ".join(part for part in parts if part)


def traffic_text(traffic: Traffic) -> str:
    """One traffic class of several on one line."""
    return f"{traffic.name}: {workload_text(traffic.workload)}; {load_text(traffic.load, traffic.stop)}"


def plan_load_text(plan: Plan) -> str:
    """The load of a plan in one cell of a table."""
    classes = plan.classes
    return load_text(classes[0].load, classes[0].stop) if len(classes) == 1 else f"{len(classes)} traffic classes"
