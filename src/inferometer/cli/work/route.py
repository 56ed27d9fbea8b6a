"""Serves a streaming proxy in front of several replicas."""

import signal
from typing import Any

import click
import orjson

from inferometer.cli.errors import TERMINATED, echo, print_message
from inferometer.cli.options import duration_of
from inferometer.documents.yaml_text import plain
from inferometer.router.proxy import RouterProxy
from inferometer.router.serving import run_router
from inferometer.router.settings import router_settings


def route(
    policy: str,
    upstreams: tuple[str, ...],
    more: tuple[str, ...],
    host: str,
    port: int | None,
    settings: tuple[str, ...],
    ready: str,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    fields = _fields(policy, (*upstreams, *more), settings, options)
    checked = router_settings(fields)

    def note(text: str) -> None:
        if not quiet:
            print_message("note", text)

    def announce(router: RouterProxy) -> None:
        _announce_router(router, host, as_json, note)

    ended = run_router(checked, host, port or 0, ready_s=duration_of("--ready", ready), on_ready=announce, notify=note)
    return TERMINATED if ended == signal.SIGTERM else 0


def _announce_router(router: RouterProxy, host: str, as_json: bool, note: Any) -> None:
    """Prints the URL last: scripts wait for it."""
    url = f"http://[{host}]:{router.port}" if ":" in host else f"http://{host}:{router.port}"
    for upstream in router.upstreams:
        if not upstream.healthy:
            print_message("warning", f"{upstream.origin.url} is not ready: {upstream.reason}")
    note(f"routing to {len(router.upstreams)} replicas by {router.settings.policy}; Ctrl-C stops it")
    if as_json:
        echo(orjson.dumps({"url": url, "port": router.port, "policy": router.settings.policy}).decode())
    else:
        echo(url)


def _fields(
    policy: str, upstreams: tuple[str, ...], settings: tuple[str, ...], options: dict[str, Any]
) -> dict[str, Any]:
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for option, name in (("health_interval", "health_interval_s"), ("drain", "drain_s")):
        if option in fields:
            fields[name] = duration_of(f"--{option.replace('_', '-')}", fields.pop(option))
    return fields | {
        "policy": policy,
        "settings": dict(_setting(text) for text in settings),
        "upstreams": [_upstream(text) for text in upstreams],
    }


def _upstream(text: str) -> dict[str, str]:
    """Parses `name=url`, or a URL, which is then also the name; the default scheme is http."""
    name, equals, url = text.partition("=")
    if not equals or "/" in name or ":" in name:
        name, url = "", text
    url = url if "://" in url else f"http://{url}"
    return {"name": name or url.partition("://")[2].rstrip("/"), "url": url}


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set must be NAME=VALUE, got {text}")

    return name, plain(value) if value else value
