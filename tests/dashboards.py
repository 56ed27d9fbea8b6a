"""A dashboard in a separate process, as a user starts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def dashboard(store: Path, *options: str, port: int = 0, env: dict[str, str] | None = None) -> Iterator[str]:
    """Yields its address, as it prints it."""
    command = [sys.executable, "-m", "inferometer", "dashboard", "--store", str(store), "--port", str(port), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://"), process.stderr.read()
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            finally:
                process.kill()
