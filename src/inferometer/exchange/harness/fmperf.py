"""fmperf as llm-d runs it: by its image only, with a profile of scenarios."""

from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    LLMD_IMAGE,
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    single,
    synthetic,
)
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.fmperf import QUESTION, from_mapping
from inferometer.plan.foreign.shapes import tidy
from inferometer.plan.model import Plan
from inferometer.plan.reading import mapping_in
from inferometer.plan.text import Dumper

NAME = "fmperf"
PROFILE = "fmperf.yaml"


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    import yaml

    workload, load = synthetic(plan, NAME), plan.load
    if load.type != "poisson" or plan.stop.duration is None or plan.stop.requests is not None:
        raise PlanError(f"load: {NAME} has Poisson arrivals for a duration, got {load.type}", "--rate 2 --duration 60s")
    prefix, turns = workload.prefix, single(workload.turns, "workload.turns", NAME)
    later = workload.turn_tokens
    notes = {}
    if turns > 1 and (later is None or later.value != QUESTION):
        notes["workload.turn_tokens"] = f"a later turn asks one sentence, about {QUESTION} tokens"
    first = workload.input_tokens if prefix is None else prefix.suffix_tokens
    profile = {
        "scenarios": "long-input",
        "model_name": endpoint.model,
        "base_url": endpoint.url,
        "num_users": load.sessions_at_once,
        "num_rounds": turns,
        "system_prompt": None if prefix is None else single(prefix.tokens, "workload.prefix.tokens", NAME),
        "chat_history": single(first, "workload.input_tokens", NAME),
        "answer_len": single(workload.output_tokens, "workload.output_tokens", NAME),
        "qps_values": f"{tidy((load.rate or 0.0) * turns)}",
        "test_duration": tidy(plan.stop.duration),
        "use_chat_completions": plan.target.api == "chat",
    }
    text = yaml.dump(without_missing(profile), Dumper=Dumper, sort_keys=False)
    return Rendered(["fmperf-llm-d-benchmark.sh"], {PROFILE: text}, notes=notes)


def _read(rendered: Rendered) -> Foreign:
    return from_mapping(mapping_in(rendered.files[PROFILE], PROFILE)[0], {})


HARNESS = Harness(
    NAME,
    "fmperf",
    render,
    _read,
    ("**/*.csv",),
    "fmperf",
    image=LLMD_IMAGE,
)
