"""fmperf's profiles in llm-d: users with a system prompt and a chat history send questions in rounds."""

import os
from collections.abc import Mapping
from typing import Any

from inferometer.plan.draft import LoadDraft, StageDraft, WhenDraft, WorkloadDraft
from inferometer.plan.foreign.common import Account, Foreign, Settings, without_missing
from inferometer.plan.foreign.shapes import SHAREGPT, of_sessions, tidy
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


def is_it(mapping: Mapping[str, Any]) -> bool:
    return "scenarios" in mapping and "qps_values" in mapping


def from_mapping(mapping: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Foreign:
    """fmperf's rates are request rates, ours are session rates, so they are divided by the rounds."""
    mapping, changes = _with_variables(mapping, environ)
    settings = Settings(mapping, Account(TOOL))
    notes = settings.account.general
    notes += changes
    rounds = settings.count("num_rounds", 1) or 1
    try:
        rates = [float(rate) for rate in (settings.text("qps_values") or "").split()]
    except ValueError:
        settings.wrong("qps_values", "must be numbers")
        rates = [1.0]
    if settings.count("num_users_warmup"):
        settings.note("num_users_warmup", "warmup excludes the first requests")
    users: LoadDraft = {"sessions_at_once": settings.count("num_users")}
    workload = _workload(settings, rounds)
    if workload.get("turn_tokens"):
        notes.append(f"turn_tokens: a question of a later round is one sentence, about {QUESTION} tokens")
    settings.no_effect("init_user_id", "users are numbered from 0")
    plan = {
        "target": {
            "url": settings.text("base_url"),
            "model": settings.text("model_name"),
            "api": "chat" if settings.on("use_chat_completions") else None,
        },
        "workload": workload,
        **_when(rates, settings.value("test_duration", 60), users),
    }
    settings.settle()
    whole = of_sessions(without_missing(plan), notes)
    return Foreign.of(settings.account, whole)


def _with_variables(mapping: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """llm-d's variables override the profile, as in llm-d."""
    changed, notes = dict(mapping), []
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or not environ[name]:
            continue
        key = name.removeprefix(_PREFIX).lower()
        if key not in _SETTINGS:
            notes.append(f"{name}: has no counterpart in a plan")
            continue
        value, before = parse_yaml(environ[name], name)[0], mapping.get(key)
        changed[key] = value
        notes.append(f"{name}: {key} {as_written(before)} -> {as_written(value)}")
    return changed, notes


def _workload(settings: Settings, rounds: int) -> WorkloadDraft:
    scenario, answers = settings.text("scenarios"), settings.count("answer_len")
    shared, history = settings.count("system_prompt") or None, settings.count("chat_history")
    if scenario == "sharegpt":
        for name in ("system_prompt", "chat_history", "num_rounds"):
            settings.no_effect(name, "the prompts are those of ShareGPT")
        return {"type": "sharegpt", "url": SHAREGPT, "output_tokens": answers}
    opening: WorkloadDraft = {"input_tokens": history}
    if shared:
        opening = {"prefix": {"tokens": shared, "suffix_tokens": history}}
    return {
        **opening,
        "output_tokens": answers,
        "turns": rounds if rounds > 1 else None,
        "turn_tokens": QUESTION if rounds > 1 else None,
    }


def _when(rates: list[float], duration: Any, users: LoadDraft) -> WhenDraft:
    if len(rates) == 1:
        return {"load": {"type": "poisson", "rate": tidy(rates[0]), **users}, "stop": {"duration": f"{duration}s"}}
    stages: list[StageDraft] = [{"rate": tidy(rate), "duration": f"{duration}s"} for rate in rates]
    return {"load": {"type": "stages", **users, "stages": stages}}
