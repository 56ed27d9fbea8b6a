"""The simple part of YAML is read and written as PyYAML does it, or not at all."""

from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from inferometer.documents.simple_yaml import simple_mapping, simple_text

KEYS = st.sampled_from(["load", "type", "input_tokens", "y", "no", "null", "url", "A", "k-v", "", "x" * 41, "a_b"])
WORDS = st.sampled_from(
    [
        "poisson",
        "http://127.0.0.1:80/v1",
        "60s",
        "1.5ms",
        "yes",
        "Null",
        "1e5",
        "a:",
        "a: b",
        "a #b",
        "-",
        "0x1",
        "1:30s",
    ]
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text() | st.from_regex(r"[a-zA-Z0-9:/._-]+")
)
MAPPINGS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.dictionaries(KEYS, inner) | st.lists(inner, max_size=2), max_leaves=12
)
LINES = st.builds(
    lambda blanks, key, value: f"{' ' * blanks}{key}:{value}",
    st.integers(0, 5),
    KEYS | st.sampled_from(["load", "stop"]),
    st.sampled_from(
        ["", " ", " 1", " 010", " 1.50", " 1_0", " true", " True", " ~", " a b", " 'x'", " # c", " 12:30", " 0.", " -0"]
    )
    | WORDS.map(lambda word: f" {word}"),
)


def dumped(mapping: Any) -> str:
    return yaml.dump(mapping, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True)


@given(st.dictionaries(KEYS, MAPPINGS))
@example(
    {"target": {"url": "http://127.0.0.1:8000"}, "load": {"type": "poisson", "rate": 2.5}, "stop": {"requests": 10}}
)
def test_it_is_written_as_pyyaml_does(mapping: dict[str, Any]) -> None:
    text = simple_text(mapping)
    if text:
        assert text == dumped(mapping)
        assert simple_mapping(f"# schema: 1\n{text}") == mapping == yaml.safe_load(text)


@given(st.lists(LINES).map("\n".join) | st.dictionaries(KEYS, MAPPINGS).map(dumped))
@example("load:\n  a_b: 1\nload:\n  url: 2")
@example("load:\n    url: 1")
@example("load:\nurl: 1")
def test_it_is_read_as_pyyaml_does(text: str) -> None:
    mapping = simple_mapping(text)
    if mapping is not None:
        assert repr(mapping) == repr(yaml.safe_load(text))


def test_usual_plans_are_simple() -> None:
    plan = {
        "target": {"url": "http://localhost:8000"},
        "load": {"type": "constant", "rate": 10},
        "stop": {"duration": "60s"},
    }
    text = simple_text(plan)
    assert text is not None
    assert simple_mapping(text) == plan
