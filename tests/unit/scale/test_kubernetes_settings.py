"""llm-d's variables, scenario files and options: their priority, and no scenario is executed."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from inferometer.cli import execute
from inferometer.cli.k8s import run
from inferometer.cli.work.k8s import request_of
from inferometer.conduct.treatments import TreatmentRequest, all_manifests, stack_names, treatments_of
from inferometer.errors import PlanError
from inferometer.plan.opening import find_profile, profiles
from inferometer.plan.reading import read_plan
from inferometer.scale.kubernetes.settings import scenario_in, settings_from

SCENARIO = r"""
#!/usr/bin/env bash
# a comment
export LLMDBENCH_DEPLOY_MODEL_LIST="meta-llama/Llama-3.1-8B-Instruct,other/model"
export LLMDBENCH_VLLM_COMMON_NAMESPACE=from-scenario   # trailing
LLMDBENCH_HARNESS_CPU_NR='4'
export LLMDBENCH_HARNESS_PVC_NAME=${LLMDBENCH_NOT_SET:-pvc-of-scenario}
export LLMDBENCH_HARNESS_PVC_SIZE=$SIZE
export LLMDBENCH_LIST="one \
two"
export LLMDBENCH_EXTRA=$(mktemp)
cat << EOF > $LLMDBENCH_EXTRA
export LLMDBENCH_HARNESS_CPU_NR=99
EOF
rm -rf "$HOME/precious"
echo done > touched-by-a-scenario
"""


def test_defaults_are_those_of_llmd() -> None:
    settings = settings_from({})
    assert settings.models == ["meta-llama/Llama-3.2-1B-Instruct"]
    assert (settings.namespace, settings.harness_namespace) == ("llmdbench", "llmdbench")
    assert (settings.methods, settings.harness, settings.profile) == (
        ["modelservice"], "inference-perf", "sanity_random.yaml"
    )  # fmt: skip
    assert (settings.wait_s, settings.start_s, settings.cpu, settings.memory) == (3600, 900, "16", "32Gi")
    assert (settings.claim, settings.claim_size, settings.results) == ("workload-pvc", "20Gi", "/requests")
    assert not settings.skip and not settings.debug and not settings.dry_run


def test_environment_then_scenario_then_options(tmp_path: Path) -> None:
    file = tmp_path / "scenario.sh"
    file.write_text(SCENARIO)
    environ = {"LLMDBENCH_VLLM_COMMON_NAMESPACE": "from-env", "LLMDBENCH_HARNESS_CPU_MEM": "8Gi", "SIZE": "5Gi"}
    settings = settings_from(environ, str(file), {"namespace": None, "wait_s": 7})
    assert settings.namespace == settings.harness_namespace == "from-scenario"
    assert (settings.memory, settings.cpu, settings.wait_s) == ("8Gi", "4", 7)
    assert settings.models == ["meta-llama/Llama-3.1-8B-Instruct", "other/model"]
    assert (settings.claim, settings.claim_size) == ("pvc-of-scenario", "5Gi")
    assert settings_from(environ, str(file), {"namespace": "a,b"}).harness_namespace == "b"


def test_a_scenario_is_read_and_never_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read = scenario_in(SCENARIO, "s.sh", {})
    assert read.variables["LLMDBENCH_HARNESS_CPU_NR"] == "4"  # the here document is no assignment
    assert read.variables["LLMDBENCH_LIST"] == "one two"
    assert "LLMDBENCH_EXTRA" not in read.variables
    passed_over = "\n".join(read.notes)
    assert all(part in passed_over for part in ("mktemp", "cat << EOF", "rm -rf", "echo done"))
    assert list(tmp_path.iterdir()) == []


def test_the_harness_namespace_of_its_own_variable() -> None:
    settings = settings_from({"LLMDBENCH_VLLM_COMMON_NAMESPACE": "a", "LLMDBENCH_HARNESS_NAMESPACE": "b"})
    assert (settings.namespace, settings.harness_namespace) == ("a", "b")


def test_variables_without_effect_are_said() -> None:
    notes = settings_from({"LLMDBENCH_HARNESS_EXECUTABLE": "x.sh", "LLMDBENCH_IMAGE_TAG": "auto"}).notes
    assert notes == ["LLMDBENCH_HARNESS_EXECUTABLE has no effect: launcher pods run `inferometer worker`"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"wait_s": "soon"}, "wait_s"),
        ({"launcher_nodes": ["gpu"]}, "--launcher-node must be K=V, got gpu"),
        ({"cpu": "many", "claim_size": "20Gx"}, r"--cpu must be an amount(.|\n)*--pvc-size"),
        ({"pods": 0}, "-j must be at least 1"),
        ({"models": ""}, "-m and -t"),
    ],
)
def test_what_cannot_be_is_said(given: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        settings_from({}, None, given)


def test_a_scenario_that_is_not_there() -> None:
    with pytest.raises(PlanError, match="no such scenario file"):
        settings_from({}, "no-such-scenario")


def test_a_harness_named_with_a_plan_sends_it() -> None:
    senders = {
        (harness, plan): request_of(None, {"harness": harness}, plan, (), False).sender
        for harness in (None, "inferometer", "guidellm")
        for plan in ((), ("plan.yaml",))
    }
    assert {key for key, sender in senders.items() if sender == "guidellm"} == {("guidellm", ("plan.yaml",))}
    assert set(senders.values()) == {"inferometer", "guidellm"}
    named = request_of(None, {"harness": "guidellm", "generator": "inferometer"}, ("plan.yaml",), (), False)
    assert named.sender == "inferometer"


@pytest.mark.parametrize("name", ["inferencemax", "lm-eval", "eval-containers", "priority-mix", "no-such"])
def test_harnesses_that_are_none_here_are_refused_by_name(name: str) -> None:
    with pytest.raises(PlanError, match=f"--harness {name}: "):
        all_manifests(
            None, TreatmentRequest(settings_from({}, None, {"harness": name, "url": "http://llm:8000"})), print
        )
    with pytest.raises(PlanError, match=f"--harness {name}: "):  # before a cluster is asked
        request_of(None, {"harness": name}, (), (), False)


def test_a_plan_that_a_harness_cannot_send_is_refused_before_a_pod_has_it(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("workload: {turns: 3}\nstop: {requests: 5}\n")
    typed = {"harness": "vllm-benchmark", "url": "http://llm:8000", "models": "m"}
    request = request_of(None, typed, (str(tmp_path / "plan.yaml"),), (), True)
    with pytest.raises(PlanError, match="vllm-benchmark cannot express"):
        all_manifests(None, request, lambda _note: None)
    request = request_of(None, typed | {"harness": "fmperf"}, (str(tmp_path / "plan.yaml"),), (), True)
    with pytest.raises(PlanError, match="fmperf sends one rate for a duration"):
        all_manifests(None, request, lambda _note: None)


@pytest.mark.parametrize("profile", [each.name for each in profiles({}) if each.name.startswith("fmperf/")])
def test_fmperfs_own_profiles_are_sent_by_its_image(profile: str) -> None:
    """A profile of several rates has a treatment for each: every rate is a run."""
    name = profile.removeprefix("fmperf/")
    typed = {"harness": "fmperf", "generator": "harness", "profile": name, "url": "http://llm:8000", "models": "m"}
    request = request_of(None, typed, (), (), True)
    treatments = treatments_of(request, None, lambda _note: None)
    rates = [treatment.plan.load.rate for treatment in treatments]
    load = read_plan(find_profile(profile, {}).path).load
    assert rates == ([stage.rate for stage in load.stages] or [load.rate])
    assert treatments[-1].name == (f"rate={rates[-1]:g}" if load.stages else "")


def test_a_tool_without_a_package_has_a_container_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPUs and the memory of a launcher; ours next to it watches the server."""
    (tmp_path / "plan.yaml").write_text("load: {rate: 1}\nworkload: {turns: 2}\nstop: {duration: 30s}\n")
    typed = {"harness": "fmperf", "url": "http://llm:8000", "models": "m", "cpu": "8", "token": "hf_abc"}
    request = request_of(None, typed, (str(tmp_path / "plan.yaml"),), (), True)
    made = [thing for thing in all_manifests(None, request, lambda _note: None) if thing.kind == "Job"]
    ours, tool = made[0].to_dict()["spec"]["template"]["spec"]["containers"]
    assert (ours["resources"]["limits"]["cpu"], tool["resources"]["limits"]["cpu"]) == ("1", "8")
    assert tool["image"] == "lmcache/lmcache-benchmark:main" and tool["securityContext"]["runAsUser"] == 1000
    mounted = {one["mountPath"] for one in tool["volumeMounts"]}
    assert mounted == {"/tmp", "/inferometer-tool"} and mounted < {one["mountPath"] for one in ours["volumeMounts"]}
    assert "HF_TOKEN" in {one["name"] for one in tool["env"]}
    for version in ("1.25", "1.30", "1.37"):
        kubernetes_validate.validate(made[0].to_dict(), version, strict=True)
    environ = {"LLMDBENCH_HARNESS_CONTAINER_IMAGE": "mine:1"}
    assert settings_from(environ, None, typed).tool_image == "mine:1"


