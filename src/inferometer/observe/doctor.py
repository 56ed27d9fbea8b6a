"""`Check`: what was examined, its status, the result and a remedy; and the checks of installed software and of what a
user names: an endpoint and its model, a tokenizer, a store and its calibration."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from inferometer.observe.gpu import AMD_COMMAND
from inferometer.vocabulary import duration_text, size_text
from inferometer.wire.child import SAFE_PATH

# -- check -----------------------------------------------------------------------------------------------------------

DoctorStatus = Literal["ok", "warning", "error", "not applicable"]


STATUSES: dict[DoctorStatus, str] = {
    "ok": "nothing to do",
    "warning": "it works, but reduces accuracy or may cause problems",
    "error": "a run will fail or give wrong numbers",
    "not applicable": "not present on this machine, or not requested",
}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: DoctorStatus
    finding: str
    remedy: str | None = None  # also for an ok check that could be improved


def warned_if(bad: bool, name: str, finding: str, remedy: str) -> Check:
    """A warning with its remedy, or the finding without one."""
    return Check(name, "warning", finding, remedy) if bad else Check(name, "ok", finding)


def unknown(name: str) -> Check:
    return Check(name, "not applicable", "not reported by this system")


def worst(checks: Sequence[Check]) -> DoctorStatus:
    """The overall status."""
    statuses = {check.status for check in checks}
    return "error" if "error" in statuses else "warning" if "warning" in statuses else "ok"


# -- software --------------------------------------------------------------------------------------------------------

_DEVELOPMENT = ("test", "check")  # for developing Inferometer itself


_NEED = re.compile(r"(?P<package>[A-Za-z0-9._-]+).*?;.*extra *== *['\"](?P<extra>[^'\"]+)['\"]")


def extras_installed(name: str = "inferometer") -> dict[str, bool]:
    """Each extra, and whether all its packages are installed."""
    try:
        ours = distribution(name)
    except PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {extra: [] for extra in ours.metadata.get_all("Provides-Extra") or []}
    for need in ours.requires or []:
        if match := _NEED.match(need):
            packages.setdefault(match["extra"], []).append(match["package"])
    return {extra: all(map(_is_there, names)) for extra, names in packages.items() if extra not in _DEVELOPMENT}


def extras(installed: Mapping[str, bool]) -> Check:
    """None of them is needed by default: a missing one is reported when it is needed."""
    there, missing = _sorted(installed, True), _sorted(installed, False)
    finding = f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    return Check("extras", "ok", finding, f"pip install 'inferometer[{','.join(missing)}]'" if missing else None)


def _sorted(installed: Mapping[str, bool], is_there: bool) -> list[str]:
    return sorted(name for name, there in installed.items() if there is is_there)


def _is_there(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


LITTLE_DISK = 2**30  # bytes: some 40 runs of 10,000 requests


LEAST_DISK = 64 * 2**20


OLD_DAYS = 30


@dataclass(frozen=True, slots=True)
class Tried:
    """Something that was tried, and the result; `trouble` and `remedy` if it failed."""

    finding: str = ""
    trouble: str | None = None
    remedy: str | None = None
    notes: tuple[str, ...] = ()


def endpoint(tried: Tried | None) -> Check:
    if tried is None:
        return Check("endpoint", "not applicable", "no URL given (--url)")
    if tried.trouble:
        return Check("endpoint", "error", tried.trouble, tried.remedy)
    if tried.notes:
        return Check("endpoint", "warning", f"{tried.finding}; {'; '.join(tried.notes)}", tried.remedy)
    return Check("endpoint", "ok", tried.finding)


def tokenizer(tried: Tried | None) -> Check:
    if tried is None:
        return Check("tokenizer", "not applicable", "no tokenizer given (--tokenizer)")
    if tried.trouble:
        return Check("tokenizer", "error", tried.trouble, tried.remedy)
    return Check("tokenizer", "ok", tried.finding)


def store(tried: Tried) -> Check:
    if tried.trouble:
        return Check("store", "error", tried.trouble, tried.remedy or "use another store: --store FOLDER")
    return Check("store", "ok", tried.finding)


def index(tried: Tried) -> Check:
    if tried.trouble:
        return Check("index", "error", tried.trouble, tried.remedy)
    return Check("index", "ok", tried.finding)


def disk(free_bytes: float | None, where: str) -> Check:
    name = "room on disk"
    if free_bytes is None:
        return Check(name, "not applicable", f"unknown for {where}")
    finding = f"{size_text(free_bytes)} free"
    remedy = "free disk space, or use another store: --store FOLDER"
    if free_bytes < LEAST_DISK:
        return Check(name, "error", f"{size_text(free_bytes)} free", remedy)
    if free_bytes < LITTLE_DISK:
        return Check(name, "warning", finding, remedy)
    return Check(name, "ok", finding)


def calibration(age_s: float | None) -> Check:
    """The error of the instrument depends on the machine, its kernel and Python, so each combination has its own."""
    name = "calibration"
    if age_s is None:
        finding = "none yet for this machine, kernel and Python"
        return Check(
            name, "warning", finding, "inferometer calibrate (45 s); otherwise the first run does a short calibration"
        )
    days = age_s / 86400
    if days > OLD_DAYS:
        return Check(name, "warning", f"{days:.0f} days old", "inferometer calibrate")
    return Check(name, "ok", f"made {duration_text(age_s) if days < 1 else f'{days:.0f} days'} ago")


# -- GPUs and their driver ---------------------------------------------------------------------------------------------

# GPUs and containers: whether they are visible, and whether a container would see them.

COMMAND_TIMEOUT_S = 10.0  # the first call may have to wake up the driver
IN_USE = 0.1  # of a GPU's memory
GIB = 2**30
_RUNTIME = (
    'put "default-runtime": "nvidia" into /etc/docker/daemon.json and restart docker, '
    "or use --runtime nvidia (server.runtime: nvidia): otherwise the engine does not detect its platform"
)


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str
    used_bytes: float
    total_bytes: float


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    smi: str | None = None  # error of nvidia-smi; "" if it works, None if it is not installed
    device_files: bool = False  # /dev/nvidia0, /proc/driver/nvidia
    amd_smi: bool = False  # whether amd-smi is installed
    nvml: bool = False  # whether the package for NVML is installed
    engine: str | None = None  # docker or podman
    engine_trouble: str | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    programs: dict[str, bool] = field(default_factory=dict)  # of requested engines


def device_facts(root: Path = Path("/"), program: str | None = None) -> DeviceFacts:
    trouble, driver, gpus = _nvidia_smi()
    engine = next((name for name in ("docker", "podman") if shutil.which(name)), None)
    info, engine_trouble = _engine_info(engine) if engine else ({}, None)
    return DeviceFacts(
        gpus=gpus,
        driver=driver,
        smi=trouble,
        device_files=(root / "dev/nvidia0").exists() or (root / "proc/driver/nvidia/version").exists(),
        amd_smi=shutil.which(AMD_COMMAND) is not None,
        nvml=find_spec("pynvml") is not None,
        engine=engine,
        engine_trouble=engine_trouble,
        runtimes=tuple(info.get("Runtimes") or ()),
        default_runtime=info.get("DefaultRuntime") or _configured_runtime(root),
        programs={program: _is_program(program)} if program else {},
    )


def device_checks(facts: DeviceFacts, server: str | None) -> Iterator[Check]:
    yield driver(facts, server)
    yield nvml(facts)
    yield gpu_memory(facts, server)
    yield container_engine(facts, server)
    yield nvidia_runtime(facts, server)
    if server is not None:
        yield engine_program(facts, server)


def driver(facts: DeviceFacts, server: str | None) -> Check:
    name = "GPU driver"
    if facts.gpus:
        kinds = ", ".join(dict.fromkeys(gpu.name for gpu in facts.gpus))
        return Check(name, "ok", f"{len(facts.gpus)} x {kinds}, driver {facts.driver}")
    if facts.smi:
        return Check(
            name, "error", f"nvidia-smi fails: {facts.smi}", "is the driver loaded, and does it fit the kernel?"
        )
    if facts.device_files:
        remedy = "install nvidia-smi with the driver; in a container: docker run --gpus all"
        return Check(name, "warning", "a driver is installed, but nvidia-smi is not", remedy)
    if facts.amd_smi:
        return Check(name, "ok", "no NVIDIA GPU on this machine; GPUs of AMD are sampled through amd-smi")
    return Check(name, "not applicable", "no NVIDIA GPU on this machine; GPUs are not sampled")


def nvml(facts: DeviceFacts) -> Check:
    if facts.nvml:
        return Check("NVML", "ok", "the package nvidia-ml-py is installed")
    if not facts.gpus and not facts.device_files:
        return Check("NVML", "not applicable", "no NVIDIA GPU here")
    remedy = "pip install 'inferometer[gpu]'; until then nvidia-smi is used, which does not report energy"
    return Check("NVML", "warning", "the package nvidia-ml-py is not installed", remedy)


def gpu_memory(facts: DeviceFacts, server: str | None) -> Check:
    """Two jobs on one GPU disturb each other, and a second vLLM does not even start."""
    name = "GPU memory"
    if not facts.gpus:
        return Check(name, "not applicable", "no NVIDIA GPU here")
    used = [gpu for gpu in facts.gpus if gpu.used_bytes > IN_USE * gpu.total_bytes]
    if not used:
        return Check(name, "ok", "free")
    texts = (f"GPU {gpu.index}: {size_text(gpu.used_bytes)} of {size_text(gpu.total_bytes)} in use" for gpu in used)
    starts = server is not None and server not in ("simulator", "external")
    if not starts:
        return Check(name, "ok", "; ".join(texts))
    remedy = "stop the processes that use it (nvidia-smi), or choose another GPU: CUDA_VISIBLE_DEVICES"
    return Check(name, "error" if len(used) == len(facts.gpus) else "warning", "; ".join(texts), remedy)


def container_engine(facts: DeviceFacts, server: str | None) -> Check:
    name = "containers"
    if facts.engine is None:
        if server == "container":
            return Check(
                name,
                "error",
                "neither docker nor podman is installed",
                "install one of them, or start the engine without a container",
            )
        return Check(name, "not applicable", "neither docker nor podman is installed")
    if facts.engine_trouble:
        remedy = "start the daemon (sudo systemctl start docker) and join its group (sudo usermod -aG docker $USER)"
        status: DoctorStatus = "error" if server == "container" else "warning"
        return Check(name, status, f"{facts.engine}: {facts.engine_trouble}", remedy)
    return Check(name, "ok", f"{facts.engine} answers")


def nvidia_runtime(facts: DeviceFacts, server: str | None) -> Check:
    """Without it an engine in a container sees no GPU: `platform not detected`."""
    name = "nvidia runtime"
    if facts.engine != "docker" or facts.engine_trouble:
        return Check(name, "not applicable", "docker is not available")
    if not facts.gpus and not facts.device_files:
        return Check(name, "not applicable", "no NVIDIA GPU here")
    if facts.default_runtime == "nvidia":
        return Check(name, "ok", "docker's default")
    if "nvidia" not in facts.runtimes:
        remedy = (
            f"install the nvidia container toolkit (nvidia-ctk runtime configure --runtime=docker), then {_RUNTIME}"
        )
        status: DoctorStatus = "error" if server == "container" else "warning"
        return Check(name, status, f"docker does not know it, it has {', '.join(facts.runtimes) or 'none'}", remedy)
    return Check(name, "warning", f"known to docker, but its default is {facts.default_runtime}", _RUNTIME)


def engine_program(facts: DeviceFacts, server: str) -> Check:
    name = "engine"
    for program, there in facts.programs.items():
        if there:
            return Check(name, "ok", f"{program} is available")
        remedy = f"install it, name it (server.command: /where/it/is/{program} ...), or use a container"
        return Check(name, "error", f"{program} is not on the PATH", remedy)
    return Check(name, "ok", f"{server} needs no program of its own")


# -- reading ---------------------------------------------------------------------------------------------------


def _is_program(program: str) -> bool:
    """A program on the PATH, or a module of the Python found there: `python3 -m sglang`."""
    argv = program.split()
    if shutil.which(argv[0]) is None:
        return False
    if argv[1:2] != ["-m"]:
        return True
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({argv[2]!r}) is None)"
    return _output([argv[0], "-c", look], SAFE_PATH)[0] is not None


def _nvidia_smi() -> tuple[str | None, str | None, tuple[Gpu, ...]]:
    """Its error ("" for none, None if it is not installed), the driver, the GPUs."""
    if shutil.which("nvidia-smi") is None:
        return None, None, ()
    fields = "index,name,memory.used,memory.total,driver_version"
    output, trouble = _output(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    if output is None:
        return trouble, None, ()
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    rows = [row for row in rows if len(row) == 5 and row[0].isdigit()]
    gpus = tuple(Gpu(int(row[0]), row[1], _mib(row[2]), _mib(row[3])) for row in rows)
    return ("" if gpus else "it shows no GPU"), rows[0][4] if rows else None, gpus


def _mib(cell: str) -> float:
    try:
        return float(cell) * 2**20
    except ValueError:
        return 0.0  # `[N/A]` on boards that share the machine's memory


def _engine_info(engine: str) -> tuple[dict[str, Any], str | None]:
    output, trouble = _output([engine, "info", "--format", "{{json .}}"])
    if output is None:
        return {}, trouble
    try:
        info = json.loads(output)
    except ValueError:
        return {}, "its answer could not be read"
    if not isinstance(info, dict):
        return {}, "its answer could not be read"
    errors = info.get("ServerErrors") or []
    return info, str(errors[0]) if errors else None


def _configured_runtime(root: Path) -> str | None:
    try:
        config = json.loads((root / "etc/docker/daemon.json").read_text())
    except (OSError, ValueError):
        return None
    runtime = config.get("default-runtime") if isinstance(config, dict) else None
    return runtime if isinstance(runtime, str) else None


def _output(command: list[str], env: Mapping[str, str] | None = None) -> tuple[str | None, str | None]:
    """The output of a command, or the last line of its error."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {duration_text(COMMAND_TIMEOUT_S)}"
    except OSError as error:
        return None, error.strerror or str(error)
    if done.returncode == 0:
        return done.stdout, None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return None, (lines[-1].strip() if lines else f"exit status {done.returncode}")[:200]
