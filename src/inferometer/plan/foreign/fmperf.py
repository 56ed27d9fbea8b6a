"""fmperf's profiles as llm-d has them: users with a system prompt and a history who ask in rounds."""

import os
from collections.abc import Mapping
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.found import Foreign, without_missing
from inferometer.plan.foreign.inference_perf import SHAREGPT
from inferometer.plan.foreign.shapes import of_sessions, tidy
from inferometer.plan.text import as_written, parse_yaml

TOOL = "fmperf"
QUESTION = 20  # tokens: each round asks one sentence, "Here's question #2: can you tell me a new long story ...?"
_PREFIX = "LLMDBENCH_FMPERF_"
_SETTINGS = (
    "num_users_warmup",
    "num_users",
    "num_rounds",
    "system_prompt",
    "chat_history",
    "answer_len",
    "test_duration",
)


def is_it(said: Mapping[str, Any]) -> bool:
    return "scenarios" in said and "qps_values" in said


def from_mapping(said: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Foreign:
    """Rates are of requests there and of sessions here, so that they are divided by the rounds."""
    said, notes = _with_variables(said, environ)
    rounds = int(said.get("num_rounds", 1))
    try:
        rates = [float(each) for each in str(said["qps_values"]).split()]
    except ValueError:
        raise PlanError(f"{TOOL}: qps_values must be numbers, got {said['qps_values']}") from None
    if said.get("num_users_warmup"):
        notes.append("num_users_warmup: warmup leaves out the first requests")
    users = {"sessions_at_once": said.get("num_users")}
    workload = _workload(said, rounds)
    if workload.get("turn_tokens"):
        notes.append(f"turn_tokens: a question of a later round is one sentence, about {QUESTION} tokens")
    plan = {
        "target": {"model": said.get("model_name"), "api": "chat" if said.get("use_chat_completions") else None},
        "workload": workload,
        **_when(rates, said.get("test_duration", 60), users),
    }
    return Foreign(TOOL, of_sessions(without_missing(plan), notes), notes)


def _with_variables(said: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What llm-d's variables say wins over the profile, as it does there."""
    changed, notes = dict(said), []
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or not environ[name]:
            continue
        key = name.removeprefix(_PREFIX).lower()
        if key not in _SETTINGS:
            notes.append(f"{name}: has no counterpart in a plan")
            continue
        value, before = parse_yaml(environ[name], name)[0], said.get(key)
        changed[key] = value
        notes.append(f"{name}: {key} {as_written(before)} -> {as_written(value)}")
    return changed, notes


def _workload(said: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    if said["scenarios"] == "sharegpt":
        return {"type": "sharegpt", "url": SHAREGPT, "output_tokens": said.get("answer_len")}
    shared, history = said.get("system_prompt") or None, said.get("chat_history")
    return {
        **({"prefix": {"tokens": shared, "suffix_tokens": history}} if shared else {"input_tokens": history}),
        "output_tokens": said.get("answer_len"),
        "turns": rounds if rounds > 1 else None,
        "turn_tokens": QUESTION if rounds > 1 else None,
    }


def _when(rates: list[float], duration: Any, users: dict[str, Any]) -> dict[str, Any]:
    if len(rates) == 1:
        return {"load": {"type": "poisson", "rate": tidy(rates[0]), **users}, "stop": {"duration": f"{duration}s"}}
    stages = [{"rate": tidy(rate), "duration": f"{duration}s"} for rate in rates]
    return {"load": {"type": "stages", **users, "stages": stages}}
