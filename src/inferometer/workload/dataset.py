"""The workload that a plan's dataset is: its file found, its rows surveyed, their order drawn from the seed."""

import hashlib
from collections.abc import Callable

import numpy as np

from inferometer.errors import DataError
from inferometer.plan.workloads.dataset import Conversations, Dataset, HuggingFace, Oasst
from inferometer.workload.context import NOWHERE, WorkloadContext
from inferometer.workload.counting import token_count
from inferometer.workload.draws import Draws, Purpose
from inferometer.workload.files import open_rows
from inferometer.workload.formats import looks_like, reader_of
from inferometer.workload.lengths import longest_of
from inferometer.workload.recorded import MESSAGE_APIS, TOOLS_API, RecordedSessions, is_live
from inferometer.workload.rows import Rows
from inferometer.workload.scan import Ints
from inferometer.workload.statistics import statistics_of, statistics_text
from inferometer.workload.survey import Wanted, surveyed


def dataset(spec: Dataset, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE) -> RecordedSessions:
    """The sessions that a plan asks of a dataset. Prompts are as they were recorded: no nonce is put before them."""
    rows = rows_of(spec, context.note)
    if not len(rows):
        raise DataError(f"{rows.name}: has no rows", "was it written to its end?")
    kind = _kind(spec, rows)
    wanted = wanted_of(spec, kind, context)
    draws = Draws(seed, traffic)
    order = shuffled(draws, 0, len(rows)) if spec.shuffle else np.arange(len(rows))
    key = (seed, traffic) if spec.shuffle else ("as in the file",)
    count = token_count(spec.tokenizer, context)
    found = surveyed(rows, reader_of(kind), wanted, order, count, key, context.note)
    chosen = shuffled(draws, 1, len(found)) if spec.shuffle else np.arange(len(found))
    made = RecordedSessions(spec, rows, wanted, found, chosen[: spec.limit], draws, context, count.by, count.exact)
    if context.note is not NOWHERE.note:
        context.note("\n".join(statistics_text(statistics_of(made))))
    return made


def rows_of(spec: Dataset, say: Callable[[str], None]) -> Rows:
    if isinstance(spec, HuggingFace):
        from inferometer.workload.huggingface import hub_rows

        return hub_rows(spec)
    return open_rows(spec.path or spec.url or "", as_lines=spec.type == "prompts", sha256=spec.sha256, say=say)


def wanted_of(spec: Dataset, kind: str, context: WorkloadContext) -> Wanted:
    """What of a plan decides about sessions."""
    several = spec if isinstance(spec, Conversations) else None
    return Wanted(
        kind=kind,
        turns="single" if several is None else several.turns,
        columns=dict(getattr(spec, "columns", {})),
        conversations=None if several is None else several.conversations,
        sessions=spec.limit,
        min_messages=(several and several.min_messages) or 1,
        min_tokens=spec.min_tokens,
        max_tokens=spec.max_tokens,
        context=context.max_model_len,
        output_tokens=None if spec.output_tokens is None else longest_of(spec.output_tokens),
        prefix_chars=100 if several is None else several.prefix_chars,
        refuse=spec.unusable == "refuse",
        tools=context.api == TOOLS_API,
        named=context.api not in MESSAGE_APIS and not is_live(spec, kind),
    )


def _kind(spec: Dataset, rows: Rows) -> str:
    if isinstance(spec, HuggingFace):
        return _told_kind(spec, rows)
    return "oasst all" if isinstance(spec, Oasst) and spec.paths == "all" else spec.type


def _told_kind(spec: HuggingFace, rows: Rows) -> str:
    """The schema of a dataset of the hub: by the columns that the plan names, or by its first row."""
    named = set(spec.columns)
    for kind, name in (("table", "prompt"), ("messages", "messages"), ("sharegpt", "conversations")):
        if name in named:
            return kind
    told = looks_like(rows[0])
    if told is None:
        have = ", ".join(map(str, rows[0]))
        raise DataError(f"{rows.name}: has no column that we know, it has {have}", "workload.columns: {prompt: COLUMN}")
    return told


def shuffled(draws: Draws, purpose: int, count: int) -> Ints:
    """The numbers below `count` in an order drawn from the seed, the same on every machine and with every numpy."""
    keys = np.frombuffer(hashlib.shake_128(draws.key(Purpose.ORDER, purpose)).digest(8 * count), "<u8")
    return np.argsort(keys, kind="stable")
