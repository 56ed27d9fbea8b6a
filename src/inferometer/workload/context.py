"""What a workload may want to know of the target: its model, where it is, how long its context is."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from inferometer.plan.secrets import key_of, resolve_headers
from inferometer.plan.target import Target, Tls


def _nobody(_text: str) -> None:
    """Where nobody listens."""


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """All of it may be missing: a rehearsal has no server. `note` tells a person something once, before the load."""

    model: str | None = None
    models: tuple[str, ...] = ()  # all that are served, where the server lists them
    api: str = "completions"
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Tls = field(default_factory=Tls)
    proxy: str | None = field(default=None, repr=False)
    max_model_len: int | None = None
    note: Callable[[str], None] = _nobody
    keep_words: bool = False  # whoever reads the prompts wants their words one by one


NOWHERE = WorkloadContext()


def context_of(
    target: Target,
    model: str | None = None,
    models: Sequence[str] = (),
    max_model_len: int | None = None,
    note: Callable[[str], None] = _nobody,
) -> WorkloadContext:
    """The context of a plan's target, with what was found out about it."""
    headers = resolve_headers(target.headers, os.environ)
    key = key_of(target, os.environ)
    if key and "authorization" not in {name.lower() for name in headers}:
        headers["Authorization"] = f"Bearer {key}"
    url = target.url[0] if target.url else None
    return WorkloadContext(
        model, tuple(models), target.api, url, headers, target.tls, target.proxy, max_model_len, note
    )
