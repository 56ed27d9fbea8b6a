"""Locks, so that two runs never share a GPU, an endpoint or a port by accident: files shared by all users of this
machine, in a folder that persists when one of our processes is killed."""

import fcntl
import os
import platform
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import orjson

from inferometer.errors import InferometerError, StoreError, TargetError
from inferometer.observe.environment import gpu_facts
from inferometer.observe.gpu import visible_gpus
from inferometer.plan.model import Server
from inferometer.record.environment import GpuDriver
from inferometer.record.files import write_text
from inferometer.target.launch import check_port, port_is_free
from inferometer.target.process import belonging, birth, end_all, machine
from inferometer.vocabulary import duration_text

# -- state -----------------------------------------------------------------------------------------------------------

LOCK_PLACES = (Path("/run/lock"), Path("/tmp"))


class LockEntry(msgspec.Struct, frozen=True):
    """The holder of a lock, as written into its file."""

    holder: str
    pid: int
    birth: str | None
    since: str


def state_folder() -> Path:
    """`inferometer/HOST` in the user's state folder, or in the temporary folder if that is not writable."""
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
    """`$INFEROMETER_LOCKS`, else a folder that all users of this machine can find and write."""
    base = next((place for place in LOCK_PLACES if os.access(place, os.W_OK | os.X_OK)), Path(tempfile.gettempdir()))
    folder = Path(os.environ.get("INFEROMETER_LOCKS") or base / "inferometer")
    try:
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o1777)  # independent of the umask; no user may delete another's lock
    except FileExistsError:
        return folder
    except OSError as error:
        raise cannot_lock(folder, error) from error
    return folder


def cannot_lock(path: Path, error: OSError) -> InferometerError:
    hint = "set a lock folder that all users of the machine share: INFEROMETER_LOCKS=FOLDER"
    return InferometerError(f"{path}: {error.strerror}, so locking is not possible", hint)


# -- lock ------------------------------------------------------------------------------------------------------------

POLL_S = 0.2
ALL_GPUS = "gpus"


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """Something to be locked; shared claims exclude only exclusive ones."""

    name: str
    what: str  # name used in messages
    shared: bool = False


def numbered(names: Sequence[str]) -> list[str]:
    """GPU numbers, if they were given as UUIDs or prefixes of UUIDs: each GPU has one lock."""
    if all(name.isdigit() for name in names):
        return list(names)
    known = {str(gpu.uuid): str(gpu.index) for gpu in (gpu_facts() or GpuDriver()).gpus}
    matches = ([number for uuid, number in known.items() if uuid.startswith(name)] for name in names)
    return [numbers[0] if len(numbers) == 1 else name for name, numbers in zip(names, matches, strict=True)]


def endpoint_claims(urls: Sequence[str]) -> list[Claim]:
    """One for each host and port; all names of this machine count as one."""
    return sorted({Claim(f"endpoint-{_safe(place)}", place) for place in map(_endpoint, urls)})


def gpu_claims(server: Server, environ: Mapping[str, str]) -> list[Claim]:
    """The GPUs that a server will use: those visible to it, else all of this host.

    A claim on all GPUs excludes claims on single ones: a process that takes one also holds a shared lock on `gpus`.
    """
    visible = visible_gpus(server, environ)
    if visible is None:
        return [Claim(ALL_GPUS, "all GPUs of this host")]
    claims = {Claim(f"gpu-{_safe(number)}", f"GPU {number}") for number in numbered(visible)}
    return [Claim(ALL_GPUS, "all GPUs of this host", shared=True), *sorted(claims)] if claims else []


@contextmanager
def held(
    claims: Sequence[Claim], holder: str, wait_s: float = 0.0, notify: Callable[[str], None] = lambda _text: None
) -> Iterator[None]:
    """Hold all claims; a `TargetError` names the holder of one that is taken, at once or after the wait."""
    deadline = time.monotonic() + wait_s
    with ExitStack() as stack:
        for claim in claims:
            stack.enter_context(_held_one(claim, holder, deadline, wait_s, notify))
        yield


@contextmanager
def _held_one(
    claim: Claim, holder: str, deadline: float, wait_s: float, notify: Callable[[str], None]
) -> Iterator[None]:
    path = locks_folder() / f"{claim.name}.lock"
    file = _opened(path)
    notified = False
    try:
        while not _taken(file, claim.shared):
            if time.monotonic() >= deadline:
                raise _refusal(claim, path, wait_s)
            if not notified:
                notify(f"waiting for {claim.what}: it is in use by {_who(path)}")
                notified = True
            time.sleep(POLL_S)
        if not claim.shared:
            _write(file, holder)
        yield
        if not claim.shared:
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    """The lock's file, created for all users if it is missing. An existing one is opened without O_CREAT: in a folder
    writable by all, the system would refuse that for another user's file."""
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(FileExistsError):
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(file, 0o666)  # independent of the umask
                return file
        except OSError as error:
            raise cannot_lock(path, error) from error


def _taken(file: int, shared: bool) -> bool:
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refusal(claim: Claim, path: Path, wait_s: float) -> TargetError:
    waited = f", still after {duration_text(wait_s)}" if wait_s else ""
    return TargetError(
        f"{claim.what}: in use by {_who(path)}{waited}",
        "wait for it with --wait-for-target 30min; share it on purpose with "
        + ("target.exclusive=false" if claim.name.startswith("endpoint") else "server.exclusive=false"),
    )


