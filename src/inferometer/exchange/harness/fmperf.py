"""fmperf as llm-d runs it: LMBenchmark's image with the variables that fmperf makes of a profile of scenarios."""

from collections.abc import Mapping

from inferometer.documents.document import JsonValue
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
from inferometer.plan.workloads import Synthetic
from inferometer.plan.workloads.recorded import ShareGpt

NAME = "fmperf"
PROFILE = "fmperf.yaml"
IMAGE = "lmcache/lmcache-benchmark:main"
SCENARIO, SHAREGPT_SCENARIO = "long-input", "sharegpt"  # the first one's script takes all lengths from variables
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

    load = plan.load
    if load.type != "poisson" or plan.stop.duration is None or plan.stop.requests is not None:
        raise PlanError(f"load: {NAME} sends one rate for a duration, got {load.type}", "--rate 2 --duration 60s")
    profile = _conversations(plan.workload) if isinstance(plan.workload, ShareGpt) else _questions(plan)
    turns = plan.workload.turns if isinstance(plan.workload, Synthetic) else None
    per_user = 1 if turns is None else single(turns, "workload.turns", NAME)
    profile |= {
        "model_name": endpoint.model,
        "base_url": endpoint.url,
        "num_users": load.sessions_at_once or USERS,
        "num_users_warmup": WARMUP_USERS,
        "qps_values": f"{tidy((load.rate or 0.0) * per_user)}",
        "test_duration": tidy(plan.stop.duration),
        "use_chat_completions": plan.target.api == "chat",
    }
    text = yaml.dump(profile, Dumper=Dumper, sort_keys=False)
    key = f"{places.results}/LMBench"
    scenario, rate = str(profile["scenarios"]), str(profile["qps_values"])
    argv = ["sh", "-c", _SCRIPT, NAME, endpoint.model, endpoint.url, key, scenario, rate]
    return Rendered(argv, {PROFILE: text}, _environment(profile), _notes(plan, profile))


def _conversations(workload: ShareGpt) -> dict[str, JsonValue]:
    profile: dict[str, JsonValue] = {"scenarios": SHAREGPT_SCENARIO}
    if workload.output_tokens is not None:
        profile["answer_len"] = single(workload.output_tokens, "workload.output_tokens", NAME)
    return profile


def _questions(plan: Plan) -> dict[str, JsonValue]:
    workload = synthetic(plan, NAME)
    prefix = workload.prefix
    first = workload.input_tokens if prefix is None else prefix.suffix_tokens
    return {
        "scenarios": SCENARIO,
        "num_rounds": single(workload.turns, "workload.turns", NAME),
        "system_prompt": 0 if prefix is None else single(prefix.tokens, "workload.prefix.tokens", NAME),
        "chat_history": single(first, "workload.input_tokens", NAME),
        "answer_len": single(workload.output_tokens, "workload.output_tokens", NAME),
    }


def _environment(profile: Mapping[str, JsonValue]) -> dict[str, str]:
    """The variables by which fmperf passes a profile to the image."""
    variables = {name.upper(): str(profile[name]) for name in _VARIABLES if name in profile}
    return variables | {"USE_CHAT_COMPLETIONS": str(profile["use_chat_completions"]), "HOME": "/tmp"}


def _notes(plan: Plan, profile: Mapping[str, JsonValue]) -> dict[str, str]:
    """What the image does differently, read in its source."""
    users = profile["num_users"]
    notes = {
        "sampling": "temperature 0, and answers may end before their length: the tool does not send ignore_eos",
        "warmup": "the script sends its own warm-up before each rate, which its result does not contain",
    }
    if profile["scenarios"] == SHAREGPT_SCENARIO:
        own = "the script sends the conversations of a file in the image, each with its recorded length"
        return notes | {"workload": own, "load": "requests are sent at even intervals", "stop": f"{own}, until its end"}
    even = f"{users} users join and send at even intervals, in steps of 0.1 s: arrivals are not Poisson"
    alone = "users who send one request join up to ten times a second, whatever the rate is"
    notes |= {
        "load": alone if profile["num_rounds"] == 1 else even,
        "workload.input_tokens": "prompts repeat one word; the tool counts words as tokens",
        "workload.turn_tokens": f"a later turn asks one sentence, about {QUESTION} tokens",
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
