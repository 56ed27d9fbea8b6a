"""Plans in text form: all errors together, each with its path and a message."""

import io
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import PlanError
from inferometer.plan.model import Lengths, Load, Plan, Stop, Synthetic, Traffic
from inferometer.plan.reading import plan_from, read_plan


def mistakes(mapping: dict[Any, Any], *overrides: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        plan_from(mapping, overrides)
    return caught.value.mistakes


def read(tmp_path: Path, text: str, name: str = "plan.yaml") -> Plan:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return read_plan(file)


def mistakes_of(tmp_path: Path, text: str, name: str = "plan.yaml") -> list[str]:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, text, name)
    return [each.replace(f"{tmp_path}/", "") for each in caught.value.mistakes]


@pytest.mark.parametrize(
    ("mapping", "mistake"),
    [
        ({"load": {"type": "poisson", "rate": -2}}, "load.rate must be greater than 0, got -2"),
        ({"load": {"rate": "fast"}}, "load.rate must be a number such as 2.5 or 1e3, got fast"),
        ({"load": {"rate": float("inf")}}, "load.rate must be a number such as 2.5 or 1e3, got .inf"),
        ({"load": {"rate": True}}, "load.rate must be a number such as 2.5 or 1e3, got true"),
        ({"load": {"rat": 2}}, "load.rat is not a setting; did you mean load.rate?"),
        ({"rate": 2}, "rate is not a setting; did you mean load.rate?"),
        ({"load": 5}, "load must be settings by name such as type, rate, to, got 5"),
        (
            {"load": {"stages": [{"duration": "5s", "rate": 1}, {"rate": 1}]}},
            "load.stages[1].duration is missing",
        ),
        (
            {"load": {"stages": [{"duration": "5s", "rate": 1}, {"duration": "0s", "rate": 1}]}},
            "load.stages[1].duration must be greater than 0, got 0s",
        ),
        ({"load": {"stages": [{"duration": 5}]}}, "load.stages[0] must have either a rate or a concurrency"),
        ({"load": {"stages": [{"duration": 5, "rate": 0}]}}, "load.stages send nothing: every rate is 0"),
        (
            {"stop": {"duration": "5 parsecs"}},
            "stop.duration must be a duration such as 500ms, 60s or 1h30m, got 5 parsecs",
        ),
        ({"stop": "0s"}, "stop.duration must be greater than 0, got 0s"),
        (
            {"target": {"api": "chatt"}},
            "target.api must be one of completions, chat, responses, embeddings, embeddings_chat, rerank, anthropic, "
            "tgi, transcriptions, translations or template, got chatt; did you mean chat?",
        ),
        ({"target": "http://"}, "target.url must be a URL such as http://localhost:8000, got http://"),
        (
            {"target": "http://h:99999"},
            "target.url must be a URL such as http://localhost:8000, got http://h:99999",
        ),
        (
            {"target": ["http://a", "b"]},
            "target.url[1] must start with http:// or https://, got b",
        ),
        ({"limits": "tfft < 1s"}, "limits names an unknown measure tfft; did you mean ttft?"),
        ({"target": {"model": 7}}, "target.model must be text, got 7 (put it in quotes)"),
        ({"target": {"stream": "maybe"}}, "target.stream must be true or false, got maybe"),
        ({"target": {"tls": {"key": "k.pem"}}}, "target.tls.key belongs to a certificate: give tls.cert too"),
        ({"target": {"headers": {"x y": 1}}}, "target.headers.x y is not a valid header name"),
        ({"target": {"headers": {"x": "a\nb"}}}, 'target.headers.x must be a single line, got "a\\nb"'),
        (
            {"workload": {"input_tokens": 2.5}},
            "workload.input_tokens must be a whole number such as 300, 2k or 4Ki, got 2.5",
        ),
        ({"sampling": {"top_p": 1.5}}, "sampling.top_p must be at most 1, got 1.5"),
        ({"confidence": 1}, "confidence must be less than 1, got 1"),
        ({"outputs": {"format": "csv"}}, "outputs[0].path is missing"),
        ({"sampling": {"extra": 5}}, "sampling.extra must be settings by name (name: value), got 5"),
        ({"traffic": [5]}, "traffic[0] must be settings by name such as name, workload, load, got 5"),
        ({"server": "vllm"}, "server.model is missing: vllm needs a model to serve"),
    ],
)
def test_a_mistake_is_said_in_words(mapping: dict[str, Any], mistake: str) -> None:
    assert mistakes(mapping) == [f"plan.yaml: {mistake}"]


