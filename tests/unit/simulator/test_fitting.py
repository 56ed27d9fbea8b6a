"""Models of servers: steps from records, recovered terms, files, and refused input."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from inferometer.conduct.fit import fit, preset, usable
from inferometer.conduct.predict import capacity, predict
from inferometer.conduct.run import simulate
from inferometer.errors import PlanError
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.environment import ReplicaStart, ServerStart
from inferometer.record.run import Run
from inferometer.record.summary import Steadiness
from inferometer.simulator.fitting import aiconfigurator
from inferometer.simulator.fitting.aiconfigurator import (
    Deployment,
    NoEstimate,
    accelerator_named,
    physical_terms,
    shape_named,
)
from inferometer.simulator.fitting.calibration import Observed, amplification, calibrate, replayed, simulated_numbers
from inferometer.simulator.fitting.regression import read_steps
from inferometer.simulator.fitting.server_model import (
    LoadRange,
    ServerModel,
    limited_settings,
    limits_in_log,
    limits_in_metrics,
    model_document,
    read_model,
)
from inferometer.simulator.settings import SimulatorSettings, settings_from
from inferometer.simulator.virtual import rehearse, simulated_run
from inferometer.store.folder import load_run

TRUE = {
    "frontend": 3.5e-3,
    "step_time": {"base": 8e-3, "decode_sequence": 15e-6, "context_token": 40e-9},
    "pipeline": {
        "compute_token": 30e-6,
        "launch_graph": 12e-3,
        "launch_eager": 30e-3,
        "launch_sequence": 20e-6,
        "launch_jitter": 0.1,
        "frontend_request": 2.5e-3,
        "frontend_token": 3e-6,
        "frontend_output": 60e-6,
    },
}


def server() -> SimulatorSettings:
    return settings_from(TRUE)


def plan(load: dict[str, object], input_tokens: int, output_tokens: int, seconds: int = 12, **more: object) -> Plan:
    work = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return plan_from({"workload": work, "load": load, "stop": {"duration": f"{seconds}s"}, "target": {}, **more})


PLANS = {
    "short": plan({"type": "poisson", "rate": 8}, 128, 100),
    "middle": plan({"type": "poisson", "rate": 6}, 700, 100),
    "long": plan({"type": "poisson", "rate": 3}, 2500, 100),
    "closed": plan({"type": "concurrency", "concurrency": 24}, 900, 60),
}


def observed(name: str, chosen: Plan) -> Observed:
    records, _ = rehearse(replayed(chosen, server()), server())
    return Observed(name, chosen, records)


def run_of(chosen: Plan) -> Run:
    return simulated_run(replayed(chosen, server()))


def test_steps_are_read_from_the_instants_of_all_streams() -> None:
    """Two streams and a third that joins: every token belongs to a step, and prompts to that of their first token."""
    [run] = [observed("steps", plan({"type": "poisson", "rate": 4}, 700, 40, 5))]
    steps = read_steps(run.records, 8192)
    tokens = int(run.records.read_tokens.sum())
    assert int((steps.decodes + steps.firsts).sum()) == tokens
    assert int(steps.firsts.sum()) == len(run.records)
    assert int(steps.prefill.sum()) == 700 * len(run.records)
    assert (np.diff(steps.at_s) > 0.0008).all()
    alone = (steps.decodes == 1) & (steps.firsts == 0)
    assert steps.context[alone].min() >= 700


def test_a_prompt_above_the_budget_is_spread_over_steps() -> None:
    several = plan({"type": "concurrency", "concurrency": 6}, 3000, 20, 3)
    steps = read_steps(observed("several", several).records, 8192)
    assert int(steps.prefill.max()) <= 8192
    assert int(steps.prefill.sum()) == 3000 * int(steps.firsts.sum())


def test_terms_of_a_known_server_come_back() -> None:
    fitted = calibrate([observed(name, one) for name, one in PLANS.items()], settings_from({"pipeline": {}}))
    value = {name: term.value for name, term in fitted.terms.items()}
    assert value["base"] == pytest.approx(8e-3, rel=0.03)
    assert value["compute_token"] == pytest.approx(30e-6, rel=0.1)
    assert value["launch_graph"] == pytest.approx(12e-3, rel=0.2)
    assert value["launch_eager"] == pytest.approx(30e-3, rel=0.2)
    worst = max(abs(errors[name]) for errors in fitted.errors.values() for name in ("ttft", "tpot", "e2e"))
    assert worst < 0.08, fitted.errors


def test_an_engine_that_does_one_step_after_the_other_is_recognised() -> None:
    """Not every engine launches ahead. Fitted up to half of its capacity, near and above it the queue is predicted."""
    true = {"base": 6e-3, "prefill_token": 30e-6, "decode_sequence": 20e-6, "mixed_sequence": 150e-6}
    engine = settings_from({"frontend": 2e-3, "step_time": true})
    loads: list[tuple[float, int, int]] = [(6, 500, 100), (12, 500, 100), (5, 1500, 60)]
    plans = [plan({"type": "poisson", "rate": rate}, given, made, 8) for rate, given, made in loads]
    runs = [Observed(str(one.load.rate), one, rehearse(replayed(one, engine), engine)[0]) for one in plans]
    fitted = calibrate(runs, settings_from({"pipeline": {}}))
    assert fitted.settings.pipeline is None
    for name, seconds in true.items():
        if name == "decode_sequence":  # so few decode at once that it hardly shows
            continue
        assert fitted.terms[name].value == pytest.approx(seconds, rel=0.3), name
    for rate in (24, 40):  # it holds about 30
        beyond = plan({"type": "poisson", "rate": rate}, 500, 100, 20)
        measured = simulated_numbers(beyond, engine)
        predicted = simulated_numbers(beyond, fitted.settings)
        assert predicted["e2e"] == pytest.approx(measured["e2e"], rel=0.15), rate


def test_what_the_runs_do_not_tell_is_named() -> None:
    """Long prompts alone say nothing of launches by graphs."""
    fitted = calibrate([observed("long", PLANS["long"])], settings_from({"pipeline": {}}))
    assert not fitted.terms["launch_graph"].identified
    assert fitted.terms["launch_graph"].source == "typical"
    assert fitted.terms["base"].source == "steps"


@pytest.fixture(scope="module")
def model() -> ServerModel:
    return fit([run_of(PLANS["middle"]), run_of(PLANS["closed"])], "test", {"cache_tokens": 400_000})


def test_a_model_is_a_file_that_reads_back(model: ServerModel, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(model_document(model))
    again = read_model(path)
    assert again.terms["base"].seconds == pytest.approx(model.terms["base"].seconds, rel=1e-3)
    assert again.simulator().blocks == 25_000
    assert "fitted on 2 runs; at least 3 at different loads are better" in again.notes


def test_a_prediction_is_marked_has_intervals_and_says_when_it_leaves_the_range(model: ServerModel) -> None:
    inside = predict(PLANS["middle"], model)
    assert inside.run.id == "predicted" and "predicted" in str(inside.run.subject.engine_text)
    number = next(one for one in inside.numbers if one.quantity.key == "ttft.mean")
    assert number.low is not None and number.high is not None
    assert number.low < number.quantity.value < number.high
    assert not any("outside of the fitted range" in note for note in inside.notes)
    outside = predict(PLANS["long"], model)
    assert any("outside of the fitted range: input tokens 2,500" in note for note in outside.notes)


def test_an_error_so_large_that_a_slower_server_answers_nothing_leaves_the_interval_open(model: ServerModel) -> None:
    """Two runs, one of them far off: Student's t makes the slower server some hundred times slower."""
    far = [run.model_copy(update={"errors": dict.fromkeys(run.errors, 30.0)}) for run in model.runs]
    numbers = predict(PLANS["middle"], model.model_copy(update={"runs": far})).numbers
    assert numbers and any(one.low is None and one.high is None for one in numbers)


