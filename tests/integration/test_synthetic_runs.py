"""Generated sessions over real HTTP: exact by the server's /tokenize, primed, in classes; the examples and guide."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

import command_line
from inferometer.load.shard import ShardJob, run_shard
from inferometer.load.transport import Encoder
from inferometer.plan.model import Plan
from inferometer.plan.reading import mapping_in, plan_from
from inferometer.record.log import read_log
from inferometer.record.record import AS_PLANNED
from inferometer.target.server import running
from inferometer.wire.origin import origin_of
from inferometer.workload.session import Request, WorkloadContext
from inferometer.workload.writer import writer_of

ROOT = Path(__file__).parents[2]
PRIORITY = {"sampling": {"extra": {"priority": 10}}, "headers": {"X-Class": "batch"}}


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    args = {"speed": 20, "adapters": ["lora"]}
    with running(Plan(server={"args": args}).server, tmp_path_factory.mktemp("server")) as server:
        yield server.url


def records_of(url, folder, plan):
    read = Plan.model_validate({"target": {"url": url, "api": "chat"}, "load": {"concurrency": 4}} | plan)
    job = ShardJob(read.model_dump(mode="json"), str(folder / "log"), "nonce", "simulated-8b")
    report = run_shard(job)
    return read_log(folder / "log").records, report


@pytest.mark.parametrize("api, added, between", [("completions", 0, 0), ("chat", 5, 6)])
def test_the_server_says_what_it_adds(url: str, api: str, added: int, between: int) -> None:
    writer = writer_of("text", 0, "server", WorkloadContext("simulated-8b", api=api, url=url))
    assert (writer.added, writer.between, writer.exact) == (added, between, True)


def test_lengths_are_exact_turn_by_turn(url: str, tmp_path: Path) -> None:
    workload = {"input_tokens": "20-60", "output_tokens": 5, "turns": "1-3", "tokenizer": "server"}
    records, _ = records_of(url, tmp_path, {"workload": workload, "stop": {"sessions": 12}})
    assert {each.outcome for each in records} == {"ok"}
    assert [each.requested_input for each in records] == [each.input_tokens for each in records]
    assert max(each.turn for each in records) == 2


def test_beginnings_are_primed_before_the_load_and_found_in_it(url: str, tmp_path: Path) -> None:
    workload = {
        "input_tokens": 400,
        "output_tokens": 1,
        "prefix": {"hit_rate": 0.5, "groups": 6},
        "tokenizer": "server",
    }
    records, report = records_of(url, tmp_path, {"workload": workload, "stop": {"requests": 40}})
    (primed,) = report.primed
    assert (primed.requests, primed.failed) == (6, 0)
    assert len(records) == 40
    share = sum(each.cached_tokens for each in records) / sum(each.input_tokens for each in records)
    assert share == pytest.approx(0.5, abs=0.03)


def test_models_priorities_and_headers_go_with_their_class(url: str, tmp_path: Path) -> None:
    people = {"name": "people", "workload": {"output_tokens": 2, "models": {"simulated-8b": 1, "lora": 1}}}
    batch = {"name": "batch", "workload": {"output_tokens": 2}} | PRIORITY
    plan = {"traffic": [people, batch], "stop": {"requests": 10}}
    records, _ = records_of(url, tmp_path, plan)
    assert {(each.traffic, each.outcome) for each in records} == {("people", "ok"), ("batch", "ok")}
    assert {each.model for each in records if each.traffic == "people"} <= {"simulated-8b", "lora"}
    assert {each.model for each in records if each.traffic == "batch"} == {None}


def test_a_class_has_its_own_fields_and_headers() -> None:
    plan = Plan.model_validate({"target": "http://localhost:1", "traffic": [PRIORITY, {}]})
    batch, other = (
        Encoder(plan, each, "m").encode(Request("x"), origin_of("http://localhost:1")) for each in plan.classes
    )
    assert b'"priority":10' in batch and b"X-Class: batch" in batch
    assert b"priority" not in other and b"X-Class" not in other


def test_images_are_sent_in_messages(url: str, tmp_path: Path) -> None:
    workload = {"input_tokens": 8, "output_tokens": 2, "images": {"width": 64, "height": 48}}
    records, _ = records_of(url, tmp_path, {"workload": workload, "stop": {"requests": 4}, "save": {"prompts": True}})
    assert {each.outcome for each in records} == {"ok"}
    (message,) = json.loads(records[0].prompt)
    assert [part["type"] for part in message["content"]] == ["image_url", "text"]


@pytest.mark.parametrize("name", ["shared-prefix", "sessions", "mixed-classes", "images"])
def test_an_example_of_made_up_sessions_runs(name: str, tmp_path: Path) -> None:
    done = command_line.command("simulate", f"examples/{name}.yaml", store=tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_plans_of_the_guide_are_plans() -> None:
    text = (ROOT / "docs/guides/synthetic.md").read_text(encoding="utf-8")
    found = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(found) > 6
    for block in found:
        plan, twice = mapping_in(block, "the guide")
        assert not twice and plan_from(plan, where="the guide")


def test_requests_cancelled_on_purpose_leave_the_others_alone(url: str, tmp_path: Path) -> None:
    """Those to be cancelled are known by the seed, and would take seconds: no clock decides how many there are."""
    cancelled = {"name": "impatient", "workload": {"input_tokens": 8, "output_tokens": 8_000}, "stop": 5}
    cancelled["load"] = {"concurrency": 2, "cancel": {"share": 1, "after": "100ms"}}
    patient = {"name": "patient", "workload": {"input_tokens": 8, "output_tokens": 4}, "stop": 8}
    records, _ = records_of(url, tmp_path, {"traffic": [cancelled, patient]})
    ended = [each for each in records if each.traffic == "impatient"]
    assert len(ended) == 5 and {(each.outcome, each.error) for each in ended} == {("cancelled", AS_PLANNED)}
    assert all(each.ended_at - each.sent_at >= 90_000_000 for each in ended)
    assert [each.outcome for each in records if each.traffic == "patient"] == ["ok"] * 8


def test_requests_cancelled_after_tokens_are_seen_to_leave_by_the_server(url: str, tmp_path: Path) -> None:
    """Answers are so long that no server could have sent all of one before the client closes the connection."""
    workload = {"input_tokens": 8, "output_tokens": 8_000}
    load = {"concurrency": 2, "cancel": {"share": 1, "after_tokens": 3}}
    records, _ = records_of(url, tmp_path, {"workload": workload, "load": load, "stop": 6})
    assert [(each.outcome, each.error) for each in records] == [("cancelled", AS_PLANNED)] * 6
    received = [int(np.frombuffer(each.read_tokens, "<i8").sum()) for each in records]
    assert all(3 <= tokens < 8_000 for tokens in received), received
    ours = {each.request_id for each in records}
    for _ in range(100):  # the server notices at its next write
        with urlopen(f"{url}/truth") as answer:
            endings = [each["ending"] for each in json.load(answer)["requests"] if each["id"] in ours]
        if None not in endings:
            break
    assert endings == ["left"] * 6


def test_structured_answers_are_checked_one_by_one(tmp_path: Path) -> None:
    """A class for each form: JSON by a schema with half of the answers spoiled, and one that asks for nothing."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    wanted = [{"json_schema": schema}, {"regex": "[a-f]{3}-[0-9]+"}, {"choice": ["yes", "not at all"]}, None]
    traffic = [
        {"name": str(number), "workload": {"output_tokens": 200}, "stop": 10} | {"sampling": {"structured": form}}
        for number, form in enumerate(wanted)
    ]
    with running(Plan(server={"args": {"speed": 20, "structure_errors": 0.5}}).server, tmp_path) as server:
        records, _ = records_of(server.url, tmp_path, {"traffic": traffic, "save": {"answers": True}})
    assert {each.outcome for each in records} == {"ok"} and len(records) == 40
    for each in records:
        expected = None if each.traffic == "3" else "invalid" if each.answer.endswith(" ~") else "valid"
        assert each.structure == expected, each.answer
    assert {each.structure for each in records} == {"valid", "invalid", None}
