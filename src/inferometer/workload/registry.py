"""The workloads by the name that a plan gives them, imported on use."""

import secrets
from collections.abc import Callable
from importlib import import_module

from inferometer.errors import PlanError
from inferometer.plan import model
from inferometer.workload.session import Workload

WORKLOADS = {
    "synthetic": "inferometer.workload.synthetic:synthetic",
}


def workload_of(spec: model.Workload, seed: int, traffic: int, nonce: str) -> Workload:
    """What the plan asks to send: a function from the index of a session to the session."""
    place = WORKLOADS.get(spec.type)
    if place is None:
        raise PlanError(f"workload.type must be one of {', '.join(WORKLOADS)}, got {spec.type}")
    module, _, attribute = place.partition(":")
    make: Callable[[model.Workload, int, int, str], Workload] = getattr(import_module(module), attribute)
    return make(spec, seed, traffic, nonce)


def new_nonce() -> str:
    """What makes the prompts of a run new. It is kept with the run: two runs with one nonce share a tape."""
    return secrets.token_hex(8)
