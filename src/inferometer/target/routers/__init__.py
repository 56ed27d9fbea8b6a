"""The routers available for a fleet, one file for each or for similar ones. `plan.server` names them."""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.plan.server import Router
from inferometer.target.launch import Launch, LaunchPlace

READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterEngine:
    """A type of router: how it is launched in front of the URLs of replicas. Its files are written to the folder."""

    launch: Callable[[Router, LaunchPlace, Sequence[str], Path], Launch]
    title: str  # name used in messages


def policy_of(router: Router, own_names: Mapping[str, str]) -> str:
    """Another router's name for the policy: translated from ours, or given in its own terms."""
    policy = router.fleet_policy
    if policy in own_names.values():
        return policy
    if policy not in own_names:
        choices = ", ".join(dict.fromkeys([*own_names, *own_names.values()]))
        raise PlanError(f"server.router.policy of {router.type} must be one of {choices}, got {policy}")
    return own_names[policy]


def authorities(urls: Sequence[str]) -> list[str]:
    """`host:port` of every replica."""
    return [url.partition("://")[2].rstrip("/") for url in urls]


def free_port(host: str) -> int:
    """A port that a router listens on besides its own; if another process takes it first, the router reports that."""
    with socket.socket() as tried:
        tried.bind((host if host not in ("", "0.0.0.0") else "127.0.0.1", 0))
        return int(tried.getsockname()[1])
