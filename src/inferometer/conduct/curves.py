"""Where the client's calibration is stored. It belongs to the machine, not to a store; curves in stores of older
versions are still read. `conduct.instrument` measures them."""

import hashlib
import os
import platform
from pathlib import Path

import msgspec

from inferometer import __version__
from inferometer.errors import StoreError
from inferometer.record.environment import SCHEMA, CalibratedMachine, Curve
from inferometer.record.files import replacing, translated_errors

FOLDER_ENV = "INFEROMETER_CALIBRATION"


def machine_folder() -> Path:
    """`$INFEROMETER_CALIBRATION`, else `inferometer` in the user's state folder."""
    if named := os.environ.get(FOLDER_ENV):
        return Path(named).expanduser()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "inferometer"


def machine() -> CalibratedMachine:
    return CalibratedMachine(
        cpu=_cpu_model(),
        cores=os.cpu_count(),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        inferometer=__version__,
    )


def calibration_path(folder: Path) -> Path:
    """The file of this machine's curve in a folder: several machines may share a home or a store."""
    fingerprint = hashlib.sha256(msgspec.json.encode(machine(), order="sorted")).hexdigest()[:16]
    return folder / "calibration" / f"{fingerprint}.json"


def load_curve(store: Path) -> Curve | None:
    """The curve of this machine: the newer of the machine's own and the one in the store; None if there is none, or
    none that can be read."""
    curves = [curve for folder in (machine_folder(), store) if (curve := _read(folder)) is not None]
    return max(curves, key=lambda curve: curve.made, default=None)


def _read(folder: Path) -> Curve | None:
    try:
        curve = msgspec.json.decode(calibration_path(folder).read_bytes(), type=Curve)
    except (OSError, msgspec.DecodeError):
        return None
    return curve if curve.schema == SCHEMA else None


def keep_curve(curve: Curve, folder: Path) -> Path:
    """Replaces the previous curve, which is removed only when the new one is complete."""
    path = calibration_path(folder)
    with translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(curve), indent=2))
    return path


def keep_for_machine(curve: Curve, store: Path) -> Path:
    """Stores it for all runs of this machine; if the machine's folder cannot be written, such as in a container with a
    read-only home, in the store."""
    try:
        return keep_curve(curve, machine_folder())
    except StoreError:
        return keep_curve(curve, store)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
