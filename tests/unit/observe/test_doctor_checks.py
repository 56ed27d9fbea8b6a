"""Each check of the doctor, passing and failing, from facts; and the readers, with folders like /proc and /sys."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from inferometer.observe import doctor, machine
from inferometer.observe.doctor import Check, DeviceFacts, Gpu, Tried, device_facts, worst
from inferometer.observe.machine import MachineFacts, MachineLook, NetworkFacts, network_facts

GIB = 2**30
WELL = MachineFacts(
    cores=8,
    busy_share=0.05,
    steal_share=0.0,
    clock_source="tsc",
    clock_reading_s=5e-8,
    governors={"performance": 8},
    clock_step_s=1e-6,
    synchronized=True,
)
NET = NetworkFacts(files_soft=20_000, files_hard=20_000, ports=(32768, 60999), waiting=10, stamps=True, reader=True)
ONE_GPU = DeviceFacts(gpus=(Gpu(0, "NVIDIA H200", 0.5 * GIB, 140 * GIB),), driver="570.1", smi="", nvml=True)
DOCKER = replace(ONE_GPU, engine="docker", runtimes=("nvidia", "runc"), default_runtime="nvidia")


@pytest.mark.parametrize(
    ("check", "facts", "word", "says"),
    [
        (machine.cores, WELL, "ok", "8"),
        (machine.cores, replace(WELL, cores=1), "warning", "1 core"),
        (machine.cores, replace(WELL, cores=None), "not applicable", ""),
        (machine.limit, WELL, "ok", "none"),
        (
            machine.limit,
            replace(WELL, cpu_limit=2.0, throttled=14),
            "warning",
            "2 cores (cgroup limit), reached 14",
        ),
        (machine.limit, replace(WELL, cpu_limit=16.0), "ok", "16 cores"),
        (machine.load, WELL, "ok", "5%"),
        (machine.load, replace(WELL, busy_share=0.9), "warning", "90%"),
        (machine.load, replace(WELL, busy_share=None), "not applicable", ""),
        (machine.steal, WELL, "ok", "0%"),
        (machine.steal, replace(WELL, steal_share=0.07), "warning", "7%"),
        (machine.steal, replace(WELL, steal_share=None), "not applicable", ""),
        (machine.governor, WELL, "ok", "performance"),
        (
            machine.governor,
            replace(WELL, governors={"powersave": 6, "performance": 2}),
            "warning",
            "powersave on 6 cores",
        ),
        (machine.governor, replace(WELL, governors={}), "not applicable", ""),
        (machine.clock_source, WELL, "ok", "tsc, 0.05 µs"),
        (machine.clock_source, replace(WELL, clock_source="hpet", clock_reading_s=1.4e-6), "warning", "hpet, 1.40 µs"),
        (machine.clock_source, replace(WELL, clock_source="acpi_pm"), "warning", "acpi_pm"),
        (machine.clock_source, replace(WELL, clock_source=None), "ok", "not named"),
        (machine.clock_step, WELL, "ok", "steady"),
        (machine.clock_step, replace(WELL, clock_step_s=-0.25), "warning", "-250 ms"),
        (machine.clock_step, replace(WELL, clock_step_s=None), "not applicable", ""),
        (machine.synchronization, WELL, "ok", "synchronized"),
        (machine.synchronization, replace(WELL, synchronized=False), "warning", "not synchronized"),
        (machine.synchronization, replace(WELL, synchronized=None), "not applicable", ""),
        (machine.ports_to_listen, NET, "not applicable", ""),
        (machine.ports_to_listen, replace(NET, requested=(8000,)), "ok", "free: 8000"),
        (machine.ports_to_listen, replace(NET, requested=(8000, 1), taken=(8000,)), "error", "already in use: 8000"),
        (machine.stamps, NET, "ok", "timestamps"),
        (machine.stamps, replace(NET, stamps=False), "warning", "does not"),
        (machine.reader, NET, "ok", "built"),
        (machine.reader, replace(NET, reader=False), "warning", "not built"),
        (doctor.nvml, ONE_GPU, "ok", "installed"),
        (doctor.nvml, replace(ONE_GPU, nvml=False), "warning", "nvidia-ml-py"),
        (doctor.nvml, DeviceFacts(), "not applicable", "no NVIDIA GPU"),
    ],
)
def test_checks_of_facts_alone(check, facts, word: str, says: str):
    found = check(facts)
    assert found.status == word and says in found.finding
    assert bool(found.remedy) == (word in ("warning", "error"))


@pytest.mark.parametrize(
    ("check", "facts", "wanted", "word", "says"),
    [
        (machine.open_files, NET, 256, "ok", "limit 20,000"),
        (machine.open_files, replace(NET, files_soft=None), 10**6, "ok", "no limit"),
        (machine.open_files, replace(NET, files_soft=1024), 1000, "error", "1,128 needed for 1,000"),
        (machine.open_files, replace(NET, files_soft=1024, files_hard=1024), 5000, "error", "5,128 needed"),
        (machine.local_ports, NET, 256, "ok", "28,222 free"),
        (machine.local_ports, replace(NET, waiting=28_000), 256, "error", "232 free, 256 wanted"),
        (machine.local_ports, NET, 20_000, "warning", "20,000 wanted"),
        (machine.local_ports, replace(NET, ports=None), 1, "not applicable", ""),
        (doctor.driver, ONE_GPU, None, "ok", "1 x NVIDIA H200, driver 570.1"),
        (doctor.driver, DeviceFacts(), None, "not applicable", "no NVIDIA GPU"),
        (doctor.driver, DeviceFacts(smi="NVIDIA-SMI has failed"), None, "error", "NVIDIA-SMI has failed"),
        (doctor.driver, DeviceFacts(device_files=True), None, "warning", "nvidia-smi is not"),
        (doctor.gpu_memory, ONE_GPU, "vllm", "ok", "free"),
        (
            doctor.gpu_memory,
            replace(ONE_GPU, gpus=(Gpu(0, "H200", 70 * GIB, 140 * GIB),)),
            "vllm",
            "error",
            "70 GiB of 140",
        ),
        (doctor.gpu_memory, replace(ONE_GPU, gpus=(Gpu(0, "H200", 70 * GIB, 140 * GIB),)), None, "ok", "in use"),
        (doctor.gpu_memory, DeviceFacts(), "vllm", "not applicable", ""),
        (doctor.container_engine, DOCKER, None, "ok", "docker answers"),
        (doctor.container_engine, DeviceFacts(), None, "not applicable", "neither"),
        (doctor.container_engine, DeviceFacts(), "container", "error", "neither"),
        (doctor.container_engine, replace(DOCKER, engine_trouble="Cannot connect"), None, "warning", "Cannot connect"),
        (doctor.container_engine, replace(DOCKER, engine_trouble="Cannot connect"), "container", "error", ""),
        (doctor.nvidia_runtime, DOCKER, None, "ok", "default"),
        (
            doctor.nvidia_runtime,
            replace(DOCKER, default_runtime="runc"),
            "container",
            "warning",
            "its default is runc",
        ),
        (
            doctor.nvidia_runtime,
            replace(DOCKER, runtimes=("runc",), default_runtime="runc"),
            "container",
            "error",
            "runc",
        ),
        (doctor.nvidia_runtime, replace(DOCKER, gpus=()), None, "not applicable", "no NVIDIA GPU"),
        (doctor.nvidia_runtime, DeviceFacts(engine="podman"), None, "not applicable", "docker is not"),
        (doctor.engine_program, DeviceFacts(programs={"vllm": True}), "vllm", "ok", "vllm"),
        (doctor.engine_program, DeviceFacts(programs={"vllm": False}), "vllm", "error", "vllm is not on the PATH"),
        (doctor.engine_program, DeviceFacts(), "simulator", "ok", "simulator"),
    ],
)
def test_checks_of_what_is_wanted(check, facts, wanted: int | str | None, word: str, says: str):
    found = check(facts, wanted)
    assert found.status == word and says in found.finding
    assert bool(found.remedy) == (word in ("warning", "error"))


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (doctor.endpoint(None), "not applicable"),
        (doctor.endpoint(Tried("vLLM serves m")), "ok"),
        (doctor.endpoint(Tried("vLLM serves m", notes=("serves 2 models",), remedy="--model")), "warning"),
        (doctor.endpoint(Tried(trouble="refused", remedy="start it")), "error"),
        (doctor.tokenizer(None), "not applicable"),
        (doctor.tokenizer(Tried("128,000 entries")), "ok"),
        (doctor.tokenizer(Tried(trouble="there is no file", remedy="name a folder")), "error"),
        (doctor.store(Tried("/s")), "ok"),
        (doctor.store(Tried(trouble="/s: read-only")), "error"),
        (doctor.index(Tried("7 runs")), "ok"),
        (doctor.index(Tried(trouble="broken", remedy="delete it")), "error"),
        (doctor.disk(None, "/s"), "not applicable"),
        (doctor.disk(5 * GIB, "/s"), "ok"),
        (doctor.disk(0.5 * GIB, "/s"), "warning"),
        (doctor.disk(2**20, "/s"), "error"),
        (doctor.calibration(None), "warning"),
        (doctor.calibration(3600.0), "ok"),
        (doctor.calibration(5 * 86400.0), "ok"),
        (doctor.calibration(90 * 86400.0), "warning"),
        (doctor.extras({"gpu": True, "datasets": False}), "ok"),
    ],
)
def test_checks_of_what_was_tried(found, word: str):
    assert found.status == word and found.finding
    assert word not in ("warning", "error") or found.remedy


def test_extras_name_the_line_that_installs_them() -> None:
    found = doctor.extras({"gpu": True, "datasets": False, "b": False})
    assert found.remedy == "pip install 'inferometer[b,datasets]'" and "installed: gpu;" in found.finding
    assert doctor.extras({"gpu": True}).remedy is None
    ours = doctor.extras_installed()
    assert "datasets" in ours and not {"test", "check"} & set(ours)
    assert doctor.extras_installed("no-such-package") == {}


def test_the_worst_word() -> None:
    ok, bad, wrong = (Check("x", word, "") for word in ("ok", "warning", "error"))
    assert [worst([ok]), worst([ok, bad]), worst([wrong, ok, bad]), worst([])] == ["ok", "warning", "error", "ok"]


# -- readers -----------------------------------------------------------------------------------------------------


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_machine_is_read_from_its_files(tmp_path: Path) -> None:
    cpu = tmp_path / "sys/devices/system/cpu"
    for number, name in enumerate(["powersave", "performance"]):
        (cpu / f"cpu{number}/cpufreq").mkdir(parents=True)
        (cpu / f"cpu{number}/cpufreq/scaling_governor").write_text(f"{name}\n")
    write(
        tmp_path,
        proc__stat="cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n",
        sys__fs__cgroup__cpu_max="",
        sys__devices__system__clocksource__clocksource0__current_clocksource="hpet\n",
    )
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("usage_usec 1\nnr_throttled 12\n")
    (tmp_path / "run/systemd/timesync").mkdir(parents=True)
    look = MachineLook(tmp_path)
    write(tmp_path, proc__stat="cpu  130 0 110 850 0 0 0 10 0 0\n")
    facts = look.facts(0.0)
    assert (facts.busy_share, facts.steal_share) == (0.4, 0.1)
    assert (facts.cpu_limit, facts.throttled, facts.clock_source) == (1.5, 12, "hpet")
    assert facts.governors == {"powersave": 1, "performance": 1} and facts.synchronized is False
    assert facts.clock_reading_s > 0 and facts.cores >= 1


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    facts = MachineLook(tmp_path).facts(0.0)
    assert (facts.busy_share, facts.steal_share, facts.cpu_limit, facts.clock_source) == (None,) * 4
    assert {check.status for check in machine.machine_checks(facts)} <= {"ok", "not applicable", "warning"}
    (tmp_path / "sys/fs/cgroup/cpu").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us").write_text("100000")
    assert machine.cpu_limit(tmp_path) == 0.5


def test_connections_are_read_from_their_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        proc__sys__net__ipv4__ip_local_port_range="32768\t60999\n",
        proc__net__sockstat="sockets: used 99\nTCP: inuse 27 orphan 0 tw 311 alloc 30 mem 4\nUDP: inuse 2 mem 1\n",
    )
    facts = network_facts(tmp_path, [8000, 8001], [8001])
    assert (facts.ports, facts.waiting, facts.taken) == ((32768, 60999), 311, (8001,))
    assert len(list(machine.network_checks(facts, 10))) == 5
    assert network_facts(tmp_path / "nothing").ports is None


@pytest.fixture
def programs(tmp_path: Path, monkeypatch):
    """A PATH with only what the test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name, script):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    return add


