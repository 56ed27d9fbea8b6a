"""Which GPUs of this machine a server that is started will use, as far as that is settled before its start."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferometer.plan.server import Server

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/accel0")


def visible_gpus(server: "Server", environ: Mapping[str, str]) -> list[str] | None:
    """Numbers or names of GPUs, empty where none is used, None for all; `environ` is the server's."""
    if server.type in ("simulator", "external"):
        return []
    if server.type == "container":
        return None if server.gpus == "all" else [] if server.gpus == "none" else _listed(server.gpus)
    shown = next((environ[name] for name in _VISIBLE if name in environ), None)
    if shown is not None:
        return _listed(shown)
    if server.type == "command" and not any(Path(device).exists() for device in _DEVICES):
        return []  # any program; an engine on such a machine computes on all its cores, and excludes its like
    return None


def _listed(shown: str) -> list[str]:
    return [each for part in shown.split(",") if (each := part.strip()) and each != "-1" and each != "NoDevFiles"]
