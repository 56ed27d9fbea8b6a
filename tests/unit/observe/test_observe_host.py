"""The machine by /proc: shares of time between two samples, nothing if the system has no data."""

import time
from pathlib import Path

import pytest

from inferometer.measure.hardware import host_summary, scarcity
from inferometer.observe.host import HostSampler
from inferometer.record.record import Sample, Samples
from inferometer.record.summary import HostSummary

FILES = {
    "stat": "cpu  100 0 50 800 10 0 20 20 0 0\ncpu0 1 1 1 1\n",
    "meminfo": "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n",
    "loadavg": "1.50 1.0 0.5 2/100 999\n",
    "net/dev": "Inter-|\n face |\n    lo: 9 0 0 0 0 0 0 0 9 0 0 0\n  eth0: 1000 0 0 0 0 0 0 0 500 0 0 0\n",
    "net/snmp": "Tcp: RtoAlgorithm RetransSegs\nTcp: 1 5\n",
    "pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 total=0\n",
}


def write(folder, **changed):
    for name, text in (FILES | changed).items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)


def test_shares_are_of_the_time_between_two_samples(tmp_path: Path) -> None:
    write(tmp_path)
    sampler = HostSampler(tmp_path)
    first = {sample.name: sample.value for sample in sampler.read()}
    assert first == {"memory_total_bytes": 1024000, "memory_available_bytes": 409600, "load_1min": 1.5}
    write(tmp_path, stat="cpu  150 0 60 825 10 0 25 30 0 0\n")  # 100 ticks later: 65 busy, 10 stolen
    second = {sample.name: sample.value for sample in sampler.read()}
    assert second["cpu_share"] == pytest.approx(0.65)
    assert second["steal_share"] == pytest.approx(0.10)
    assert second["received_bytes_per_s"] == 0
    assert second["cpu_pressure_share"] == 0


def test_rates_are_per_second(tmp_path: Path) -> None:
    write(tmp_path)
    sampler = HostSampler(tmp_path)
    began = time.monotonic_ns()
    sampler.read()
    text = FILES["net/dev"].replace("1000", "3000").replace("500", "600")
    write(tmp_path, **{"net/dev": text, "net/snmp": FILES["net/snmp"].replace(" 5", " 9")})
    values = {sample.name: sample.value for sample in sampler.read()}
    most_s = (time.monotonic_ns() - began) / 1e9
    assert values["received_bytes_per_s"] >= 2000 / most_s
    assert values["sent_bytes_per_s"] == pytest.approx(values["received_bytes_per_s"] / 20)
    assert values["retransmitted_segments_per_s"] == pytest.approx(values["received_bytes_per_s"] / 500)


def test_an_empty_proc_gives_nothing(tmp_path: Path) -> None:
    sampler = HostSampler(tmp_path)
    assert sampler.read() == [] and sampler.read() == []


def test_this_machine_is_read() -> None:
    sampler = HostSampler()
    sampler.read()
    names = {sample.name for sample in sampler.read()}
    assert {"memory_total_bytes", "load_1min"} <= names


def test_the_share_of_the_load_is_averaged_and_named() -> None:
    shares = [0.5, 0.01, 0.05, 0.06]  # before the load, in it twice, and the one that covers its end
    samples = Samples.of([Sample("host", "steal_share", at * 10, share) for at, share in enumerate(shares)])
    found = host_summary(samples, 0, 25)
    assert found.steal_share == pytest.approx(0.04)
    assert found.cpu_share is None
    text = "the hypervisor took 4% of this machine's CPU time"
    assert scarcity(found) == ("stolen_cores", text)
    assert scarcity(HostSummary(steal_share=0.01, cpu_share=0.5)) is None and scarcity(None) is None
    assert scarcity(HostSummary(cpu_share=0.99))[0] == "busy_machine"
    assert host_summary(Samples.of([]), 0, 25) is None
