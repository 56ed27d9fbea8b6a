"""Installation of harnesses: in a separate environment, created on request, or on PATH."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from inferometer.errors import TargetError
from inferometer.exchange.harness import Harness
from inferometer.store.folder import data_folder
from inferometer.target.process import tail

FOLDER_ENV = "INFEROMETER_HARNESSES"
INSTALL_S = 3600.0
_DONE = "done"  # marks a complete environment
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(12, 15)), "python3.11", "python3.10")
Notes = Callable[[str], None]


def environments(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with an environment for each harness."""
    given = environ.get(FOLDER_ENV)
    folder = Path(given).expanduser() if given else data_folder() / "harnesses"
    return folder.absolute()


def program_of(harness: Harness) -> Path | None:
    """The program that runs a harness; None if it is not installed."""
    if not harness.program:
        return None
    own = environments() / harness.name / "bin" / harness.program
    if own.is_file():
        return own
    if harness.program == "python":
        return Path(sys.executable) if find_spec(harness.name) else None
    on_path = shutil.which(harness.program)
    return Path(on_path) if on_path else None


def check_startable(harness: Harness) -> None:
    """A tool without a package exists only as an image, which a pod runs next to ours."""
    if not harness.requirements:
        text = f"--harness {harness.name}: runs only as an image ({harness.image}), in a pod"
        raise TargetError(text, f"inferometer k8s run -l {harness.name} -w NAME --load-generator harness")


def installed(harness: Harness) -> Path:
    """The program, or a `TargetError` that shows how to install it."""
    program = program_of(harness)
    if program is not None:
        return program
    check_startable(harness)
    hint = f"inferometer harnesses install {harness.name}"
    raise TargetError(f"--harness {harness.name}: {harness.title} is not installed here", hint)


def version_of(harness: Harness, program: Path) -> str | None:
    """Its version as listed in its environment."""
    if not harness.requirements:
        return None
    package = (*harness.bare, *harness.requirements)[0].partition("==")[0].partition("[")[0]
    python = program.parent / "python"
    code = f"from importlib.metadata import version; print(version({package!r}))"
    if not python.is_file():
        return None
    done = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or None


def install(harness: Harness, *, python: str | None = None, notes: Notes = lambda _text: None) -> Path:
    """Make the environment of a harness, if it is not there, and return its program."""
    check_startable(harness)
    folder = environments() / harness.name
    if (folder / _DONE).is_file():
        return installed(harness)
    base = _python(harness) if python is None else str(Path(python).absolute()) if os.sep in python else python
    notes(f"{harness.name}: {' '.join((*harness.bare, *harness.requirements))} into {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{harness.name}.log"
    log.unlink(missing_ok=True)
    for command in _commands(harness, folder, base):
        with log.open("ab") as output:
            done = subprocess.run(
                command, cwd=folder.parent, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=INSTALL_S
            )
        if done.returncode:
            end = "".join(f"\n  {line}" for line in tail(log))
            text = f"{harness.name}: could not be installed, the end of its log:{end}"
            raise TargetError(text, f"the whole log: {log}")
    (folder / _DONE).touch()
    return installed(harness)


def _commands(harness: Harness, folder: Path, base: str) -> list[list[str]]:
    """Commands that install it: with uv if it is on PATH (seconds instead of minutes with pip). They run in our own
    folder, because `python -m` and uv read the working folder."""
    uv, python = shutil.which("uv"), str(folder / "bin/python")
    create = [uv, "venv", "--quiet", "--clear", "--python", base] if uv else [base, "-m", "venv", "--clear"]
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    bare = [[*pip, "--no-deps", *harness.bare]] if harness.bare else []
    return [[*create, str(folder)], *bare, [*pip, *harness.requirements]]


def _python(harness: Harness) -> str:
    """A Python of the minimum version: this one, another on PATH, or one of pyenv."""
    if sys.version_info[:2] >= harness.python:
        return sys.executable
    for program in _pythons():
        if _version(program) >= harness.python:
            return program
    wanted = ".".join(map(str, harness.python))
    text = f"{harness.name}: needs Python {wanted} or newer, and none is on PATH or in pyenv"
    raise TargetError(text, f"inferometer harnesses install {harness.name} --python PATH")


def _pythons() -> Iterator[str]:
    yield from (program for name in _PYTHONS if (program := shutil.which(name)))
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()  # PATH has only shims of the selected versions
    yield from (str(program) for program in sorted((pyenv / "versions").glob("*/bin/python")))


def _version(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return tuple(int(part) for part in done.stdout.split() if part.isdigit())
