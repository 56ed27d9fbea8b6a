"""Spoilt runs: one cause each in several strengths, each beside its sound twin, the same seed without the cause."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from .causes import (
    Changed,
    Drift,
    LateClient,
    LostTokens,
    MergedReads,
    NearCeiling,
    PausingClient,
    Restart,
    ShortOutputs,
    SlowPhase,
    StarvedCores,
    SteppedClock,
    WarmCache,
    WrongProcess,
)
from .virtual import SOUND, Cause, Measured, virtual_run

# -- what is spoilt --------------------------------------------------------------------------------------------------

Settings = dict[str, Any]


def lognormal(mean: int) -> Settings:
    return {"type": "lognormal", "mean": mean, "std": 0.5 * mean, "min": 4, "max": 6 * mean}


NOISY: Settings = {"step_time": {"jitter": 0.1}}
NARROW: Settings = {"max_sequences": 16, "step_time": {"jitter": 0.1}}  # about 39 requests/s of 256 and 64 tokens
NARROW_PER_S = 39.0

LIGHT: Settings = {
    "load": {"type": "poisson", "rate": 8},
    "stop": {"requests": 400},
    "workload": {"input_tokens": 512, "output_tokens": 128},
    "simulator": NOISY,
}
BUSY: Settings = {
    "load": {"type": "poisson", "rate": 0.65 * NARROW_PER_S},
    "stop": {"requests": 600},
    "workload": {"input_tokens": lognormal(256), "output_tokens": lognormal(64)},
    "simulator": NARROW,
}
EVEN: Settings = {
    "load": {"type": "constant", "rate": 20},
    "stop": {"requests": 400},
    "workload": {"input_tokens": lognormal(128), "output_tokens": lognormal(32)},
    "simulator": NOISY,
}
FEW: Settings = {
    "load": {"concurrency": 8},
    "stop": {"requests": 400},
    "workload": {"input_tokens": lognormal(256), "output_tokens": lognormal(64)},
    "simulator": NOISY,
}
MANY: Settings = {
    "load": {"concurrency": 32},
    "stop": {"requests": 640},
    "workload": {"input_tokens": lognormal(128), "output_tokens": lognormal(48)},
    "simulator": NOISY,
}
OPEN = {"light": LIGHT, "busy": BUSY, "even": EVEN}
POISSON = {"light": LIGHT, "busy": BUSY}
CLOSED = {"few": FEW, "many": MANY}
ALL = OPEN | CLOSED


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Settings within settings are changed, not replaced."""
    both = dict(settings)
    for name, value in changes.items():
        before = both.get(name)
        within = isinstance(before, Mapping) and isinstance(value, Mapping)
        both[name] = merged(before, value) if within else value
    return both


# -- causes ----------------------------------------------------------------------------------------------------------

Make = Callable[[Any, Measured, int], Cause]  # from a strength, the twin and the seed


@dataclass(frozen=True, slots=True)
class Spoiler:
    """A cause with its strengths, what it is applied to and the codes that name it."""

    make: Make
    strengths: tuple[Any, ...]
    codes: frozenset[str]
    bases: Mapping[str, Settings]
    # Where the plan itself is what is wrong: the spoilt plan, and what makes its twin of it.
    ill: Callable[[Settings, Any], Settings] | None = None
    healed: Callable[[Settings], Settings] = dict


def _ttft_s(twin: Measured) -> float:
    return twin.summary.measures["ttft"].p50 or 0.0


def _stay_s(twin: Measured) -> float:
    return twin.summary.measures["e2e"].mean or 0.0


def _length_s(twin: Measured) -> float:
    return twin.summary.window.length_s or 0.0


def _late(strength: float, twin: Measured, seed: int) -> Cause:
    return LateClient(strength * _ttft_s(twin), seed)


def _pausing(strength: float, twin: Measured, seed: int) -> Cause:
    pause_s = strength * _ttft_s(twin)
    return PausingClient(pause_s, max(1.0, 4 * pause_s))


def _starved(strength: tuple[float, float], twin: Measured, seed: int) -> Cause:
    away, periods = strength
    return StarvedCores(away, periods * _ttft_s(twin))


def _wrong_process(strength: tuple[str, float], twin: Measured, seed: int) -> Cause:
    return WrongProcess(*strength)


def _server(change: Settings) -> Settings:
    return {"server": {"args": change}}


def _changed(change: Settings) -> Cause:
    return Changed(partial(_merged_into, change))


def _merged_into(change: Settings, mapping: Settings) -> Settings:
    return merged(mapping, change)


