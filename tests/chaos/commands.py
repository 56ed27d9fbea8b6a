"""The command line as a child process watched from the outside: how it ended, how long it took, how much memory it and
its children had at most, and what of it still runs afterwards. Linux only: it reads /proc."""

import os
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from inferometer.conduct.instrument import curve_of, keep_curve

MARK = "INFEROMETER_CHAOS_MARK"  # in the environment of a command and so of all that it starts
GUARD_MB = 3000.0  # a command beyond this is killed before it takes the machine with it
LEFT_S = 15.0  # in which children of a killed command must have ended: a load process has 10 s to close its log
LOOK_S = 0.2
_FOLDERS = {
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
    "INFEROMETER_LOCKS": "locks",
    "INFEROMETER_STORE": "usual-store",
}
SHOW_S = 60.0  # for commands that only read


class StoppedError(Exception):
    """Ctrl-C: whatever is under way is ended and not judged."""


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    command: str
    peak_mb: float
    ran_s: float  # on a core
    waited_s: float  # for one, while it could have run


@dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is negative after a signal that nobody caught."""

    name: str
    code: int
    took_s: float
    limit_s: float
    peak_rss_mb: float
    out: str
    err: str
    hung: bool = False
    left: list[str] = field(default_factory=list)
    slowdown: float = 1.0  # how much longer its busiest process took because others had the cores

    def last_words(self) -> str:
        lines = [line for line in self.err.splitlines() if line.startswith("error")] or self.err.splitlines()[-1:]
        return (lines or ["nothing on stderr"])[0][:200]


class Ground:
    """A scratch folder, and what all attacks of one run of chaos share."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.stop = threading.Event()
        self._tls: ssl.SSLContext | None = None
        self._making = threading.Lock()
        for name in _FOLDERS.values():
            (scratch / name).mkdir(exist_ok=True)

    def variables(self) -> dict[str, str]:
        """Of every command's environment: nothing is written outside of the scratch folder."""
        return {"NO_COLOR": "1"} | {variable: str(self.scratch / name) for variable, name in _FOLDERS.items()}

    def folder(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))

    def store(self) -> Path:
        """A new store, calibrated by nothing: no run has to calibrate the machine first."""
        store = self.folder("store")
        keep_curve(curve_of([]), store)
        return store

    def tls(self) -> ssl.SSLContext:
        """With a certificate that nobody trusts, made once."""
        with self._making:
            if self._tls is None:
                certificate, key = self.scratch / "cert.pem", self.scratch / "key.pem"
                words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
                words += ["-subj", "/CN=chaos", "-out", str(certificate), "-keyout", str(key)]
                subprocess.run(words, check=True, capture_output=True)
                self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self._tls.load_cert_chain(certificate, key)
            return self._tls

    def command(self, *arguments: str, limit_s: float = SHOW_S, env: Mapping[str, str] | None = None) -> Ended:
        """Run it to its end."""
        with Command(self, arguments, env) as command:
            return command.wait(limit_s)


class Command:
    """One that is under way."""

    def __init__(self, ground: Ground, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.ground, self.arguments = ground, arguments
        self._mark = uuid.uuid4().hex
        self._peak_mb = 0.0
        self._shares: dict[int, Process] = {}  # as they were when last seen
        self._output = [tempfile.TemporaryFile(dir=ground.scratch) for _ in range(2)]  # noqa: SIM115 - closed at exit
        self._began_at = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "inferometer", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output[0],
            stderr=self._output[1],
            cwd=ground.scratch,
            start_new_session=True,
            env={
                **os.environ,
                **ground.variables(),
                **(env or {}),
                MARK: self._mark,
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for file in self._output:
            file.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None and not self._reaped(os.WNOHANG)

    def processes(self) -> list[Process]:
        """It and all that it started, by their environment: a parent that was killed tells nothing."""
        found = list(_marked(f"{MARK}={self._mark}".encode()))
        self._peak_mb = max([self._peak_mb, *(process.peak_mb for process in found)])
        self._shares |= {process.pid: process for process in found}
        return found

    def slowdown(self) -> float:
        busiest = max(self._shares.values(), key=lambda process: process.ran_s, default=None)
        return 1 + busiest.waited_s / busiest.ran_s if busiest is not None and busiest.ran_s else 1.0

    def child(self, module: str) -> list[Process]:
        """Its processes that run a module of ours, oldest first."""
        return sorted((each for each in self.processes() if module in each.command), key=lambda each: each.pid)

    def copies(self) -> list[Process]:
        """Copies that it made of itself, such as its observer."""
        first, *others = sorted(self.processes(), key=lambda process: process.pid)
        return [process for process in others if process.command == first.command]

    def wait(self, limit_s: float, since_at: float | None = None) -> Ended:
        """Until it ends, but no longer than the limit from its start (or from a later instant): then it hung."""
        deadline = (since_at or self._began_at) + limit_s
        hung = False
        while self.running:
            if self.ground.stop.is_set():
                raise StoppedError
            self.processes()
            if time.monotonic() > deadline or self._peak_mb > GUARD_MB:
                hung = time.monotonic() > deadline
                break
            time.sleep(LOOK_S)
        took_s = time.monotonic() - self._began_at
        left = [] if self.running else self._left()
        self._end()
        out, err = map(_text, self._output)  # type: ignore[arg-type]
        name = " ".join(self.arguments[:1])
        code = self._process.returncode
        return Ended(name, code, took_s, limit_s, self._peak_mb, out, err, hung, left, self.slowdown())

    def _left(self) -> list[str]:
        """What is still running some seconds after it ended."""
        deadline = time.monotonic() + LEFT_S
        while (found := self.processes()) and time.monotonic() < deadline and not self.ground.stop.is_set():
            time.sleep(LOOK_S)
        return [process.command for process in found]

    def _end(self) -> None:
        """Kill whatever there still is of it."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        if self._process.returncode is None:
            self._reaped(0)

    def _reaped(self, options: int) -> bool:
        """Whether it ended; its peak memory is exact then. (The kernel counts the memory of whoever started it too, so
        a peak below ours says nothing.)"""
        with suppress(ChildProcessError):
            pid, status, usage = os.wait4(self.pid, options)
            if pid == 0:
                return False
            self._process.returncode = os.waitstatus_to_exitcode(status)
            if usage.ru_maxrss > 1.2 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
                self._peak_mb = max(self._peak_mb, usage.ru_maxrss / 1024)
        return True


def _marked(mark: bytes) -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                command = " ".join(words)[:300].strip()
                yield Process(int(folder.name), command, _peak_mb(folder), *_shares(folder))


def _shares(folder: Path) -> tuple[float, float]:
    """Seconds on a core, and waiting for one."""
    ran_ns, waited_ns, _ = map(int, (folder / "schedstat").read_text().split())
    return ran_ns / 1e9, waited_ns / 1e9


def _peak_mb(folder: Path) -> float:
    for line in (folder / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _text(file: "tempfile._TemporaryFileWrapper[bytes]") -> str:
    file.seek(0)
    return file.read(1 << 26).decode("utf-8", "replace")