@pytest.mark.parametrize(
    ("limit", "mistake"),
    [
        ("ttft p99 < 5%", "must compare ttft with a duration such as 500ms, got ttft p99 < 5%"),
        ("failure_rate < 5ms", "must compare failure_rate with a percentage such as 1%, at most 100%, got "),
        ("failure_rate < 200%", "must compare failure_rate with a percentage such as 1%, at most 100%, got "),
        ("ttft p99 < 500", "must have a unit: write 500ms or 500s, got ttft p99 < 500"),
        ("ttft p99 < 0.5", "must have a unit: write 0.5ms or 0.5s, got ttft p99 < 0.5"),
        ("failure_rate < 1", "must have a unit: write 1% or 100%, got failure_rate < 1"),
        ("failure_rate < 0.01", "must have a unit: write 0.01% or 1%, got failure_rate < 0.01"),
        ("failure_rate < 2", "must have a unit: write 2%, got failure_rate < 2"),
        ({"measure": "ttft", "stat": "p99", "value": "500"}, "must have a unit: write 500ms or 500s, got "),
        ("tfft p99 < 1s", "names an unknown measure tfft; did you mean ttft?"),
        ("ttft p101 < 1s", "names an unknown statistic p101; write p50, p99, p99.9, mean, min, max or std"),
        ("ttft p0 < 1s", "names an unknown statistic p0; "),
        ("goodput mean > 1", "takes no mean: goodput is a single number per run"),
        ("quick", "must be a limit such as 'ttft p99 < 500ms' or 'failure_rate < 1%', got quick"),
        ({"measure": "ttft", "value": "1%"}, "must compare ttft with a duration such as 500ms, got {measure"),
    ],
)
def test_a_limit_that_cannot_be_judged_is_found_early(limit: Any, mistake: str) -> None:
    (found,) = mistakes({"limits": [limit]})
    assert found.startswith(f"plan.yaml: limits[0] {mistake}")


@pytest.mark.parametrize(
    ("text", "measure", "stat", "value", "back"),
    [
        ("ttft p99 < 500ms", "ttft", "p99", 0.5, "ttft p99 < 500ms"),
        ("TTFT.P99.9<=0.5s", "ttft", "p99.9", 0.5, "ttft p99.9 <= 500ms"),
        ("e2e median < 2s", "e2e", "p50", 2, "e2e p50 < 2s"),
        ("ttft < 1s", "ttft", None, 1, "ttft < 1s"),
        ("failure_rate < 1%", "failure_rate", None, 0.01, "failure_rate < 1%"),
        ("failure-rate < 1 %", "failure_rate", None, 0.01, "failure_rate < 1%"),
        ("failure_rate <= 0", "failure_rate", None, 0, "failure_rate <= 0%"),
        ("request_rate > 5", "request_rate", None, 5, "request_rate > 5/s"),
        ("output_rate > 2k/s", "output_rate", None, 2000, "output_rate > 2000/s"),
        ("output_rate > 2k tokens/s", "output_rate", None, 2000, "output_rate > 2000/s"),
        ("output_tokens p50 >= 100 tokens", "output_tokens", "p50", 100, "output_tokens p50 >= 100"),
    ],
)
def test_limits(text: str, measure: str, stat: str | None, value: float, back: str) -> None:
    (limit,) = plan_from({"limits": text}).limits
    assert (limit.measure, limit.stat, limit.value, str(limit)) == (measure, stat, value, back)