def test_near_saturation_the_interval_is_wide_and_the_prediction_says_so(model: ServerModel) -> None:
    """A small error of the model's speed is a large one of a latency where a queue builds up."""
    light, heavy = (predict(plan({"type": "poisson", "rate": rate}, 700, 60, 8), model) for rate in (4, 35))
    widths = []
    for prediction in (light, heavy):
        number = next(one for one in prediction.numbers if one.quantity.key == "ttft.mean")
        assert number.low is not None and number.high is not None
        widths.append(np.log(number.high / number.low))
    assert widths[1] > 2 * widths[0]
    assert any("close to saturation" in note for note in heavy.notes)
    assert not any("close to saturation" in note for note in light.notes)
    assert amplification(plan({"type": "poisson", "rate": 4}, 700, 60, 8), model.simulator()) < 1.5


@pytest.mark.parametrize(("rate", "over"), [(20, False), (90, True), (300, True)])
def test_a_load_above_the_capacity_is_named(model: ServerModel, rate: int, over: bool) -> None:
    """The server of the model answers some 55 of these a second; the verdict alone is not sure of it after 12 s."""
    notes = predict(plan({"type": "poisson", "rate": rate}, 300, 60), model).notes
    assert any(note.startswith("over saturation: it answers ") for note in notes) == over


