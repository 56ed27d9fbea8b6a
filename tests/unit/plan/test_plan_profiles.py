"""Built-in plans: each is valid and runs, use cases match the guide's table, the user's profiles have priority."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.errors import PlanError
from inferometer.plan.opening import BUILT_IN, find_profile, folders, open_plan, profiles
from inferometer.plan.reading import read_plan
from inferometer.simulator.virtual import rehearse
from inferometer.workload.draws import quantile_of
from inferometer.workload.session import workload_of

NOWHERE = {"XDG_CONFIG_HOME": "/nowhere"}
USE_CASES = {  # input, output: short < 150 <= medium < 1500 <= long; what the limits are on
    "chat": ("medium", "medium", "tpot"),
    "text-classification": ("medium", "short", "e2e"),
    "image-classification": ("short", "short", "e2e"),  # the image is the long part
    "rag": ("long", "medium", "tpot"),
    "text-generation": ("short", "medium", "tpot"),
    "translation": ("medium", "medium", "tpot"),
    "code-completion": ("long", "short", "e2e"),
    "code-generation": ("long", "medium", "e2e"),
}


def size(tokens: float) -> str:
    return "short" if tokens < 150 else "medium" if tokens < 1500 else "long"


@pytest.mark.parametrize("profile", profiles(NOWHERE), ids=lambda each: each.name)
def test_every_profile_is_a_plan_with_a_reason(profile):
    plan = read_plan(profile.path)
    assert plan.name == profile.name
    assert profile.about == plan.about.strip()
    assert len(profile.about) > 40


@pytest.mark.parametrize("name", USE_CASES)
def test_use_cases_are_what_their_row_says(name):
    plan = read_plan(find_profile(name, NOWHERE).path)
    inputs, outputs, limited = USE_CASES[name]
    assert size(plan.workload.mean_input) == inputs
    assert size(plan.workload.mean_output) == outputs
    measures = {limit.measure for limit in plan.limits}
    assert limited in measures and "failure_rate" in measures
    assert ("ttft" in measures) == (limited == "tpot")
    assert (plan.workload.images is not None) == (name == "image-classification")


@pytest.mark.parametrize("name", [each.name for each in profiles(NOWHERE) if "sharegpt" not in each.name])
def test_every_profile_runs(name):
    more = ["server={type: simulator, args: {max_model_len: 32768}}"] if "/" in name else []  # llm-d's are longer
    plan = open_plan([name], ["stop={requests: 3}", "load={rate: 100}", *more], environ=NOWHERE).plan
    records, _ = rehearse(plan)
    assert len(records) >= 3
    assert records.outcome.mask("ok").all()


@pytest.mark.parametrize(("pair", "requests"), [("300-100", 2250), ("500-200", 1285), ("800-300", 819)])
def test_online_pairs_have_the_requests_of_three_minutes(pair: str, requests: int) -> None:
    assert read_plan(find_profile(f"online/{pair}", NOWHERE).path).stop.requests == requests


def test_a_folder_of_ones_own_stands_before_ours(tmp_path: Path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "chat.yaml").write_text("about: Ours is not mine.\nload: {concurrency: 3}\n")
    (tmp_path / "mine" / "night.json").write_text('{"load": {"concurrency": 4}}')
    environ = {"INFEROMETER_PROFILES": str(tmp_path), **NOWHERE}
    assert find_profile("chat", environ).origin == str(tmp_path)
    assert open_plan(["night"], environ=environ).plan.load.concurrency == 4
    assert {each.name for each in profiles(environ) if each.origin == BUILT_IN} >= {"rag", "online/300-100"}
    assert folders(environ)[0] == tmp_path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "here.yaml").write_text("seed: 5\n")
    assert open_plan(["here"], environ=NOWHERE).plan.seed == 5


def test_a_name_that_is_none_tells_what_was_meant(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError, match="no such file or profile") as caught:
        open_plan(["chta"], environ=NOWHERE)
    assert caught.value.hint == "did you mean chat?"
    with pytest.raises(PlanError, match="several profiles have this name: inference-perf/sanity_random, vllm-bench"):
        open_plan(["sanity_random"], environ=NOWHERE)
    with pytest.raises(PlanError, match=r"plam\.yaml: file not found"):
        open_plan(["plam.yaml"], environ=NOWHERE)
    Path("folder").mkdir()
    with pytest.raises(PlanError, match="is a folder"):
        open_plan(["folder"], environ=NOWHERE)


def test_the_command_lists_and_prints(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    listed = CliRunner().invoke(group, ["profiles"])
    assert listed.exit_code == 0
    for name in ("chat", "inference-perf/sanity_random", "fmperf/sanity_sharegpt", "guidellm/sanity_concurrent"):
        assert f"{name} " in listed.output
    printed = CliRunner().invoke(group, ["profiles", "chat"])
    assert printed.output == find_profile("chat", NOWHERE).path.read_text()


@pytest.mark.parametrize("name", [each.name for each in profiles(NOWHERE) if "sharegpt" not in each.name])
def test_no_profile_repeats_a_prompt_unless_it_says_so(name):
    workload = read_plan(find_profile(name, NOWHERE).path).workload
    if workload.images is not None:
        workload = workload.model_copy(update={"images": None})  # 400 of them are slow; each is new
    tape = workload_of(workload, 0, 0, "nonce")
    prompts = {str(tape(index).turns[0].prompt) for index in range(400)}
    prefix = workload.prefix
    made = prefix.groups * prefix.prompts if prefix is not None and prefix.prompts else 400
    assert len(prompts) == min(400, workload.count or 400, made)


@pytest.mark.parametrize("name", ["chat", "rag", "code-completion", "code-generation"])
def test_bounds_leave_the_mean_where_the_profile_says_it_is(name: str) -> None:
    workload = read_plan(find_profile(name, NOWHERE).path).workload
    draw = quantile_of(workload.input_tokens)
    mean = sum(draw((at + 0.5) / 2000) for at in range(2000)) / 2000
    assert mean == pytest.approx(workload.mean_input, rel=0.05)
