"""The machine that sends the load: its cores and clocks, and how much of them other processes use."""

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.observe.doctor import Check, unknown, warned_if
from inferometer.plan.model import Plan, Traffic
from inferometer.vocabulary import duration_text, number_text, percent_text, size_text
from inferometer.wire.compiled import compiled
from inferometer.wire.sockets import kernel_stamps

FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "tsc-early")
SLOW_READING_S = 1e-6  # reading a clock through a system call takes at least this long; otherwise 50 ns
MUCH_STEAL = 0.02
BUSY = 0.5  # of the cores, by others
STEP_S = 1e-3  # NTP slews by at most 0.5 ms in a second; more is a step


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """None: this system does not report it."""

    cores: int | None = None
    cpu_limit: float | None = None  # the control group's CPU limit in cores
    throttled: int | None = None  # periods in which that was not enough
    busy_share: float | None = None  # of all cores, by any process, during the look
    steal_share: float | None = None
    clock_source: str | None = None
    clock_reading_s: float | None = None
    governors: dict[str, int] = field(default_factory=dict)  # cores by governor
    clock_step_s: float | None = None  # of the wall clock relative to the monotonic one, during the look
    synchronized: bool | None = None


class MachineLook:
    """Reads counters at its start and its end, and reports the differences."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpu = cpu_times(root)
        self._offset = _offset_s()
        self._began = time.monotonic()

    def facts(self, least_s: float = 1.0) -> MachineFacts:
        """After at least this many seconds."""
        time.sleep(max(0.0, self._began + least_s - time.monotonic()))
        root, busy_steal = self._root, shares(self._cpu, cpu_times(self._root))
        return MachineFacts(
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            cpu_limit=cpu_limit(root),
            throttled=throttled(root),
            busy_share=busy_steal[0],
            steal_share=busy_steal[1],
            clock_source=_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_reading_s=_reading_s(),
            governors=governors(root),
            clock_step_s=_offset_s() - self._offset,
            synchronized=synchronized(root),
        )


def machine_checks(facts: MachineFacts) -> Iterator[Check]:
    yield cores(facts)
    yield limit(facts)
    yield load(facts)
    yield steal(facts)
    yield governor(facts)


def clock_checks(facts: MachineFacts) -> Iterator[Check]:
    yield clock_source(facts)
    yield clock_step(facts)
    yield synchronization(facts)


def cores(facts: MachineFacts) -> Check:
    if facts.cores is None:
        return unknown("cores")
    if facts.cores < 2:
        remedy = "measure from a machine with more cores, especially if the server runs here too"
        return Check("cores", "warning", "1 core for the load generator and everything else", remedy)
    return Check("cores", "ok", f"{facts.cores} available")


def limit(facts: MachineFacts) -> Check:
    name = "CPU limit"
    if facts.cpu_limit is None:
        return Check(name, "ok", "none")
    often = f", reached {facts.throttled:,} times so far" if facts.throttled else ""
    finding = f"{number_text(facts.cpu_limit)} cores (cgroup limit){often}"
    remedy = "a cgroup at its limit is paused for up to 100 ms: raise the limit (docker --cpus, limits.cpu)"
    return warned_if(facts.cpu_limit < (facts.cores or 1), name, finding, remedy)


def load(facts: MachineFacts) -> Check:
    if facts.busy_share is None:
        return unknown("other load")
    finding = f"{percent_text(facts.busy_share)} of the cores busy during the check"
    remedy = "stop other processes (top), or measure from another machine"
    return warned_if(facts.busy_share > BUSY, "other load", finding, remedy)


def steal(facts: MachineFacts) -> Check:
    if facts.steal_share is None:
        return unknown("hypervisor")
    finding = f"{percent_text(facts.steal_share)} of the core time taken by the host (steal)"
    remedy = "measured times include stolen time: use a dedicated machine, or repeat runs and compare medians"
    return warned_if(facts.steal_share > MUCH_STEAL, "hypervisor", finding, remedy)


def governor(facts: MachineFacts) -> Check:
    name = "CPU governor"
    if not facts.governors:
        return Check(name, "not applicable", "the frequency governor cannot be read here")
    slow = {name: count for name, count in facts.governors.items() if name != "performance"}
    if slow:
        finding = ", ".join(f"{name} on {count} cores" for name, count in slow.items())
        remedy = "cores that slow down between requests answer late: sudo cpupower frequency-set -g performance"
        return Check(name, "warning", finding, remedy)
    return Check(name, "ok", "performance")


def clock_source(facts: MachineFacts) -> Check:
    name, cost = "clock source", facts.clock_reading_s
    reading = "" if cost is None else f", {duration_text(cost)} a reading"
    slow = cost is not None and cost > SLOW_READING_S
    if facts.clock_source is None and not slow:
        return Check(name, "ok" if cost is not None else "not applicable", f"not named{reading}")
    finding = f"{facts.clock_source or 'not named'}{reading}"
    remedy = "reading it needs a system call for every read of a stream: boot with clocksource=tsc if it is stable"
    return warned_if(slow or facts.clock_source not in FAST_CLOCKS, name, finding, remedy)


def clock_step(facts: MachineFacts) -> Check:
    name = "wall clock"
    if facts.clock_step_s is None:
        return Check(name, "not applicable", "not checked")
    if abs(facts.clock_step_s) > STEP_S:
        finding = f"stepped by {duration_text(facts.clock_step_s)} during the check"
        remedy = (
            "kernel timestamps use this clock: let NTP slew it instead of stepping it, and wait until it is in sync"
        )
        return Check(name, "warning", finding, remedy)
    return Check(name, "ok", "steady")


def synchronization(facts: MachineFacts) -> Check:
    name = "NTP"
    if facts.synchronized is None:
        return Check(name, "not applicable", "unknown; it matters only for workers on several machines")
    if not facts.synchronized:
        remedy = "workers on several machines start at a time on this clock: timedatectl set-ntp true, or start chronyd"
        return Check(name, "warning", "the clock is not synchronized", remedy)
    return Check(name, "ok", "synchronized")


# -- reading ---------------------------------------------------------------------------------------------------


def cpu_times(root: Path) -> list[int] | None:
    """The counters of all cores together: user, nice, system, idle, iowait, irq, softirq, steal, ..."""
    fields = (_text(root / "proc/stat") or "").partition("\n")[0].split()
    return [int(ticks) for ticks in fields[1:]] if len(fields) > 8 and fields[0] == "cpu" else None


def shares(before: list[int] | None, after: list[int] | None) -> tuple[float | None, float | None]:
    """Busy and stolen time, as shares of the total time of all cores."""
    if before is None or after is None:
        return None, None
    spent = [now - then for then, now in zip(before, after, strict=False)]
    total = sum(spent[:8])
    if total <= 0:
        return None, None
    return (total - spent[3] - spent[4] - spent[7]) / total, spent[7] / total


def cpu_limit(root: Path) -> float | None:
    quota, _, period = (_text(root / "sys/fs/cgroup/cpu.max") or "").partition(" ")
    if quota.isdigit() and period.isdigit():
        return int(quota) / int(period)
    old = [_text(root / f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    return int(old[0]) / int(old[1]) if all(text.isdigit() for text in old) else None


def throttled(root: Path) -> int | None:
    for line in (_text(root / "sys/fs/cgroup/cpu.stat") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "nr_throttled" and count.isdigit():
            return int(count)
    return None


def governors(root: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for file in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")):
        if name := _text(file):
            counts[name] = counts.get(name, 0) + 1
    return counts


def synchronized(root: Path) -> bool | None:
    """From files written by systemd or chrony; a container has none."""
    if (root / "run/systemd/timesync/synchronized").exists() or (root / "run/chrony/chronyd.pid").exists():
        return True
    return False if (root / "run/systemd/timesync").is_dir() else None


def _reading_s(readings: int = 2000) -> float:
    """The shortest of a few tries: longer ones were interrupted."""
    return min(_tried_s(readings) for _ in range(5))


def _tried_s(readings: int) -> float:
    began = time.perf_counter_ns()
    for _ in range(readings):
        time.monotonic_ns()
    return (time.perf_counter_ns() - began) / readings / 1e9


def _offset_s() -> float:
    """Offset of the wall clock from the monotonic one: the closest of a few readings."""
    offsets = []
    for _ in range(5):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        offsets.append((after - before, wall - (before + after) // 2))
    return min(offsets)[1] / 1e9


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


SPARE_FILES = 128  # open files besides connections: libraries, logs, pipes of workers
PORTS_SPARE = 0.5  # of the free local ports; other processes connect too


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    files_soft: int | None = None  # None: no limit
    files_hard: int | None = None
    ports: tuple[int, int] | None = None  # the range of local ports for connections
    waiting: int | None = None  # connections in TIME_WAIT: their ports are blocked for a minute
    taken: tuple[int, ...] = ()  # those of the requested ports that are in use
    requested: tuple[int, ...] = ()
    stamps: bool = False
    reader: bool = False


def network_facts(root: Path = Path("/"), requested: Sequence[int] = (), taken: Sequence[int] = ()) -> NetworkFacts:
    soft, hard = (_limit(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return NetworkFacts(
        files_soft=soft,
        files_hard=hard,
        ports=port_range(root),
        waiting=in_time_wait(root),
        taken=tuple(taken),
        requested=tuple(requested),
        stamps=kernel_stamps(),
        reader=compiled() is not None,
    )


def network_checks(facts: NetworkFacts, concurrency: int) -> Iterator[Check]:
    yield open_files(facts, concurrency)
    yield local_ports(facts, concurrency)
    yield ports_to_listen(facts)
    yield stamps(facts)
    yield reader(facts)


def open_files(facts: NetworkFacts, concurrency: int) -> Check:
    name, needed = "open files", concurrency + SPARE_FILES
    if facts.files_soft is None:
        return Check(name, "ok", "no limit")
    finding = f"limit {facts.files_soft:,}, {needed:,} needed for {concurrency:,} connections"
    if facts.files_soft >= needed:
        return Check(name, "ok", finding)
    if facts.files_hard is None or facts.files_hard >= needed:
        return Check(name, "error", finding, f"ulimit -n {_next_power(needed)}")
    remedy = (
        f"the hard limit is {facts.files_hard:,}: raise nofile in /etc/security/limits.conf, or docker --ulimit nofile"
    )
    return Check(name, "error", finding, f"{remedy}; or use several --workers")


def local_ports(facts: NetworkFacts, concurrency: int) -> Check:
    name = "local ports"
    if facts.ports is None:
        return Check(name, "not applicable", "not reported by this system")
    first, last = facts.ports
    free = last - first + 1 - (facts.waiting or 0)
    waiting = f", {facts.waiting:,} in TIME_WAIT" if facts.waiting else ""
    finding = f"{first} to {last}{waiting}: {max(free, 0):,} free"
    remedy = "sudo sysctl net.ipv4.ip_local_port_range='1024 65535'; connections in TIME_WAIT are gone after a minute"
    if free < concurrency:
        return Check(name, "error", f"{finding}, {concurrency:,} wanted", remedy)
    if free * PORTS_SPARE < concurrency:
        return Check(name, "warning", f"{finding}, {concurrency:,} wanted", remedy)
    return Check(name, "ok", finding)


def ports_to_listen(facts: NetworkFacts) -> Check:
    name = "ports to listen at"
    if not facts.requested:
        return Check(name, "not applicable", "no port given (--port); servers started by Inferometer use a free one")
    if facts.taken:
        numbers = ", ".join(map(str, facts.taken))
        return Check(
            name,
            "error",
            f"already in use: {numbers}",
            f"find the process that listens: ss -ltnp 'sport = :{facts.taken[0]}'",
        )
    return Check(name, "ok", f"free: {', '.join(map(str, facts.requested))}")


def stamps(facts: NetworkFacts) -> Check:
    if facts.stamps:
        return Check("kernel stamps", "ok", "the kernel timestamps packets as they arrive")
    remedy = "reads get their timestamp when the client runs, up to a time slice late: use Linux"
    return Check("kernel stamps", "warning", "this system does not timestamp packets", remedy)


def reader(facts: NetworkFacts) -> Check:
    if facts.reader:
        return Check("compiled reader", "ok", "built")
    remedy = "needs more CPU time per token: install a C compiler, then pip install --force-reinstall inferometer"
    return Check("compiled reader", "warning", "not built; streams are read in Python", remedy)


def port_range(root: Path) -> tuple[int, int] | None:
    fields = _read(root / "proc/sys/net/ipv4/ip_local_port_range").split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 and all(field.isdigit() for field in fields) else None


def in_time_wait(root: Path) -> int | None:
    """`TCP: inuse 27 orphan 0 tw 3 alloc 30 mem 4`"""
    for line in _read(root / "proc/net/sockstat").splitlines():
        fields = line.split()
        if fields[:1] == ["TCP:"] and "tw" in fields[:-1]:
            return int(fields[fields.index("tw") + 1])
    return None


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _next_power(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


# -- what a load needs of this machine ---------------------------------------------------------------------------------

# Resources that a load needs on this machine, computed from its plan before anything is sent: open files, local ports,
# memory. Requests that fail for lack of them nevertheless have the outcome `client`.

OWN_FILES = 32  # a worker's files other than its connections: 15 were observed, plus a reserve
MOST_FILES = 1 << 20  # requested for an open loop without a cap, if the system allows it
CONNECTION_BYTES = 64 * 1024  # of one connection: the kernel's buffers and what we keep of its answer
WORKER_BYTES = 100 * 1024**2


@dataclass(frozen=True, slots=True)
class Connections:
    """Number of simultaneous connections: for the worker with the most, and for the address with the most."""

    of_worker: int
    to_address: int
    total: int
    certain: bool  # a closed loop opens them all; an open one may stay below its cap, or exceed its rate
    bounded: bool


@dataclass(frozen=True, slots=True)
class Room:
    """The resources of this machine. None: no limit, or unknown."""

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
    """Maximum requests in flight, and whether that many are certain: for an open loop without a cap a second's
    arrivals."""
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
    """Resources that the load needs and this machine lacks."""
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
    """Raises PlanError if the load cannot be sent from here; possible shortages are printed."""
    expected = list(shortages(plan, room_here()))
    if certain := [shortage for shortage in expected if shortage.certain]:
        raise PlanError([shortage.text for shortage in certain], "; ".join(shortage.remedy for shortage in certain))
    for shortage in expected:
        say(f"{shortage.text}: {shortage.remedy}")


@contextmanager
def enough_files(plan: Plan) -> Iterator[None]:
    """Raise the soft limit of open files as far as the plan needs and the hard limit allows; workers inherit it.
    Restored afterwards, so that a server started later gets its usual limit."""
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
    """Of the machine, or of the container we run in."""
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
    """Cached files count as used there, although they are released when memory is needed."""
    group = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):  # "max", or no such files
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(fields.get("file", 0))
    return None
