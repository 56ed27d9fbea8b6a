"""A load generator that exists only as an image: in a pod it runs in a container next to ours, unchanged, and the two
containers share a folder.

We write `start`, a shell script, into that folder. The other container waits for it, runs it with its output in `log`
and writes the exit code to `ended`. Once we write `over`, it ends, whatever it is doing."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from inferometer.record.files import replacing

FOLDER = "/inferometer-tool"  # where both containers mount the shared volume
FOLDER_ENV = "INFEROMETER_TOOL_FOLDER"
IMAGE_ENV = "INFEROMETER_TOOL_IMAGE"
POLL_S = 0.2
LOG = "log"
_START, _ENDED, _OVER = "start", "ended", "over"
# For any image with a POSIX shell. It looks once a second, so that it takes nothing from the load generator.
COMMAND = (
    "sh",
    "-c",
    f'cd "${FOLDER_ENV}" || exit 1; '
    f"until [ -e {_START} ]; do [ -e {_OVER} ] && exit 0; sleep 1; done; "
    f"(sh ./{_START} >{LOG} 2>&1; echo $? >{_ENDED}.draft; mv {_ENDED}.draft {_ENDED}) & "
    f"until [ -e {_ENDED} ] || [ -e {_OVER} ]; do sleep 1; done",
)


class ToolContainer:
    """The container next to ours, seen from ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def log(self) -> Path:
        return self.folder / LOG

    def prepare(self, *folders: Path) -> None:
        """The tool may run as another user."""
        for path in folders:
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        text = "\n".join([*exports, f"exec {shlex.join(argv)}", ""])
        with replacing(self.folder / _START) as draft:
            draft.write_text(text, encoding="utf-8")
            draft.chmod(0o644)

    def wait(self, limit_s: float) -> int | None:
        """The exit code of the tool; None if it takes longer than that."""
        give_up_at = time.monotonic() + limit_s
        while time.monotonic() < give_up_at:
            if (self.folder / _ENDED).is_file():
                return int((self.folder / _ENDED).read_text())
            time.sleep(POLL_S)
        return None

    def end(self) -> None:
        """Also if nothing was started: the pod lasts as long as both containers."""
        (self.folder / _OVER).touch()


def tool_container(environ: Mapping[str, str] = os.environ) -> ToolContainer | None:
    """The container next to ours, in a pod that has one."""
    folder = environ.get(FOLDER_ENV)
    return ToolContainer(Path(folder)) if folder else None
