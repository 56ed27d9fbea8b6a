"""One shard on a node of a Ray cluster: an actor that starts the process of a local worker and forwards its output and
its log. The load shares neither threads nor memory with Ray.

The log stays a file on the node until the driver has all of it.
"""

import errno
import os
import select
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from inferometer import __version__
from inferometer.record.files import replacing
from inferometer.record.log import HostClock, clock_here
from inferometer.scale.processes import WorkerProcess

NODE_FOLDER_ENV = "INFEROMETER_NODE_FOLDER"
LARGEST_PARCEL = 1_000_000  # bytes: larger objects would spill from the object store of a node
_LOG_BYTES = LARGEST_PARCEL - (1 << 17)  # of a parcel; the rest is for frames
_FRAME_BYTES = 1 << 16
RAYLET_S = 0.5  # between two checks that the node's raylet is alive


def node_folder() -> Path:
    """The folder of shard logs on a node: `$INFEROMETER_NODE_FOLDER`, else a folder of the user in the temporary
    folder."""
    named = os.environ.get(NODE_FOLDER_ENV)
    return Path(named) if named else Path(tempfile.gettempdir()) / f"inferometer-{os.getuid()}"


def _made_node_folder() -> Path:
    """Create the folder and check its owner: logs may contain answers, and any user can create folders in /tmp."""
    folder = node_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if NODE_FOLDER_ENV not in os.environ and folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, f"belongs to another user; set {NODE_FOLDER_ENV} on this node", str(folder))
    return folder


class Parcel(msgspec.Struct, array_like=True, frozen=True):
    """New output of the worker since the last parcel: its frames, and the next piece of its log."""

    frames: bytes = b""
    log: bytes = b""
    ended: str | None = None  # in the last parcel: how the process ended
    size: int = 0  # in the last parcel: the size of its log


class ActorIdentity(msgspec.Struct, frozen=True):
    """Host, process and versions of an actor."""

    clock: HostClock
    version: str
    pid: int  # of the actor's process
    folder: str  # of the shard's files


class RemoteShard:
    """The actor. `parcels` runs the shard to its end; the other methods are called meanwhile."""

    def __init__(self, run: str, shard: int, function: str, job: bytes, environ: dict[str, str]) -> None:
        home = _made_node_folder()  # fails, if at all, before the load
        self._folder = folder = home / f"{run}-{shard}"
        self._function, self._environ = function, environ
        files = {"log": str(folder / f"log-{shard}.bin"), "goals": str(folder / "goals.json")}
        self._log = Path(files["log"])
        self._goals = Path(files["goals"])
        own = msgspec.json.decode(job, type=dict[str, msgspec.Raw])
        requested = {name: msgspec.Raw(msgspec.json.encode(path)) for name, path in files.items() if _is_set(own, name)}
        self._job = msgspec.json.encode(own | requested)
        self._worker: WorkerProcess | None = None

    def identity(self) -> bytes:
        return msgspec.msgpack.encode(ActorIdentity(clock_here(), __version__, os.getpid(), str(self._folder)))

    def now(self) -> int:
        return time.monotonic_ns()

    def start(self, at: int) -> None:
        """Begin at this time of our clock."""
        if self._worker is not None:
            self._worker.send_line(f"start {at}")

    def signal(self, number: int) -> None:
        if self._worker is not None:
            self._worker.signal(number)

    def reached(self, goals: bytes) -> None:
        """Write the reached goals for the shard."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._goals) as draft:
            draft.write_bytes(goals)

    def forget(self) -> None:
        """Remove the log: the driver has all of it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def parcels(self, pause_s: float, *, with_log: bool = True) -> Iterator[bytes]:
        """The worker's output in parcels, during the load at most one per `pause_s`. If the driver fetches the log
        another way, the parcels do not contain it, and the last one has its size. The shard's folder is created here,
        so that an actor that ends earlier leaves nothing behind."""
        self._folder.mkdir(parents=True, exist_ok=True)
        end_with(os.getppid())
        worker = self._worker = WorkerProcess(self._function, self._job, self._environ)
        log = _GrowingFile(self._log)
        try:
            for frames in _in_pauses(worker, pause_s):
                yield _packed(Parcel(frames, log.more() if with_log else b""))
            worker.end()
            while with_log and (piece := log.more()):
                yield _packed(Parcel(log=piece))
            size = log.size if with_log or not self._log.exists() else self._log.stat().st_size
            yield _packed(Parcel(ended=worker.why(), size=size))
        finally:
            worker.end()
            log.close()


def end_with(parent: int) -> None:
    """End this process soon after its parent, the raylet of the node. Ray does not end actors in the middle of a call,
    so their load would continue unobserved. The shard ends when this process does, and its log stays."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(RAYLET_S)
        os._exit(1)

    threading.Thread(target=watch, name="raylet", daemon=True).start()


def _in_pauses(worker: WorkerProcess, pause_s: float) -> Iterator[bytes]:
    """The worker's frames, collected over pauses; the first at once, and empty if there are none."""
    frames, sent_at = b"", 0.0
    while True:
        left_s = sent_at + pause_s - time.monotonic()
        readable, _, _ = select.select([worker.frames], [], [], max(left_s, 0.0) if frames else pause_s)
        data = os.read(worker.frames, _FRAME_BYTES) if readable else b""
        frames += data
        ended = bool(readable) and not data
        if time.monotonic() - sent_at >= pause_s or ended or len(frames) >= _FRAME_BYTES // 2:
            yield frames
            frames, sent_at = b"", time.monotonic()
        if ended:
            return


class _GrowingFile:
    """A file that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.size = 0  # bytes read so far

    def more(self) -> bytes:
        """The next piece; empty if there is none yet."""
        if self._file is None:
            with suppress(FileNotFoundError):
                self._file = os.open(self._path, os.O_RDONLY)
        piece = os.read(self._file, _LOG_BYTES) if self._file is not None else b""
        self.size += len(piece)
        return piece

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _packed(parcel: Parcel) -> bytes:
    return msgspec.msgpack.encode(parcel)


def _is_set(job: dict[str, msgspec.Raw], name: str) -> bool:
    return bytes(job.get(name, b"null")) != b"null"
