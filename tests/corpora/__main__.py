"""`python -m tests.corpora`: the table of both corpora; with `sockets`, of short runs over real sockets. Needs the core
dependencies only, and INFEROMETER_DATA for the real runs."""

import argparse
import os
import sys
import time
from pathlib import Path

from . import sound, spoilt
from .table import all_sound, all_spoilt, failures, results, sound_results, sound_table, spoilt_results, spoilt_table


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "sockets":
        from .sockets import sockets

        return sockets(options.only, options.list_failures)
    names = ("sound", "spoilt", *sound.FAMILIES, "H200 sweep", "imported", *spoilt.SPOILERS)
    if options.only not in (None, *names):
        print(f"error: --only {options.only}: must be one of {', '.join(names)}", file=sys.stderr)
        return 2
    if not os.environ.get("INFEROMETER_DATA"):
        print("INFEROMETER_DATA is not set: the real runs are left out", file=sys.stderr)
    began_at = time.monotonic()
    fine = results(sound_results, all_sound(options.half, options.only, options.fresh), options.processes)
    pairs = [pair for fresh in options.fresh for pair in all_spoilt(options.half, options.only, fresh)]
    bad = results(spoilt_results, pairs, options.processes)
    tables = [sound_table(fine)] if fine else []
    tables += [spoilt_table(bad)] if bad else []
    text = "\n\n".join(tables)
    if options.list_failures:
        text += "\n\n" + "\n".join(failures([*fine, *bad]))
    print(text)
    if options.output:
        Path(options.output).write_text(f"{text}\n", encoding="utf-8")
    print(f"{time.monotonic() - began_at:.0f} s", file=sys.stderr)
    return 0


def _sets(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.corpora", description=__doc__)
    parser.add_argument("--half", choices=("tune", "test"), help="even seeds or odd ones (default: both)")
    parser.add_argument(
        "--fresh",
        type=_sets,
        default=range(1),
        metavar="N",
        help="the Nth set of other seeds, or several: 5-7 (default: 0, the first)",
    )
    parser.add_argument("--only", metavar="CAUSE", help="one cause or family of sound runs; sound or spoilt")
    parser.add_argument("--list-failures", action="store_true", help="false alarms and misses, with what was said")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(default: one for each core)")
    parser.add_argument("--output", metavar="FILE", help="also write the table to a file")
    parser.add_argument("command", nargs="?", choices=("sockets",), help="short runs over real sockets instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())
