"""Every key of another tool's plan is accounted for: translated, noted, without effect, or refused by name."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.errors import PlanError
from inferometer.plan.foreign.common import Account, Settings
from inferometer.plan.foreign.explain import audit, explain_command, explain_file

PERF = """\
load: {type: constant, interval: 15, stages: [{rate: 1, duration: 30}, {rate: 2, duration: 30}]}
api: {type: chat, streaming: true}
server: {type: vllm, model_name: m, base_url: http://localhost:8000}
data: {type: random, input_distribution: {type: uniform, min: 5, max: 9}, output_distribution: {type: fixed, mean: 7}}
report: {request_lifecycle: {summary: true}}
"""


def test_a_key_that_nobody_reads_is_refused_by_its_name() -> None:
    settings = Settings({"data": {"type": "random", "multimodal": {"image": {"count": 2}}}}, Account("inference-perf"))
    settings.section("data").text("type")
    with pytest.raises(PlanError, match=r"inference-perf: data\.multimodal\.image\.count is not understood, got 2"):
        settings.settle()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("report: {", "new_section: {a: 1}\nreport: {", "new_section.a"),
        ("{summary: true}", "{summary: true, new: 1}", "report.request_lifecycle.new"),
        ("report: {", "storage: {local_storage: {path: x, new: 1}}\nreport: {", "storage.local_storage.new"),
        ("report: {", "metrics: {type: prometheus, prometheus: {new: {a: 1}}}\nreport: {", "metrics.prometheus.new.a"),
        ("interval: 15,", "interval: 15, new: 1,", "load.new"),
    ],
)
def test_an_unknown_key_is_refused_also_where_a_section_has_no_effect(
    tmp_path: Path, old: str, new: str, name: str
) -> None:
    file = tmp_path / "config.yml"
    file.write_text(PERF.replace(old, new))
    with pytest.raises(PlanError, match=rf"inference-perf: {name} is not understood"):
        explain_file(file)
    assert [(result.status, name in result.cause) for result in audit(tmp_path)] == [("refused", True)]


def test_a_section_that_is_read_as_a_whole_answers_for_its_keys() -> None:
    settings = Settings({"headers": {"a": "b"}, "empty": None}, Account("t"))
    assert settings.value("headers") == {"a": "b"}
    settings.settle()
    assert [(entry.source, entry.outcome) for entry in settings.account.entries()] == [
        ("headers.a", "translated"),
        ("empty", "no effect"),
    ]


def test_mistakes_come_before_what_was_not_reached() -> None:
    settings = Settings({"count": "many", "other": 1}, Account("t"))
    settings.count("count")
    with pytest.raises(PlanError) as caught:
        settings.settle()
    assert caught.value.mistakes == ["t: count must be a whole number, got many"]


def test_where_a_key_went_is_found_by_leaving_it_out(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text(PERF)
    found = explain_file(file)
    assert found is not None and not found.lost
    entries = {entry.source: entry for entry in found.entries}
    assert entries["server.base_url"].where == ("target.url",)
    assert "load.stages.1.rate" in entries["load.interval"].where
    assert entries["report.request_lifecycle.summary"].outcome == "no effect"


def test_a_command_is_explained_flag_by_flag() -> None:
    found = explain_command(shlex.split("vllm bench serve --random-input-len 1000 --request-rate 4 --disable-tqdm"))
    where = {entry.source: entry.where for entry in found.entries}
    assert where["--random-input-len"] == ("workload.input_tokens",)
    assert "load.rate" in where["--request-rate"]
    assert [entry.note for entry in found.entries if entry.outcome == "no effect"] != []


def test_the_account_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text(PERF)
    result = CliRunner().invoke(group, ["plan", "show", "--explain", str(file)])
    assert result.exit_code == 0
    assert "load.stages.0.rate = 1 -> load.stages.0.rate" in result.output
    assert "server.type = vllm: no effect: the API decides what is sent" in result.output


def test_an_audit_tells_plans_from_other_files(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(PERF)
    (tmp_path / "compose.yml").write_text("services: {web: {image: nginx}}\n")
    (tmp_path / "refused.yml").write_text(PERF.replace("type: random", "type: dreams"))
    commands = [
        "vllm bench serve --model m --num-prompts 5",
        "guidellm run --<option> kind=<TYPE>,key=value,...",
        "vllm bench sweep plot results",
        "vllm bench serve --magic 5",
        "vllm bench serve --model m --num-prompts 6  # a comment",
        "vllm bench serve --model m --num-prompts 7 2>&1 | tee out.log",
        "vllm bench serve --model m --num-prompts $HOW_MANY > out.log",
        "vllm bench {latency, serve, throughput}",
        "inference-perf --analyze reports",
        "vllm bench serve --model m \\",
    ]
    (tmp_path / "chart.yaml").write_text("apiVersion: v1\nload: {{ .Values.load }}\n")
    (tmp_path / "MANIFEST.in").write_text("include *\n")
    (tmp_path / "torn.yml").write_text("load: {type: constant\ndata: 3\n")
    (tmp_path / "README.md").write_text("```\n" + "\n".join(commands) + "\n```\n")
    statuses = {finding.name.rpartition(": ")[2]: finding.status for finding in audit(tmp_path)}
    assert statuses == {
        commands[0]: "understood",
        commands[1]: "no plan",
        commands[2]: "no plan",
        commands[3]: "refused",
        commands[4]: "understood",
        commands[5]: "understood",
        commands[6]: "no plan",
        commands[7]: "no plan",
        commands[8]: "no plan",
        "vllm bench serve --model m": "understood",
        "chart.yaml": "no plan",
        "torn.yml": "refused",
        "compose.yml": "no plan",
        "config.yml": "understood",
        "refused.yml": "refused",
    }
