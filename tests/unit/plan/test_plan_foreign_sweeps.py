"""Other tools' sweeps: command lines and files with several runs, as the experiments that a person would write."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from inferometer.cli.group import group
from inferometer.errors import PlanError
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import experiment_from, to_yaml
from inferometer.plan.foreign.common import IsExperiment
from inferometer.plan.foreign.recognise import open_experiment
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import mapping_in

GUIDE = "guidellm benchmark run --target http://h:1 --data prompt_tokens=256,output_tokens=128"
GUIDE_RUN = "guidellm run --backend kind=openai_http,target=http://h:1 --data kind=synthetic_text,prompt_tokens=256"
LOW, HIGH = {"load": {"type": "concurrency", "concurrency": 1}}, {"load": {"type": "concurrency", "concurrency": 512}}


def opened(line, *overrides):
    found = open_experiment(shlex.split(line), overrides)
    experiment = found.experiment
    assert experiment_from(mapping_in(to_yaml(experiment), "")[0]) == experiment  # what plan show prints
    assert cases_of(experiment)
    return found


@pytest.mark.parametrize(
    ("flags", "count", "kind", "stop"),
    [
        ("--rate-type sweep --max-seconds 30", 8, "constant", {"duration": 30}),
        ("--max-seconds 30", 8, "constant", {"duration": 30}),  # it is the default there
        ("--profile sweep --rate 5 --max-seconds 30", 3, "constant", {"duration": 30}),
        ("--profile sweep --rate 2 --max-requests 700", 0, "constant", {"requests": 700}),
    ],
)
def test_guidellms_sweep(flags: str, count: int, kind: str, stop):
    experiment = opened(f"{GUIDE} {flags}").experiment
    assert experiment.plan["stop"] == stop and "load" not in experiment.plan
    levels = experiment.levels
    assert (levels.low, levels.high, levels.count, levels.ends, levels.spacing) == (LOW, HIGH, count, "high", "linear")
    assert levels.set == {"load": {"type": kind, "max_concurrency": 512}}


def test_guidellms_sweep_since_0_7() -> None:
    profile = "--profile kind=sweep,sweep_size=6,strategy_type=poisson,max_concurrency=32,warmup=0.1"
    found = opened(f"{GUIDE_RUN} {profile} --constraint kind=max_duration,seconds=20")
    levels = found.experiment.levels
    assert (levels.count, levels.high["load"]["concurrency"]) == (4, 32)
    assert levels.set == {"load": {"type": "poisson", "max_concurrency": 32}}
    assert found.experiment.plan["stop"] == {"duration": 18} and found.experiment.plan["warmup"] == {"duration": 2}
    assert found.experiment.plan["workload"] == {"input_tokens": 256, "output_tokens": None}
    few = opened(f"{GUIDE_RUN} --profile kind=sweep --constraint kind=max_requests,count=10").experiment
    assert few.levels.high == {"load": {"type": "concurrency", "concurrency": 10}}


def test_guidellms_scenario_without_a_backend(tmp_path: Path) -> None:
    """As its own ready ones are: a sweep over made-up text, aimed by whoever runs it."""
    said = {"spec": {"profile": {"kind": "sweep"}, "data": [{"kind": "synthetic_text", "prompt_tokens": 512}]}}
    (tmp_path / "chat.json").write_text(json.dumps(said))
    found = open_experiment(tmp_path / "chat.json", ["target.url=http://h:1"])
    assert found.experiment.levels.count == 8
    assert {case.plan.target.url[0] for case in cases_of(found.experiment)} == {"http://h:1"}
    line = f"guidellm run -c {tmp_path / 'chat.json'} --profile kind=sweep,sweep_size=4"
    assert opened(line).experiment.levels.count == 2


@pytest.mark.parametrize(
    ("line", "path", "values"),
    [
        (f"{GUIDE} --rate-type constant --rate 1,2,4 --max-seconds 9", "load.rate", [1, 2, 4]),
        (f"{GUIDE} --rate-type poisson --rate 1 --rate 2.5 --max-requests 9", "load.rate", [1, 2.5]),
        (f"{GUIDE} --rate-type concurrent --rate 1,8 --max-requests 90", "load.concurrency", [1, 8]),
        (
            f'{GUIDE_RUN} --profile \'{{"kind": "concurrent", "streams": [16, 32]}}\' '
            "--constraint kind=max_requests,count=90",
            "load.concurrency",
            [16, 32],
        ),
        (f"{GUIDE_RUN} --profile kind=constant --override profile.rate 10,20", "load.rate", [10, 20]),
    ],
)
def test_lists_of_levels_are_axes(line: str, path: str, values):
    experiment = opened(line).experiment
    assert experiment.axes == {path: values}
    for case, value in zip(cases_of(experiment), values, strict=True):
        assert getattr(case.plan.load, path.partition(".")[2]) == value


def test_rates_of_conversations_are_of_sessions() -> None:
    line = GUIDE.replace("output_tokens=128", "output_tokens=128,turns=4")
    assert opened(f"{line} --rate-type constant --rate 4,8").experiment.axes == {"load.rate": [1, 2]}


def test_concurrencies_without_a_time_are_an_experiment_alone() -> None:
    words = shlex.split(f"{GUIDE} --rate-type concurrent --rate 1,8 --max-requests 90")
    with pytest.raises(IsExperiment, match="an experiment and not a plan") as caught:
        open_plan(words)
    assert shlex.split(caught.value.hint) == ["inferometer", "sweep", "--", *words]


def test_one_file_for_all_cases_is_not_written() -> None:
    found = opened(f"{GUIDE} --rate-type constant --rate 1,2 --max-seconds 9 --outputs json")
    assert "outputs" not in found.experiment.plan
    assert any(note.startswith("outputs: every case is stored as a run") for note in found.notes)


PERF = "data: {type: random}\nserver: {base_url: 'http://h:1'}\napi: {type: chat}\nload: "


def perf(tmp_path: Path, load, *changes):
    (tmp_path / "config.yml").write_text(PERF + json.dumps(load))
    return open_experiment(tmp_path / "config.yml", changes=changes).experiment


def test_inference_perfs_sweep(tmp_path: Path) -> None:
    experiment = perf(tmp_path, {"type": "poisson", "sweep": {"type": "geometric"}}, "load.sweep.num_stages=4")
    levels = experiment.levels
    assert (levels.low, levels.count, levels.ends, levels.spacing) == (1, 4, "both", "narrowing")
    assert levels.measure == "drain_rate p95"
    assert levels.high == {"load": {"type": "poisson", "rate": 400}, "stop": {"requests": 2000, "drain": "55s"}}
    assert levels.set == {"load": {"type": "poisson"}, "stop.duration": "180s"}
    assert [case.label for case in cases_of(experiment)] == ["high", *(f"rate {n} of 4" for n in (1, 2, 3, 4))]


def test_inference_perfs_stages_each_a_run(tmp_path: Path) -> None:
    stages = [{"concurrency_level": level, "num_requests": 10 * level} for level in (1, 4)]
    experiment = perf(tmp_path, {"type": "concurrent", "stages": stages})
    assert experiment.zip == [{"load.concurrency": [1, 4], "stop.requests": [10, 40]}]
    rates = perf(tmp_path, {"stages": [{"rate": 1, "duration": 30}, {"rate": 2, "duration": 20}]})
    assert [(case.plan.load.type, case.plan.load.rate, case.plan.stop.duration) for case in cases_of(rates)] == [
        *(("poisson", 1, 30), ("poisson", 2, 20)),
    ]
    with pytest.raises(PlanError, match="is one run, a plan and not an experiment") as caught:
        perf(tmp_path, {"stages": [{"rate": 1, "duration": 30}]})
    assert caught.value.hint == f"inferometer run {tmp_path / 'config.yml'}"


# -- vLLM --------------------------------------------------------------------------------------------------------------

BENCH = "vllm bench serve --model m --dataset-name random --random-input-len 100 --num-prompts 50 --port 8000"


def test_vllms_own_sweep_over_values() -> None:
    rates = opened("vllm-bench --sweep-request-rate 1,2.5,inf --num-prompts 50").experiment
    assert [(case.plan.load.type, case.plan.load.rate or case.plan.load.concurrency) for case in cases_of(rates)] == [
        *(("poisson", 1), ("poisson", 2.5), ("concurrency", 50)),
    ]
    line = "vllm-bench --sweep-max-concurrency 1,8 --sweep-num-prompts-factor 10 --save-result"
    found = opened(line)
    assert [(case.plan.load.concurrency, case.plan.stop.requests) for case in cases_of(found.experiment)] == [
        *((1, 10), (8, 80)),
    ]
    assert not any(case.plan.outputs for case in cases_of(found.experiment))
    assert len(cases_of(opened("vllm bench serve --request-rate 1,2 --num-prompts 5").experiment)) == 2


def test_rays_ranges_of_rates_are_a_run_for_each_rate() -> None:
    line = "python benchmark.py --dataset-path a.json --num-prompts 48 --max-concurrency 5 --multi"
    found = opened(f"{line} --request-rate-range 2,8,2 --with-warmup true").experiment
    assert found.axes == {"load.rate": [2, 4, 6]}
    assert found.plan["load"] == {"type": "poisson", "rate": 2, "max_concurrency": 5}
    assert found.plan["stop"] == {"requests": 48} and found.plan["warmup"] == {"tape": True}
    assert opened(line).experiment.axes["load.rate"] == list(range(2, 34, 2)), "its default"
    assert opened(f"{line} --request-rate-range 1,5").experiment.axes == {"load.rate": [1, 5]}
    with pytest.raises(IsExperiment):  # stages of one run have one warm-up together
        open_plan(shlex.split(f"{line} --with-warmup true"))
    for wrong in ("x", "0", "5,1,-1", "nan"):
        with pytest.raises(PlanError, match="--request-rate-range must be start,stop,step or a list of rates, got"):
            open_experiment(shlex.split(f"{line} --request-rate-range {wrong}"))


def sweep_line(tmp_path: Path, command="serve", serve=None, bench=None, more=""):
    words = f"vllm bench sweep {command} --serve-cmd 'vllm serve m -tp 2 --seed=1' --bench-cmd '{BENCH}' {more}"
    for name, said in (("serve", serve), ("bench", bench)):
        if said is not None:
            (tmp_path / f"{name}.json").write_text(json.dumps(said))
            words += f" --{name}-params {tmp_path / name}.json"
    return words


def test_vllms_sweep_over_servers_and_loads(tmp_path: Path) -> None:
    serve = [{"max_num_seqs": 32, "enable_prefix_caching": False}, {"max_num_seqs": 64, "_benchmark_name": "wide"}]
    bench = {"short": {"random_input_len": 64}, "long": {"random_input_len": 512, "request_rate": 4}}
    found = opened(sweep_line(tmp_path, serve=serve, bench=bench, more="--num-runs 2 -e demo"))
    assert (found.experiment.name, found.experiment.repeats) == ("demo", 2)
    cases = cases_of(found.experiment)
    assert [case.label for case in cases[::2]] == [
        "max_num_seqs=32 enable_prefix_caching=False short",
        "max_num_seqs=32 enable_prefix_caching=False long",
        *("wide short", "wide long"),
    ]
    server = cases[0].plan.server
    assert (server.type, server.model, server.flags) == ("vllm", "m", ["-tp", "2"])
    assert server.args == {"seed": "1", "max-num-seqs": 32, "no-enable-prefix-caching": True}
    assert cases[0].plan.target.url == [] and cases[0].plan.workload.input_tokens.value == 64
    assert (cases[2].plan.load.type, cases[2].plan.load.rate) == ("poisson", 4)
    assert len({case.stack for case in cases}) == 2


def test_vllms_linked_settings(tmp_path: Path) -> None:
    serve, bench = [{"max_num_seqs": 8}, {"max_num_seqs": 16}], [{"max_concurrency": 8}, {"max_concurrency": 16}]
    line = sweep_line(tmp_path, serve=serve, bench=bench, more="--link-vars max_num_seqs=max_concurrency --num-runs 1")
    assert [case.plan.load.concurrency for case in cases_of(opened(line).experiment)] == [8, 16]


def test_vllms_workload_explorer(tmp_path: Path) -> None:
    line = sweep_line(tmp_path, "serve_workload", more="--workload-var max_concurrency --workload-iters 5 --num-runs 1")
    levels = opened(line).experiment.levels
    assert (levels.path, levels.count, levels.ends) == ("load.concurrency", 3, "none")
    assert levels.low == LOW and levels.high["load"]["concurrency"] == 50
    rates = opened(sweep_line(tmp_path, "serve_workload"))
    assert rates.experiment.levels.path == "load.rate" and rates.experiment.repeats == 3
    labels = [case.label for case in cases_of(rates.experiment)]
    assert labels[::3][:3] == ["case low", "case high", "case rate 1 of 8"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("vllm bench sweep serve --serve-cmd 'vllm serve m'", "--bench-cmd is missing"),
        (f"vllm bench sweep serve --serve-cmd x --bench-cmd '{BENCH}' --serve-params no.json", "file not found"),
        (f"vllm bench sweep serve_workload --serve-cmd x --bench-cmd '{BENCH}' --workload-iters 1", "at least 2"),
        (f"{GUIDE} --rate-type sweep --rate 1", "must be at least 2"),
        (f"{GUIDE_RUN} --profile sweep", "--profile must be kind=NAME,key=value or JSON, got sweep"),
        (f"{GUIDE} --rate-type constant --rate 1", "is one run, a plan and not an experiment"),
    ],
)
def test_mistakes(line: str, text: str) -> None:
    with pytest.raises(PlanError, match=text.replace("[", r"\[")):
        open_experiment(shlex.split(line))


# -- commands ----------------------------------------------------------------------------------------------------------


def command(*words):
    return CliRunner().invoke(group, list(words), standalone_mode=False)


def test_plan_show_prints_the_experiment_and_check_knows_it(tmp_path: Path) -> None:
    shown = command("plan", "show", "--", *shlex.split(f"{GUIDE} --rate-type sweep --max-seconds 30"))
    assert shown.exception is None, shown.output
    assert shown.output.startswith("# guidellm, as an experiment\n") and "levels:" in shown.output
    (tmp_path / "again.yaml").write_text(shown.output)
    checked = command("plan", "check", str(tmp_path / "again.yaml"))
    assert checked.output == f"{tmp_path / 'again.yaml'}: ok (an experiment)\n"
    again = command("plan", "show", str(tmp_path / "again.yaml"))
    assert again.output.splitlines()[1:] == shown.output.splitlines()[2:]  # but for the note


def test_the_dry_run_says_what_is_known_and_what_is_not_yet() -> None:
    words = ["sweep", "--dry-run", "--", *shlex.split(f"{GUIDE} --rate-type sweep --rate 5 --max-seconds 30")]
    dry = command(*words)
    assert "5 cases: about 150 s" in dry.output or "5 cases: about 2m 30s" in dry.output, dry.output
    assert "load.rate of 3 cases is not known yet: it follows from the results of low and high" in dry.output
    said = json.loads(command("sweep", "--json", *words[1:]).stdout)
    assert [case["parameters"] for case in said["cases"]][1:3] == [
        *({"level": "high"}, {"level": "1 of 3", "load.rate": None}),
    ]


def test_run_names_the_command_that_does_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("plan: {load: {rate: 1}}\naxes: {load.rate: [1, 2]}\n")
    refused = command("run", str(tmp_path / "mine.yaml")).exception
    assert "is an experiment, not a plan" in str(refused) and refused.hint == f"inferometer sweep {tmp_path}/mine.yaml"


def test_a_missing_experiment_is_not_sent_to_run(tmp_path: Path) -> None:
    (tmp_path / "latency.yaml").write_text("latency: {}")
    near = command("sweep", str(tmp_path / "latencyy.yaml")).exception
    assert near.hint == f"did you mean {tmp_path / 'latency.yaml'}?"
    far = command("sweep", str(tmp_path / "nowhere.yaml")).exception
    assert "file not found" in str(far) and "inferometer sweep --help" in far.hint and "inferometer run" not in far.hint
