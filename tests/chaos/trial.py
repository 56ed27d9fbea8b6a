"""The result of one attack, and many of them as a row of the table."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from inferometer.cli.errors import EXIT_CODES, UNEXPECTED

from .commands import Ended, Ground

DOCUMENTED = frozenset(EXIT_CODES) - {UNEXPECTED}
PIECE_S = 1.0  # of processor time, by which time limits and Ctrl-C may be late on a machine with a free core
RSS_BOUND_MB = 512.0  # of any one process of ours, whatever a server, a file or a folder holds


@dataclass
class Trial:
    """One attack, or a batch of small ones. `faults` are the promises that were broken, in sentences; none: it held."""

    name: str
    faults: list[str] = field(default_factory=list)
    tried: int = 1
    exit_70: int = 0
    hung: int = 0
    lost: int = 0  # requests, records or runs that should be there
    left_running: int = 0
    peak_rss_mb: float = 0.0
    overrun_s: float | None = None  # of a time limit, at most; None where none was reached
    piece_s: float | None = None  # of processor time, at most, in which the loop looked for no time limit or signal

    def judge(self, ended: Ended, allowed: Iterable[int]) -> None:
        """What holds for every command: its exit code, its time, its memory, nothing left running, a quiet terminal."""
        what = ended.name
        self.peak_rss_mb = max(self.peak_rss_mb, ended.peak_rss_mb)
        if ended.hung:
            self.hung += 1
            self.faults.append(f"{what} did not end within {ended.limit_s:.0f} s")
        elif ended.code == UNEXPECTED or "Traceback (most recent call last)" in ended.err:
            self.exit_70 += 1
            self.faults.append(f"{what} failed by a mistake of ours, exit {ended.code}: {ended.last_words()}")
        elif ended.code not in set(allowed):
            expected = ", ".join(map(str, sorted(set(allowed))))
            self.faults.append(f"{what} ended with {ended.code}, expected {expected}: {ended.last_words()}")
        if ended.peak_rss_mb > RSS_BOUND_MB:
            self.faults.append(f"{what} used {ended.peak_rss_mb:.0f} MB, more than {RSS_BOUND_MB:.0f}")
        if ended.left:
            self.left_running += len(ended.left)
            self.faults.append(f"{what} left running: {'; '.join(ended.left)}")
        if "\x1b" in ended.out + ended.err:
            self.faults.append(f"{what} printed a raw escape character")

    def add(self, part: "Trial") -> None:
        """One of a batch; what was tried is counted by the batch."""
        for name in ("exit_70", "hung", "lost", "left_running"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.peak_rss_mb = max(self.peak_rss_mb, part.peak_rss_mb)
        self.faults += [f"{part.name}: {fault}" for fault in part.faults]

    def judge_piece(self, piece_s: float) -> None:
        self.piece_s = piece_s
        if piece_s > PIECE_S:
            self.faults.append(f"{piece_s:.1f} s of work in one piece: time limits and Ctrl-C wait for so long")

    def miss(self, count: int, sentence: str) -> None:
        """So many were lost."""
        if count:
            self.lost += count
            self.faults.append(sentence)


Attempt = Callable[[], Trial]
Attempts = Callable[[Ground, int], Iterator[Attempt]]  # of one kind, by a seed; the runner stops when time is up


@dataclass
class Tally:
    """All trials of one kind."""

    kind: str
    trials: list[Trial] = field(default_factory=list)

    def sum(self, name: str) -> int:
        return sum(getattr(trial, name) for trial in self.trials)

    @property
    def broken(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.faults]

    def row(self) -> list[str]:
        worst = max((trial.peak_rss_mb for trial in self.trials), default=0.0)
        counts = [self.sum(name) for name in ("tried", "exit_70", "hung", "lost", "left_running")]
        times = [self._longest("overrun_s"), self._longest("piece_s")]
        return [self.kind, *(f"{count:,}" for count in counts), f"{worst:,.0f} MB", *times, f"{len(self.broken):,}"]

    def _longest(self, name: str) -> str:
        spans_s = [span_s for trial in self.trials if (span_s := getattr(trial, name)) is not None]
        return f"{max(spans_s):.2f} s" if spans_s else "–"


HEADINGS = [
    "attack",
    "tried",
    "exit 70",
    "hung",
    "lost",
    "left running",
    "worst RSS",
    "worst overrun",
    "longest piece",
    "broken promises",
]


def table(tallies: list[Tally]) -> str:
    """In Markdown."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(tally.row() for tally in tallies)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
