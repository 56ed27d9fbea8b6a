"""fmperf's profiles as llm-d has them: users with a system prompt and a history who ask in rounds."""

from collections.abc import Mapping
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.found import Foreign, without_missing
from inferometer.plan.foreign.inference_perf import SHAREGPT
from inferometer.plan.foreign.shapes import tidy

TOOL = "fmperf"


def is_it(said: Mapping[str, Any]) -> bool:
    return "scenarios" in said and "qps_values" in said


def from_mapping(said: Mapping[str, Any]) -> Foreign:
    """Rates are of requests there and of sessions here, so that they are divided by the rounds."""
    rounds = int(said.get("num_rounds", 1))
    try:
        rates = [float(each) / rounds for each in str(said["qps_values"]).split()]
    except ValueError:
        raise PlanError(f"{TOOL}: qps_values must be numbers, got {said['qps_values']}") from None
    notes = [f"rates are of sessions of {rounds} turns: each is qps / {rounds}"] if rounds > 1 else []
    if said.get("num_users_warmup"):
        notes.append("num_users_warmup: warmup leaves out the first requests")
    users = {"sessions_at_once": said.get("num_users")}
    plan = {
        "target": {"model": said.get("model_name"), "api": "chat" if said.get("use_chat_completions") else None},
        "workload": _workload(said, rounds),
        **_when(rates, said.get("test_duration", 60), users),
    }
    return Foreign(TOOL, without_missing(plan), notes)


def _workload(said: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    if said["scenarios"] == "sharegpt":
        return {"type": "sharegpt", "url": SHAREGPT, "output_tokens": said.get("answer_len")}
    return {
        "prefix": {"tokens": said.get("system_prompt", 0) or None, "suffix_tokens": said.get("chat_history")},
        "output_tokens": said.get("answer_len"),
        "turns": rounds if rounds > 1 else None,
    }


def _when(rates: list[float], duration: Any, users: dict[str, Any]) -> dict[str, Any]:
    if len(rates) == 1:
        return {"load": {"type": "poisson", "rate": _round(rates[0]), **users}, "stop": {"duration": f"{duration}s"}}
    stages = [{"rate": _round(rate), "duration": f"{duration}s"} for rate in rates]
    return {"load": {"type": "stages", **users, "stages": stages}}


def _round(rate: float) -> float:
    return tidy(round(rate, 6))
