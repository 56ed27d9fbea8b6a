"""fmperf as llm-d runs it: LMBenchmark's image with the variables that fmperf makes of a profile of scenarios."""

from collections.abc import Mapping
from typing import Any

from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    single,
    synthetic,
)
from inferometer.plan.foreign.common import Foreign
from inferometer.plan.foreign.fmperf import QUESTION, from_mapping
from inferometer.plan.foreign.shapes import tidy
from inferometer.plan.model import Plan
from inferometer.plan.reading import mapping_in
from inferometer.plan.text import Dumper

NAME = "fmperf"
PROFILE = "fmperf.yaml"
IMAGE = "lmcache/lmcache-benchmark:main"
SCENARIO = "long-input"  # whose script takes all lengths from variables
_HOME = "${LMBENCHMARK_HOME:-/app}"  # where the image has it
_SCRIPT = (
    f'cd "{_HOME}" && {{ [ ! -e .venv/bin/activate ] || . .venv/bin/activate; }} && exec bash ./run_benchmarks.sh "$@"'
)
_VARIABLES = (
    *("num_users_warmup", "num_users", "num_rounds"),
    *("system_prompt", "chat_history", "answer_len", "test_duration"),
)
USERS = 15  # the image's default
WARMUP_USERS = 20  # likewise; the script warms up for half as many seconds, with one user


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    import yaml

    workload, load = synthetic(plan, NAME), plan.load
    if load.type != "poisson" or plan.stop.duration is None or plan.stop.requests is not None:
        raise PlanError(f"load: {NAME} sends one rate for a duration, got {load.type}", "--rate 2 --duration 60s")
    prefix, turns = workload.prefix, single(workload.turns, "workload.turns", NAME)
    if turns < 2:
        text = f"workload.turns: {NAME} keeps a rate only if users send 2 or more requests each, got {turns}"
        raise PlanError(text, "--set workload.turns=5")
    first = workload.input_tokens if prefix is None else prefix.suffix_tokens
    users = load.sessions_at_once or USERS
    profile = {
        "scenarios": SCENARIO,
        "model_name": endpoint.model,
        "base_url": endpoint.url,
        "num_users": users,
        "num_rounds": turns,
        "num_users_warmup": WARMUP_USERS,
        "system_prompt": 0 if prefix is None else single(prefix.tokens, "workload.prefix.tokens", NAME),
        "chat_history": single(first, "workload.input_tokens", NAME),
        "answer_len": single(workload.output_tokens, "workload.output_tokens", NAME),
        "qps_values": f"{tidy((load.rate or 0.0) * turns)}",
        "test_duration": tidy(plan.stop.duration),
        "use_chat_completions": plan.target.api == "chat",
    }
    text = yaml.dump(profile, Dumper=Dumper, sort_keys=False)
    key = f"{places.results}/LMBench"
    argv = ["sh", "-c", _SCRIPT, NAME, endpoint.model, endpoint.url, key, SCENARIO, str(profile["qps_values"])]
    return Rendered(argv, {PROFILE: text}, _environment(profile), _notes(plan, users))


def _environment(profile: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which fmperf passes a profile to the image."""
    variables = {name.upper(): str(profile[name]) for name in _VARIABLES}
    return variables | {"USE_CHAT_COMPLETIONS": str(profile["use_chat_completions"]), "HOME": "/tmp"}


def _notes(plan: Plan, users: int) -> dict[str, str]:
    """What the image does differently, read in its source."""
    notes = {
        "load": f"{users} users join and send at even intervals, in steps of 0.1 s: arrivals are not Poisson",
        "workload.input_tokens": "prompts repeat one word; the tool counts words as tokens",
        "workload.turn_tokens": f"a later turn asks one sentence, about {QUESTION} tokens",
        "sampling": "temperature 0, and answers may end before their length: the tool does not send ignore_eos",
        "warmup": "the script sends a warm-up of its own before each rate, which its result does not contain",
    }
    if plan.load.sessions_at_once is None:
        notes["load.sessions_at_once"] = f"{users} users, the tool's default"
    return notes


def _read(rendered: Rendered) -> Foreign:
    return from_mapping(mapping_in(rendered.files[PROFILE], PROFILE)[0], {})


HARNESS = Harness(
    NAME,
    "fmperf",
    render,
    _read,
    ("**/*.csv",),
    "fmperf",
    image=IMAGE,
)
