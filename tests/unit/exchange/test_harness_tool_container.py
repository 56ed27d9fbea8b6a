"""What the container next to ours runs, with a shell and a folder in place of the pod."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferometer.exchange.harness.tool_container import COMMAND, FOLDER_ENV, ToolContainer, tool_container


@contextmanager
def _container(folder: Path) -> Iterator[tuple[ToolContainer, subprocess.Popen[bytes]]]:
    environ = {**os.environ, FOLDER_ENV: str(folder)}
    container = tool_container(environ)
    assert container is not None
    with subprocess.Popen(COMMAND, env=environ, start_new_session=True) as process:
        try:
            yield container, process
        finally:
            container.end()
            process.wait(timeout=60)


def test_it_runs_what_it_is_given_and_reports_the_exit_code(tmp_path: Path) -> None:
    with _container(tmp_path) as (container, process):
        container.start(["sh", "-c", 'echo "$SAID to $1"; exit 3', "tool", "a b"], {"SAID": "it's sent"})
        assert container.wait(60) == 3
        assert container.log.read_text() == "it's sent to a b\n"
        assert process.wait(timeout=60) == 0


def test_it_ends_with_us_where_nothing_was_started(tmp_path: Path) -> None:
    with _container(tmp_path) as (container, process):
        container.end()
        assert process.wait(timeout=60) == 0


def test_a_tool_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    with _container(tmp_path) as (container, process):
        container.start(["sh", "-c", "until [ -e over ]; do sleep 0.1; done"], {})
        assert container.wait(0.5) is None
        container.end()
        assert process.wait(timeout=60) == 0, "the container ends, and with it what runs in it"


def test_without_a_second_container_there_is_none() -> None:
    assert tool_container({}) is None
