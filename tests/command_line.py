"""The command line in this process: exit code and output as a child has them, without its second of imports.

Tests of the process itself (signals, pipes, limits, what it imports from where) start a real one."""

import contextlib
import io
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from inferometer.cli import execute

NOTHING: Mapping[str, str] = MappingProxyType({})


def command(
    *words: object, store: Path | None = None, cwd: Path | None = None, environ: Mapping[str, str] = NOTHING
) -> "subprocess.CompletedProcess[str]":
    """`inferometer WORDS` in that folder, with that store and those variables of the environment."""
    arguments = [str(word) for word in words]
    raw = io.BytesIO()  # exports write bytes
    out, err = io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        for name, value in {"NO_COLOR": "1", "COLUMNS": "200", **environ}.items():
            patch.setenv(name, value)
        if store is not None:
            patch.setenv("INFEROMETER_STORE", str(store))
        if cwd is not None:
            patch.chdir(cwd)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = execute(arguments)
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return subprocess.CompletedProcess(arguments, code, raw.getvalue().decode(), err.getvalue())
