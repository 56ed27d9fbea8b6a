"""Where a run was made: the machine, the system, the versions and the target, so that two runs can be distinguished.

It contains no secrets: no environment variables, and the command line without values that look like secrets.
"""

import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from itertools import pairwise
from pathlib import Path

from msgspec import structs

from inferometer.observe import gpu
from inferometer.observe import gpu as nvidia_smi
from inferometer.plan.model import Plan
from inferometer.plan.redactor import REDACTED
from inferometer.plan.secrets import is_secret, redacted_text, redacted_url, redactor_of
from inferometer.record.encoding import with_texts
from inferometer.record.environment import (
    OBSERVED,
    Environment,
    GitState,
    GpuDriver,
    Machine,
    MeasuredTarget,
    PythonVersion,
    System,
)

GIT_S = 2.0
_GIT_READ_ONLY = {  # prevents writing and fetching
    "GIT_OPTIONAL_LOCKS": "0",  # nothing is written into the checkout
    "GIT_ALLOW_PROTOCOL": "none",  # missing objects of a partial clone are not fetched
    "GIT_NO_LAZY_FETCH": "1",
}
_NO_PROGRAMS = {"core.fsmonitor": "false", "core.hooksPath": os.devnull}
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}
_PACKAGES = ("numpy", "msgspec", "orjson", "pydantic", "pyarrow")
_INNER = re.compile(
    r"""(?P<head>(?P<quote>["']?)(?P<name>[\w.-]+)(?P=quote)\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^\s,}\]{[]+)"""
)
_SETTING = re.compile(r"(?P<name>[\w.\-]+)\s*[=:]\s*(?P<value>.+)", re.DOTALL)


def environment(plan: Plan, target: MeasuredTarget | None = None) -> Environment:
    """Everything known without network requests, and what the target reported about itself."""
    known = Environment(
        names=OBSERVED,
        inferometer=_version("inferometer"),
        command=command_line(sys.argv),
        machine=machine(),
        gpu=gpu_facts(),
        system=system(),
        python=python(),
        git=git_state(Path.cwd()),
        workers=plan.workers,
        target=structs.replace(target, urls=[redacted_url(url) for url in target.urls]) if target else None,
    )
    return with_texts(known, redactor_of(plan).hide_within)


def machine() -> Machine:
    return Machine(
        host=platform.node(),
        architecture=platform.machine(),
        cpu=cpu_model(),
        cores=os.cpu_count(),
        usable_cores=usable_cores(),
        cpu_limit=cpu_limit(),
        memory_bytes=_memory_bytes(),
        memory_limit_bytes=memory_limit(),
        hypervisor=hypervisor(),
        load_1min=_load(),
    )


def system() -> System:
    return System(
        name=platform.system(),
        kernel=platform.release(),
        distribution=_distribution(),
        container=container(),
        clock_source=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        clock_resolution_s=time.get_clock_info("monotonic").resolution,
        open_files_limit=_open_files_limit(),
        local_ports=_read("/proc/sys/net/ipv4/ip_local_port_range"),
        frequency_governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    )


def python() -> PythonVersion:
    return PythonVersion(
        version=platform.python_version(),
        implementation=platform.python_implementation(),
        packages={name: _version(name) for name in _PACKAGES},
    )


def command_line(arguments: Sequence[str]) -> str:
    """The command as typed, with secrets replaced by stars: `--set target.headers.x-api-key=***`."""
    args = [Path(arguments[0]).name] if arguments else []
    args += [_harmless(argument, before) for before, argument in pairwise(arguments)]
    return shlex.join(args)


def _harmless(argument: str, before: str) -> str:
    if is_secret(before.lstrip("-")):
        return REDACTED
    argument = re.sub(r"\w+://\S+", lambda url: redacted_url(url[0]), argument)
    match = _SETTING.fullmatch(argument.lstrip("-"))
    if match is not None and is_secret(match["name"].rpartition(".")[2]):
        return argument[: len(argument) - len(match["value"])] + REDACTED
    return (
        _INNER.sub(_starred_field, redacted_text(argument)) if re.search(r"[{[]", argument) else redacted_text(argument)
    )


def _starred_field(match: re.Match[str]) -> str:
    """A secret inside a mapping: `--set 'target.headers={x-api-key: ***}'`."""
    return match["head"] + REDACTED if is_secret(match["name"]) else match[0]


