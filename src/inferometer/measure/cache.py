"""Whether the prefix cache did what the plan asked of it: the share of prompt tokens that came from it."""

from typing import Any, Literal

from inferometer.plan.model import Traffic

OFF_BY = 0.05  # of all prompt tokens: rounding to blocks and a chat template take a percent or two

Finding = tuple[Literal["doubtful", "invalid"], str]


def asked_hit_rate(traffic: Traffic) -> float | None:
    """The share of prompt tokens that shall come from the cache, where the plan says one."""
    prefix = getattr(traffic.workload, "prefix", None)
    return None if prefix is None else prefix.hit_rate


def hit_rate_finding(traffic: Traffic, cached: dict[str, Any]) -> Finding | None:
    """What is wrong with the hit rate, if anything; `cached` is what the answers reported."""
    asked, found = asked_hit_rate(traffic), cached["share"]
    if asked is None:
        return None
    if found is None:
        text = f"A cache hit rate of {asked:.0%} was asked for, but the server does not report cached tokens"
        return "doubtful", f"{text}; start it so that it does (vLLM: --enable-prompt-tokens-details)."
    if abs(found - asked) <= OFF_BY:
        return None
    text = f"{found:.1%} of prompt tokens came from the prefix cache, {asked:.1%} were asked for"
    return "invalid", f"{text}; {_remedy(asked, found)}."


def _remedy(asked: float, found: float) -> str:
    if found > asked:
        return "prompts were in the cache before: use another seed, more nonce tokens, or a fresh server"
    return "is prefix caching on, and does the cache hold all groups? Fewer or shorter ones take less room"
