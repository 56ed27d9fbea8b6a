"""The output of custom benchmarks, read into the values of a summary."""

import pytest

from inferometer.errors import DataError, PlanError
from inferometer.measure.custom import documents_in, measures_in, summary_of
from inferometer.measure.values import quantities
from inferometer.plan.benchmark import Benchmark, benchmark_from, written
from inferometer.plan.stored import StoredPlan
from inferometer.vocabulary import value_text

DECODE = '{"name": "decode", "value": 8.0, "unit": "ms", "direction": "lower"}'


def numbers(text, **options):
    return quantities(summary_of(measures_in(documents_in(text), **options)))


@pytest.mark.parametrize(
    "text",
    [
        DECODE,
        f"[{DECODE}]",
        f"warming up\n{DECODE}\ndone: [1 of 1]\n",
        "log {\n[\n" + DECODE + "\n]\n",
        '{"measures": [' + DECODE + "]}",
        '{"decode": {"value": 8.0, "unit": "ms", "direction": "lower"}}',
        '{"metrics": {"decode": {"key": "decode", "value": 8, "unit": "ms", "type": "SmallerIsBetter"}}}',
        '[{"name": "decode", "unit": "ms", "value": 8, "range": "± 1", "tool": "customSmallerIsBetter", "extra": "x"}]',
    ],
)
def test_forms(text):
    (decode,) = numbers(text).values()
    assert (decode.key, decode.value, decode.unit, decode.direction) == ("decode", 0.008, "s", "lower")


def test_lines_are_several_measures() -> None:
    found = numbers(f'{DECODE}\n{{"name": "Speed (GPU 0)", "value": 2, "unit": "GiB", "direction": "higher"}}\n')
    assert list(found) == ["decode", "speed_gpu_0"]
    assert found["speed_gpu_0"].value == 2**31 and found["speed_gpu_0"].title == "Speed (GPU 0)"


def test_an_array_of_github_action_benchmark_says_no_direction() -> None:
    text = '[{"name": "a", "unit": "ops/sec", "value": 3}]'
    assert numbers(text)["a"].direction is None
    assert numbers(text, default="higher")["a"].direction == "higher"


def test_repeats_have_a_mean_with_an_interval() -> None:
    found = numbers('{"name": "a", "values": [1, 2, 3], "unit": "s", "direction": "lower"}')
    assert found["a.mean"].value == 2 and found["a.p50"].value == 2
    low, high = found["a.mean"].interval
    assert (round(low, 3), round(high, 3)) == (-0.484, 4.484)


def test_quantiles_of_a_measure_belong_together() -> None:
    entries = [{"name": f"ttft.p{q}", "value": q, "unit": "ms", "direction": "lower"} for q in (50, 99)]
    found = quantities(summary_of(measures_in(entries)))
    assert found["ttft.p99"].value == 0.099 and found["ttft.p50"].title == "TTFT"


def test_an_interval_and_a_missing_value() -> None:
    entries = [
        {"name": "a", "value": 50, "unit": "%", "direction": "higher", "interval": [40, 60]},
        {"name": "b", "value": None, "unit": "s", "direction": "lower"},
    ]
    found = quantities(summary_of(measures_in(entries)))
    assert found["a"].interval == (0.4, 0.6) and found["a"].unit == "share" and "b" not in found


@pytest.mark.parametrize(
    "document, told",
    [
        ({"name": "a", "value": 1}, "a has no unit"),
        ({"name": "a", "unit": "s"}, "a has no value"),
        ({"value": 1, "unit": "s"}, "entry 1 has no name"),
        ({"name": "a", "value": "fast", "unit": "s"}, 'a must have a finite number as its value, got "fast"'),
        ({"name": "a", "value": True, "unit": "s"}, "finite number"),
        ({"name": "a", "value": float("nan"), "unit": "s"}, "finite number"),
        ({"name": "a", "value": 1, "unit": "s", "direction": "sideways"}, "direction higher, lower or none"),
        ({"name": "a", "value": 1, "unit": "s", "interval": [2, 1]}, "interval of two numbers"),
        ({"name": "ttft", "value": 1, "unit": "tokens"}, "ttft is a built-in measure in s, got tokens"),
        ([{"name": "a", "value": 1, "unit": "s"}] * 2, "a appears twice"),
        ({"name": "a", "values": [], "unit": "s"}, "empty list"),
        ([1, 2], "entry 1 must be an object"),
        ([], "it contains no measures"),
        ([{"name": "a", "value": None, "unit": "s"}], "every value is null"),
        ({"tokens": 12}, "tokens has no unit"),
    ],
)
def test_bad_output_is_named(document, told: str):
    with pytest.raises(DataError) as error:
        measures_in(document)
    assert told in error.value.message
    assert '"unit": "tokens/s"' in f"{error.value.message} {error.value.hint}"


def test_no_json_at_all() -> None:
    assert documents_in("hello\nworld [\n") is None


def test_titles_and_arguments_of_a_benchmark() -> None:
    assert Benchmark(command=["python3", "./tools/my-bench.py", "--json"]).title == "my-bench"
    assert Benchmark(command="time ./x/go.sh | tee log").title == "go"
    assert Benchmark(python="bench.kernels:decode").title == "decode"
    made = Benchmark(command=["b", "--n={n}", "{other}", '{"a": 1}'], args={"n": 8})
    assert made.filled() == ["b", "--n=8", "{other}", '{"a": 1}']
    assert Benchmark(command="b {what}", args={"what": "a b; c"}).filled() == "b 'a b; c'"


def test_what_is_kept_holds_no_secret_and_no_default() -> None:
    made = benchmark_from(
        {"command": ["b", "--api-key", "s3cret"], "env": {"HF_TOKEN": "t0ken", "N": 1}, "json": "r.json"}
    )
    kept = StoredPlan(written(made))
    assert "s3cret" not in str(kept) and "t0ken" not in str(kept)
    assert kept.name == "b" and kept.benchmark["output"] == "r.json" and "timeout" not in kept.benchmark


@pytest.mark.parametrize(
    "said, told",
    [
        ({}, "needs a command to run, or a function"),
        ({"command": "a", "python": "m:f"}, "not both"),
        ({"command": []}, "command must not be empty"),
        ({"python": "no function"}, "python must be package.module:function"),
        ({"python": "m:f", "output": "x.json"}, "output belongs to a command"),
        ({"command": "a", "timeout": "soon"}, "timeout must be a duration"),
        ({"command": "a", "nonsense": 1}, "nonsense is not a setting"),
    ],
)
def test_mistakes_of_a_benchmark(said, told: str):
    with pytest.raises(PlanError, match=told):
        benchmark_from(said)


@pytest.mark.parametrize(("unit", "text"), [("ops/sec", "812/s"), ("requests/s", "812 req/s"), ("tok/s", "812 tok/s")])
def test_only_rates_of_requests_are_called_so(unit: str, text: str) -> None:
    (measure,) = measures_in({"name": "speed", "value": 812.0, "unit": unit, "direction": "higher"})
    assert value_text(measure.values[0], measure.unit) == text
