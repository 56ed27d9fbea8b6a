"""Filters and orders: any column, measure or setting, and messages for wrong ones."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import PlanError
from inferometer.record.encoding import environment_from
from inferometer.record.summary import MeasureSummary, Rate, Summary, Value
from inferometer.record.verdict import Verdict
from inferometer.store.query import Condition, condition, version_of
from inferometer.store.save import keep
from inferometer.store.store import Store, open_store


def kept(store: Path, second: int, ttft: float | None, **plan: Any) -> str:
    measures = {} if ttft is None else {"ttft": MeasureSummary(statistics={"p50": ttft / 2, "p99": ttft})}
    return keep(
        store,
        kind="serving" if ttft is not None else "startup",
        source="test",
        started=datetime(2026, 11, 15, 3, 12, second, tzinfo=UTC),
        plan={"target": {"url": ["http://a:1"], "model": "meta-llama/Llama-3"}, **plan},
        environment=environment_from({"target": {"server": "vllm", "version": f"0.{second}"}}),
        summary=Summary(
            measures=measures,
            rates={"output_rate": Rate(value=1000.0 - second)},
            values={"boot": Value(value=2.5, unit="s", direction="lower", title="Boot")},
            outcomes={"ok": 10 * second},
        ),
        verdict=Verdict(status="valid" if second % 2 else "doubtful"),
    ).id


@pytest.fixture
def store(tmp_path: Path) -> Store:
    kept(tmp_path, 1, 0.4, load={"rate": 10}, stop={"duration": "60s"}, name="one")
    kept(tmp_path, 2, 0.9, load={"rate": 2.5}, stop={"duration": "5min"}, target={"url": [], "model": "Qwen/Qwen3"})
    kept(tmp_path, 3, None, load={"type": "concurrency", "concurrency": 8}, target={"url": []})
    return open_store(tmp_path)


def seconds(store: Store, *where: str, sort: str | None = "started") -> list[int]:
    return [int(entry.id[13:15]) for entry in store.runs(where=where, sort=sort)]


@pytest.mark.parametrize(
    ("where", "fitting"),
    [
        ("model=~llama", [1]),
        ("model=~^qwen", [2]),
        ("model!~llama", [2, 3]),
        ("model=Qwen/Qwen3", [2]),
        ("model != Qwen/Qwen3", [1, 3]),
        ("model=", [3]),
        ("model!=", [1, 2]),
        ("ttft.p99<0.5", [1]),
        ("ttft p99 < 500ms", [1]),
        ("TTFT.P99 >= 900ms", [2]),
        ("ttft.p99 = 0.4", [1]),
        ("ttft.p99 != 400ms", [2]),
        ("output_rate >= 998/s", [1, 2]),
        ("output_rate < 1k", [1, 2, 3]),
        ("boot=2.5", [1, 2, 3]),
        ("plan.load.rate=10", [1]),
        ("load.rate=10.0", [1]),
        ("plan.load.rate!=10", [2, 3]),
        ("load.rate < 10", [2]),
        ("plan.stop.duration >= 1min", [1, 2]),
        ("plan.stop.duration = 60", [1]),
        ("plan.target.url =~ a:1", [1]),
        ("plan.load.type=concurrency", [3]),
        ("plan.seed=5", []),
        ("requests > 10", [2, 3]),
        ("kind=startup", [3]),
        ("verdict=valid", [1, 3]),
        ("engine=vllm", [1, 2, 3]),
        ("engine_version=0.2", [2]),
        ("started>2026-11-15T03:12:02+00:00", [3]),
        ("started<2026-11-01", []),
        ("name='one'", [1]),
        ("tag=nightly", []),
    ],
)
def test_what_fits(store: Store, where: str, fitting: list[int]) -> None:
    assert seconds(store, where) == fitting


def test_all_conditions_must_hold(store: Store) -> None:
    assert seconds(store, "verdict=valid", "ttft.p99<1") == [1]


def test_a_day_is_a_whole_day_here(store: Store) -> None:
    day = datetime(2026, 11, 15, 3, 12, tzinfo=UTC).astimezone().date()
    assert seconds(store, f"started={day}") == [1, 2, 3]
    assert seconds(store, f"started!={day}") == []


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("ttft.p99", [1, 2, 3]),
        ("-ttft.p99", [2, 1, 3]),
        ("-output_rate", [1, 2, 3]),
        ("output_rate", [3, 2, 1]),
        ("plan.load.rate", [2, 1, 3]),
        ("model", [1, 2, 3]),
        (None, [3, 2, 1]),
    ],
)
def test_sorted_and_the_missing_last(store: Store, sort: str | None, order: list[int]) -> None:
    assert seconds(store, sort=sort) == order


def test_entries_carry_the_columns_that_were_asked_for(store: Store) -> None:
    (entry,) = store.runs(where=["name=one"], columns=["ttft p99", "boot", "plan.load.rate", "model"])
    assert (entry.values["ttft.p99"], entry.values["boot"], entry.parameters) == (0.4, 2.5, {"load.rate": "10"})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("modle=x", "did you mean model"),
        ("ttft.p98765<1", "did you mean ttft.p99"),
        ("plan.load.rte=1", "plan.load.rate"),
        ("output_rte>1", "output_rate"),
        ("ttft<1", "ttft.p99"),
        ("output_rate>500ms", "a rate such as"),
        ("ttft.p99=~x", "must compare ttft with a duration"),
        ("requests=~1", "a number"),
        ("requests<many", "a number"),
        ("load.rate<fast", "must compare with a number"),
        ("started>yesterday", "2026-11-15"),
        ("model=~[", "not a regular expression"),
        ("model", "write NAME OPERATOR VALUE"),
        ("zzz=1", "settings such as plan.load.rate"),
    ],
)
def test_a_wrong_condition_is_named_with_what_is_near(store: Store, where: str, said: str) -> None:
    with pytest.raises(PlanError) as raised:
        store.runs(where=[where])
    assert said in f"{raised.value.message} {raised.value.hint}"


def test_conditions_as_they_are_written() -> None:
    assert condition(" ttft  p99<= 1.5s ") == Condition("ttft  p99", "<=", "1.5s")
    assert condition("name == 'a = b'") == Condition("name", "=", "a = b")
    assert condition("target=~http://x?a=1") == Condition("target", "=~", "http://x?a=1")
    assert (condition("x<1%").number, condition("x<2k/s").number, condition("x<n").number) == (0.01, 2000.0, None)


def with_version(store: Path, version: str | None) -> None:
    environment = {"target": {"server": "vllm"} | ({"version": version} if version else {})}
    keep(
        store,
        kind="serving",
        plan={},
        environment=environment_from(environment),
        summary=Summary(),
        verdict=Verdict(status="valid"),
    )


def test_versions_are_compared_as_versions(tmp_path: Path) -> None:
    said = ["0.8.5.post1", "0.8.5", "0.10.0rc1", "0.10.0", "0.9.2.dev12+gabc", "0.9.2", "0.24.0+cu128", "nightly", None]
    for version in said:
        with_version(tmp_path, version)
    store = open_store(tmp_path)

    def fitting(where: str) -> set[str | None]:
        return {entry.engine_version for entry in store.runs(where=[where])}

    assert fitting("engine_version>0.9.2") == {"0.10.0rc1", "0.10.0", "0.24.0+cu128", "nightly"}
    assert fitting("engine_version <= 0.9.2") == {"0.8.5.post1", "0.8.5", "0.9.2.dev12+gabc", "0.9.2"}
    assert fitting("engine_version >= 0.10") == {"0.10.0", "0.24.0+cu128", "nightly"}
    assert fitting("engine_version < 0.8.5.post1") == {"0.8.5"}
    assert fitting("engine_version > nigh") == {"nightly"}  # texts, where one is no version
    assert fitting("engine_version = 0.10.0") == {"0.10.0"}


@pytest.mark.parametrize(
    "older_first",
    [
        ("0.9", "0.10"),
        ("0.9.9", "1"),
        ("1.0.0.dev1", "1.0.0a1", "1.0.0b1", "1.0.0rc1", "1.0.0rc2", "1.0", "1.0.0.post1", "1.0.1"),
        ("0.4.6.post2", "0.4.10"),
    ],
)
def test_the_order_of_versions(older_first: tuple[str, ...]) -> None:
    found = [version_of(each) for each in older_first]
    assert (
        None not in found
        and found == sorted(found, key=lambda each: each or ((), 0, 0))
        and len(set(found)) == len(found)
    )


@pytest.mark.parametrize("word", ["", "nightly", "b5000", "2026-11-15", "0123abc", "1.x", "sha-1234"])
def test_what_is_no_version(word: str) -> None:
    assert version_of(word) is None


def test_a_version_is_the_same_however_it_is_written() -> None:
    assert version_of("v0.10") == version_of("0.10.0+cu128") == version_of(" 0.10.0 ")
