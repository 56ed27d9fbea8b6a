"""The real traces: their published counts and means, and the prefix reuse that a cache finds in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.plan.reading import plan_from
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.virtual import rehearse
from inferometer.workload.session import workload_of
from inferometer.workload.traces import Recording, recording_of

pytestmark = pytest.mark.golden
BLOCK = 512


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def workload(kind: str, path: Path, **more: Any) -> Any:
    return plan_from({"workload": {"type": kind, "path": str(path)} | more}).workload


def recorded(kind: str, path: Path, **more: Any) -> Recording:
    return recording_of(workload(kind, path, **more))


@pytest.mark.parametrize(
    ("name", "requests", "length_s", "input_tokens", "output_tokens"),
    [("code", 8819, 3435.948, 2047.85, 27.88), ("conv", 19366, 3501.722, 1154.70, 211.13)],
)
def test_azure(
    data: Path, name: str, requests: int, length_s: float, input_tokens: float, output_tokens: float
) -> None:
    found = recorded("azure", data / f"traces/azure_2023_{name}.csv")
    assert (len(found), found.notes) == (requests, ())
    assert found.at[-1] / 1e9 == pytest.approx(length_s, abs=1e-3)
    assert found.input_tokens.mean() == pytest.approx(input_tokens, abs=0.01)
    assert found.output_tokens.mean() == pytest.approx(output_tokens, abs=0.01)
    assert (np.diff(found.at) >= 0).all()


def test_burstgpt_with_and_without_sessions(data: Path) -> None:
    alone = recorded("burstgpt", data / "traces/burstgpt_1_first400.csv")
    assert len(alone) == 383
    assert "17 of 400 rows are skipped" in alone.notes[0]
    found = recorded("burstgpt", data / "traces/burstgpt_3_first57_sessions.csv")
    assert (len(found.row), len(found), found.notes) == (57, 30, ())  # 27 sessions, and three requests of none
    make = workload_of(workload("burstgpt", data / "traces/burstgpt_3_first57_sessions.csv"), 0, 0, "")
    first = make(0)
    assert [(turn.input_tokens, turn.output_tokens, turn.at_s) for turn in first.turns] == [
        (906, 446, 0.0),
        (1631, 282, 191.0),
    ]
    assert first.turns[1].think_s == 191 - 43
    assert str(first.turns[1].prompt).startswith(str(first.turns[0].prompt) + " ")


def test_mooncake_as_published(data: Path) -> None:
    found = recorded("mooncake", data / "traces/mooncake_conversation_trace.jsonl")
    assert (len(found), found.at[-1]) == (12031, 3_536_999_000_000)
    assert found.input_tokens.mean() == pytest.approx(12035.06, abs=0.01)
    assert found.output_tokens.mean() == pytest.approx(342.62, abs=0.01)


def test_mooncake_prompts_share_what_an_infinite_cache_would_find(data: Path) -> None:
    """0.3664 of all blocks, counted in the prompts themselves: a block is found where it was seen behind the same
    beginning. Every 16th token is looked at, which tells any two blocks apart."""
    spec = workload("mooncake", data / "traces/mooncake_conversation_trace.jsonl", prompt_as="token_ids")
    make = workload_of(spec, 0, 0, "a nonce")
    seen: set[int] = set()
    hits = blocks = 0
    for index in range(12031):
        prompt = make(index).turns[0].prompt
        known, chained = True, 0
        for start in range(0, len(prompt), BLOCK):
            chained = hash((chained, tuple(prompt[start : start + BLOCK : 16])))
            known = known and chained in seen
            hits += known
            blocks += 1
            seen.add(chained)
    assert blocks == len(recording_of(spec).hash_ids)
    assert hits / blocks == pytest.approx(0.3664, abs=5e-5)


def test_mooncake_reuse_shows_in_the_engine(data: Path) -> None:
    """A minute of the trace, one request after the other, through a cache that forgets nothing."""
    path = str(data / "traces/mooncake_conversation_trace.jsonl")
    window = {"type": "mooncake", "path": path, "window": {"end": "60s"}, "prompt_as": "token_ids"}
    spec = recording_of(plan_from({"workload": window}).workload)  # type: ignore[arg-type]
    plan = plan_from({"workload": window, "load": {"concurrency": 1}, "stop": {"requests": len(spec)}, "seed": 3})
    settings = SimulatorSettings.model_validate(
        {"block_size": BLOCK, "blocks": 10_000, "max_model_len": 200_000, "step_time": {"base": "1ms"}}
    )
    records, _ = rehearse(plan, settings)
    assert records.outcome.counts() == {"ok": len(spec)}
    assert list(records.cached_tokens[np.argsort(records.session)]) == [
        BLOCK * found for found in full_blocks_found(spec)
    ]


def full_blocks_found(spec: Recording) -> list[int]:
    """What the hash ids alone say of each request, counted by hand. An engine keeps full blocks only, and computes
    at least one token of a prompt anew."""
    seen: set[int] = set()
    found = []
    for number, tokens in enumerate(spec.input_tokens):
        ids = spec.hash_ids[spec.hash_ends[number] : spec.hash_ends[number + 1]].tolist()
        full = ids[: int(tokens) // BLOCK]
        leading = next((at for at, each in enumerate(full) if each not in seen), len(full))
        found.append(min(leading, (int(tokens) - 1) // BLOCK))
        seen.update(full)
    return found
