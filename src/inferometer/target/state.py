"""The user's state folder: what must outlive a process of ours that is killed. One folder per host, for home folders
may be shared, but process numbers and GPUs are not."""

import os
import platform
import tempfile
from pathlib import Path


def state_folder() -> Path:
    """`inferometer/HOST` in the user's state folder, or among temporary files where that cannot be written."""
    home = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "inferometer"
    for base in (home, Path(tempfile.gettempdir()) / f"inferometer-{os.getuid()}"):
        folder = base / (platform.node() or "host")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="inferometer-"))
