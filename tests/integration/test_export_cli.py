"""`inferometer export` and `show --as` as people call them, on a run of the simulator over loopback."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import command_line
from inferometer.cli.group import group
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.exchange.exporting import FORMATS
from inferometer.measure.rosetta import TOOLS
from measured import assert_ran

QUICK = ("--server", "simulator", "--set", "server.args.speed=20", "--output-tokens", "8", "--input-tokens", "16")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run of 200 requests in it."""
    folder = tmp_path_factory.mktemp("store")
    keep_curve(curve_of([]), folder)
    words = (
        "run",
        *QUICK,
        "--rate",
        "200",
        "--requests",
        "200",
        "-q",
        "--set",
        "outputs={format: vllm, path: own.json}",
    )
    done = command_line.command(*words, store=folder, cwd=folder)
    assert_ran(done.returncode, done.stderr)
    return folder


def called(store: Path, *words: str):
    return CliRunner().invoke(group, [*words, "--store", str(store)], catch_exceptions=False, standalone_mode=False)


def test_a_plan_writes_what_export_writes(store: Path, tmp_path: Path) -> None:
    own = json.loads((store / "own.json").read_text())
    called(store, "export", "latest", "--as", "vllm", "-o", str(tmp_path / "again.json"))
    assert json.loads((tmp_path / "again.json").read_text()) == own
    assert own["completed"] == 200


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"ci-bench"}))
def test_every_format_is_written(store: Path, tmp_path: Path, name):
    done = called(store, "export", "--as", name, "-o", f"{tmp_path}/")
    assert done.exception is None
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_size for path in files)
    assert done.stderr.count("wrote ") == len(files)


def test_stdout_is_the_file_and_nothing_else(store: Path) -> None:
    done = called(store, "export", "--as", "vllm", "-o", "-")
    assert json.loads(done.stdout)["completed"] == 200
    assert done.stderr == ""


def test_the_engines_own_numbers_are_in_the_sweep(store: Path, tmp_path: Path) -> None:
    called(store, "export", "--as", "ray-sweep", "-o", str(tmp_path))
    header, line = (tmp_path / "vllm_random_sweep_results.csv").read_text().splitlines()
    row = dict(zip(header.split(","), line.split(","), strict=True))
    assert float(row["ray_vllm:generation_tokens_total"]) >= 200 * 8
    assert 0 < float(row["ray_vllm:time_to_first_token_seconds"]) < 1


@pytest.mark.parametrize("tool", TOOLS)
def test_show_as_another_tool(store: Path, tool):
    said = json.loads(called(store, "show", "--as", tool, "--json").stdout)
    assert said["tool"] == tool
    assert said["requests"]["successful"] == 200
    assert called(store, "show", "--as", tool).stdout.startswith("As ")


def test_formats_are_listed(store: Path) -> None:
    listed = called(store, "export", "--list").stdout
    assert all(name in listed for name in FORMATS)
