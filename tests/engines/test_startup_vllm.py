"""The log of a real vLLM start: every logged phase is found, and the others are reported as missing."""

from pathlib import Path

import pytest

from inferometer.conduct.startup import startup_of_server
from inferometer.plan.reading import plan_from

pytestmark = pytest.mark.engines

pytest.importorskip("vllm")

FOUND = {"config", "engine_process", "worker_init", "weights", "weights_read", "engine_init", "api_start"}


def test_every_phase_is_found_or_said_to_be_missing(vllm_section, tmp_path: Path):
    plan = plan_from({"server": {**vllm_section, "keep": "run"}, "target": {"model": "tiny"}})
    kept = startup_of_server(plan, store=tmp_path)
    startup, values = kept.summary.startup, kept.summary.values
    assert kept.state == "complete"
    assert {phase.name for phase in startup.phases} >= FOUND
    # vLLM 0.32 for CPU detects its platform before its logging begins, so that nothing tells of it.
    assert {phase.name for phase in startup.unmatched} <= {"platform", "imports"}
    assert "profiling" in startup.not_run
    assert (values["kv_cache_size"].value, startup.device) == (2**30, "cpu")
    assert values["kv_cache_tokens"].value > 100_000
    assert 1 < startup.ready_in_log_s <= values["time_to_ready"].value + 1
