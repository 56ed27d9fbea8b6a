"""Whole runs with the simulator, whose counters are true: they agree, unless there is other traffic."""

import csv
import threading
import urllib.request
from pathlib import Path

import orjson

from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.exchange.exporting.tables import GPU_COLUMNS, write_folder
from inferometer.plan.reading import plan_from
from inferometer.record.record import Sample, Samples
from inferometer.store.folder import load_run

QUICK = {"frontend": 0, "step_time": {"base": 0.001, "prefill_token": 0, "decode_sequence": 0}}


def measured(url, tmp_path: Path, **plan):
    keep_curve(curve_of([]), tmp_path)  # or the first run would calibrate
    asked = {"target": url, "workload": {"input_tokens": 50, "output_tokens": 8}, "load": {"concurrency": 4}}
    return run(plan_from(asked | {"stop": 40, "observe": {"interval": "200ms"}} | plan), store=tmp_path)


def codes(run):
    return {reason.code for reason in run.doubts}


def test_the_server_agrees_with_us_and_a_second_client_does_not(start_simulator, tmp_path: Path):
    with start_simulator(**QUICK) as url:
        alone = measured(url, tmp_path, workers=2, warmup=10)
        conserved = alone.summary.server.conservation
        for counted, count in (
            (conserved.requests, 50),
            (conserved.prompt_tokens, 2500),
            (conserved.generation_tokens, 400),
        ):
            assert (counted.client, counted.server) == (count, count)
        assert not codes(alone) & {"not_conserved", "target_restarted"}
        assert conserved.ttft.wire > -0.001
        assert alone.summary.host is not None and alone.summary.gpu is None
        kept = load_run(alone.folder)
        assert {"host", f"{url}/metrics"} <= set(kept.samples.source.categories)
        assert not list(alone.folder.glob("log-*.bin"))

        with disturbing(url):
            disturbed = measured(url, tmp_path)
        assert "not_conserved" in codes(disturbed)
        said = disturbed.summary.server.conservation.requests
        assert said.client == 40 and said.server > 40


class disturbing:  # noqa: N801 - reads as a deed
    """A second client at work for as long as this lasts, and at least once."""

    def __init__(self, url):
        self._url, self._over = f"{url}/v1/completions", threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def _send(self) -> None:
        body = orjson.dumps({"model": "simulated-8b", "prompt": "hello", "max_tokens": 2})
        while not self._over.is_set():
            request = urllib.request.Request(self._url, body, {"content-type": "application/json"})
            urllib.request.urlopen(request, timeout=20).read()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(20)


def test_nothing_is_watched_where_that_is_said(start_simulator, tmp_path: Path):
    with start_simulator(**QUICK) as url:
        quiet = measured(url, tmp_path, observe="off")
    assert quiet.summary.server is None and quiet.summary.host is None and quiet.summary.observer is None


def test_gpu_samples_are_written_as_inferx_writes_them(start_simulator, tmp_path: Path):
    with start_simulator(**QUICK) as url:
        made = measured(url, tmp_path, observe="off")
    start_at = int(made.records.scheduled_at[0])
    values = {"memory_used_bytes": 2.0**30, "memory_total_bytes": 2.0**34, "utilization_share": 0.37}
    samples = [
        Sample(gpu, name, start_at + second * 10**9 + number, value)
        for gpu in ("gpu:0", "gpu:1")
        for second in range(3)
        for number, (name, value) in enumerate(values.items())
    ]
    object.__setattr__(made, "read_samples", lambda: Samples.of(samples))
    write_folder(made, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "gpu_memory.csv").open()))
    assert tuple(rows[0]) == GPU_COLUMNS and len(rows) == 3
    assert [rows[0][name] for name in GPU_COLUMNS[1:]] == ["1024.0", "16384.0", "37", ""]
    assert float(rows[2]["ts"]) - float(rows[0]["ts"]) == 2.0
    assert (tmp_path / "out" / "gpu_memory_1.csv").exists()
