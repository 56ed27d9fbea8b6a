"""What connections need: files, local ports, a port to listen at, stamps of the kernel."""

import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferometer.observe.doctor.check import Check
from inferometer.wire.compiled import compiled
from inferometer.wire.sockets import kernel_stamps

SPARE_FILES = 128  # that we have open beside connections: libraries, logs, pipes of workers
PORTS_SPARE = 0.5  # of the free local ports; others connect too


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    files_soft: int | None = None  # None: no limit
    files_hard: int | None = None
    ports: tuple[int, int] | None = None  # the range that connections take their local port from
    waiting: int | None = None  # connections in TIME_WAIT: their ports are taken for a minute
    taken: tuple[int, ...] = ()  # of the ports that were asked for
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
