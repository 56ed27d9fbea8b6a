"""Structured output: how it is requested, how it is recognised in other tools' fields, and the check of answers."""

import random
import signal
import socket
from typing import Any

import numpy as np
import orjson
import pytest

from inferometer.errors import PlanError
from inferometer.judge.limits import judge_plan
from inferometer.load.answer import MOST_SLOW, form_check
from inferometer.load.transport import Encoder
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.values import quantities
from inferometer.plan.foreign import inference_perf
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.structured import Structured
from inferometer.record.columns import Records
from inferometer.record.record import Record
from inferometer.simulator.requests import RefusalError, read_question, sequence_for
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.tokens import answer_text
from inferometer.wire.sse import MOST_CONTAINERS
from inferometer.workload.session import Request

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3},
        "age": {"type": "integer", "minimum": 18, "maximum": 20},
        "mail": {"type": "string", "pattern": r"[a-z]{2,9}@example\.com"},
        "tags": {"type": "array", "items": {"enum": ["two words", "b"]}, "minItems": 1},
        "boss": {"$ref": "#/$defs/boss"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"boss": {"anyOf": [{"type": "object", "properties": {"score": {"type": "number"}}}, {"type": "null"}]}},
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": PERSON}}
FORMS: list[dict[str, Any]] = [
    {"json_schema": PERSON},
    {"json_object": True},
    {"regex": r"(\d{3}-){2}\w+ (yes|no)"},
    {"choice": ["positive", "not sure"]},
]


def plan_with(api: str = "chat", **sampling: Any) -> Plan:
    return plan_from({"target": {"url": "http://localhost:1", "api": api}, "sampling": sampling})


def body_of(plan: Plan) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(Encoder(plan, plan.classes[0], "m").body(Request("x", output_tokens=50)))
    return body


@pytest.mark.parametrize(
    "form, syntax, field, value",
    [
        ({"json_schema": PERSON}, None, "response_format", SCHEMA),
        ({"json_object": True}, None, "response_format", {"type": "json_object"}),
        ({"regex": "a+"}, None, "structured_outputs", {"regex": "a+"}),
        ({"choice": ["a", "b"]}, None, "structured_outputs", {"choice": ["a", "b"]}),
        ({"grammar": 'root ::= "a"'}, None, "structured_outputs", {"grammar": 'root ::= "a"'}),
        ({"json_schema": PERSON}, "guided", "guided_json", PERSON),
        ({"choice": ["a"]}, "guided", "guided_choice", ["a"]),
        ({"grammar": 'root ::= "a"'}, "sglang", "ebnf", 'root ::= "a"'),
    ],
)
def test_a_form_is_requested_as_servers_take_it_and_recognised_again(
    form: dict[str, Any], syntax: str | None, field: str, value: Any
) -> None:
    plan = plan_with(structured=form | ({"syntax": syntax} if syntax else {}))
    body = body_of(plan)
    assert body[field] == value
    assert "ignore_eos" not in body and body["max_tokens"] == 50  # the form says where an answer ends
    again = plan_with(extra={field: value}).sampling.structure
    assert again is not None and {name: getattr(again, name) for name in form} == form
    assert body_of(plan_with(extra={field: value})) == body


def test_responses_has_a_place_of_its_own() -> None:
    body = body_of(plan_with("responses", structured={"json_schema": PERSON}))
    assert body["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": PERSON}}
    assert Structured.among(body) == Structured(json_schema=PERSON)