def _cap(strength: float, twin: Measured, seed: int) -> Cause:
    most = max(1, round(strength * (twin.summary.concurrency.mean or 1.0)))
    return _changed({"load": {"max_concurrency": most}})


def _failing(strength: tuple[str, float], twin: Measured, seed: int) -> Cause:
    fault, share = strength
    change = _server({"faults": {"shares": {fault: share}, "seed": seed}})
    if fault.startswith("slow"):
        change["target"] = {"timeout": {"request": max(1.0, 4 * _stay_s(twin))}}
    return _changed(change)


def _drift(strength: tuple[str, float], twin: Measured, seed: int) -> Cause:
    kind, factor = strength
    length_s = _length_s(twin)
    if kind == "grows":
        return Drift(factor, length_s)
    begin, end = {"first": (0.0, 0.35), "middle": (0.35, 0.7), "last": (0.6, 2.0)}[kind]
    return SlowPhase(factor, begin * length_s, end * length_s)


def _warm(strength: float, twin: Measured, seed: int) -> Cause:
    return WarmCache(strength, len(twin.records))


def _short(strength: tuple[float, float], twin: Measured, seed: int) -> Cause:
    share, _ = strength
    return ShortOutputs(share, seed)


def _lost(strength: float, twin: Measured, seed: int) -> Cause:
    return LostTokens(strength, seed)


def _restart(strength: tuple[float, float], twin: Measured, seed: int) -> Cause:
    when, down = strength
    return Restart(when * _length_s(twin), down * _length_s(twin))


def _other_model(strength: tuple[float, float], twin: Measured, seed: int) -> Cause:
    when, slower = strength
    return Restart(when * _length_s(twin), 0.0, failing=False, slower=slower)


def _stepped(strength: tuple[float, int], twin: Measured, seed: int) -> Cause:
    return SteppedClock(*strength)


def _polled(strength: float, twin: Measured, seed: int) -> Cause:
    return MergedReads(strength * _ttft_s(twin))


def _ceiling(strength: float, twin: Measured, seed: int) -> Cause:
    rate = twin.summary.rates["output_rate"].value or 1.0
    return NearCeiling(strength, rate)


def _nothing(strength: Any, twin: Measured, seed: int) -> Cause:
    return SOUND


def _overloaded(base: Settings, strength: float) -> Settings:
    return merged(base, {"load": {"rate": strength * NARROW_PER_S}, "stop": {"requests": 450}})


def _cut_window(base: Settings, strength: float) -> Settings:
    """Seconds of sending, where answers of 256 tokens take some 1.6 s."""
    return merged(base, {"stop": {"requests": None, "duration": strength * 1.6}})


def _hasty(base: Settings, strength: float) -> Settings:
    return merged(base, {"stop": {"requests": None, "duration": strength * 1.6, "drain": 0.0}})


MANIFOLD = 3


def _longer(settings: Settings) -> Settings:
    """The same load for longer, not another load: what is wrong with such a run is that its numbers depend on when it
    ended."""
    stop = settings["stop"]
    longer: Settings = {"drain": 120.0}
    for name in ("requests", "duration"):
        if stop.get(name):
            longer[name] = MANIFOLD * stop[name] if name == "requests" else max(MANIFOLD * stop[name], 20.0)
    return merged(settings, {"stop": longer})


def _drained(settings: Settings) -> Settings:
    return merged(settings, {"stop": {"drain": 120.0}})


LONG_ANSWERS = merged(LIGHT, {"load": {"rate": 25}, "workload": {"input_tokens": 200, "output_tokens": lognormal(256)}})