def _who(path: Path) -> str:
    """The holder of a lock, from its file; holders of single GPUs have written into the files of those."""
    several = path.name == f"{ALL_GPUS}.lock"
    for lock in [path, *(sorted(path.parent.glob("gpu-*.lock")) if several else [])]:
        if (entry := _read_entry(lock)) and birth(entry.pid) == entry.birth:
            since = datetime.fromisoformat(entry.since).strftime("%Y-%m-%d %H:%M:%S")
            return f"{entry.holder} (pid {entry.pid}, since {since})"
    return "another process"


def _read_entry(path: Path) -> LockEntry | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LockEntry)
    except (OSError, msgspec.MsgspecError):  # being written, or from another version
        return None


def _write(file: int, holder: str) -> None:
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    entry = LockEntry(holder=holder, pid=os.getpid(), birth=birth(os.getpid()), since=since)
    os.ftruncate(file, 0)
    os.pwrite(file, msgspec.json.encode(entry), 0)


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if host in ("127.0.0.1", "::1", "0.0.0.0", "::"):
        host = "localhost"
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", name)[:150]


# -- ports -----------------------------------------------------------------------------------------------------------

_TRIES = 200
_LOWEST = 10_000


@contextmanager
def reserved_port(host: str, requested: int | None, holder: str, setting: str = "server.port") -> Iterator[int]:
    """The requested port, or a free one; no other server of ours receives it meanwhile."""
    if requested is not None:
        check_port(host, requested, setting)
        yield requested
        return
    with ExitStack() as stack:
        yield _free_port(host, holder, stack)


def _free_port(host: str, holder: str, stack: ExitStack) -> int:
    """Searches below the range of ephemeral ports: an engine listens minutes after it was given the port, and one of
    our own readiness checks could otherwise take that very port, even connect to itself."""
    lowest, highest = _LOWEST, _first_ephemeral() - 1
    for _ in range(_TRIES):
        port = random.SystemRandom().randint(lowest, highest)
        if not port_is_free(host, port):
            continue
        try:
            stack.enter_context(held([Claim(f"port-{port}", f"port {port}")], holder))
        except TargetError:
            continue
        return port
    raise TargetError(f"no free port between {lowest} and {highest}", "name one: server.port")


def _first_ephemeral() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768  # as on Linux; other systems start higher
    return first if first > _LOWEST + 1000 else 32_768


# -- servers that a killed process left running ------------------------------------------------------------------------

# Servers left running because we were killed: each one is recorded before it starts, and looked for at the next start.
# A process is signalled only if its number, its start time or its mark proves that it is the right one.

GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class RegisteredServer:
    """A recorded server; the owner is the process of ours that started it."""

    token: str
    name: str
    command: str
    machine: str
    owner: int
    owner_birth: str | None
    since: str
    pid: int | None = None
    birth: str | None = None
    engine: str | None = None  # the program that runs its container
    container: str | None = None

    @property
    def owner_lives(self) -> bool:
        return birth(self.owner) == self.owner_birth


class Registration:
    """The file entry of a server that is being started or running."""

    def __init__(self, token: str, name: str, command: str, engine: str | None = None) -> None:
        self._path = _folder() / f"{token}.json"
        since = datetime.now(UTC).isoformat(timespec="seconds")
        self._entry = RegisteredServer(
            token, name, command, machine(), os.getpid(), birth(os.getpid()), since, engine=engine
        )
        self._write()

    def runs_as(self, pid: int) -> None:
        self._entry = replace(self._entry, pid=pid, birth=birth(pid))
        self._write()

    def runs_in(self, container: str) -> None:
        self._entry = replace(self._entry, container=container)
        self._write()

    def over(self) -> None:
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        with suppress(StoreError):  # without it only the clean-up after a kill is lost
            write_text(self._path, orjson.dumps(asdict(self._entry)).decode())


@contextmanager
def registered(token: str, name: str, command: str, engine: str | None = None) -> Iterator[Registration]:
    """Recorded as long as the context lasts."""
    registration = Registration(token, name, command, engine)
    try:
        yield registration
    finally:
        registration.over()


def end_orphans(notify: Callable[[str], None]) -> None:
    """Stop every server whose owner was killed, and report it."""
    for path in sorted(_folder().glob("*.json")):
        entry = _read(path)
        if entry is None or entry.machine != machine() or entry.owner_lives:
            continue
        ended = [*_end_processes(entry), *_end_container(entry)]
        path.unlink(missing_ok=True)
        if ended:
            notify(f"stopped {entry.name}, left running since {entry.since} by a killed run ({', '.join(ended)})")


def _end_processes(entry: RegisteredServer) -> list[str]:
    """The leader's session counts only while the leader itself exists: afterwards its number may belong to another
    process."""
    leader = entry.pid if entry.pid and entry.birth and birth(entry.pid) == entry.birth else None
    processes = belonging(entry.token, leader)
    if processes:
        end_all(lambda: belonging(entry.token, leader), GRACE_S)
    return [f"pid {seen.pid}" for seen in processes]


def _end_container(entry: RegisteredServer) -> list[str]:
    if entry.engine is None:
        return []
    from inferometer.target.container import ContainerEngine

    engine = ContainerEngine(entry.engine)
    containers = engine.labelled(entry.token) or ([entry.container] if entry.container else [])
    return [f"container {container[:12]}" for container in containers if engine.remove(container, GRACE_S)]


def _folder() -> Path:
    folder = state_folder() / "servers"
    folder.mkdir(exist_ok=True)
    return folder


def _read(path: Path) -> RegisteredServer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RegisteredServer)
    except (OSError, msgspec.MsgspecError):  # being written, or from another version
        return None
