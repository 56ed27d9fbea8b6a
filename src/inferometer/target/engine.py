"""Docker and podman by their common command line: what we ask of them, and what they answer."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from inferometer.errors import TargetError

LABEL = "inferometer.server"
ANSWER_S = 30.0
START_S = 3600.0  # an image of 10 GB may have to be fetched first
KNOWN = ("docker", "podman")


class ContainerEngine:
    """The program that runs containers."""

    def __init__(self, program: str) -> None:
        self.program = program

    def start(self, argv: Sequence[str], env: Mapping[str, str], token: str) -> str:
        """Call `PROGRAM run --detach ...` with a label to find it by; the container's id."""
        program, run, *rest = argv
        command = [program, run, "--label", f"{LABEL}={token}", *rest]
        done = self._call(command, START_S, {**os.environ, **env})
        lines = done.stdout.split()
        if done.returncode or not lines:
            raise TargetError(f"the container was not started: {_last_line(done.stderr) or 'no id came back'}")
        return lines[-1]

    def labelled(self, token: str) -> list[str]:
        """Containers that were started under a token, also those that ended."""
        return self._ask("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}={token}").split()

    def state(self, container: str) -> dict[str, Any]:
        """`Running`, `ExitCode`, `OOMKilled`, `Error`; empty where there is no such container."""
        return _document(self._ask("inspect", "--format", "{{json .State}}", container))

    def image(self, image: str) -> dict[str, Any]:
        """The image as it is here: its name, id and digest, so that `latest` can be told from `latest`."""
        found = _document(self._ask("image", "inspect", image))
        digests = [digest.partition("@")[2] for digest in found.get("RepoDigests") or []]
        return {"image": image, "image_id": found.get("Id"), "digest": digests[0] if digests else None}

    def remove(self, container: str, grace_s: float) -> bool:
        """Stop a container, then make it go; whether there was one."""
        there = bool(self.state(container))
        self._ask("stop", "-t", str(max(1, round(grace_s))), container, within_s=grace_s + ANSWER_S)
        self._ask("rm", "--force", container)
        return there

    def _ask(self, *words: str, within_s: float = ANSWER_S) -> str:
        try:
            done = self._call([self.program, *words], within_s)
        except TargetError:
            return ""
        return "" if done.returncode else done.stdout

    def _call(
        self, command: Sequence[str], within_s: float, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=within_s,
                check=False,
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is ours: it must not leave half a container
            )
        except subprocess.TimeoutExpired:
            raise TargetError(f"{self.program} {command[1]} gave no answer within {within_s:g} s") from None
        except OSError as error:
            raise TargetError(f"{self.program} could not be called: {(error.strerror or str(error)).lower()}") from None


def found_engine(wanted: str | None) -> str:
    """Docker or podman, whichever is here."""
    names = [wanted] if wanted else list(KNOWN)
    program = next((path for name in names if (path := shutil.which(name))), None)
    if program is None:
        raise TargetError(
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not here: a container needs one of them",
            "install docker or podman, or start the engine without a container: server.type=vllm",
        )
    return program


def _document(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    first = found[0] if isinstance(found, list) and found else found
    return first if isinstance(first, dict) else {}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    helpful = [line for line in lines if not line.startswith(("See ", "Run '"))]
    return (helpful or [""])[-1][:500]