def cpu_model() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model", "Hardware"}:
            return value.strip()
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"])
    return platform.processor() or None


def usable_cores() -> int | None:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def cpu_limit() -> float | None:
    """The control group's CPU limit in cores; None if there is no limit."""
    quota, _, period = (_read("/sys/fs/cgroup/cpu.max") or "").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        return int(quota) / int(period)
    old_quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or ""
    old_period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or ""
    return int(old_quota) / int(old_period) if old_quota.isdigit() and old_period.isdigit() else None


def memory_limit() -> int | None:
    """The control group's memory limit; None if there is no limit."""
    limit = _read("/sys/fs/cgroup/memory.max") or _read("/sys/fs/cgroup/memory/memory.limit_in_bytes") or ""
    return int(limit) if limit.isdigit() and int(limit) < 1 << 60 else None  # cgroup v1: a huge value means none


def hypervisor() -> str | None:
    """The hypervisor of a virtual machine: it may take cores away."""
    parts = (_read("/proc/cpuinfo") or "").split("\nflags")[1:2]
    if not any("hypervisor" in part.partition("\n")[0].split() for part in parts):
        return None
    return _read("/sys/class/dmi/id/sys_vendor") or "unknown"


def gpu_facts() -> GpuDriver | None:
    """The GPUs of this machine and their driver; None if there are none."""
    if not Path("/dev/nvidiactl").exists() and shutil.which(nvidia_smi.COMMAND) is None:
        return gpu.amd_smi_facts()
    return gpu.gpu_facts() or nvidia_smi.nvidia_smi_facts() or gpu.amd_smi_facts()


def container() -> str | None:
    """The kind of container this seems to be; None if none."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    groups = _read("/proc/1/cgroup") or ""
    return next((kind for kind in ("docker", "kubepods", "containerd", "lxc") if kind in groups), None)


def git_state(folder: Path) -> GitState | None:
    """The commit of the working folder and whether it was changed; None outside of a checkout.

    A checkout's own `.git/config` may name programs (fsmonitor, filters, hooks, transports) that `git status` would
    run. They are disabled, in the same way as modules of the working folder are not imported.
    """
    commit = _git(folder, _NO_PROGRAMS, "rev-parse", "HEAD")
    if commit is None:
        return None
    return GitState(commit=commit, changed=_is_changed(folder))


def _is_changed(folder: Path) -> bool | None:
    """None if git is older than 2.26, which cannot list where a filter is configured."""
    named = "^(core[.]fsmonitor|filter[.].*[.](clean|smudge|process))$"  # the first, ours, always gives a result
    listed = _git(folder, _NO_PROGRAMS, "config", "--show-scope", "--name-only", "-z", "--get-regexp", named)
    if listed is None:
        return None
    fields = listed.split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)  # the last field is empty
    own = {name.rpartition(".")[0] for scope, name in pairs if scope in ("local", "worktree")}
    filters = {name for name in own if name.startswith("filter.")}
    if any("=" in name for name in filters):  # `git -c` cannot set it
        return None
    settings = _NO_PROGRAMS | {f"{name}.{setting}": value for name in filters for setting, value in _NO_FILTER.items()}
    changes = _git(folder, settings, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return None if changes is None else bool(changes)


def _git(folder: Path, settings: Mapping[str, str], *words: str) -> str | None:
    """The output of git with some of the checkout's settings overridden."""
    options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
    return _output(["git", "-C", str(folder), *options, *words], {**os.environ, **_GIT_READ_ONLY})


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return platform.mac_ver()[0] or None


def _open_files_limit() -> int | None:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


@cache
def _version(package: str) -> str | None:
    """Reads the head of the metadata: `version` parses all of it as an e-mail, 0.5 ms for each package."""
    try:
        head = (distribution(package).read_text("METADATA") or "").partition("\n\n")[0]
        written = next((line for line in head.splitlines() if line.startswith("Version:")), None)
        return written.removeprefix("Version:").strip() if written else version(package)
    except PackageNotFoundError:
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def _output(command: list[str], environ: Mapping[str, str] | None = None) -> str | None:
    """The output of a command; None if it does not exist, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True, env=environ)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
