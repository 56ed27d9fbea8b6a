"""Kind 1: hostile servers. A run of a few requests against each, with both readers, streaming or not, in every
dialect; right answers of the same run must come through unharmed."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TypeVar

from inferometer.cli.errors import INVALID, UNREACHABLE
from inferometer.record.columns import Records, known
from inferometer.record.record import CENSORED, OUTCOMES
from inferometer.store.folder import load_run

from .catalogue import ATTACKS
from .commands import Ended, Ground
from .dialects import DIALECTS, Dialect
from .hostile import HEALTHY_INPUT, Attack, HostileServer
from .trial import DOCUMENTED, Attempt, Trial

REQUEST_S = 3.0  # the time limit of a request
LATE_S = 1.0  # by which a time limit may be overrun where the machine has nothing else to do; longer where it has
RUN_S = 60.0  # for start, probe, load and summary
TOO_MANY_FAILED = 0.10
PLAIN, TLS, CANCELLED = "", "TLS", "cancelled after 100 tokens"
WAYS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    TLS: ("target.tls.verify=false",),
    "two workers": ("workers=2",),
    "answers kept": ("save.answers=true", "save.prompts=true"),
    "sessions of two turns": ("workload.turns=2",),  # an answer is a part of the next prompt
    CANCELLED: ("load.cancel={share: 1, after_tokens: 100}",),  # tokens are counted while they come
}  # how a run is made, by name: its settings
ANYWAY = (PLAIN, TLS, "two workers", "answers kept")
GENERATING = ("completions", "chat", "responses", "anthropic", "tgi")  # the others have no tokens, or no events
T = TypeVar("T")


def attempts(ground: Ground, seed: int) -> Iterator[Attempt]:
    """Every attack once, in some combination; then the other combinations."""
    rng = random.Random(seed)
    left = {attack.name: _shuffled(rng, _combinations(attack)) for attack in ATTACKS}
    while left:
        for attack in _shuffled(rng, [attack for attack in ATTACKS if attack.name in left]):
            dialect, streams, reader = left[attack.name].pop()
            if not left[attack.name]:
                del left[attack.name]
            ways = [way for way in WAYS if way in ANYWAY or (streams and dialect.name in GENERATING)]
            way = rng.choice(ways) if rng.random() < 0.5 else PLAIN
            yield partial(attempt, ground, attack, dialect, streams, reader, way)


def _combinations(attack: Attack) -> list[tuple[Dialect, bool, str]]:
    return [
        (dialect, streams, reader)
        for dialect in DIALECTS.values()
        for streams in (True, False)
        for reader in ("compiled", "python")
        if not (streams and dialect.events is None)
        and attack.only in ("", "streams" if streams else "whole")
        and not (attack.at in ("models", "tokenize") and dialect.name not in ("completions", "chat"))  # they ask
    ]


def _shuffled(rng: random.Random, items: list[T]) -> list[T]:
    return rng.sample(items, len(items))


def attempt(ground: Ground, attack: Attack, dialect: Dialect, streams: bool, reader: str, way: str = PLAIN) -> Trial:
    manner = [dialect.name, "streaming" if streams else "whole", f"{reader} reader", *([way] if way else [])]
    trial = Trial(f"{attack.name} ({', '.join(manner)})")
    store = ground.store()
    pieces = ground.folder("pieces") / "longest"
    with HostileServer(attack, dialect, streams, ground.tls() if way == TLS else None) as server:
        ended = ground.command(
            "run",
            *_plan(server, attack, WAYS[way]),
            "--store",
            str(store),
            "-q",
            limit_s=RUN_S,
            env={"INFEROMETER_READER": reader} | watched(pieces),
        )
    trial.judge(ended, DOCUMENTED)
    trial.judge_piece(longest_piece_s(pieces))
    if ended.hung or ended.code < 0:
        trial.miss(attack.requests, f"all {attack.requests} requests are lost with the run")
        return trial
    folders = sorted((store / "runs").glob("*")) if (store / "runs").exists() else []
    if not folders and attack.at in ("models", "tokenize"):
        _judge_refusal(trial, ended)
    elif not folders:
        trial.miss(attack.requests, f"no run is kept, exit {ended.code}: {ended.last_words()}")
    else:
        _judge_run(trial, attack, server, ended, folders[0], CENSORED if way == CANCELLED else frozenset())
        _judge_reading(trial, ground, store)
    return trial


def watched(pieces: Path) -> dict[str, str]:
    """The environment of a command whose event loops note their longest pieces of work there."""
    return {"PYTHONPATH": str(Path(__file__).with_name("watched")), "INFEROMETER_CHAOS_PIECES": str(pieces)}


def longest_piece_s(pieces: Path) -> float:
    return max(map(float, pieces.read_text().split()), default=0.0) if pieces.exists() else 0.0


def _plan(server: HostileServer, attack: Attack, more: Iterable[str]) -> list[str]:
    settings = [
        f"target.stream={json.dumps(server.streams)}",
        f"target.timeout.request={REQUEST_S:g}s",
        "target.timeout.connect=2s",
        "stop.drain=5s",
        *server.dialect.settings,
        *more,
    ]
    if attack.at != "metrics":
        settings.append("observe=off")
    if attack.at == "tokenize":
        settings.append("workload.tokenizer=server")
    words = ["--url", server.url, "--api", server.dialect.name, "--requests", str(attack.requests)]
    words += ["--concurrency", "2", "--input-tokens", "20"]
    if server.dialect.events:
        words += ["--output-tokens", "5"]
    return words + [word for setting in settings for word in ("--set", setting)]


def _judge_refusal(trial: Trial, ended: Ended) -> None:
    """A target that cannot be measured is named before anything is sent."""
    if ended.code != UNREACHABLE:
        trial.faults.append(f"run ended with {ended.code} and kept nothing: {ended.last_words()}")


def _judge_run(
    trial: Trial, attack: Attack, server: HostileServer, ended: Ended, folder: Path, also: AbstractSet[str]
) -> None:
    """`also`: outcomes that the run itself may bring about."""
    try:
        records = load_run(folder).records
    except Exception as error:
        trial.miss(attack.requests, f"its records cannot be read: {type(error).__name__}: {error}"[:300])
        return
    outcomes = [] if records is None else [records.outcome[i] for i in range(len(records))]
    trial.miss(attack.requests - len(outcomes), f"{len(outcomes)} records of {attack.requests} requests")
    if records is None or not outcomes:
        return
    if unknown := set(outcomes) - set(OUTCOMES):
        trial.faults.append(f"outcomes that are not documented: {unknown}")
    _judge_healthy(trial, server, records, outcomes)
    if not (attack.is_text and server.dialect.name == "template"):
        _judge_attacked(trial, attack, records, outcomes, also)
    _judge_time(trial, records, ended.slowdown)
    counted = [outcome for outcome in outcomes if outcome not in CENSORED]
    failed = sum(outcome != "ok" for outcome in counted)
    if failed > TOO_MANY_FAILED * len(counted):
        right = {INVALID} if failed < len(counted) else {INVALID, UNREACHABLE}
        if ended.code not in right:
            trial.faults.append(f"{failed} of {len(counted)} requests failed, but it ended with {ended.code}")


def _judge_healthy(trial: Trial, server: HostileServer, records: Records, outcomes: list[str | None]) -> None:
    """Right answers are known by the prompt length that only they state."""
    right = sum(
        outcome == "ok" and count == HEALTHY_INPUT
        for outcome, count in zip(outcomes, records.input_tokens, strict=True)
    )
    trial.miss(
        server.healthy - right, f"{right} of {server.healthy} right answers are recorded as such: {_counts(outcomes)}"
    )


def _judge_attacked(
    trial: Trial, attack: Attack, records: Records, outcomes: list[str | None], also: AbstractSet[str]
) -> None:
    hit = [i for i, count in enumerate(records.input_tokens) if count != HEALTHY_INPUT or outcomes[i] != "ok"]
    if attack.at != "answer":
        return
    wrong = Counter(outcomes[i] for i in hit if attack.expected and outcomes[i] not in attack.expected | also)
    if wrong:
        errors = {records.error[i] for i in hit if outcomes[i] in wrong}
        expected = ", ".join(sorted(attack.expected))
        trial.faults.append(f"attacked requests ended as {_counts(wrong)}, expected {expected}: {errors}"[:400])
    if attack.tokens is not None:
        ok = [i for i in hit if outcomes[i] == "ok"]
        short = {int(records.output_tokens[i]) for i in ok} - {attack.tokens}
        if short:
            trial.faults.append(f"answers of {attack.tokens} tokens were recorded with {short}")


def _judge_time(trial: Trial, records: Records, slowdown: float) -> None:
    """What is promised is a second of our own work: other processes that had the cores meanwhile are not ours."""
    measurable = known(records.sent_at) & known(records.ended_at)
    spans_s = (records.ended_at - records.sent_at)[measurable] / 1e9
    if len(spans_s) and spans_s.max() > REQUEST_S:
        trial.overrun_s = float(spans_s.max()) - REQUEST_S
    if len(spans_s) and spans_s.max() > REQUEST_S + LATE_S * slowdown:
        trial.hung += 1
        busy = f", {slowdown:.1f} times slower than alone" if slowdown >= 1.1 else ""
        trial.faults.append(f"a request took {spans_s.max():.1f} s with a time limit of {REQUEST_S:g} s{busy}")


def _judge_reading(trial: Trial, ground: Ground, store: Path) -> None:
    shown = ground.command("show", "--json", "--store", str(store))
    trial.judge(shown, {0})
    if shown.code == 0:
        try:
            json.loads(shown.out)
        except ValueError as error:
            trial.faults.append(f"show --json printed no JSON: {error}")


def _counts(outcomes: "list[str | None] | Counter[str | None]") -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(outcomes).most_common())
