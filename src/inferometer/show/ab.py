"""An A/B comparison as a person reads it: a line per block while it goes on, then one word and a line per measure."""

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from inferometer.judge.compare import Comparison
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.comparison import WORD_STYLES, changes_table, objections_table
from inferometer.show.console import emit, facts_table
from inferometer.vocabulary import duration_text, number_text

_MEANING = {
    "better": "B is better than A",
    "worse": "B is worse than A",
    "same": "A and B are the same",
    "unclear": "no difference is shown",
    "changed": "A and B differ",
}


def block_text(pair: int, pairs: int, side: str, run: Run) -> str:
    """`pair 3 of 10  a  TTFT 41.2 ms  1,204 tokens/s  20261115-...`."""
    known = quantities(run.summary)
    ttft = next((known[key].value for key in ("ttft_scheduled.p50", "ttft.p50") if key in known), None)
    rate = known["output_rate"].value if "output_rate" in known else None
    word = run.verdict.get("word")
    doubt = "" if word == "valid" else f"  {word}"
    numbers = f"TTFT {duration_text(ttft)}  {number_text(rate)} tokens/s"
    return f"pair {pair} of {pairs}  {side}  {numbers}  {run.id}{doubt}"


def print_block(pair: int, pairs: int, side: str, run: Run) -> None:
    """On stderr, so that the result can be piped."""
    sys.stderr.write(f"{block_text(pair, pairs, side, run)}\n")
    sys.stderr.flush()


def print_ab(
    found: Comparison, names: Mapping[str, str], left_out: Mapping[int, str], planned: int, experiment: str, to: Console
) -> None:
    emit(_head(found), to)
    to.print()
    if found.objections:
        emit(objections_table(found.objections), to)
        to.print()
    emit(changes_table(found.changes, to.width), to)
    to.print()
    table = facts_table()
    table.add_row("before, A", names["a"])
    table.add_row("after, B", names["b"])
    table.add_row("pairs", _pairs_text(found, left_out, planned))
    for pair, why in left_out.items():
        table.add_row("left out", f"pair {pair}: {why}")
    table.add_row("intervals", f"{1 - found.alpha:.0%}, of pairs, corrected for {len(found.changes)} measures (Holm)")
    table.add_row("kept as", experiment)
    emit(table, to)


def _head(found: Comparison) -> Text:
    counts = [(each, sum(change.word == each for change in found.changes)) for each in WORD_STYLES]
    told = ", ".join(f"{n} {each}" for each, n in counts if n)
    mixed = {change.word for change in found.changes} >= {"better", "worse"}
    meaning = "B is better in some and worse in others" if mixed else _MEANING[found.word]
    head = Text(found.word.upper(), style=WORD_STYLES[found.word])
    return head.append(f"  {meaning}: of {len(found.changes)} measures {told}", style="not bold default")


def _pairs_text(found: Comparison, left_out: Mapping[int, str], planned: int) -> str:
    done = len(found.before)
    of = "" if done == planned else f" of {planned} planned"
    return f"{done}{of}, in the order ABBA; the same requests at the same times within a pair"
