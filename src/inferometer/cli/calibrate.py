"""`inferometer calibrate`: the instrument's own error on this machine."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, quiet_option, store_of, store_option


@click.command()
@click.option("--quick", is_flag=True, help="Three loads in some seconds, instead of the whole curve in a minute.")
@json_option
@quiet_option
@store_option
def calibrate(quick: bool, as_json: bool, quiet: bool, store: Path | None) -> None:
    """Measure what this instrument adds to what it measures, and keep the curve.

    Our client reads from a server that logs when it sent each token. Every run looks its own load up afterwards and
    says the error beside the result. Let nothing else be busy meanwhile.
    """
    from inferometer.cli.printing import print_json
    from inferometer.conduct.calibrate import calibrate as measure_curve
    from inferometer.conduct.calibrate import calibration_path
    from inferometer.show.console import console, emit
    from inferometer.show.instrument import ceiling_text, curve_table
    from inferometer.show.progress import ProgressLine

    place, line = store_of(store).home, ProgressLine()
    try:
        curve = measure_curve(quick=quick, progress=None if quiet else line.message, store=place)
    finally:
        line.clear()
    if as_json:
        print_json(curve)
        return
    to = console()
    emit(curve_table(curve), to)
    emit(f"\n{ceiling_text(curve)}", to)
    to.print(f"kept in {calibration_path(place)}", soft_wrap=True)
