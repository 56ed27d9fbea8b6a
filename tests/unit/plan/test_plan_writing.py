"""Writing a plan: without secrets, and its JSON schema for editors."""

import json
import re
from functools import cache

import jsonschema
import pytest
import yaml

from inferometer.errors import PlanError
from inferometer.plan.fields import Section
from inferometer.plan.model import Plan
from inferometer.plan.overrides import known_paths, section_at
from inferometer.plan.reading import mapping_in, plan_from
from inferometer.plan.secrets import is_secret, redacted, redacted_fields, redacted_url, redactor_of, resolve_headers
from inferometer.plan.text import json_schema, to_yaml

SECRET = {
    "target": {
        "url": "https://me:hunter2@host:8/v1?api_key=hunter2&a=b",
        "proxy": "http://me:hunter2@proxy:1",
        "api": "template",
        "body": '{"prompt": "{prompt}", "api_key": "hunter2"}',
        "headers": {"Authorization": "Bearer hunter2", "X-API-Key": "hunter2", "Cookie": "hunter2", "x-team": "blue"},
    },
    "server": {"type": "simulator", "args": {"deep": [{"password": "hunter2"}]}},
    "sampling": {"extra": {"auth_token": "hunter2", "min_tokens": 5, "stop_token_ids": [1]}},
    "traffic": [{"name": "a", "headers": {"api-key": "hunter2"}}],
}


@cache
def validator() -> jsonschema.Draft202012Validator:
    """Of the schema, which another test checks: `jsonschema.validate` would check it for every plan."""
    return jsonschema.Draft202012Validator(json_schema())


def test_only_what_differs_is_written_as_people_write_it() -> None:
    plan = plan_from(
        {
            "target": "http://h:1",
            "load": {"rate": 5},
            "stop": {"duration": 60, "drain": 0.5},
            "limits": ["ttft p99 < 0.5s"],
            "server": "simulator",
        }
    )
    assert to_yaml(plan) == (
        "target:\n  url: http://h:1\nserver:\n  type: simulator\nload:\n  type: poisson\n  rate: 5\n"
        "stop:\n  duration: 60s\n  drain: 500ms\nlimits:\n- ttft p99 < 500ms\n"
    )


def test_the_default_end_is_part_of_the_effective_plan() -> None:
    assert to_yaml(Plan()) == "stop:\n  requests: 400\n"


def test_in_full_every_setting_is_written() -> None:
    written = yaml.safe_load(to_yaml(Plan(), full=True))
    assert set(written) == set(Plan.model_fields)
    assert written["target"]["timeout"] == {"connect": "10s", "request": "10min", "idle": None}


def test_a_class_is_written_without_what_it_inherits() -> None:
    classes = [{"name": "a"}, {"name": "b", "workload": {"input_tokens": 256}, "stop": {"requests": None}}]
    plan = plan_from({"workload": {"input_tokens": 9}, "stop": {"requests": 5, "duration": 1}, "traffic": classes})
    written, _ = mapping_in(to_yaml(plan), "plan.yaml")
    assert written["traffic"] == classes
    assert plan_from(written) == plan


@pytest.mark.parametrize("full", [False, True])
def test_no_secret_is_written(full: bool) -> None:
    plan = plan_from(SECRET)
    assert "hunter2" not in to_yaml(plan, full)
    assert "hunter2" not in str(redacted(plan).model_dump())
    assert "hunter2" in str(plan.model_dump())
    assert redacted(plan).target.headers["x-team"] == "blue"
    assert redacted(plan).sampling.extra["stop_token_ids"] == [1]
    assert redacted(redacted(plan)) == redacted(plan)
    assert "hunter2" not in re.sub(r"url=\[[^]]*\]", "", repr(plan))


def test_a_secret_is_hidden_wherever_the_plan_repeats_it() -> None:
    plan = plan_from(
        {
            "name": "with hunter2hunter2",
            "target": {
                "url": "http://h:1",
                "headers": {"authorization": "Bearer hunter2hunter2", "x": "hunter2hunter2"},
            },
            "sampling": {"stop": ["hunter2hunter2"], "structured": {"choice": ["no", "hunter2hunter2"]}},
            "traffic": [{"headers": {"x-api-key": "completions", "y": "of completions"}}],
        }
    )
    assert "hunter2" not in str(redacted(plan).model_dump())
    assert redacted(plan).target.headers["x"] == "***"
    assert redacted(plan).traffic[0].headers["y"] == "of ***"
    assert redacted(plan).target.api == "completions"  # one of the plan's own words
    assert plan_from(mapping_in(to_yaml(plan), "plan.yaml")[0]) == redacted(plan)


KEYS = ["Bearer abcdef123456", "basic dXNlcjpwYXNz", "sk-proj-0123456789", "hf_abcdefghijkl", "eyJhbGci.eyJzdWIi.c2ln"]


