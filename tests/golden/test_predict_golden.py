"""Predictions against real measurements: runs of vLLM 0.24 on an H200, and a public table of decode times."""

import csv
from pathlib import Path

import numpy as np
import pytest

from inferometer.conduct.fit import errors_of, left_out, preset, usable
from inferometer.conduct.predict import validate
from inferometer.errors import PlanError
from inferometer.exchange.importing.importer import import_file
from inferometer.simulator.fitting.aiconfigurator import ERRORS, accelerator_named, shape_named
from inferometer.simulator.fitting.calibration import Observed, calibrate
from inferometer.simulator.fitting.regression import decode_terms_of
from inferometer.simulator.fitting.server_model import limited_settings, limits_in_log
from inferometer.store.folder import load_run
from inferometer.store.store import open_store

pytestmark = pytest.mark.golden
MAIN = ("ttft", "tpot", "e2e", "output_rate")


def observed(folder: Path) -> list[Observed]:
    runs = [load_run(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    return usable(runs)[0]


def test_a_32b_model_is_predicted_within_ten_percent_by_runs_that_are_not_it(data: Path) -> None:
    """Leave-one-out: three runs of 5 to 69 requests are fitted, the fourth is predicted."""
    folder = data / "vllm-0.24-h200-sweep" / "32b"
    settings = limited_settings(limits_in_log((folder / "server.log").read_text("utf-8", "replace")))
    assert (settings.blocks, settings.max_batched_tokens) == (267_728 // 16, 8192)
    errors = dict(left_out(observed(folder), settings))
    assert len(errors) == 4
    for name, of_run in errors.items():
        assert {measure: error for measure, error in of_run.items() if measure in MAIN and abs(error) > 0.10} == {}, (
            name
        )
        assert abs(of_run["ttft_p90"]) < 0.20 and abs(of_run["e2e_p90"]) < 0.20, name
    sizes = [abs(of_run[measure]) for of_run in errors.values() for measure in MAIN]
    assert np.median(sizes) < 0.04


def test_long_prompts_are_predicted_from_runs_of_short_ones(data: Path) -> None:
    """Fitted on the five 8B runs of at most 512 prompt tokens, judged on those of 2,000: within 15%."""
    folder = data / "vllm-0.24-h200-sweep" / "8b"
    settings = limited_settings(limits_in_log((folder / "server.log").read_text("utf-8", "replace")))
    runs = observed(folder)
    fitted = calibrate([run for run in runs if run.name[0] in "ac"], settings)
    judged = [run for run in runs if run.name.startswith("b-2000")]
    assert len(judged) == 2 and len(fitted.errors) == 5
    for run in judged:
        errors = errors_of(run, fitted.settings)
        assert {name: errors[name] for name in MAIN if abs(errors[name]) > 0.15} == {}, run.name


def test_arithmetic_alone_is_off_by_what_its_note_says(data: Path) -> None:
    """A preset knows data sheets only: its errors on real runs are what its users are told (`physics.ERRORS`)."""
    for shape, folder in (("llama-3.1-8b", "8b"), ("qwen3-32b", "32b")):
        model = preset(accelerator_named("NVIDIA H200"), shape_named(shape))
        assert model.notes[-1] == ERRORS and "12% in mean TPOT and E2E" in ERRORS and "20% in mean TTFT" in ERRORS
        for run in observed(data / "vllm-0.24-h200-sweep" / folder):
            errors = errors_of(run, model.simulator())
            assert abs(errors["tpot"]) < 0.12 and abs(errors["e2e"]) < 0.12, (run.name, errors)
            assert abs(errors["ttft"]) < 0.20, (run.name, errors)


def test_results_of_another_tool_are_held_against_a_prediction(data: Path, tmp_path: Path) -> None:
    """They have every read. The longer prompts were found in the cache in part, so only the first is told here."""
    file = data / "vllm-0.24-h200" / "vllm_bench_serve_300_100_5.json"
    (found,) = import_file(file, open_store(tmp_path)).runs
    model = preset(accelerator_named("NVIDIA H200"), shape_named("llama-3.1-8b"))
    (row,), notes = validate(model, [found])
    assert any(
        "was measured by vllm-bench-serve: the prediction has its lengths and its load" in note for note in notes
    )
    assert abs(row.errors["ttft"]) < 0.15 and abs(row.errors["tpot"]) < 0.05 and abs(row.errors["e2e"]) < 0.05
    with pytest.raises(PlanError, match="no run can be used"):
        usable([found])


def test_decode_times_of_a_public_table(data: Path) -> None:
    """Splitwise's measurements of two models on A100 and H100: fitted on every second row, judged on the others."""
    with (data / "results" / "splitwise_perf_model.csv").open() as file:
        rows = list(csv.DictReader(file))
    errors: list[float] = []
    for kind in sorted({(row["model"], row["hardware"], row["tensor_parallel"]) for row in rows}):
        chosen = [row for row in rows if (row["model"], row["hardware"], row["tensor_parallel"]) == kind]
        batch = np.array([float(row["batch_size"]) for row in chosen])
        mean_length = np.array([float(row["prompt_size"]) + float(row["token_size"]) / 2 for row in chosen])
        seconds = np.array([float(row["token_time"]) for row in chosen]) / 1e3
        fitted, judged = slice(0, None, 2), slice(1, None, 2)
        context = batch * mean_length
        terms = decode_terms_of(batch[fitted], context[fitted], seconds[fitted])
        predicted = terms["base"] + terms["decode_sequence"] * batch + terms["context_token"] * context
        errors += np.abs(predicted / seconds - 1)[judged].tolist()
    assert len(errors) > 500
    assert np.median(errors) < 0.10
