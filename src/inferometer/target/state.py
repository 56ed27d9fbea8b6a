"""What must outlive a process of ours that is killed: the user's state folder, one per host, for home folders may be
shared, but process numbers and GPUs are not; and the folder of locks, which all users of a host share."""

import os
import platform
import tempfile
from pathlib import Path

from inferometer.errors import InferometerError

LOCK_PLACES = (Path("/run/lock"), Path("/tmp"))


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


def locks_folder() -> Path:
    """`$INFEROMETER_LOCKS`, else a folder that every user of this machine finds and may write."""
    base = next((place for place in LOCK_PLACES if os.access(place, os.W_OK | os.X_OK)), Path(tempfile.gettempdir()))
    folder = Path(os.environ.get("INFEROMETER_LOCKS") or base / "inferometer")
    try:
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o1777)  # whatever the umask says; nobody may delete another's lock
    except FileExistsError:
        return folder
    except OSError as error:
        raise cannot_lock(folder, error) from error
    return folder


def cannot_lock(path: Path, error: OSError) -> InferometerError:
    hint = "say where locks go, the same for all who share the machine: INFEROMETER_LOCKS=FOLDER"
    return InferometerError(f"{path}: {error.strerror}, so that nothing can be locked", hint)
