"""However a log is wrapped, cut or mixed with other lines, its numbers are right or missing, never wrong."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.target.startup import startup_of

LOG = Path(__file__).parents[1] / "data/vllm-0.24-h200/startup/server.log"
LINES = LOG.read_bytes().decode().split("\n")
NOISE = (
    "(APIServer pid=558) DEBUG 11-15 01:15:{:02d} [v1/engine/utils.py:1262] Waiting for 1 local, 0 remote core engine"
)


def values_of(text: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.log"
        file.write_bytes(text.encode())
        return {name: value.value for name, value in startup_of(file).values.items()}


WHOLE = values_of("\n".join(LINES))


@settings(max_examples=20, deadline=None)
@given(st.integers(48, 300))
def test_wrapped_at_any_width(width):
    wrapped = []
    for line in LINES:
        wide = max(len(line), 1) if "\r" in line else width
        wrapped += [line[at : at + wide] for at in range(0, len(line), wide)] or [""]
    assert values_of("\n".join(wrapped)) == WHOLE


@settings(max_examples=20, deadline=None)
@given(st.integers(0, sum(len(line) + 1 for line in LINES)))
def test_cut_anywhere(letters):
    text = "\n".join(LINES)[:letters]
    found = values_of(text)
    assert set(found) <= set(WHOLE)
    for name, value in found.items():
        assert value == WHOLE[name] or name in ("imports_time", "graph_capture_time", "weights_time"), name


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(100, len(LINES) - 80), max_size=20))
def test_mixed_with_lines_of_another_process(places):
    mixed = list(LINES)
    for place in sorted(places, reverse=True):
        mixed.insert(place, NOISE.format(min(max(6, place % 58), 58)))
    found = values_of("\n".join(mixed))
    assert {name: value for name, value in found.items() if WHOLE[name] != value} == {}