def test_a_number_in_the_structured_form_is_in_the_measures_unit() -> None:
    written = [{"measure": "ttft", "stat": "p99", "value": 0.5}, {"measure": "failure_rate", "value": 0.01}]
    assert list(map(str, plan_from({"limits": written}).limits)) == ["ttft p99 < 500ms", "failure_rate < 1%"]


def test_all_mistakes_at_once_also_between_sections() -> None:
    found = mistakes(
        {
            "target": {"url": "ftp://h", "api": "chat", "modle": "m"},
            "load": {"type": "ramp", "rate": 5, "to": 9, "max_concurrency": 2},
            "workload": {"output_tokens": 8},
            "sampling": {"min_tokens": 9},
            "seed": -1,
            "workers": 4,
            "limits": ["tpot p99 < 1%"],
        }
    )
    assert found == [
        "plan.yaml: target.url must start with http:// or https://, got ftp://h",
        "plan.yaml: target.modle is not a setting; did you mean target.model?",
        "plan.yaml: limits[0] must compare tpot with a duration such as 500ms, got tpot p99 < 1%",
        "plan.yaml: seed must be at least 0, got -1",
        "plan.yaml: stop.duration is missing: a ramp needs to know how long it lasts",
        "plan.yaml: sampling.min_tokens must be at most workload.output_tokens, 8",
        "plan.yaml: load.max_concurrency must be at least workers, 4: each worker needs a share of it",
    ]


def test_all_mistakes_of_one_section() -> None:
    found = mistakes({"load": {"type": "concurrency", "rate": 5, "to": 3, "cv": 2, "max_concurrency": 3}})
    assert [each.split()[1] for each in found] == [
        *("load.concurrency", "load.rate", "load.to", "load.cv", "load.max_concurrency"),
    ]


def test_thousands_of_mistakes_are_told_without_a_guess_for_each() -> None:
    """A guess takes 10 ms."""
    with pytest.raises(PlanError) as caught:
        plan_from({"load": {f"concurency{number}": 1 for number in range(2000)}})
    mistakes = caught.value.mistakes
    assert len(mistakes) == 2000 and all("is not a setting" in text for text in mistakes)
    assert 0 < sum("did you mean load.concurrency" in text for text in mistakes) <= 50


def test_a_broken_section_makes_no_mistakes_up() -> None:
    assert mistakes({"load": {"type": "ramp", "rate": 5, "to": 9}, "stop": {"duration": "soon"}}) == [
        "plan.yaml: stop.duration must be a duration such as 500ms, 60s or 1h30m, got soon"
    ]
    assert mistakes({"workload": {"prompt_as": "token_ids", "input_tokens": 0}, "target": {"api": "chat"}}) == [
        "plan.yaml: workload.input_tokens must be at least 1, got 0"
    ]


def test_chat_does_not_take_token_ids() -> None:
    assert mistakes({"target": {"api": "chat"}, "workload": {"prompt_as": "token_ids"}}) == [
        "plan.yaml: workload.prompt_as must be text: api chat takes no token ids"
    ]


def test_a_mistake_that_is_inherited_is_said_once_where_it_was_written() -> None:
    plan = {"load": {"rate": -1}, "workload": {"input_tokens": 0}}
    classes = [{"name": "a"}, {"name": "b", "workload": {"output_tokens": 0}}]
    assert mistakes({**plan, "traffic": classes}) == [
        "plan.yaml: workload.input_tokens must be at least 1, got 0",
        "plan.yaml: load.rate must be greater than 0, got -1",
        "plan.yaml: traffic[1].workload.output_tokens must be at least 1, got 0",
    ]


