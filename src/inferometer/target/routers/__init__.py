"""The routers that can be in front of a fleet, one file for each or for those alike. `plan.server` names them."""

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
    """A type of router: how it is launched at a place, over the URLs of replicas. Its files go to the folder."""

    launch: Callable[[Router, LaunchPlace, Sequence[str], Path], Launch]
    title: str  # as people call it


def policy_of(router: Router, own_names: Mapping[str, str]) -> str:
    """What another router calls the policy: by our name or by its own."""
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
    """For what a router listens on beside its own port; somebody may take it until then, which the router then says."""
    with socket.socket() as tried:
        tried.bind((host if host not in ("", "0.0.0.0") else "127.0.0.1", 0))
        return int(tried.getsockname()[1])
