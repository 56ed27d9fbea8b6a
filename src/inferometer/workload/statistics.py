"""What a dataset holds, in numbers: prompts, lengths, shared beginnings, and what was left out."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from inferometer.workload.recorded import RecordedSessions
from inferometer.workload.survey import NONE

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
