"""Whatever a benchmark prints around its JSON, its measures are read."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.errors import DataError
from inferometer.measure.custom import documents_in, measures_in, summary_of
from inferometer.measure.values import quantities

names = st.from_regex(r"[a-z][a-z0-9_]{0,10}x", fullmatch=True)
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
log_line = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=20).filter(
    lambda line: not line.lstrip().startswith(("{", "["))
)


@given(st.dictionaries(names, finite, min_size=1, max_size=5), st.lists(log_line, max_size=4))
def test_lines_between_log(values, log):
    entries = [
        {"name": name, "value": value, "unit": "furlongs", "direction": "higher"} for name, value in values.items()
    ]
    lines = [*log, *map(json.dumps, entries), *log]
    found = quantities(summary_of(measures_in(documents_in("\n".join(lines)))))
    assert {key: each.value for key, each in found.items()} == values


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | finite | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_else_is_an_error_that_says_what_was_expected(document):
    try:
        measures = measures_in(document)
    except DataError as error:
        assert "expected" in f"{error.message} {error.hint}"
    else:
        assert quantities(summary_of(measures))
