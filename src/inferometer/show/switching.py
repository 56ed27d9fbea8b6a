"""What each traffic class does to the others, as people read it."""

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from inferometer.judge.compare import Comparison
from inferometer.show.comparison import changes_table
from inferometer.show.console import emit


def print_effects(found: Mapping[tuple[str, str], Comparison], to: Console) -> None:
    """Class by class: how it fares when another is switched off."""
    for (off, of), comparison in found.items():
        emit("", to)
        emit(Text.assemble((of, "bold"), " without ", (off, "bold"), f": {_told(comparison)}"), to)
        if comparison.changes:
            emit(changes_table(comparison.changes, to.width), to)


def _told(comparison: Comparison) -> str:
    words = [change.word for change in comparison.changes]
    counts = [f"{words.count(word)} {word}" for word in ("better", "worse", "same", "unclear") if word in words]
    runs = f"{len(comparison.before)} runs with it, {len(comparison.after)} without"
    return f"{', '.join(counts) or 'nothing to compare'} ({runs})"
