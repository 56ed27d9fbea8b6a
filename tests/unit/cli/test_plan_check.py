"""`plan check` of experiments whose cases have no load: they have no server and no router."""

from pathlib import Path

import pytest

from inferometer.cli import execute

CASES = {
    "a benchmark": "benchmark: {name: b, command: [./b, '{size}'], args: {size: 1}}\naxes: {args.size: [1, 2]}\n",
    "offline latency": "latency: {engine: simulator, input_len: 5, output_len: 5}\naxes: {batch_size: [1, 2]}\n",
    "a load": "plan: {target: {url: http://127.0.0.1:1}, load: {rate: 1}}\naxes: {load.rate: [1, 2]}\n",
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_experiment_is_checked(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.yaml").write_text(CASES[name])
    code = execute(["plan", "check", str(tmp_path / "plan.yaml")])
    assert (code, capfd.readouterr().err) == (0, "")