def test_answers_that_take_longer_than_the_load_are_no_queue(model: ServerModel) -> None:
    notes = predict(plan({"type": "poisson", "rate": 4}, 300, 2000, 10), model).notes
    assert not any("over saturation" in note for note in notes)


def test_the_context_that_runs_do_not_tell_stays_at_its_prior() -> None:
    """One request at a time has nearly one context: what it costs is not to be read from the base of the steps."""
    alone = plan({"type": "concurrency", "concurrency": 1}, 700, 40, 6)
    terms = calibrate([observed("alone", alone)], settings_from({"pipeline": {}})).terms
    assert terms["base"].value == pytest.approx(8e-3, rel=0.03) and terms["base"].identified
    assert not terms["context_token"].identified and terms["context_token"].spread > 0.3


PRINTED = """
  TTFT:             47.588 ms
  TPOT:             5.278 ms
  Request Latency:  717.859 ms
  tokens/s:         2,707.66
  tokens/s/gpu:     707.66
"""


def test_what_aiconfigurator_prints_is_read() -> None:
    assert aiconfigurator.read_estimates(PRINTED) == {
        "ttft": 47.588,
        "tpot": 5.278,
        "e2e": 717.859,
        "output_rate": 2707.66,
    }
    with pytest.raises(NoEstimate, match="printed no estimate: error: model8b is not a valid model"):
        aiconfigurator.read_estimates("loading\n", "error: model8b is not a valid model\n")


def test_aiconfigurator_is_asked_for_as_many_in_flight_as_its_latency_gives() -> None:
    asked: list[tuple[int, ...]] = []

    def ask(*question: int) -> dict[str, float]:
        asked.append(question)
        return {"ttft": 40.0, "tpot": 5.0, "e2e": 400.0 + 10.0 * question[3], "output_rate": 900.0}

    made = aiconfigurator.estimates(observed("open", PLANS["short"]), ask)  # 8 requests/s
    assert [question[:3] for question in asked] == [(128, 100, 0)] * len(asked)
    assert asked[0][3] == 1 and asked[-1][3] in (3, 4, 5)
    assert made["e2e"] < 460 and 500 < made["output_rate"] <= 900
    aiconfigurator.estimates(observed("closed", PLANS["closed"]), ask)
    assert asked[-1] == (900, 60, 0, 24)


def test_servers_that_aiconfigurator_does_not_know_are_named() -> None:
    known = Deployment.of("meta-llama/Llama-3.1-8B", "vLLM 0.24.0", ("NVIDIA H200", "NVIDIA H200"))
    assert known == Deployment("meta-llama/Llama-3.1-8B", "h200_sxm", "vllm", "0.24.0", 2)
    with pytest.raises(NoEstimate, match="not known for this server: model x, GPU not known, engine simulator"):
        Deployment.of("x", "simulator", ())


def test_capacity_grows_with_replicas_and_shrinks_with_a_tighter_limit(model: ServerModel) -> None:
    loose = plan({"type": "poisson", "rate": 4}, 700, 50, 10, limits=["ttft p50 < 400ms"])
    tight = plan({"type": "poisson", "rate": 4}, 700, 50, 10, limits=["ttft p50 < 60ms"])
    one, two = capacity(loose, model, replicas=(1, 2), price_per_hour=3.6)
    assert one.rate is not None and two.rate == pytest.approx(2 * one.rate)
    assert one.broken_at is not None and one.rate < one.broken_at < 1.04 * one.rate
    assert one.sure_rate is not None and 0.5 * one.rate < one.sure_rate < one.rate
    assert one.dollars_per_million == pytest.approx(two.dollars_per_million or 0)
    [less] = capacity(tight, model)
    assert less.rate is not None and less.rate < one.rate