@pytest.mark.parametrize(
    ("named", "typed", "environ", "methods", "model", "stack"),
    [
        ("{model: mine/of-8b}", {}, {}, "standalone", "mine/of-8b", "standalone-8b-base"),
        ("{}", {}, {}, "standalone", None, "standalone"),
        ("{}", {}, {}, "my-service", None, "my-service"),
        ("{model: mine/of-8b}", {"models": "other-1b"}, {}, "standalone", "other-1b", "standalone-1b-base"),
        ("{}", {}, {"LLMDBENCH_DEPLOY_MODEL_LIST": "other-1b"}, "my-service", "other-1b", "my-service-1b-base"),
    ],
)
def test_the_model_of_a_plan_of_ours_goes_before_llmds_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, typed: dict[str, str], environ: dict[str, str],
    methods: str, model: str | None, stack: str,
) -> None:  # fmt: skip
    """A plan without a model leaves it to the server, as everywhere else."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "plan.yaml").write_text(f"target: {named}\nstop: {{requests: 5}}\n")
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(f"plan: {{target: {named}, stop: {{requests: 5}}}}\naxes: {{load.concurrency: [1, 2]}}\n")
    for plan, more in ((("plan.yaml",), {}), ((), {"experiment": str(experiment)})):
        words = tuple(str(tmp_path / name) for name in plan)
        request = request_of(None, {"methods": methods, **typed, **more}, words, (), "models" in typed)
        treatments = treatments_of(request, None, lambda _note: None)
        assert {(one.plan.target.model, one.stack) for one in treatments} == {(model, stack)}


def test_a_profile_of_llmd_has_its_default_model() -> None:
    (treatment,) = treatments_of(request_of(None, {"methods": "standalone"}, (), (), False), None, lambda _note: None)
    assert (treatment.plan.target.model, treatment.stack) == (
        "meta-llama/Llama-3.2-1B-Instruct", "standalone-1b-instruct"
    )  # fmt: skip


def test_every_option_of_run_sh_is_taken_in_all_its_forms(capsys: pytest.CaptureFixture[str]) -> None:
    """`-x v`, `-x=v`, `--long v` and `--long=v`; what each means is a variable's value, too."""
    values = {
        "-c/--scenario": "s.sh", "-m/--models": "m", "-p/--namespace": "a,b", "-t/--methods": "t", "-l/--harness": "h",
        "-w/--workload": "w", "-k/--pvc": "k", "-e/--experiment": "e", "-e/--experiments": "e", "-o/--overrides": "x=1",
        "-s/--wait": "7", "-r/--output": "r", "-U/--endpoint-url": "u", "-j/--parallelism": "2", "-g/--envvars": "G",
        "-q/--serviceaccount": "q", "-s/--wait-timeout": "7", "-w/--workload-file-path": "f",
    }  # fmt: skip
    for names, value in values.items():
        short, long = names.split("/")
        forms = [[short, value], [f"{short}={value}"], [long, value], [f"{long}={value}"]]
        parsed = [run.make_context("run", list(words)).params for words in forms]
        assert all(one == parsed[0] for one in parsed), names
        assert value in map(str, parsed[0].values()) or (value,) in parsed[0].values(), names
    for short, long in (("-n", "--dry-run"), ("-z", "--skip"), ("-v", "--verbose"), ("-d", "--debug")):
        assert run.make_context("run", [short]).params == run.make_context("run", [long]).params, long
    assert run.make_context("run", ["--analyze", "--monitoring"]).params == run.make_context("run", []).params
    assert execute(["k8s", "run", "-h"]) == 0
    assert "run.sh" in capsys.readouterr().out


