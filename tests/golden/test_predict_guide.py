"""The guide of predictions is what its commands print: from three measured runs to a capacity."""

import re
import shlex
from pathlib import Path

import pytest

import command_line

pytestmark = pytest.mark.golden
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "predict.md"
MEASURED = {"latest": "e-1000-200-c16", "latest~1": "c-128-512-r15", "latest~2": "a-512-128-r5"}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
BLOCK = re.compile(r"```sh\n(.*?)```\n(?:(?:(?!```).)*?```text\n(.*?)```\n)?", re.DOTALL)  # a command, what it prints


def test_from_runs_to_a_capacity(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that the guide measures first are those of a real server: the same three loads."""
    monkeypatch.chdir(tmp_path)
    sweep = data / "vllm-0.24-h200-sweep" / "8b"
    compared = 0
    for block, printed in BLOCK.findall(GUIDE.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line, comments=True)
            fits = words[0] == "fit" and "latest" in words
            if program != "inferometer" or not (fits or printed):
                continue
            paths = {name: str(sweep / run) for name, run in MEASURED.items()}
            paths["server.log"] = str(sweep / "server.log")
            done = command_line.command(*(paths.get(word, word) for word in words), "--store", str(tmp_path / "store"))
            assert done.returncode == 0, done.stderr
            if printed:
                texts, numbers = zip(*(parts_of(text) for text in (done.stdout, printed)), strict=True)
                assert texts[0] == texts[1]
                assert numbers[0] == pytest.approx(numbers[1], rel=0.05)  # a fit's last digits are those of the BLAS
                compared += 1
    assert compared == 2


def parts_of(text: str) -> tuple[str, list[float]]:
    """The text without its numbers and widths of columns, and the numbers."""
    words = NUMBER.sub("#", " ".join(text.split()))
    return words, [float(number.replace(",", "")) for number in NUMBER.findall(text)]
