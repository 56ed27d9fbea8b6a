"""Where a harness is searched, and how its environment is created."""

from pathlib import Path

import pytest

from inferometer.errors import TargetError
from inferometer.exchange.harness import harness_named
from inferometer.exchange.harness.environments import environments as folder_of
from inferometer.exchange.harness.environments import install, installed, program_of, version_of


def _program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_its_own_environment_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = _program(tmp_path / "bin/guidellm")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("INFEROMETER_HARNESSES", str(tmp_path / "own"))
    harness = harness_named("guidellm")
    assert program_of(harness) == on_path
    own = _program(tmp_path / "own/guidellm/bin/guidellm")
    assert program_of(harness) == own == installed(harness)
    assert version_of(harness, own) is None  # there is no Python beside it


def test_the_folder_is_named_or_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert folder_of({}) == tmp_path / "inferometer/harnesses"
    assert folder_of({"INFEROMETER_HARNESSES": "/opt/tools"}) == Path("/opt/tools")


def test_one_that_is_missing_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("INFEROMETER_HARNESSES", str(tmp_path))
    with pytest.raises(TargetError) as error:
        installed(harness_named("sglang"))
    assert error.value.hint == "inferometer harnesses install sglang"


def test_a_python_that_is_too_old_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("INFEROMETER_HARNESSES", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr("sys.version_info", (3, 11, 0))
    with pytest.raises(TargetError, match=r"inference-perf: needs Python 3\.12 or newer, and none is on PATH"):
        install(harness_named("inference-perf"))


def test_what_pypi_does_not_have_is_not_installed() -> None:
    with pytest.raises(TargetError, match="runs only as an image"):
        install(harness_named("fmperf"))


def test_an_installation_that_fails_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Python that prints and fails."""
    python = _program(tmp_path / "bin/broken")
    python.write_text("#!/bin/sh\necho no module named venv\nexit 1\n")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setenv("INFEROMETER_HARNESSES", str(tmp_path / "own"))
    with pytest.raises(TargetError, match="could not be installed, the end of its log:\n  no module named venv"):
        install(harness_named("guidellm"), python=str(python))


@pytest.mark.parametrize("uv", ["", "/bin/uv"])
def test_an_installation_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: str
) -> None:
    """`python -m venv` and `-m pip` would, and uv would take its settings from there."""
    checkout, seen = tmp_path / "checkout", tmp_path / "seen"
    checkout.mkdir()
    python = _program(tmp_path / "bin/python")
    python.write_text(f"#!/bin/sh\npwd >> {seen}\nexit 1\n")
    monkeypatch.chdir(checkout)
    monkeypatch.setattr("shutil.which", lambda _name: str(python) if uv else None)
    monkeypatch.setenv("INFEROMETER_HARNESSES", "../own")
    with pytest.raises(TargetError, match="could not be installed"):
        install(harness_named("guidellm"), python="../bin/python")
    assert seen.read_text().split() == [str(tmp_path / "own")]