SPOILERS: dict[str, Spoiler] = {
    "late client": Spoiler(_late, (0.05, 0.2, 0.5, 1.5), frozenset({"late_sends"}), ALL),
    "pausing client": Spoiler(_pausing, (1, 4, 12), frozenset({"late_sends"}), OPEN),
    "starved cores": Spoiler(
        _starved,
        ((0.15, 0.5), (0.4, 1.0), (0.5, 3.0)),
        frozenset({"uncertain_reads", "late_sends", "busy_machine", "stolen_cores", "busy_client", "own_error"}),
        ALL,
    ),
    "wrong process": Spoiler(
        _wrong_process,
        (("constant", 1.0), ("gamma", 1.6), ("gamma", 2.5), ("gamma", 4.0)),
        frozenset({"not_the_process"}),
        POISSON,
    ),
    "cap": Spoiler(_cap, (1.5, 1.2, 1.0, 0.8), frozenset({"held_back"}), OPEN),
    "growing queue": Spoiler(
        _nothing, (1.15, 1.3, 1.6, 2.5), frozenset({"unbounded_queue"}), {"busy": BUSY}, _overloaded, _longer
    ),
    "drifting server": Spoiler(
        _drift,
        (("grows", 1.3), ("grows", 2.0), ("first", 2.0), ("middle", 2.0), ("last", 1.6), ("last", 3.0)),
        frozenset({"not_steady", "unbounded_queue"}),
        ALL,
    ),
    "warm cache": Spoiler(_warm, (0.1, 0.34, 1.0), frozenset({"cached"}), ALL),
    "short outputs": Spoiler(
        _short, ((0.03, 0.5), (0.2, 0.5), (1.0, 1.0), (1.0, 0.3)), frozenset({"short_output", "odd_finish"}), ALL
    ),
    "lost tokens": Spoiler(_lost, (0.03, 0.1, 0.3, 0.6), frozenset({"tokens_disagree"}), ALL),
    "restarted server": Spoiler(
        _restart,
        ((0.5, 0.02), (0.5, 0.1), (0.2, 0.3)),
        frozenset({"server_restarted", "target_restarted", "failed_requests", "server_lost"}),
        ALL,
    ),
    "another model": Spoiler(
        _other_model,
        ((0.5, 1.3), (0.5, 2.0), (0.3, 3.0)),
        frozenset(
            {"server_restarted", "target_restarted", "model_changed", "target_changed", "not_steady", "unbounded_queue"}
        ),
        ALL,
    ),
    "stepped clock": Spoiler(_stepped, ((0.02, 1), (0.5, 1), (0.1, 6)), frozenset({"clock_stepped"}), ALL),
    "merged reads": Spoiler(_polled, (0.1, 0.4, 1.0, 3.0), frozenset({"uncertain_reads", "uncertain_ends"}), ALL),
    "failing requests": Spoiler(
        _failing,
        (("status=500", 0.02), ("status=429", 0.15), ("cut=3", 0.06), ("slow-headers=60s", 0.12), ("status=503", 0.6)),
        frozenset({"failed_requests"}),
        ALL,
    ),
    "short window": Spoiler(
        _nothing, (0.3, 0.6, 0.9), frozenset({"short_window"}), {"long answers": LONG_ANSWERS}, _cut_window, _longer
    ),
    "near the ceiling": Spoiler(
        _ceiling,
        (0.6, 0.85, 1.05),
        frozenset({"own_error", "near_ceiling", "uncertain_reads", "busy_client"}),
        OPEN,
    ),
    "ended at the drain": Spoiler(
        _nothing, (2.0, 4.0, 8.0), frozenset({"unfinished"}), {"long answers": LONG_ANSWERS}, _hasty, _drained
    ),
}

# -- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """All strengths of a cause on one base with one seed: they share the twin where they can."""

    cause: str
    base: str
    seed: int


def pairs(seeds: Iterable[int]) -> list[Pair]:
    """So many that every cause has about as many runs: one with a single base is tried with more seeds."""
    made: list[Pair] = []
    for cause, spoiler in SPOILERS.items():
        several = max(1, round(4 / len(spoiler.bases)))
        for base in spoiler.bases:
            made += [Pair(cause, base, seed + 1000 * extra) for extra in range(several) for seed in seeds]
    return made


def strengths(pair: Pair) -> Iterator[tuple[Any, Measured, Measured]]:
    """(strength, spoilt run, its twin)."""
    spoiler = SPOILERS[pair.cause]
    base = spoiler.bases[pair.base]
    watched = pair.seed // 2 % 2 == 0  # the server's own numbers are there in every second pair of seeds
    if spoiler.ill is not None:
        for strength in spoiler.strengths:
            spoilt = spoiler.ill(base, strength)
            yield (
                strength,
                virtual_run(spoilt, pair.seed, watched=watched),
                virtual_run(spoiler.healed(spoilt), pair.seed),
            )
        return
    twin = virtual_run(base, pair.seed)
    for strength in spoiler.strengths:
        cause = spoiler.make(strength, twin, pair.seed)
        settings = base
        if pair.cause == "short outputs":
            asked = (twin.summary.tokens.output.requested or 64) / len(twin.records) if twin.summary.tokens else 64
            settings = merged(base, {"simulator": {"mean_output_tokens": max(2, round(strength[1] * asked))}})
        yield strength, virtual_run(settings, pair.seed, cause, watched), twin
