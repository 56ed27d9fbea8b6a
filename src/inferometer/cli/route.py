"""`inferometer route`: the streaming proxy in front of several replicas, in the foreground."""

import signal
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import TERMINATED, echo, print_message
from inferometer.cli.options import duration_of, json_option, quiet_option

if TYPE_CHECKING:
    from inferometer.router.proxy import RouterProxy

EXAMPLES = """\b
Examples:
  inferometer route --policy prefix_aware --upstream http://gpu1:8000 --upstream http://gpu2:8000
  inferometer route --policy prefix_aware --set defaults=original --set imbalanced_threshold=5 \\
      --upstream a=http://localhost:8001 --upstream b=http://localhost:8002 --port 8000
      replicas with names, and settings of the policy
  curl -H 'X-Inferometer-Explain: 1' -i http://localhost:8000/v1/completions -d '{...}'
      why a request went where it went, in a header of the response; the latest in GET /router/decisions
"""


@click.command(epilog=EXAMPLES)
@click.option("--policy", metavar="NAME", default="power_of_two", show_default=True, help="How to choose a replica.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="A replica to send requests to. Repeatable; several may follow each other.",
)
@click.argument("more", nargs=-1, metavar="[[NAME=]URL]...")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port to listen on. [default: a free port]")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the policy. Repeatable.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of random choices.")
@click.option(
    "--max-in-flight",
    type=click.IntRange(min=1),
    metavar="N",
    help="Requests that a replica gets at once; more wait in the router. [default: no limit]",
)
@click.option(
    "--queue", "queue_limit", type=click.IntRange(min=0), metavar="N", help="Requests that may wait. [default: 1024]"
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Further replicas to try when one fails before the first byte. [default: 2]",
)
@click.option("--health-path", metavar="PATH", help="Path that a healthy replica answers. [default: /health]")
@click.option("--health-interval", metavar="TIME", help="Time between health checks. [default: 1s]")
@click.option("--ready", metavar="TIME", default="0s", help="Wait this long for the first replica.")
@click.option("--ca", "tls_ca", metavar="FILE", help="Certificate authorities of replicas behind https://.")
@click.option(
    "--insecure",
    "tls_verify",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not verify the certificates of replicas behind https://.",
)
@click.option("--drain", metavar="TIME", help="Time for requests in flight after Ctrl-C or SIGTERM. [default: 30s]")
@json_option
@quiet_option
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
    """Route requests over replicas of a server: a streaming HTTP proxy.

    Policies: random, round_robin, least_loaded, power_of_two, prefix_aware (Ray Serve), cache_aware (SGLang),
    block_prefix and prefix_affinity (llm-d), session_affinity. GET /metrics has the router's metrics, /router/state its
    replicas, /router/decisions its latest explained decisions. Ctrl-C or SIGTERM finishes the requests in flight.
    """
    from inferometer.router.serving import run_router
    from inferometer.router.settings import router_settings

    fields = _fields(policy, (*upstreams, *more), settings, options)
    checked = router_settings(fields)

    def note(text: str) -> None:
        if not quiet:
            print_message("note", text)

    def announce(router: "RouterProxy") -> None:
        _announce(router, host, as_json, note)

    ended = run_router(checked, host, port or 0, ready_s=duration_of("--ready", ready), on_ready=announce, notify=note)
    return TERMINATED if ended == signal.SIGTERM else 0


def _announce(router: "RouterProxy", host: str, as_json: bool, note: Any) -> None:
    """The URL comes last: a script that waits for it may go on."""
    url = f"http://[{host}]:{router.port}" if ":" in host else f"http://{host}:{router.port}"
    for upstream in router.upstreams:
        if not upstream.healthy:
            print_message("warning", f"{upstream.origin.url} is not ready: {upstream.reason}")
    note(f"routing to {len(router.upstreams)} replicas by {router.settings.policy}; Ctrl-C stops it")
    if as_json:
        import orjson

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
    """`name=url` or a URL, which is then its own name; without a scheme it is http."""
    name, equals, url = text.partition("=")
    if not equals or "/" in name or ":" in name:
        name, url = "", text
    url = url if "://" in url else f"http://{url}"
    return {"name": name or url.partition("://")[2].rstrip("/"), "url": url}


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set must be NAME=VALUE, got {text}")
    from inferometer.documents.yaml_text import plain  # numbers and true as in a plan

    return name, plain(value) if value else value
