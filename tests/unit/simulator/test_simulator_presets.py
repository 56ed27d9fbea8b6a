"""Presets by arithmetic: the numbers of the decision page, and how a plan changes them."""

import pytest

from inferometer.errors import PlanError
from inferometer.simulator.settings import settings_from


def test_a_small_model_on_an_l4_has_the_numbers_of_the_decision_page() -> None:
    settings = settings_from({"preset": "qwen2.5-1.5b/l4"})
    assert settings.model == "Qwen/Qwen2.5-1.5B-Instruct"
    assert settings.blocks == 40_370
    assert settings.blocks * settings.block_size == 645_920
    assert settings.max_batched_tokens == 2048
    assert settings.step_time.base == pytest.approx(3.08e9 / 300e9)
    assert settings.step_time.prefill_token == pytest.approx(50.9e-6, rel=1e-3)
    assert settings.step_time.context_token == pytest.approx(28_672 / 300e9)
    assert settings.step_time.decode_sequence == 0


def test_two_accelerators_have_twice_the_memory_and_half_the_time() -> None:
    one, two = (settings_from({"preset": f"llama-3.1-8b/{name}"}) for name in ("h100", "h100x2"))
    assert two.step_time.base == pytest.approx(one.step_time.base / 2)
    assert two.step_time.prefill_token == pytest.approx(one.step_time.prefill_token / 2)
    weights = 2 * 8.03e9 / (16 * 131_072)  # in blocks
    assert two.blocks + weights == pytest.approx(2 * (one.blocks + weights), abs=2)


def test_settings_of_the_plan_go_before_the_preset() -> None:
    settings = settings_from({"preset": "qwen2.5-1.5b/l4", "blocks": 5000, "step_time": {"jitter": 0.1}})
    assert settings.blocks == 5000
    assert settings.step_time.jitter == 0.1
    assert settings.step_time.base == pytest.approx(0.01026667, rel=1e-5)


@pytest.mark.parametrize("name", ["l4", "qwen2.5-1.5b/l5", "gpt/l4", "qwen2.5-1.5b/l4x0", ""])
def test_an_unknown_preset_names_the_known_ones(name: str) -> None:
    with pytest.raises(PlanError, match=r"server\.args: preset must be MODEL/ACCELERATOR of qwen2\.5-1\.5b.* l4"):
        settings_from({"preset": name})
