"""What the observer of a run is told to watch: made from the plan, sent to its process."""

import ipaddress
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from inferometer.observe.visible import visible_gpus
from inferometer.wire.origin import Trust

if TYPE_CHECKING:  # the observer's process has no use for the plan, and pydantic takes 0.2 s
    from inferometer.plan.model import Plan


class MetricsPlace(msgspec.Struct, frozen=True):
    """A Prometheus endpoint; `ours` is one that nobody named, whose absence is no news."""

    url: str
    source: str = ""  # the URL as samples show it, without secrets
    ours: bool = False
    headers: dict[str, str] = {}


class ObserverJob(msgspec.Struct, frozen=True):
    """All that the observer's process needs to know; it comes on its stdin, for headers may hold keys."""

    log: str
    interval_s: float = 1.0
    host: bool = True
    gpu: bool = False
    gpus: list[int] | None = None  # None: all
    gpu_wanted: bool = False  # asked for, so that its absence is worth a word
    metrics: list[MetricsPlace] = []
    tls: Trust = (True, None, None, None)
    proxy: str | None = None
    hidden: list[str] = []  # secrets that an endpoint may echo


def job_of(plan: "Plan", urls: Sequence[str], headers: Mapping[str, str], log: Path) -> ObserverJob | None:
    """The observer's job for a plan whose target answers at `urls`; None where nothing is to be watched."""
    from inferometer.plan.known_secrets import redactor_of

    observe = plan.observe
    if observe.nothing:
        return None
    gpus = observe.gpu if isinstance(observe.gpu, list) else _of_server(plan)
    return ObserverJob(
        log=str(log),
        interval_s=observe.interval,
        host=observe.host,
        gpu=_gpu_is_watched(plan, urls, gpus),
        gpus=gpus,
        gpu_wanted=observe.gpu != "auto",
        metrics=_places(plan, urls, headers),
        tls=plan.target.tls.trust,
        proxy=plan.target.proxy,
        hidden=sorted(redactor_of(plan).secrets),
    )


def _gpu_is_watched(plan: "Plan", urls: Sequence[str], gpus: list[int] | None) -> bool:
    """By itself only where its GPUs can be the ones that serve: not for the simulator, not for another machine."""
    if plan.observe.gpu != "auto":
        return plan.observe.gpu != "off"
    return gpus != [] and any(map(is_here, urls))


def _of_server(plan: "Plan") -> list[int] | None:
    """Those that a server of ours is shown: the power of the others is no part of what its tokens took."""
    server = plan.server
    if plan.observe.gpu != "auto" or server is None or server.type == "external":
        return None
    shown = visible_gpus(server, {**os.environ, **server.env})
    return None if shown is None or not all(each.isdigit() for each in shown) else [int(each) for each in shown]


def is_here(url: str) -> bool:
    """Whether a URL leads to this machine."""
    host = (urlsplit(url).hostname or "").lower()
    if host in {"localhost", platform.node().lower()}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _places(plan: "Plan", urls: Sequence[str], headers: Mapping[str, str]) -> list[MetricsPlace]:
    """The target's headers, with its key, go to the target's hosts only."""
    from inferometer.plan.secrets import redacted_url

    chosen = plan.observe.metrics
    ours = chosen == "auto"
    places = [f"{url}/metrics" for url in dict.fromkeys(urls)] if ours else [] if chosen == "off" else chosen
    hosts = {urlsplit(url).netloc for url in urls}
    return [
        MetricsPlace(url, redacted_url(url), ours, dict(headers) if urlsplit(url).netloc in hosts else {})
        for url in places
    ]