@pytest.mark.parametrize(
    "structured, text",
    [
        ({}, "exactly one of json_schema, json_object"),
        ({"regex": "a", "choice": ["b"]}, "exactly one of .*, got regex, choice"),
        ({"regex": "("}, "regular expression"),
        ({"json_schema": {"type": "objekt"}}, "must be a JSON schema"),
        ({"regex": "a", "syntax": "response_format"}, "has JSON only"),
        ({"choice": ["a"], "syntax": "sglang"}, "sglang has no choice"),
    ],
)
def test_what_no_server_takes_is_refused(structured: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        plan_with(structured=structured)


def test_an_api_without_it_is_refused() -> None:
    with pytest.raises(PlanError, match=r"sampling\.structured needs api chat, completions or responses, got tgi"):
        plan_with("tgi", structured={"json_object": True})


@pytest.mark.parametrize(
    "form, good, bad",
    [
        ({"json_schema": PERSON}, ' {"name": "Ada", "age": 18}', '{"name": "Ada", "age": 17}'),
        ({"json_schema": PERSON}, '{"name": "Ada", "age": 18}\n', '{"name": "Ada", "age": 18'),
        ({"json_object": True}, "{}", "[1]"),
        ({"regex": "[ab]+"}, " abba", "abba c"),
        ({"choice": ["yes", "no"]}, "yes ", "yes, of course"),
    ],
)
def test_an_answer_has_the_form_or_not(form: dict[str, Any], good: str, bad: str) -> None:
    check = form_check(Structured(**form))
    assert check is not None
    assert [check(text) for text in (good, bad, "")] == ["valid", "invalid", "invalid"]


def test_nothing_is_checked_without_a_form_and_with_a_grammar() -> None:
    assert form_check(None) is None and form_check(Structured(grammar="g")) is None


@pytest.mark.parametrize("form", FORMS)
def test_the_simulator_keeps_to_the_form_and_spoils_a_share(form: dict[str, Any]) -> None:
    structured = Structured(**form)
    check = form_check(structured)
    assert check is not None
    body = {"model": "simulated-8b", "max_tokens": 500, "ignore_eos": True, **structured.fields("completions")}

    def answers(settings: SimulatorSettings) -> list[bool]:
        rng, valid = random.Random(1), []
        for _ in range(200):
            question = read_question(orjson.dumps(body | {"prompt": f"a {rng.random()}"}), False, settings)
            sequence, reason = sequence_for(question.generations[0], settings)
            assert reason == "stop"
            valid.append(check(answer_text(sequence.answer)) == "valid")
        return valid

    assert answers(SimulatorSettings()) == [True] * 200
    assert 30 <= answers(SimulatorSettings(structure_errors=0.25)).count(False) <= 70


def test_an_answer_that_is_cut_by_its_length_is_no_json() -> None:
    fields = Structured(json_schema=PERSON).fields("completions") | {"prompt": "a", "max_tokens": 3}
    question = read_question(orjson.dumps(fields), False, SimulatorSettings())
    sequence, reason = sequence_for(question.generations[0], SimulatorSettings())
    check = form_check(Structured(json_schema=PERSON))
    assert reason == "length" and check is not None and check(answer_text(sequence.answer)) == "invalid"


@pytest.mark.parametrize(
    "form",
    [{"regex": "(a|aa)+b"}, {"json_schema": {"type": "string", "pattern": "^(a|aa)+b$"}}],
)
def test_a_check_that_would_take_years_is_given_up(form: dict[str, Any]) -> None:
    check = form_check(Structured(**form))
    quotes = '"' if "json_schema" in form else ""
    assert check is not None
    for _ in range(MOST_SLOW + 2):
        assert check(f"{quotes}{'a' * 60}!{quotes}") == "unchecked"
    assert check(f"{quotes}aab{quotes}") == "unchecked"  # no more checks, which hold up every stream
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_schema_is_never_fetched_while_the_load_waits() -> None:
    """What refers to one elsewhere cannot be checked; its own parts and those of JSON schema can."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        elsewhere = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        assert form_check(Structured(json_schema={"$ref": elsewhere}))("5") == "unchecked"
        with pytest.raises(BlockingIOError):
            server.accept()
    own = {"$defs": {"count": {"type": "integer"}}, "$ref": "#/$defs/count"}
    assert [form_check(Structured(json_schema=own))(text) for text in ("5", '"x"')] == ["valid", "invalid"]
    meta = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert [form_check(Structured(json_schema=meta))(text) for text in ("{}", '{"type": 5}')] == ["valid", "invalid"]


def test_an_answer_that_is_too_dense_to_be_parsed_is_not_checked() -> None:
    check = form_check(Structured(json_object=True))
    assert check is not None
    assert check('{"x": [' + "[], " * MOST_CONTAINERS + "[]]}") == "unchecked"
    assert check('{"x": "\ud800"}') == "invalid"
    assert check('{"x": 1}') == "valid"


def test_the_simulator_refuses_what_it_cannot_make() -> None:
    question = read_question(b'{"prompt": "a", "guided_regex": "(?<=x)a"}', False, SimulatorSettings())
    with pytest.raises(RefusalError, match="beyond the simulator"):
        sequence_for(question.generations[0], SimulatorSettings())


def test_the_share_is_a_measure_with_limits() -> None:
    """Three of four complete answers are valid; a failed one and those that were not checked are in neither."""
    plan = plan_from(
        {"target": "http://localhost:1", "limits": ["structure_valid >= 80%"], "stop": {"requests": 7}, "warmup": 0}
    )
    states = ["valid", "invalid", "valid", "valid", None, "unchecked", "invalid"]
    records = [
        Record(
            session=number,
            scheduled_at=number * 10**9 + 1,
            ready_at=number * 10**9 + 1,
            sent_at=number * 10**9 + 1,
            ended_at=number * 10**9 + 10**8,
            read_at=np.array([number * 10**9 + 10**8], "<i8").tobytes(),
            read_tokens=np.array([1], "<i8").tobytes(),
            structure=state,  # type: ignore[arg-type]
            outcome="ok" if number < 6 else "timeout",
        )
        for number, state in enumerate(states)
    ]
    summary = summarize(Records.of(records), plan, Facts())
    assert summary.structure is not None
    assert (summary.structure.valid, summary.structure.invalid, summary.structure.share) == (3, 1, 0.75)
    assert summary.structure.unchecked == 1
    assert quantities(summary)["structure_valid"].value == 0.75
    (result,) = judge_plan(plan, summary)
    assert (result.met, result.value) == (False, 0.75)


def test_another_tools_plan_that_asks_for_it_is_checked() -> None:
    found = inference_perf.from_mapping(
        {
            "api": {"type": "chat", "response_format": {"type": "json_schema", "json_schema": PERSON}},
            "data": {"type": "mock"},
            "load": {"type": "constant", "stages": [{"rate": 1, "duration": 10}]},
            "server": {"type": "vllm", "model_name": "m", "base_url": "http://localhost:8000"},
        }
    )
    plan = plan_from(found.plan)
    assert plan.sampling.structure == Structured(json_schema=PERSON)
