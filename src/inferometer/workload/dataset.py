"""The workload that a plan's dataset is: its file or hub name opened, its rows surveyed, their order drawn from the
seed; and what it holds, in numbers."""

import hashlib
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from inferometer.errors import DataError, MissingExtra
from inferometer.plan.workloads.dataset import Conversations, Dataset, HuggingFace, Oasst
from inferometer.wire.api import api_of
from inferometer.workload.draws import Draws, Purpose, longest_of
from inferometer.workload.files import open_rows
from inferometer.workload.formats import looks_like, reader_of
from inferometer.workload.recorded import RecordedSessions, is_live
from inferometer.workload.rows import Ints, Rows
from inferometer.workload.session import NOWHERE, WorkloadContext
from inferometer.workload.survey import NONE, Wanted, surveyed
from inferometer.workload.writer import token_count

# -- statistics ------------------------------------------------------------------------------------------------------

Statistics = dict[str, Any]


def statistics_of(sessions: RecordedSessions) -> Statistics:
    """The numbers of the sessions before they repeat. What is not known is `None`."""
    survey, order = sessions.survey, sessions.order
    turns = np.concatenate([np.arange(survey.first[each], survey.first[each + 1]) for each in order])
    inputs = survey.inputs[turns]
    prefixes = len(np.unique(survey.prefix[order]))
    return {
        "name": sessions.rows.name,
        "type": sessions.spec.type,
        "rows": len(sessions.rows),
        "rows_read": survey.rows_read,
        "sessions": len(order),
        "prompts": len(turns),
        "input_tokens": int(inputs.sum()),
        "longest_input": int(inputs.max()),
        "mean_input": float(inputs.mean()),
        **_outputs(sessions, survey.outputs[turns]),
        "prefixes": prefixes,
        "prompts_per_prefix": len(turns) / prefixes,
        "tokens": sessions.counted_by,
        "left_out": dict(survey.left_out),
        "examples": list(survey.examples),
        "without_tools": survey.without_tools,
        "api": sessions.context.api,
    }


def _outputs(sessions: RecordedSessions, recorded: Any) -> Statistics:
    """Asked of answers: drawn for one pass over the sessions, or recorded; `None` where the server decides."""
    asked = recorded
    if sessions.spec.output_tokens is not None:
        asked = np.fromiter((tokens for index in range(len(sessions)) for tokens in sessions.outputs(index)), np.int64)
    known = asked[asked != NONE]
    return {
        "output_tokens": int(known.sum()) if len(known) else None,
        "mean_output": float(known.mean()) if len(known) else None,
        "without_output": int((asked == NONE).sum()),
    }


def statistics_text(numbers: Statistics) -> list[str]:
    """The numbers as lines to print."""
    return list(_lines(numbers))


def _lines(numbers: Statistics) -> Iterator[str]:
    yield f"{numbers['name']}: {numbers['prompts']:,} prompts in {numbers['sessions']:,} sessions"
    yield (
        f"  input tokens {numbers['input_tokens']:,}, mean {numbers['mean_input']:.1f}, "
        f"longest {numbers['longest_input']:,} ({numbers['tokens']})"
    )
    if numbers["output_tokens"] is None:
        yield "  output tokens: the server decides"
    else:
        also = f", {numbers['without_output']:,} left to the server" if numbers["without_output"] else ""
        yield f"  output tokens {numbers['output_tokens']:,}, mean {numbers['mean_output']:.1f}{also}"
    yield f"  unique prefixes {numbers['prefixes']:,}, prompts per prefix {numbers['prompts_per_prefix']:.2f}"
    if numbers["without_tools"]:
        yield (
            f"  tools of {numbers['without_tools']:,} sessions are neither sent nor counted: api {numbers['api']} "
            "has no place for them here, api chat has"
        )
    yield from _left_out(numbers)
    yield f"  beyond {numbers['sessions']:,} sessions they come again, and a prefix cache may know them"


def _left_out(numbers: Statistics) -> Iterator[str]:
    """What is not sent, and why."""
    left_out = numbers["left_out"]
    if left_out:
        why = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        yield f"  left out {sum(left_out.values()):,}: {why}"
    yield from (f"    {example}" for example in islice(numbers["examples"], 3))


# -- dataset ---------------------------------------------------------------------------------------------------------


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
        tools=api_of(context.api).takes_tools,
        named=not api_of(context.api).takes_messages and not is_live(spec, kind),
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


# -- huggingface -----------------------------------------------------------------------------------------------------

REMEDY = "check repo, subset and split; without a network, give the path of a dataset that was saved with save_to_disk"


class HubRows:
    """Rows of a dataset in Arrow files, which the package maps into memory and does not hold."""

    def __init__(self, name: str, rows: Any) -> None:
        self.name = name
        self.facts = (name, str(getattr(rows, "_fingerprint", "")), len(rows))
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        return dict(self._rows[number])

    def where(self, number: int) -> str:
        return f"{self.name}: row {number + 1}"


def hub_rows(spec: HuggingFace) -> HubRows:
    """The rows of one split."""
    name = spec.repo or spec.path or ""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise MissingExtra(f"the Hugging Face dataset {name}", "datasets") from None
    try:
        rows = _loaded(datasets, spec)
    except Exception as error:  # the hub has a class for each of no network, no such name, no permission, bad files
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{name}: cannot be loaded: {why}", REMEDY) from None
    return HubRows(f"{name} ({spec.split})", rows)


def _loaded(datasets: Any, spec: HuggingFace) -> Any:
    if spec.repo is not None:
        return datasets.load_dataset(spec.repo, spec.subset, split=spec.split)
    saved = datasets.load_from_disk(spec.path)
    if isinstance(saved, dict) and spec.split not in saved:
        raise ValueError(f"there is no split {spec.split!r}, there are {', '.join(saved)}")
    return saved[spec.split] if isinstance(saved, dict) else saved
