"""The slowest requests of a run, one per line: where to look first."""

from typing import Any

from rich.table import Table

from inferometer.show.console import plain_table
from inferometer.vocabulary import duration_text, number_text

_DURATIONS = {"after": "at_s", "E2E": "e2e", "TTFT": "ttft", "stall": "stall", "queued": "queue_wait"}
_COUNTS = {"input": "input_tokens", "output": "output_tokens"}


def slowest_table(requests: list[dict[str, Any]]) -> Table:
    """As `measure.summary.slowest` gives them; `after` counts from the first arrival."""
    numbers = ("session", *_DURATIONS, *_COUNTS)
    table = plain_table(*numbers, "request id", right=numbers, wrap="request id", gap=1)
    for request in requests:
        table.add_row(
            f"{request['session']}.{request['turn']}" if request["turn"] else str(request["session"]),
            *(duration_text(request[name]) for name in _DURATIONS.values()),
            *(number_text(request[name]) for name in _COUNTS.values()),
            request["request_id"] or "-",
        )
    return table
