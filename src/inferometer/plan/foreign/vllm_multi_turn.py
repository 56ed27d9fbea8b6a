"""The conversations of vLLM's multi-turn benchmark (`generate_conversations`), as a workload of sessions."""

from collections.abc import Mapping
from typing import Any

from inferometer.plan.foreign.account import Account, Settings
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.shapes import bell, tidy, together

TOOL = "benchmark_serving_multi_turn.py"


def is_it(mapping: Mapping[str, Any]) -> bool:
    return mapping.get("filetype") == "generate_conversations"


def from_mapping(mapping: Mapping[str, Any]) -> Foreign:
    """One client sends them one after the other, as the script does by default."""
    settings = Settings(mapping, Account(TOOL))
    settings.value("filetype")
    settings.no_effect("print_stats", "the statistics of a workload are always shown")
    settings.note("text_files", "the text of prompts is made up, with the same lengths")
    inputs, outputs = settings.section("prompt_input"), settings.section("prompt_output")
    count = settings.count("num_conversations")
    turns, shared = _lengths(inputs, "num_turns"), _lengths(inputs, "common_prefix_num_tokens")
    own, added = _lengths(inputs, "prefix_num_tokens"), _lengths(inputs, "num_tokens")
    first = together(own, added) if own else added
    if own:
        settings.account.general.append("prefix_num_tokens: the prefix and the first question are drawn together")
    settings.account.general.append(
        "num_turns: a turn of the script is a message; here it is a question with its answer"
    )
    workload = {
        **({"prefix": {"tokens": shared, "suffix_tokens": first}} if shared else {"input_tokens": first}),
        "turn_tokens": added,
        "output_tokens": _lengths(outputs, "num_tokens"),
        "turns": _halved(turns),
        "count": count,
    }
    plan = {
        "target": {"api": "chat"},
        "workload": workload,
        "load": {"type": "concurrency", "concurrency": 1},
        "stop": {"sessions": count},
    }
    return Foreign.of(settings.account, without_missing(plan))


def _lengths(section: Settings, name: str) -> Any:
    if name not in section.values:
        return None
    own = section.section(name)
    kind = own.text("distribution")
    match kind:
        case "constant":
            return own.count("value")
        case "uniform":
            return f"{own.count('min')}-{own.count('max')}"
        case "lognormal":
            mean, most = own.number("average"), own.count("max")
            if mean is None:
                own.wrong("average", "is missing: lognormals are given by their average")
                return None
            own.note(
                "average", "a lognormal with a median of a quarter of its maximum has its deviation, here half the mean"
            )
            return bell(mean, tidy(mean / 2), 1, most, "lognormal")
    own.wrong("distribution", "has no counterpart; there are constant, uniform, lognormal")
    return None


def _halved(turns: Any) -> Any:
    """Messages as questions with their answers."""
    if isinstance(turns, str):
        least, _, most = turns.partition("-")
        return f"{max(1, int(least) // 2)}-{max(1, int(most) // 2)}"
    return max(1, turns // 2) if isinstance(turns, int) else turns
