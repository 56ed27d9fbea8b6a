"""Checks this machine and the target for problems, and measures the load generator's own error."""

from pathlib import Path
from typing import Any

import msgspec

from inferometer.cli.errors import LIMIT_FAILED
from inferometer.cli.work.stores import store_of
from inferometer.conduct.curves import keep_curve, keep_for_machine
from inferometer.conduct.instrument import DoctorOptions, document, examine, has_error
from inferometer.conduct.instrument import calibrate as measure_curve
from inferometer.plan.reading import plan_from
from inferometer.show.console import console, emit, print_json
from inferometer.show.instrument import ceiling_text, curve_table, print_checks
from inferometer.show.progress import ProgressLine


def doctor(as_json: bool, store: Path | None, **options: Any) -> int:
    _check_server(options["server"])
    groups = examine(DoctorOptions(**options), store_of(store))
    if as_json:
        print_json(document(groups), "doctor")
    else:
        print_checks(groups, console())
    return LIMIT_FAILED if has_error(groups) else 0


def _check_server(server: str | None) -> None:
    if server is not None and server not in ("external", "container", "command"):
        plan_from({"server": {"type": server, "model": "any"}}, where="--server")


def calibrate(quick: bool, as_json: bool, quiet: bool, store: Path | None) -> None:
    place, line = store_of(store).home, ProgressLine()
    try:
        curve = measure_curve(quick=quick, progress=None if quiet else line.message)
    finally:
        line.clear()
    kept_at = keep_for_machine(curve, place) if store is None else keep_curve(curve, place)
    if as_json:
        print_json(msgspec.to_builtins(curve))
        return
    to = console()
    emit(curve_table(curve), to)
    emit(f"\n{ceiling_text(curve)}", to)
    to.print(f"stored in {kept_at}", soft_wrap=True)
