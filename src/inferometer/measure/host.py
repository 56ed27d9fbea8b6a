"""How the machine of the load generator did during the load: its cores, and what its hypervisor took away."""

from typing import Any

import numpy as np

from inferometer.measure.telemetry import HOST
from inferometer.record.sample import Samples

BUSY = 0.95  # of all cores: whatever is done about the client, another process has the core
STOLEN = 0.02  # of the cores' time: above it, late sends and uncertain reads have a cause that we cannot help
_AVERAGED = ("cpu_share", "steal_share", "cpu_pressure_share", "received_bytes_per_s", "sent_bytes_per_s")


def host_summary(samples: Samples, start_at: int, end_at: int) -> dict[str, Any] | None:
    """None where the host was not sampled. A sample covers the time since the one before: the first behind the end
    still belongs to the load."""
    if not samples.source.mask(HOST).any():
        return None
    summary: dict[str, Any] = {}
    for name in (*_AVERAGED, "retransmitted_segments_per_s"):
        at, values = samples.series(name, HOST)
        chosen = values[(at > start_at) & (at <= _first_behind(at, end_at))]
        summary[name] = float(chosen.mean()) if len(chosen) else None
    _, available = samples.series("memory_available_bytes", HOST)
    summary["least_memory_available_bytes"] = float(available.min()) if len(available) else None
    return summary


def _first_behind(at: Any, end_at: int) -> int:
    later = at[np.searchsorted(at, end_at) :]
    return int(later[0]) if len(later) else end_at


def scarcity(host: dict[str, Any] | None) -> tuple[str, str] | None:
    """(code, text) of what keeps a client from its cores, where more workers would not help: `this machine's hypervisor
    took the cores away for 4.1% of the time`."""
    stolen, busy = ((host or {}).get(name) or 0.0 for name in ("steal_share", "cpu_share"))
    if stolen > STOLEN:
        return "stolen_cores", f"this machine's hypervisor took the cores away for {stolen:.1%} of the time"
    if busy > BUSY:
        return "busy_machine", f"all cores of this machine were busy for {busy:.0%} of the time"
    return None