def test_what_llmd_names_after_its_stack() -> None:
    environ = {"LLMDBENCH_VLLM_COMMON_PVC_STORAGE_CLASS": "default", "LLMDBENCH_VLLM_COMMON_HF_TOKEN_NAME": "hf"}
    settings = settings_from(environ)
    assert settings.storage_class is None  # the cluster's, as with run.sh
    assert (settings.token_secret, settings.token_key, settings.release) == ("hf", "HF_TOKEN", "llmdbench")
    names = stack_names("modelservice", ["meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen3-0.6B"])
    assert list(names.values()) == ["llm-d-1b-instruct", "llm-d-0p6b-base"]
    same = stack_names("standalone", ["a/Llama-3.1-8B-Instruct", "b/granite-8b-instruct"])
    assert list(same.values()) == ["standalone-a-llama-3.1-8b-instruct", "standalone-b-granite-8b-instruct"]


@pytest.mark.parametrize("id_", ["x" * 41, "of mine", "a/b", "-a", "a.", "ü"])
def test_an_id_that_cannot_be_part_of_a_name_is_refused(id_: str) -> None:
    with pytest.raises(PlanError, match="--id must be up to 40 letters"):
        settings_from({}, None, {"id": id_})


def test_the_longest_id_makes_names_that_a_cluster_takes() -> None:
    settings = settings_from({}, None, {"id": "x" * 40, "url": "http://llm:8000", "pods": 12, "models": "a-1b"})
    jobs = [thing for thing in all_manifests(None, TreatmentRequest(settings), lambda _: None) if thing.kind == "Job"]
    assert jobs and all(len(str(job.metadata.name)) + len("-11") <= 63 for job in jobs if job.metadata)
