"""A trace over real HTTP, by two shards; the examples of traces and APIs run; the guides' plans are plans."""

import re
from pathlib import Path
from typing import Any

import pytest

import command_line
from inferometer.load.shard import ShardJob, run_shard
from inferometer.plan.model import Plan
from inferometer.plan.reading import mapping_in, plan_from, read_plan
from inferometer.record.log import read_log
from inferometer.wire.reactor import now
from inferometer.workload.traces import recording_of

ROOT = Path(__file__).parents[2]
GUIDES = ("traces", "apis")


def test_shards_together_send_the_trace_at_its_times(
    simulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    asked = read_plan("examples/replay.yaml", ["load.speed=20", f"target.url={simulator}"])
    start_at = now() + 10**7
    found: dict[tuple[int, int], Any] = {}
    for shard in range(2):  # one after the other: the second is late, its schedule is not
        log = tmp_path / f"{shard}.log"
        job = ShardJob(asked.model_dump(mode="json"), str(log), "n", "simulated-8b", shard=shard, shards=2)
        run_shard(job, await_start=lambda: start_at)
        found |= {(each.session, each.turn): each for each in read_log(log).records}
    recorded = recording_of(asked.workload)  # type: ignore[arg-type]
    assert len(found) == len(recorded.row) == 60
    assert {each.outcome for each in found.values()} == {"ok"}
    requests = [found[key] for key in sorted(found)]
    assert [each.requested_input for each in requests] == recorded.input_tokens.tolist()
    assert [each.scheduled_at - start_at for each in requests] == pytest.approx((recorded.at / 20).tolist(), abs=1)


@pytest.mark.parametrize("name", ["replay", "embeddings", "anthropic"])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    words = ("simulate", f"examples/{name}.yaml")
    done = command_line.command(*words, store=tmp_path, cwd=ROOT, environ={"INFEROMETER_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize("guide", GUIDES)
def test_the_plans_of_a_guide_are_plans(guide: str) -> None:
    text = (ROOT / f"docs/guides/{guide}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        value, _ = mapping_in(block, guide)
        trace = (
            {"workload": {"type": "azure", "path": "trace.csv"}} if "load" in value and "workload" not in value else {}
        )
        assert isinstance(plan_from({**trace, **value}), Plan)
