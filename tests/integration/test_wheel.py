"""What is released works: the wheel has every file of the package, and runs where the source tree is not."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = {".pyc", ".so"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as an installer without our checkout would."""
    out = tmp_path_factory.mktemp("dist")
    made = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert len(list(out.glob("*.tar.gz"))) == 1
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src"
    wanted = {
        str(path.relative_to(package))
        for path in (package / "inferometer").rglob("*")
        if path.is_file() and path.suffix not in LEFT_OUT and "__pycache__" not in path.parts
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = {name for name in wanted - names if not name.endswith(".c")}  # compiled, or left to an installer
    assert not missing
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_measures_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "clean"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, str(wheel)], env=bare, check=True, capture_output=True, timeout=120)
    # Dependencies from this environment; its link to the source tree is a .pth file, which does not count there.
    env = {**bare, "PYTHONPATH": sysconfig.get_paths()["purelib"], "INFEROMETER_STORE": str(tmp_path / "store")}
    where = subprocess.run(
        [python, "-c", "import inferometer; print(inferometer.__file__)"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.startswith(str(place))
    ran = subprocess.run(
        [place / "bin" / "inferometer", "simulate", "--rate", "5", "--duration", "5s", "--json"],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode in (0, 4), ran.stderr
    assert '"measures"' in ran.stdout
