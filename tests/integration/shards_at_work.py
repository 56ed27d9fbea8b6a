"""A shard function that the tests' worker processes run: it drains, cancels, fails and dies like a real one."""

import os
import signal
from pathlib import Path

import msgspec

from inferometer.errors import StoreError
from inferometer.load.progress import Progress
from inferometer.load.shard import CANCEL_SIGNAL
from inferometer.wire.reactor import Reactor, now


class Errand(msgspec.Struct):
    shard: int
    folder: str
    then: str = "report"  # or "die", "fail", "crash", "wait", "connect"


class Account(msgspec.Struct):
    shard: int
    pid: int
    began_at: int
    late_ns: int
    interrupts: int = 0


def errand(job: Errand, watch, start) -> Account:
    print("printed where frames go")
    if job.then == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    reactor = Reactor()
    account = Account(job.shard, os.getpid(), 0, 0)

    def interrupted() -> None:
        account.interrupts += 1
        watch(Progress(shard=job.shard, phase="drain"))
        if account.interrupts == 2:
            reactor.stop()

    undos = [reactor.on_signal(number, interrupted) for number in (signal.SIGINT, CANCEL_SIGNAL)]
    if job.then == "connect":  # to somewhere that never answers
        watch(Progress(shard=job.shard, phase="connect"))
        reactor.run()
    account.began_at = start()
    reactor.call_at(account.began_at, lambda: _begin(job, account, watch, reactor))
    reactor.run()
    for undo in undos:
        undo()
    reactor.close()
    Path(job.folder, f"ended-{job.shard}").write_text(str(account.interrupts))
    return account


def _begin(job: Errand, account: Account, watch, reactor: Reactor) -> None:
    account.late_ns = now() - account.began_at
    Path(job.folder, f"pid-{job.shard}").write_text(str(os.getpid()))
    watch(Progress(shard=job.shard, sent=1, ttft_s=[0.5, float("nan")]))
    match job.then:
        case "fail":
            raise StoreError("records.log: no space left on device", "make room")
        case "crash":
            raise RuntimeError("a mistake of ours")
        case "report":
            reactor.stop()
