#!/usr/bin/env python3
"""A stand-in for docker that speaks what we ask of it: its containers are processes of this machine. State is kept in
the folder that FAKE_DOCKER names; what it was asked is in `calls`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER"])
ALONE = {"--detach"}


def main(words):
    with (HOME / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    match words:
        case ["run", *rest]:
            return run(rest)
        case ["ps", *rest]:
            wanted = rest[rest.index("--filter") + 1].removeprefix("label=")
            found = [place.name for place in HOME.glob("c*/") if read(place.name)["label"] == wanted]
            print("\n".join(found))
        case ["logs", "--follow", name]:
            follow(name)
        case ["inspect", "--format", "{{json .State}}", name]:
            if not (HOME / name / "about").exists():
                return fail(f"Error: No such object: {name}")
            print(json.dumps(state(name)))
        case ["image", "inspect", image]:
            print(json.dumps([{"Id": "sha256:feed", "RepoDigests": [f"{image.partition(':')[0]}@sha256:c0ffee"]}]))
        case ["stop", "-t", grace, name]:
            stop(name, float(grace))
        case ["rm", "--force", name]:
            stop(name, 0)
            shutil.rmtree(HOME / name, ignore_errors=True)
        case _:
            return fail(f"unknown: {words}")
    return 0


def run(words):
    options = {"--publish": "", "--label": "", "--env": []}
    while words[0].startswith("-"):
        name = words.pop(0)
        if name not in ALONE:
            value = words.pop(0)
            options[name] = [*options[name], value] if name == "--env" else value
    image, *inner = words
    if image == "broken":
        return fail('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].')
    name = f"c{os.urandom(31).hex()}"
    (HOME / name).mkdir()
    outer, _, inside = options["--publish"].rpartition(":")  # type: ignore[attr-defined]
    inner = [outer.rpartition(":")[2] if word == inside else word for word in inner]  # no network of its own
    env = {each.partition("=")[0]: each.partition("=")[2] or os.environ[each] for each in options["--env"]}
    with (HOME / name / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, os.environ["FAKE_IMAGE"], *inner],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], **env},
            start_new_session=True,
        )
    about = {"pid": process.pid, "label": options["--label"], "env": env}
    (HOME / name / "about").write_text(json.dumps(about))
    print(name)
    return 0


def read(name):
    return json.loads((HOME / name / "about").read_text())


def state(name):
    running = alive(read(name)["pid"])
    return {"Running": running, "ExitCode": 0 if running else 1, "OOMKilled": False, "Error": ""}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stop(name, grace):
    if not (HOME / name / "about").exists():
        return
    pid = read(name)["pid"]
    deadline = time.monotonic() + grace
    while alive(pid):
        os.killpg(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        time.sleep(0.02)


def follow(name):
    with (HOME / name / "log").open("rb") as log:
        while True:
            over = not alive(read(name)["pid"])
            sys.stdout.buffer.write(log.read())
            sys.stdout.buffer.flush()
            if over:
                return
            time.sleep(0.02)


def fail(text):
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
