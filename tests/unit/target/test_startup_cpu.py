"""The log of vLLM 0.32 for CPU, started at level DEBUG: wordings that GPU builds do not have."""

from pathlib import Path

import pytest

from inferometer.target.startup import read_startup

LOG = Path(__file__).parents[2] / "data/vllm-0.32-cpu-startup.log"


@pytest.fixture(scope="module")
def report():
    return read_startup(LOG).report


def test_what_was_started(report):
    startup = report.startup
    assert (startup.version, startup.device, startup.eager) == ("0.32.0", "cpu", True)
    assert startup.state == "complete"


def test_times_that_it_says(report):
    values = {name: value.value for name, value in report.values.items()}
    assert values["weights_empty_time"] == pytest.approx(0.378, abs=0.001)
    assert values["weights_read_time"] == 0.48
    assert values["engine_init_time"] == 3.67
    assert values["chat_template_time"] == 1.160
    assert values["time_to_ready"] == 83


def test_its_cache(report):
    values = report.values
    assert (values["kv_cache_size"].value, values["kv_cache_tokens"].value) == (2**30, 524_288)


def test_phases_without_words_are_unmatched_and_those_of_gpus_did_not_run(report):
    startup = report.startup
    assert [phase.name for phase in startup.unmatched] == ["platform", "imports"]
    assert startup.not_run == ["profiling", "compile", "dynamo", "graph_capture"]
    assert not {"profiling_time", "platform_time", "imports_time"} & report.values.keys()


def test_time_before_its_first_line_is_known_to_whoever_started_it(report):
    assert report.startup.before_log_s is None
    assert read_startup(LOG, ready_s=98.8).report.startup.before_log_s == pytest.approx(15.8)