def test_errors_hold_no_secrets() -> None:
    found = mistakes({"target": {"url": "ftp://me:hunter2@h", "headers": {"authorization": ["hunter2"]}}})
    assert len(found) == 2
    assert "hunter2" not in "".join(found)


def test_short_forms() -> None:
    plan = plan_from({"target": "http://h:1", "server": "simulator", "stop": "60s", "warmup": 50, "load": {"rate": 3}})
    assert plan.target.url == ["http://h:1"]
    assert plan.server is not None and plan.server.type == "simulator"
    assert (plan.stop.duration, plan.stop.requests) == (60, None)
    assert (plan.warmup.requests, plan.warmup.duration) == (50, 0)
    assert plan.load == Load(type="poisson", rate=3)


@pytest.mark.parametrize(
    ("stop", "requests", "duration"),
    [(500, 500, None), ("2k", 2000, None), ("5m", None, 300), ("1M", 10**6, None), ("90s", None, 90)],
)
def test_stop_in_short(stop: Any, requests: int | None, duration: float | None) -> None:
    assert plan_from({"stop": stop}).stop == Stop(requests=requests, duration=duration)


@pytest.mark.parametrize(
    ("load", "type_"),
    [
        ({"rate": 1}, "poisson"),
        ({"rate": 1, "cv": 2}, "gamma"),
        ({"concurrency": 1}, "concurrency"),
        ({"stages": [{"duration": 1, "rate": 1}]}, "stages"),
        ({"rate": 1, "concurrency": None}, "poisson"),
    ],
)
def test_the_type_of_a_load_is_the_one_its_fields_belong_to(load: dict[str, Any], type_: str) -> None:
    assert plan_from({"load": load}).load.type == type_


def test_the_run_ends_also_when_nothing_is_said() -> None:
    assert plan_from({}).stop.requests == 400
    assert plan_from({"stop": {"errors": 5}}).stop.requests == 400
    assert plan_from({"stop": "5s"}).stop.requests is None
    assert plan_from({"stop": {"sessions": 5}}).stop.requests is None
    assert plan_from({"load": {"stages": [{"duration": 1, "rate": 1}]}}).stop.requests is None
    assert [each.stop.requests for each in plan_from({}).classes] == [400]


def test_one_class_is_the_common_short_form() -> None:
    plan = plan_from({"workload": {"input_tokens": "2k"}, "load": {"rate": 5}, "limits": "ttft p99 < 1s"})
    (only,) = plan.classes
    assert (only.name, only.workload, only.load, only.limits) == ("default", plan.workload, plan.load, plan.limits)


def test_classes_inherit_what_they_do_not_say() -> None:
    plan = plan_from(
        {
            "workload": {"input_tokens": 1000, "output_tokens": 100},
            "load": {"rate": 5, "max_concurrency": 9},
            "stop": "60s",
            "limits": ["ttft p99 < 1s"],
            "traffic": [{}, {"workload": {"output_tokens": 10}, "load": {"concurrency": 2}, "limits": []}],
        }
    )
    first, second = plan.classes
    assert (first.name, second.name) == ("class-1", "class-2")
    assert (first.workload, first.load, first.limits) == (plan.workload, plan.load, plan.limits)
    assert second.workload == Synthetic(input_tokens=Lengths.of(1000), output_tokens=Lengths.of(10))
    assert second.load == Load(type="concurrency", concurrency=2)
    assert second.limits == [] and second.stop.duration == 60


def test_classes_made_in_python_inherit_too() -> None:
    classes = [Traffic(name="a"), Traffic(name="b", load=Load(rate=2))]
    plan = Plan(workload=Synthetic(input_tokens=Lengths.of(9)), traffic=classes)
    assert [each.workload.input_tokens.value for each in plan.classes] == [9, 9]
    assert [each.load.type for each in plan.classes] == ["concurrency", "poisson"]


def test_a_kept_plan_reads_back_as_it_was() -> None:
    plan = plan_from({"workload": {"input_tokens": 9}, "traffic": [{"workload": {"input_tokens": 256}}, {"stop": 5}]})
    assert plan_from(plan.model_dump(mode="json")) == plan


