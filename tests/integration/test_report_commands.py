"""`inferometer report` and `chart` as people call them, on runs of the simulator over loopback."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import command_line
from inferometer.cli.group import group
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.errors import InferometerError
from inferometer.store.experiments import SweepDefinition, new_experiment
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import open_store
from measured import assert_ran

QUICK = ("--server", "simulator", "--set", "server.args.speed=20", "--output-tokens", "8", "--input-tokens", "16")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs, and an experiment that is made of them."""
    folder = tmp_path_factory.mktemp("store")
    keep_curve(curve_of([]), folder)
    for rate in ("100", "200"):
        done = command_line.command("run", *QUICK, "--rate", rate, "--requests", "100", "-q", store=folder)
        assert_ran(done.returncode, done.stderr)
    experiment = new_experiment(
        folder, "sweep", "rates", SweepDefinition(experiment={"axes": {"load.rate": [100, 200]}})
    )
    for at, entry in enumerate(reversed(open_store(folder).runs(2))):
        experiment.add(ExperimentCase(name=f"c{at}", parameters={"load.rate": 100 * (at + 1)}, run=entry.id))
    return folder


def called(store: Path, *words: str):
    return CliRunner().invoke(group, [*words, "--store", str(store)], catch_exceptions=False, standalone_mode=False)


def test_the_latest_run_without_a_word(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = called(store, "report", "--json")
    (written,) = json.loads(done.stdout)["written"]
    assert written == f"report-{open_store(store).runs(1)[0].id}.html"
    page = Path(written).read_text()
    assert "window.vegaEmbed" in page and page.count("<figure") > 10


def test_two_runs_and_an_experiment(store: Path, tmp_path: Path) -> None:
    called(store, "report", "latest~1", "latest", "-o", str(tmp_path / "two.html"))
    two = (tmp_path / "two.html").read_text()
    assert (
        "Changes with confidence intervals" in two or "Not decided: the sides cannot be compared" in two
    )  # busy cores
    experiment = next((store / "experiments").iterdir()).name
    called(store, "report", experiment, "-o", str(tmp_path / "experiment.html"))
    page = (tmp_path / "experiment.html").read_text()
    assert "E2E, scheduled p50 by rate" in page
    shown = json.loads(called(store, "show", "--json", experiment).stdout)
    assert (shown["id"], shown["kind"], shown["title"]) == (experiment, "sweep", "rates")
    headline = shown["answer"]["headline"]
    assert headline in page and " req/s (2 cases" in headline
    text = called(store, "show", experiment[:-2]).stdout  # the second alone may be that of its last run as well
    assert "Best case for each measure" in text and text.rstrip().endswith(f"2 cases  {experiment}")


def test_numbers_to_stdout(store: Path) -> None:
    done = called(store, "report", "latest", "-f", "csv", "-o", "-")
    head, *rows = done.stdout.splitlines()
    assert head.startswith("run,name,started") and any(",ttft.p50," in row for row in rows)


@pytest.mark.parametrize("suffix", ["svg", "png", "json"])
def test_one_chart_in_each_form(store: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"chart.{suffix}"
    done = called(store, "chart", "latest", "in_flight", "-o", str(file))
    assert done.stderr == f"wrote {file}\n" and file.stat().st_size > 1000


def test_charts_of_several_runs_and_of_an_experiment(store: Path) -> None:
    experiment = next((store / "experiments").iterdir()).name
    for said, name in (
        ("latest~1,latest", "comparison"),
        ("latest~1,latest", "history"),
        (experiment, "experiment_curves"),
    ):
        assert called(store, "chart", said, name).stdout.startswith("<svg"), name


def test_what_cannot_be_drawn_is_said(store: Path) -> None:
    with pytest.raises(InferometerError, match="has no startup phases"):
        called(store, "chart", "latest", "startup_phases")
    with pytest.raises(InferometerError, match="no chart 'pie'"):
        called(store, "chart", "latest", "pie")
    with pytest.raises(InferometerError):
        called(store, "report", "../../etc/passwd")
    assert "under_one_clock" in called(store, "chart", "--list").stdout


def test_the_framework_of_inferx_has_its_picture(store: Path, tmp_path: Path) -> None:
    called(store, "export", "latest", "--as", "inferx", "-o", f"{tmp_path}/")
    assert (tmp_path / "throughput_latency.png").read_bytes().startswith(b"\x89PNG")
