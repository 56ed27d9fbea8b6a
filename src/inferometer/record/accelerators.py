"""The accelerators that a run was made on, as its environment tells of them."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

SIMULATED = ("simulator", "inferometer")  # by which the simulator shows itself


def accelerators(environment: Mapping[str, Any]) -> list[str]:
    """Their names, one per device: those that were said of the target (`gpus`), else those of this machine (`gpu`),
    which are the target's only where it is here."""
    machine = _section(environment, "machine")
    said = environment.get("gpus") or environment.get("accelerators") or machine.get("gpus")
    if said is None and _serves_here(environment):
        said = _section(environment, "gpu").get("gpus")
    if said is None:
        return []
    return [_name(each) for each in (said if isinstance(said, list) else [said])]


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _serves_here(environment: Mapping[str, Any]) -> bool:
    """An offline engine has no address; the simulator uses none of the GPUs."""
    target, here = _section(environment, "target"), _section(environment, "machine").get("host")
    if target.get("server") in SIMULATED or target.get("engine") in SIMULATED:
        return False
    hosts = [host_of(str(url)) for url in target.get("urls") or []]
    return all(is_loopback(host) or host == here for host in hosts)


def _name(gpu: Any) -> str:
    return str(gpu.get("name") or gpu.get("model") or "?") if isinstance(gpu, Mapping) else str(gpu)


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}
