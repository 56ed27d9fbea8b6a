"""A plan and its text are equivalent; any input gives a plan or its errors."""

from typing import Any

import jsonschema
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.errors import PlanError
from inferometer.plan.model import Plan
from inferometer.plan.overrides import known_paths, override, parse_override, value_at, written
from inferometer.plan.reading import mapping_in, plan_from
from inferometer.plan.secrets import redacted
from inferometer.plan.text import Dumper, json_schema, parse_yaml, to_yaml
from inferometer.vocabulary import MEASURES

SCHEMA = jsonschema.Draft202012Validator(json_schema())
counts = st.integers(1, 10**7)
rates = st.floats(1e-3, 1e6)
at_once = st.integers(1, 1_000_000)
durations = st.floats(1e-6, 1e6)
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
free = st.dictionaries(text, anything, max_size=2)
latin = st.text(st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0xFF), max_size=20)  # what a header holds
shared = latin | st.just("a key that is repeated")  # a secret in one header, and no secret in another
headers = st.dictionaries(st.sampled_from(["x.y", "x-team", "authorization", "Cookie"]), shared, max_size=3)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


stages = st.lists(
    st.fixed_dictionaries({"duration": durations, "rate": rates}, optional={"to": rates}), min_size=1, max_size=3
)
loads = st.one_of(
    st.fixed_dictionaries({"rate": rates}, optional={"max_concurrency": st.integers(1, 10**6)}),
    st.fixed_dictionaries({"type": st.just("constant"), "rate": rates}),
    st.fixed_dictionaries({"rate": rates, "cv": st.floats(0.1, 5)}),
    st.fixed_dictionaries({"concurrency": at_once}),
    st.fixed_dictionaries({"stages": stages}),
)
stops = some(requests=counts | st.none(), duration=durations | st.none(), errors=counts, drain=durations) | counts
UNITS = {"s": "s", "share": "%"}  # that a limit has to say


def limit_on(name: str) -> st.SearchStrategy[str]:
    values = st.floats(0, 100 if MEASURES[name].unit == "share" else 1e9).map("{:.6f}".format)
    text = "{} p{} < {}" + UNITS.get(MEASURES[name].unit, "")
    return st.builds(text.format, st.just(name), st.integers(1, 99), values)


limits = st.lists(
    st.sampled_from([name for name, measure in MEASURES.items() if not measure.scalar]).flatmap(limit_on)
    | st.builds("failure_rate <= {:.6f}%".format, st.floats(0, 100)),
    max_size=3,
)
parts = {
    "workload": some(input_tokens=counts, output_tokens=counts | st.none(), nonce_tokens=st.integers(0, 9)),
    "load": loads,
    "sampling": some(temperature=st.floats(0, 2), stop=st.lists(text, max_size=2), extra=free),
    "stop": stops,
    "limits": limits,
}
targets = some(url=st.just("http://me:pw@h:1/v1"), model=text, headers=headers, timeout=some(request=durations))
plans = some(
    **parts,
    name=text,
    target=targets,
    server=st.just("simulator") | some(args=free),
    warmup=counts | st.builds("{!r}s".format, durations),
    seed=st.integers(0, 2**60),
    confidence=st.floats(0.51, 0.99),
    traffic=st.lists(some(**parts, headers=headers), max_size=3),
    save=some(prompts=st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(plans, st.booleans())
def test_a_written_plan_reads_back_as_the_same_plan(mapping: dict[str, Any], full: bool) -> None:
    plan = plan_from(mapping)
    read, twice = mapping_in(to_yaml(plan, full), "plan.yaml")
    assert twice == []
    assert plan_from(read) == redacted(plan)


@settings(max_examples=60, deadline=None)
@given(plans)
def test_a_kept_plan_is_the_plan_and_fits_the_schema(mapping: dict[str, Any]) -> None:
    plan = plan_from(mapping)
    assert plan_from(plan.model_dump()) == plan
    SCHEMA.validate(mapping)


@settings(max_examples=60, deadline=None)
@given(plans)
def test_a_class_that_says_nothing_is_the_plan(mapping: dict[str, Any]) -> None:
    mapping.pop("traffic", None)
    (short,) = plan_from(mapping).classes
    (long,) = plan_from({**mapping, "traffic": [{}]}).classes
    assert short == long


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(Plan.model_fields)) | st.text(max_size=3), anything, max_size=4))
def test_any_mapping_is_a_plan_or_its_mistakes(mapping: dict[str, Any]) -> None:
    try:
        plan_from(mapping)
    except PlanError as error:
        assert error.mistakes
        assert all(each.startswith("plan.yaml: ") for each in error.mistakes)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30) | st.sampled_from(known_paths()).map(lambda path: f"{path}=5"))
def test_any_override_is_made_or_a_mistake(argument: str) -> None:
    try:
        plan_from({"load": {"stages": [{"duration": 1, "rate": 1}]}, "traffic": [{}]}, [argument])
    except PlanError as error:
        assert error.mistakes


@given(st.lists(st.text(min_size=1, max_size=5) | st.integers(0, 2), max_size=3), st.text(max_size=5))
def test_free_keys_are_reached_however_they_are_called(steps: list[str | int], value: str) -> None:
    path = ("sampling", "extra", "k", *(step if isinstance(step, str) else 0 for step in steps))
    quoted = "".join(
        f"[{step}]" if isinstance(step, int) else '."{}"'.format(step.replace("\\", "\\\\").replace('"', '\\"'))
        for step in path[2:]
    )
    typed = parse_override(f"sampling.extra{quoted}=5")
    assert typed.path == path and typed.value == 5
    if not any(isinstance(step, int) for step in path):
        assert value_at(override({}, [typed]), path) == 5


@settings(max_examples=200, deadline=None)
@given(anything)
def test_text_reads_back_as_what_was_written(value: Any) -> None:
    dumped = yaml.dump(value, Dumper=Dumper, allow_unicode=True, sort_keys=False)
    assert parse_yaml(dumped, "x") == (value, [])


def test_every_path_of_the_plan_can_be_typed() -> None:
    for path in known_paths():
        assert written(parse_override(f"{path}=1").path) == path