def test_names_of_classes_are_unique() -> None:
    assert mistakes({"traffic": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}) == [
        "plan.yaml: traffic[0].name must be unique in the plan",
        "plan.yaml: traffic[2].name must be unique in the plan",
    ]


def test_yaml_without_surprises(tmp_path: Path) -> None:
    plan = read(
        tmp_path,
        "name: on\ntarget: {model: no, stream: off, headers: {x: 1:30, day: 2024-01-01, n: 010}}\n"
        "load: {rate: 1e3}\nsampling: {extra: {a: 1e3, b: 0x10, c: 010, d: 1_000, e: .5, f: ~, g: yes}}\n",
    )
    assert (plan.name, plan.target.model, plan.target.stream) == ("on", "no", False)
    assert plan.target.headers == {"x": "1:30", "day": "2024-01-01", "n": "10"}
    assert plan.load.rate == 1000
    numbers = {"a": 1000.0, "b": 16, "c": 10, "d": 1000, "e": 0.5}
    assert plan.sampling.extra == {**numbers, "f": None, "g": "yes"}


def test_yaml_anchors_and_merges(tmp_path: Path) -> None:
    plan = read(tmp_path, "traffic:\n- &a {name: a, load: {rate: 1}}\n- {<<: *a, name: b}\n")
    assert [(each.name, each.load.rate) for each in plan.classes] == [("a", 1), ("b", 1)]


def test_a_key_given_twice_is_a_mistake_beside_the_others(tmp_path: Path) -> None:
    assert mistakes_of(tmp_path, "load:\n  rate: 1\n  rate: 2\nseed: x\n") == [
        "plan.yaml: rate is given twice, on lines 2 and 3",
        "plan.yaml: seed must be a whole number such as 300, 2k or 4Ki, got x",
    ]
    assert mistakes_of(tmp_path, '{"seed": 1, "seed": 2}', "plan.json") == ["plan.json: seed is given twice"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("load: {rate: 1", "plan.yaml:1:15: while parsing a flow mapping, did not find expected ',' or '}'"),
        ("load:\n\trate: 1\n", "plan.yaml:2:1: while scanning for the next token, found character that"),
        ("", "plan.yaml: is empty"),
        ("# nothing\n", "plan.yaml: is empty"),
        ("- 1\n- 2\n", "plan.yaml: must be settings by name such as `load: ...`, got [1, 2]"),
        ("just text", "plan.yaml: must be settings by name such as `load: ...`, got just text"),
        ("a: !!python/object:os.system x", "plan.yaml:1:4: the tag !!python/object:os.system has no meaning"),
        ("a: 1\n---\nb: 2\n", "plan.yaml:2:1: expected a single document"),
        ("1: 2", "plan.yaml: [1] must be a name"),
    ],
)
def test_text_that_is_no_plan(tmp_path: Path, text: str, mistake: str) -> None:
    (found,) = mistakes_of(tmp_path, text)
    assert found.startswith(mistake)


def test_json(tmp_path: Path) -> None:
    assert read(tmp_path, '{\n\t"load": {"rate": 5}}', "p.json").load.rate == 5
    assert mistakes_of(tmp_path, "{nope}", "p.json")[0].startswith("p.json:1:2: expecting property name")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("load: {rate: 5}", '{\t"load": {"rate": 5}}'):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert read_plan("-").load.rate == 5


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "steady.yaml").write_text("{}")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="file not found") as caught:
        read_plan(tmp_path / "staedy.yaml")
    assert caught.value.hint == f"did you mean {tmp_path / 'steady.yaml'}?"
    with pytest.raises(PlanError, match="is a folder"):
        read_plan(tmp_path)
    with pytest.raises(PlanError, match="is not text in UTF-8"):
        read_plan(tmp_path / "bytes.yaml")