SMI = 'echo "0, NVIDIA H200, 512, 143771, 570.86.15"; echo "1, NVIDIA H200, 100000, 143771, 570.86.15"'


def test_gpus_and_docker_are_asked(programs, tmp_path: Path):
    programs("nvidia-smi", SMI)
    programs(
        "docker", """echo '{"Runtimes": {"runc": {}, "nvidia": {}}, "DefaultRuntime": "runc", "ServerErrors": null}'"""
    )
    programs("vllm", "true")
    facts = device_facts(tmp_path, "vllm")
    assert [gpu.used_bytes / 2**20 for gpu in facts.gpus] == [512, 100_000] and facts.driver == "570.86.15"
    assert facts.programs == {"vllm": True}
    words = {check.name: check.status for check in doctor.device_checks(facts, "container")}
    assert (words["GPU driver"], words["GPU memory"], words["nvidia runtime"]) == ("ok", "warning", "warning")


def test_docker_that_is_down_and_a_driver_that_fails(programs, tmp_path: Path):
    programs("nvidia-smi", 'echo "NVIDIA-SMI has failed because it could not communicate" >&2; exit 9')
    programs("docker", """echo '{"ServerErrors": ["Cannot connect to the Docker daemon"]}'; exit 0""")
    facts = device_facts(tmp_path, "python3 -m sglang")
    assert facts.smi.startswith("NVIDIA-SMI has failed") and facts.engine_trouble.startswith("Cannot connect")
    assert facts.programs == {"python3 -m sglang": False}
    words = {check.name: check.status for check in doctor.device_checks(facts, "container")}
    assert (words["GPU driver"], words["containers"], words["engine"]) == ("error", "error", "error")


def test_the_runtime_of_the_daemons_file(programs, tmp_path: Path):
    programs("nvidia-smi", SMI)
    programs("docker", """echo '{"Runtimes": {"runc": {}, "nvidia": {}}}'""")
    write(tmp_path, etc__docker__x="")
    (tmp_path / "etc/docker/daemon.json").write_text('{"default-runtime": "nvidia"}')
    facts = device_facts(tmp_path)
    assert doctor.nvidia_runtime(facts, None).status == "ok"


def test_nothing_there(programs, tmp_path: Path):
    facts = device_facts(tmp_path)
    assert facts == DeviceFacts(nvml=facts.nvml)
    programs("docker", "echo nonsense")
    assert device_facts(tmp_path).engine_trouble == "its answer could not be read"
    assert os.environ["PATH"] == str(tmp_path / "bin")