def test_a_capacity_is_what_lasts_whatever_count_of_requests_the_plan_has(
    model: ServerModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count is reached before the queue of an overload breaks a limit: 60% too much was called the capacity."""
    monkeypatch.setattr("inferometer.conduct.predict.STEP_S", 15.0)
    lasting = plan({"type": "poisson", "rate": 4}, 700, 50, 15, limits=["ttft p99 < 2s"])
    counted = lasting.model_copy(update={"stop": lasting.stop.model_copy(update={"duration": None, "requests": 100})})
    assert [row.rate for row in capacity(counted, model)] == [row.rate for row in capacity(lasting, model)]


def test_a_capacity_without_a_limit_is_refused(model: ServerModel) -> None:
    with pytest.raises(PlanError, match="a capacity needs at least one limit"):
        capacity(PLANS["middle"], model)


def test_runs_of_different_servers_are_refused() -> None:
    run = run_of(PLANS["middle"])
    other = predict(PLANS["middle"], preset(accelerator_named("l4"), shape_named("qwen2.5-1.5b"))).run
    with pytest.raises(PlanError, match="different servers"):
        fit([run, other], "mixed", {})


def test_no_run_at_all_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one run"):
        fit([], "none", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "a model is a mapping"),
        ("schema: inferometer/plan/1", "its schema is"),
        ("schema: inferometer/server-model/1\nname: x", "Field required"),
        ("schema: inferometer/server-model/9\nname: x", "newer Inferometer"),
    ],
)
def test_files_that_are_no_models_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(Exception, match=message) as error:
        read_model(path)
    assert str(path) in str(error.value)


def test_limits_are_read_from_the_log_of_the_engine() -> None:
    log = "GPU KV cache size: 910,656 tokens\nmax_num_batched_tokens=8192.\n'max_model_len': 16384, 'max_num_seqs': 256"
    expected = {"cache_tokens": 910_656, "max_batched_tokens": 8192, "max_model_len": 16_384, "max_sequences": 256}
    assert limits_in_log(log) == expected
    assert limits_in_log("nothing of that") == {}


def test_limits_of_sglang_and_settings_of_caching_are_read_too() -> None:
    """What SGLang 0.5 prints at its start, and how vLLM names settings in its configuration."""
    sglang = "max_total_num_tokens=71520, chunked_prefill_size=8192, max_running_requests=2048, context_len=32768"
    expected = {"cache_tokens": 71_520, "max_batched_tokens": 8192, "max_sequences": 2048, "max_model_len": 32_768}
    assert limits_in_log(sglang) == expected
    limits = limits_in_log("Defaulting max_num_seqs to 1024, enable_prefix_caching=False, enable_chunked_prefill=False")
    assert limits == {"max_sequences": 1024, "prefix_caching": 0, "chunked_prefill": 0}
    assert not limited_settings(limits).prefix_caching


def test_limits_are_read_from_the_metrics_of_a_run() -> None:
    """A run of vLLM as it is stored: no log is needed for the size of its cache."""
    run = load_run(Path(__file__).parents[2] / "data" / "vllm-0.24-h200-sweep-8b" / "a-512-128-r5")
    limits = limits_in_metrics(run)
    assert limits == {"max_model_len": 16_384, "cache_tokens": 910_656, "block_size": 16, "prefix_caching": 1}
    assert limited_settings(limits | {"block_size": 32}).blocks == 910_656 // 32


def test_a_server_that_sends_several_tokens_at_a_time_is_modelled_so() -> None:
    """Its reads do not show every step, so the latencies alone tell its terms."""
    shares = {"tokens-per-chunk=4": 1.0}
    true = server().model_copy(update={"faults": server().faults.model_copy(update={"shares": shares})})
    alike = plan({"type": "poisson", "rate": 6}, 300, 60, 4)
    fitted = calibrate(
        [Observed("chunks", alike, rehearse(replayed(alike, true), true)[0])], settings_from({"pipeline": {}})
    )
    assert fitted.settings.faults.shares == shares
    assert abs(fitted.errors["chunks"]["ttft"]) < 0.1 and abs(fitted.errors["chunks"]["tpot"]) < 0.1


def test_bursts_and_cached_prompts_leave_the_range_of_plain_loads() -> None:
    fitted = LoadRange(
        input_tokens=(100, 900), output_tokens=(10, 200), in_flight=(1, 40), most_in_flight=60, cached_share=0.02
    )
    same = {"input_tokens": (500, 500), "output_tokens": (100, 100), "in_flight": (20, 20)}
    assert fitted.outside(LoadRange(**same, most_in_flight=70, cached_share=0.1)) == []
    assert fitted.outside(LoadRange(**same, most_in_flight=130, cached_share=0.8)) == [
        "bursts of 130 requests in flight, fitted on at most 60",
        "80% of the prompt tokens from the cache, fitted on 2%",
    ]
    older = fitted.model_copy(update={"most_in_flight": None, "cached_share": None})
    assert older.outside(LoadRange(**same, most_in_flight=130, cached_share=0.8)) == []


def test_arithmetic_of_an_8b_model_on_an_h200() -> None:
    """16 GB of weights at 70% of 4.8 TB/s, 128 KiB of keys and values a token, 16 GFLOP at 66% of 989 TFLOP/s."""
    terms = physical_terms(accelerator_named("h200"), shape_named("llama-3.1-8b"))
    assert terms["base"] == pytest.approx(8.03e9 * 2 / (4.8e12 * 0.7))
    assert terms["context_token"] == pytest.approx(131_072 / (4.8e12 * 0.7))
    assert terms["compute_token"] == pytest.approx(2 * 8.03e9 / (989e12 * 0.66))


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="does not fit"):
        preset(accelerator_named("l4"), shape_named("llama-3.1-70b"))


# -- runs that show less -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def light() -> Run:
    return run_of(plan({"type": "poisson", "rate": 5}, 300, 20, 5))


def test_a_run_without_records_is_left_out_and_named(light: Run) -> None:
    """An imported summary has no instants of tokens."""
    summary_only = replace(light, read_records=None)
    with pytest.raises(PlanError, match="no run can be used"):
        usable([summary_only])
    observed, notes = usable([light, summary_only])
    assert len(observed) == 1
    assert any("is left out: it has no records made by Inferometer, so no token timestamps" in note for note in notes)
    imported = replace(light, source="guidellm")
    assert any("is left out: it has no records made by Inferometer" in note for note in usable([light, imported])[1])


def test_runs_of_several_servers_at_once_are_left_out_and_named(light: Run) -> None:
    two = {"type": "fleet", "replicas": 2, "router": "round_robin"}
    fleet = plan({"type": "poisson", "rate": 5}, 300, 20, 5, server=two)
    with pytest.raises(PlanError) as refused:
        usable([simulate(fleet)])
    assert "several servers answered, and their steps cannot be separated" in refused.value.message
    server = ServerStart(replicas=[ReplicaStart(name="a"), ReplicaStart(name="b")])
    behind = replace(light, environment=structs.replace(light.environment, server=server))
    assert any("several servers answered" in note for note in usable([light, behind])[1])


def test_runs_that_failed_or_drifted_and_too_few_are_named(light: Run) -> None:
    window = structs.replace(light.summary.window, steady=Steadiness(status="drifting", test="Mann-Kendall"))
    drifting = replace(light, summary=structs.replace(light.summary, window=window))
    notes = usable([drifting])[1]
    assert any("was not steady" in note for note in notes)
    assert "fitted on 1 run; at least 3 at different loads are better" in notes
    shares = {"status=500": 0.5}
    failing = plan(
        {"type": "poisson", "rate": 20},
        300,
        20,
        5,
        server={"type": "simulator", "args": {"faults": {"shares": shares}}},
    )
    with pytest.raises(PlanError) as refused:
        usable([simulated_run(failing)])
    assert "of its requests failed" in refused.value.message
