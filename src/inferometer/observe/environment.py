"""Where a run was made: the machine, the system, the versions and the target, so that two runs can be told apart.

Nothing secret is in it: no environment variables, and the command line without values that look like a secret.
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
from dataclasses import asdict, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

from inferometer.observe import gpu
from inferometer.observe import gpu as nvidia_smi
from inferometer.plan.known_secrets import redactor_of
from inferometer.plan.model import Plan
from inferometer.plan.redactor import REDACTED
from inferometer.plan.secrets import is_secret, redacted_text, redacted_url

GIT_S = 2.0
_PACKAGES = ("numpy", "msgspec", "orjson", "pydantic", "pyarrow")
_INNER = re.compile(
    r"""(?P<head>(?P<quote>["']?)(?P<name>[\w.-]+)(?P=quote)\s*:\s*)(?P<value>"[^"]*"|'[^']*'|[^\s,}\]{[]+)"""
)
_SETTING = re.compile(r"(?P<name>[\w.\-]+)\s*[=:]\s*(?P<value>.+)", re.DOTALL)


def environment(plan: Plan, facts: object = None) -> dict[str, Any]:
    """All that is known without asking anybody; `facts` (fields or a mapping) are what the target said."""
    known: dict[str, Any] = {
        "inferometer": _version("inferometer"),
        "command": command_line(sys.argv),
        "machine": machine(),
        "gpu": gpu_facts(),
        "system": system(),
        "python": python(),
        "git": git_state(Path.cwd()),
        "workers": plan.workers,
        "target": _target(facts),
    }
    hidden: dict[str, Any] = redactor_of(plan).hide_within(known)
    return hidden


def _target(facts: object) -> dict[str, Any] | None:
    if is_dataclass(facts) and not isinstance(facts, type):
        facts = asdict(facts)
    if not isinstance(facts, Mapping):
        return None
    return {**facts, "urls": [redacted_url(url) for url in facts.get("urls", [])]}


def machine() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "cpu_limit": cpu_limit(),
        "memory_bytes": _memory_bytes(),
        "memory_limit_bytes": memory_limit(),
        "hypervisor": hypervisor(),
        "load_1min": _load(),
    }


def system() -> dict[str, Any]:
    return {
        "name": platform.system(),
        "kernel": platform.release(),
        "distribution": _distribution(),
        "container": container(),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "clock_resolution_s": time.get_clock_info("monotonic").resolution,
        "open_files_limit": _open_files_limit(),
        "local_ports": _read("/proc/sys/net/ipv4/ip_local_port_range"),
        "frequency_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def python() -> dict[str, Any]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def command_line(arguments: Sequence[str]) -> str:
    """The command as it was typed, with secrets starred: `--set target.headers.x-api-key=***`."""
    words = [Path(arguments[0]).name] if arguments else []
    words += [_harmless(each, before) for before, each in pairwise(arguments)]
    return shlex.join(words)


def _harmless(word: str, before: str) -> str:
    if is_secret(before.lstrip("-")):
        return REDACTED
    word = re.sub(r"\w+://\S+", lambda url: redacted_url(url[0]), word)
    match = _SETTING.fullmatch(word.lstrip("-"))
    if match is not None and is_secret(match["name"].rpartition(".")[2]):
        return word[: len(word) - len(match["value"])] + REDACTED
    return _INNER.sub(_starred_field, redacted_text(word)) if re.search(r"[{[]", word) else redacted_text(word)


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
    """Cores' worth of time that the control group grants; None when there is no limit."""
    quota, _, period = (_read("/sys/fs/cgroup/cpu.max") or "").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        return int(quota) / int(period)
    old_quota = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or ""
    old_period = _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or ""
    return int(old_quota) / int(old_period) if old_quota.isdigit() and old_period.isdigit() else None


def memory_limit() -> int | None:
    """What the control group grants; None when there is no limit."""
    limit = _read("/sys/fs/cgroup/memory.max") or _read("/sys/fs/cgroup/memory/memory.limit_in_bytes") or ""
    return int(limit) if limit.isdigit() and int(limit) < 1 << 60 else None  # the old kind says no limit as a huge one


def hypervisor() -> str | None:
    """What this machine runs on where it is a virtual one: its cores may be taken away."""
    words = (_read("/proc/cpuinfo") or "").split("\nflags")[1:2]
    if not any("hypervisor" in each.partition("\n")[0].split() for each in words):
        return None
    return _read("/sys/class/dmi/id/sys_vendor") or "unknown"


def gpu_facts() -> dict[str, Any] | None:
    """The GPUs of this machine and their driver; None where there are none."""
    if not Path("/dev/nvidiactl").exists() and shutil.which(nvidia_smi.COMMAND) is None:
        return None
    return gpu.gpu_facts() or nvidia_smi.nvidia_smi_facts()


def container() -> str | None:
    """What kind of container this looks like; None when like none."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    groups = _read("/proc/1/cgroup") or ""
    return next((kind for kind in ("docker", "kubepods", "containerd", "lxc") if kind in groups), None)


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit of the working folder and whether it was changed; None outside of a checkout."""
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if commit is None:
        return None
    changes = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "changed": None if changes is None else bool(changes)}


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
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def _output(command: list[str]) -> str | None:
    """What a command prints; None when there is no such command, or it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
