"""A run as a person reads it, by its kind: measured by us, imported, offline, a start, or a user's own benchmark."""

from io import StringIO

from rich.console import Console

from inferometer.record.run import Run
from inferometer.record.sanitize import harmless
from inferometer.show.summary import print_summary
from inferometer.vocabulary import attribute_at

VIEWS = {  # imported on use: most runs are of another kind
    "latency": "inferometer.show.offline:print_offline",
    "throughput": "inferometer.show.offline:print_offline",
    "startup": "inferometer.show.startup:print_startup",
    "benchmark": "inferometer.show.offline:print_benchmark",
}
WIDTH = 100  # of a text that goes to no terminal


def print_view(
    run: Run, to: Console, *, more: bool = False, measures: bool = False, slices: bool = False, slow: int = 0
) -> None:
    if run.source is not None:
        from inferometer.show.imported import print_imported

        print_imported(run, to, measures=measures, slices=slices, slow=slow)
    elif run.kind in VIEWS:
        attribute_at(VIEWS[run.kind])(run, to)
    else:
        print_summary(run, to, more=more, measures=measures, slices=slices, slow=slow)


def run_text(run: Run) -> str:
    """What the terminal shows, without colours: what `print(run)` prints."""
    out = StringIO()
    to = Console(
        file=out,
        width=WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # it would draw in the notebook, and give no text
    )
    print_view(run, to)
    return harmless(out.getvalue()).rstrip()
