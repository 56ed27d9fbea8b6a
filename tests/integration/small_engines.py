"""Small servers for the tests of what we start: real processes, each with one bad habit."""

import sys
import time
from pathlib import Path

from inferometer.plan.model import Server

ENGINE = Path(__file__).with_name("engine_at_work.py")


def engine(*habits, **settings):
    """A server of type command that runs `engine_at_work.py`."""
    command = [sys.executable, str(ENGINE), "--port", "{port}", *habits]
    return Server(**{"type": "command", "command": command, "grace": "5s", "ready": "30s"} | settings)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def running_with(word):
    """Whether any process has this word in its command line."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words and alive(int(place.parent.name)):
            return True
    return False


def eventually(condition, within_s=15.0):
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