@pytest.mark.parametrize("key", KEYS)
def test_what_looks_like_a_key_is_starred_under_any_name(key: str) -> None:
    body = json.dumps({"inputs": "{prompt}", "meta": {"x": key}})
    plan = plan_from(
        {
            "target": {"url": "http://h:1/?a=1", "headers": {"x-team": key}, "api": "template", "body": body},
            "sampling": {"extra": {"deep": [{"x": key}]}},
        }
    )
    assert key not in to_yaml(plan, True)
    assert key not in str(redacted(plan).model_dump())
    assert "{prompt}" in to_yaml(plan, True)
    assert redactor_of(plan).hide(f"no such key: {key.split()[-1]}") == "no such key: ***"


def test_ordinary_text_is_not_starred() -> None:
    kept = {
        "a": "basic math for beginners",
        "b": "Bearer ${KEY}",
        "c": "sk-1",
        "d": "bearer",
        "e": "task-force-0123456",
    }
    assert redacted_fields(kept) == kept


def test_a_redacted_plan_can_be_read_again() -> None:
    shown = redacted(plan_from(SECRET))
    assert plan_from(shown.model_dump(mode="json")) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://me:pw@h:8000/v1?x=1", "http://***@h:8000/v1?x=1"),
        ("http://me@[::1]:8/", "http://***@[::1]:8/"),
        ("http://h/?token=a&b=c", "http://h/?token=***&b=c"),
        ("http://${ME}@h/", "http://${ME}@h/"),
        ("http://me:pw@[bad/", "http://***@[bad/"),
        ("me:pw@h", "me:pw@h"),
    ],
)
def test_urls(url: str, shown: str) -> None:
    assert redacted_url(url) == shown


@pytest.mark.parametrize(
    "name", ["Authorization", "x-api-key", "api_key", "Cookie", "X-Auth-Token", "key", "password", "x-bearer"]
)
def test_secret_names(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["x-request-id", "min_tokens", "stop_token_ids", "prompt_cache_key", "accept", "key_env"]
)
def test_names_of_no_secret(name: str) -> None:
    assert not is_secret(name)


def test_headers_from_the_environment() -> None:
    headers = {"authorization": "Bearer ${KEY}", "x": "1"}
    assert resolve_headers(headers, {"KEY": "abc\n"}) == {"authorization": "Bearer abc", "x": "1"}
    plan = plan_from({"target": {"headers": headers}})
    assert redacted(plan) == plan


def test_headers_that_cannot_be_sent_are_all_named() -> None:
    headers = {"a": "${ONE}", "b": "${TWO} ${THREE}", "authorization": "***", "c": "${LINES}"}
    with pytest.raises(PlanError) as caught:
        resolve_headers(headers, {"LINES": "a\nb"})
    assert caught.value.mistakes == [
        "target.headers.a needs environment variables that are not set: ONE",
        "target.headers.b needs environment variables that are not set: THREE and TWO",
        "target.headers.authorization was masked when the plan was stored; it has to be given again",
        "target.headers.c must be a single line, but the environment holds several",
    ]
    assert caught.value.hint == "export ONE=..."


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"target": "http://h", "server": "simulator", "stop": "60s", "warmup": 50, "limits": "ttft p99 < 1s"},
        {"target": ["http://a", "http://b"], "stop": "2k", "workload": {"input_tokens": "2k", "output_tokens": None}},
        {"limits": [{"measure": "ttft", "stat": "p99", "value": "500ms"}], "load": {"rate": "1e3"}},
        {
            "traffic": [{"load": {"stages": [{"duration": "1h30m", "rate": 5}]}}],
            "outputs": {"format": "csv", "path": "x"},
        },
        {"target": {"headers": {"x": 1}, "timeout": {"idle": "5s", "request": None}}, "sampling": {"stop": "a"}},
    ],
)
def test_the_schema_takes_what_the_reader_takes(plan: dict[str, object]) -> None:
    plan_from(plan)
    validator().validate(plan)


@pytest.mark.parametrize(
    "plan",
    [
        {"laod": {}},
        {"load": {"rate": -2}},
        {"seed": -1},
        {"confidence": 1},
        {"stop": {"duration": "soon"}},
        {"workload": {"input_tokens": 0}},
        {"server": "vlm"},
        {"target": {"api": "chatt"}},
        {"load": {"stages": [{"rate": 5}]}},
        {"limits": [{"measure": "tfft", "value": 1}]},
    ],
)
def test_the_schema_finds_mistakes_while_one_types(plan: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(plan)
    with pytest.raises(PlanError):
        plan_from(plan)


def test_every_setting_is_described() -> None:
    sections: set[type[Section]] = {Plan}
    for known in known_paths():
        steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", known)]
        if section := section_at(steps):
            sections.add(section)
    assert len(sections) > 10
    assert [
        f"{section.__name__}.{name}"
        for section in sections
        for name, field in section.model_fields.items()
        if not field.description
    ] == []
    assert all(section.__doc__ for section in sections)
