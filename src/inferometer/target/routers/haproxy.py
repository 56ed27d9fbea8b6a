"""HAProxy in front of a fleet: round robin, least connections, random of two, or a hash of the session."""

from collections.abc import Sequence
from pathlib import Path

from inferometer.plan.fleet import Router
from inferometer.target.launch import Launch, Place
from inferometer.target.routers import READY_S, RouterEngine, authorities, policy_of

BALANCING = {
    "round_robin": "roundrobin",
    "least_loaded": "leastconn",
    "power_of_two": "random(2)",
    "random": "random(1)",
    "session_affinity": "hdr(x-session-id)",
}
CONFIGURATION = """global
  maxconn 8192
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 3600s
  timeout server 3600s
  timeout http-keep-alive 60s
  option http-keep-alive
  option http-no-delay
frontend all
  bind {host}:{port}
  default_backend replicas
backend replicas
  balance {balancing}
  hash-type consistent
  option httpchk GET /health
  http-reuse always
{servers}
"""


def launch(router: Router, place: Place, urls: Sequence[str], folder: Path) -> Launch:
    policy = policy_of(router, {name: name for name in BALANCING}, "least_loaded")
    servers = [f"  server replica-{at} {where} check inter 1s" for at, where in enumerate(authorities(urls), 1)]
    text = CONFIGURATION.format(
        host=place.host, port=place.port, balancing=BALANCING[policy], servers="\n".join(servers)
    )
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    program = router.command or ["haproxy"]
    return Launch(
        f"HAProxy ({policy})",
        place.url,
        [*program, "-db", "-f", str(file.absolute()), *router.flags],
        ready_s=READY_S,
        missing="apt install haproxy, or name its program in server.router.command",
    )


ROUTER = RouterEngine(launch=launch, title="HAProxy")
