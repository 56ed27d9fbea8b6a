"""The schemas by the type that a plan names, and what a row looks like when the wrong one was named."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from inferometer.workload.conversation import Reader

READERS = {
    "sharegpt": "inferometer.workload.sharegpt:read",
    "messages": "inferometer.workload.messages:read",
    "oasst": "inferometer.workload.oasst:read_best",
    "oasst all": "inferometer.workload.oasst:read_all",
    "mt_bench": "inferometer.workload.questions:mt_bench",
    "humaneval": "inferometer.workload.questions:humaneval",
    "prompts": "inferometer.workload.questions:line",
    "table": "inferometer.workload.questions:table",
}


def reader_of(kind: str) -> Reader:
    module, _, attribute = READERS[kind].partition(":")
    reader: Reader = getattr(import_module(module), attribute)
    return reader


def looks_like(row: Any) -> str | None:
    """The type that a row seems to be of."""
    if isinstance(row, str):
        return "prompts"
    if not isinstance(row, Mapping):
        return "messages" if isinstance(row, list) else None
    if "conversations" in row or "items" in row:
        return "sharegpt"
    if "messages" in row:
        return "messages"
    if isinstance(row.get("prompt"), Mapping) and "replies" in row["prompt"]:
        return "oasst"
    if "turns" in row:
        return "mt_bench"
    if "canonical_solution" in row:
        return "humaneval"
    return "table" if isinstance(row.get("prompt"), str) else None
