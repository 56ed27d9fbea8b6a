"""`python -m tests.chaos`: attack the command line for some minutes, print what was tried and what was lost; exit
code 1 where any promise was broken. `python -m tests.chaos soak --minutes 30` watches one long run instead."""

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from .catalogue import ATTACKS
from .commands import Ground
from .runner import KINDS, run_kind
from .trial import Tally, Trial, table

AT_ONCE = max(3, min(len(os.sched_getaffinity(0)), 12))  # attacks: many only wait for a time limit
SECONDS = 520.0  # attacks under way when it is over are awaited; all in all less than ten minutes
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    for kind in (text.partition(":")[0] for text in options.only or ()):
        if kind not in KINDS:
            print(f"error: --only {kind}: must be one of {', '.join(KINDS)}", file=sys.stderr)
            return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: nothing of ours is left behind
    os.nice(5)  # whoever else uses this machine goes first
    scratch = Path(tempfile.mkdtemp(prefix="chaos-"))
    ground = Ground(scratch)
    try:
        if options.command == "soak":
            from .soak import soak

            return soak(ground, options.minutes, options.events_per_s)
        return _chaos(ground, options)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if options.keep:
            print(f"everything is kept in {scratch}", file=sys.stderr)
        else:
            shutil.rmtree(scratch, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all kinds together (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="the same seed tries the same things in the same order")
    parser.add_argument(
        "--only", action="append", metavar="KIND[:TEXT]", help=f"one of {', '.join(KINDS)}; only attacks named so"
    )
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="attacks (default: %(default)s)")
    parser.add_argument("--most", type=int, metavar="N", help="attacks of a kind")
    parser.add_argument("--keep", action="store_true", help="leave stores and logs in the scratch folder")
    commands = parser.add_subparsers(dest="command", metavar="")
    soak = commands.add_parser("soak", help="one long run, watched: does its memory, its open files or its delay grow?")
    soak.add_argument("--minutes", type=float, default=30.0)
    soak.add_argument("--events-per-s", type=float, default=5000.0)
    return parser


def _chaos(ground: Ground, options: argparse.Namespace) -> int:
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    wanted = [text.partition(":") for text in options.only or KINDS]
    print(f"seed {seed}, {options.seconds:g} s, {options.at_once} at once", file=sys.stderr)
    shares = [KINDS[kind][2] for kind, _, _ in wanted]
    tallies: list[Tally] = []
    interrupted = False
    began_at = time.monotonic()
    for number, (kind, _, text) in enumerate(wanted):
        left_s = options.seconds - (time.monotonic() - began_at)  # what one kind leaves or overdraws, the others share
        seconds = left_s * shares[number] / sum(shares[number:])
        tallies.append(Tally(KINDS[kind][0]))
        try:
            run_kind(
                kind,
                ground,
                seconds,
                seed,
                at_once=options.at_once,
                most=options.most,
                matching=text,
                report=lambda tally, trial: _report(tallies, tally, trial),
            )
        except KeyboardInterrupt:
            interrupted = True
            break
    _print_result(tallies, time.monotonic() - began_at, seed)
    if interrupted:
        return INTERRUPTED
    return 1 if any(tally.broken or not tally.trials for tally in tallies) else 0


def _report(tallies: list[Tally], tally: Tally, trial: Trial) -> None:
    """A line per attack, so that a run that is stopped has told what it saw."""
    tallies[-1] = tally
    status = "held" if not trial.faults else "BROKEN"
    print(f"{tally.kind} {len(tally.trials)}: {status}: {trial.name}", file=sys.stderr)
    for fault in trial.faults[:10]:
        print(f"    {fault}", file=sys.stderr)


def _print_result(tallies: list[Tally], took_s: float, seed: int) -> None:
    broken = [f"- {tally.kind}: {trial.name}: {trial.faults[0]}" for tally in tallies for trial in tally.broken]
    end = f"{time.strftime('%Y-%m-%d')}, {took_s:.0f} s, seed {seed}, {len(os.sched_getaffinity(0))} cores"
    print("\n".join([*broken, "", table(tallies), "", *_coverage(tallies), end]))


def _coverage(tallies: list[Tally]) -> list[str]:
    """How many of the hostile servers were tried."""
    known = {attack.name for attack in ATTACKS}
    tried = {trial.name.rpartition(" (")[0] for tally in tallies for trial in tally.trials} & known
    return [f"{len(tried)} of the {len(known)} hostile servers were tried"] if tried else []


if __name__ == "__main__":
    sys.exit(main())
