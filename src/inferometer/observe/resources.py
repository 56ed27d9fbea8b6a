"""What a load needs of this machine, computed from its plan before anything is sent: open files, local ports, memory.
What fails for want of them all the same has the outcome `client`."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.observe.doctor.machine import SPARE_FILES, network_facts
from inferometer.plan.model import Plan, Traffic
from inferometer.vocabulary import size_text

OWN_FILES = 32  # a worker's files other than its connections: 15 were seen, with some room
MOST_FILES = 1 << 20  # that an open loop without a cap is given, where the system lets us
CONNECTION_BYTES = 64 * 1024  # of one connection: the kernel's buffers and what we keep of its answer
WORKER_BYTES = 100 * 1024**2


@dataclass(frozen=True, slots=True)
class Connections:
    """How many there are at once: of the worker that has most, and to the address that has most."""

    of_worker: int
    to_address: int
    total: int
    certain: bool  # a closed loop opens them all; an open one may stay below its cap, or go beyond its rate
    bounded: bool


@dataclass(frozen=True, slots=True)
class Room:
    """What this machine has. None: no limit, or not known."""

    files: int | None = None  # the hard limit of a process
    ports: int | None = None  # local ports for connections to one address
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    text: str
    remedy: str
    certain: bool


def connections_of(plan: Plan) -> Connections:
    counts = [_at_once(traffic, plan) for traffic in plan.classes]
    total = sum(count for count, _ in counts)
    addresses = 1 if plan.target.proxy else max(1, len(plan.target.url))
    return Connections(
        of_worker=sum(-(-count // plan.workers) for count, _ in counts),
        to_address=-(-total // addresses),
        total=total,
        certain=all(closed for _, closed in counts),
        bounded=all(
            closed or traffic.load.max_concurrency for traffic, (_, closed) in zip(plan.classes, counts, strict=True)
        ),
    )


def _at_once(traffic: Traffic, plan: Plan) -> tuple[int, bool]:
    """Requests in flight at most, and whether that many will be: of an open loop without a cap a second's arrivals."""
    load = traffic.load
    slots = [load.concurrency or 0, *(stage.concurrency or 0 for stage in load.stages)]
    if any(slots):
        most, warmup = traffic.stop.requests, plan.warmup
        few = most is not None and not warmup.duration
        return min(max(slots), (most or 0) + (warmup.requests or 0)) if few else max(slots), True
    rates = [load.rate or 0.0, load.to or 0.0, *(max(stage.rate or 0.0, stage.to or 0.0) for stage in load.stages)]
    return load.max_concurrency or int(max(rates)), False


def room_here() -> Room:
    facts = network_facts()
    ports = None if facts.ports is None else facts.ports[1] - facts.ports[0] + 1
    return Room(files=facts.files_hard, ports=ports, memory_bytes=_available_bytes())


def shortages(plan: Plan, room: Room) -> Iterator[Shortage]:
    """What the load needs and this machine does not have."""
    need = connections_of(plan)
    files = need.of_worker + OWN_FILES
    if room.files is not None and files > room.files:
        of = "this process" if plan.workers == 1 else "each worker"
        text = f"{need.of_worker:,} connections at once need {files:,} open files, and {of} may have {room.files:,}"
        yield Shortage(text, _files_remedy(need.total, room.files), need.certain)
    if room.ports is not None and need.to_address > room.ports:
        text = f"{need.to_address:,} connections to one address need as many local ports, and there are {room.ports:,}"
        remedy = "sudo sysctl net.ipv4.ip_local_port_range='1024 65535', or several addresses of the target"
        yield Shortage(text, remedy, need.certain)
    wanted = plan.workers * WORKER_BYTES + need.total * CONNECTION_BYTES
    if room.memory_bytes is not None and wanted > room.memory_bytes:
        text = (
            f"{need.total:,} connections take about {size_text(wanted)} of memory, and {size_text(room.memory_bytes)}"
        )
        yield Shortage(f"{text} are free", "use a machine with more free memory, or fewer connections", certain=False)


def _files_remedy(connections: int, files: int) -> str:
    higher = "raise nofile in /etc/security/limits.conf (in a container: docker --ulimit nofile)"
    if files <= 2 * OWN_FILES:
        return higher
    return f"{higher}, or share them out: --workers {-(-connections // (files - OWN_FILES))}"


def check_room(plan: Plan, say: Callable[[str], None]) -> None:
    """PlanError where the load cannot be sent from here; what may become short is printed."""
    expected = list(shortages(plan, room_here()))
    if certain := [shortage for shortage in expected if shortage.certain]:
        raise PlanError([shortage.text for shortage in certain], "; ".join(shortage.remedy for shortage in certain))
    for shortage in expected:
        say(f"{shortage.text}: {shortage.remedy}")


@contextmanager
def enough_files(plan: Plan) -> Iterator[None]:
    """Raise the soft limit of open files as far as the plan needs and the hard one allows; workers inherit it. Put back
    afterwards: a server that is started later gets what it would have had without us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = connections_of(plan)
    wanted = need.of_worker + SPARE_FILES if need.bounded else MOST_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        yield
        return
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):  # some systems allow less than they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _available_bytes(root: Path = Path("/")) -> int | None:
    """Of the machine, or of the container that we are in."""
    known = [_of_machine(root), _of_container(root)]
    return min((size for size in known if size is not None), default=None)


def _of_machine(root: Path) -> int | None:
    """`MemAvailable:    1234 kB`"""
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_container(root: Path) -> int | None:
    """Cached files count as used there: they are given back when memory is wanted."""
    group = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):  # "max", or no such files
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(fields.get("file", 0))
    return None
