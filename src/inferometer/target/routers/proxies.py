"""HTTP proxies in front of a fleet, which ignore prompts: nginx and HAProxy."""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import orjson

from inferometer.plan.server import Router
from inferometer.target.launch import Launch, LaunchPlace, Spelling, flags_of
from inferometer.target.routers import READY_S, RouterEngine, authorities, free_port, policy_of

NGINX_BALANCING = {  # its directive for each of our policies
    "round_robin": "",
    "least_loaded": "least_conn;",
    "power_of_two": "random two least_conn;",
    "random": "random;",
    "session_affinity": "hash $http_x_session_id consistent;",
}
NGINX_CONFIGURATION = """worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  client_body_temp_path {folder}/nginx-temp; proxy_temp_path {folder}/nginx-temp; fastcgi_temp_path {folder}/nginx-temp;
  uwsgi_temp_path {folder}/nginx-temp; scgi_temp_path {folder}/nginx-temp;
  upstream replicas {{ {balancing} {servers} keepalive 512; }}
  server {{
    listen {host}:{port};
    keepalive_requests 1000000;
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 3600s;
    }}
  }}
}}
"""


SYSTEM_PATH = "/usr/sbin:/usr/local/sbin"  # both are there on Debian, and not in users' PATH


def _installed(name: str) -> str:
    """The program's path if it is only in the system's folders, else its name."""
    return name if shutil.which(name) else shutil.which(name, path=SYSTEM_PATH) or name


def launch_nginx(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    policy = policy_of(router, {name: name for name in NGINX_BALANCING})
    servers = " ".join(f"server {authority};" for authority in authorities(urls))
    text = NGINX_CONFIGURATION.format(
        folder=folder.absolute(), balancing=NGINX_BALANCING[policy], servers=servers, host=place.host, port=place.port
    )
    file = folder / "nginx.conf"
    file.write_text(text, encoding="utf-8")
    program = router.command or [_installed("nginx")]
    return Launch(
        f"nginx ({policy})",
        place.url,
        [*program, "-p", str(folder.absolute()), "-c", str(file.absolute()), *router.flags],
        ready_s=READY_S,
        missing="apt install nginx, or name its program in server.router.command",
    )


NGINX = RouterEngine(launch=launch_nginx, title="nginx")


HAPROXY_BALANCING = {
    "round_robin": "roundrobin",
    "least_loaded": "leastconn",
    "power_of_two": "random(2)",
    "random": "random(1)",
    "session_affinity": "hdr(x-session-id)",
}
HAPROXY_CONFIGURATION = """global
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


def launch_haproxy(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    policy = policy_of(router, {name: name for name in HAPROXY_BALANCING})
    servers = [f"  server replica-{at} {where} check inter 1s" for at, where in enumerate(authorities(urls), 1)]
    text = HAPROXY_CONFIGURATION.format(
        host=place.host, port=place.port, balancing=HAPROXY_BALANCING[policy], servers="\n".join(servers)
    )
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    program = router.command or [_installed("haproxy")]
    return Launch(
        f"HAProxy ({policy})",
        place.url,
        [*program, "-db", "-f", str(file.absolute()), *router.flags],
        ready_s=READY_S,
        missing="apt install haproxy, or name its program in server.router.command",
    )


HAPROXY = RouterEngine(launch=launch_haproxy, title="HAProxy")


# -- gateways of models ------------------------------------------------------------------------------------------------

# Routers and gateways for LLMs in front of a fleet: SGLang's and its derivatives, and LiteLLM.

POLICIES = {
    "random": "random",
    "round_robin": "round_robin",
    "power_of_two": "power_of_two",
    "cache_aware": "cache_aware",
}
OF_VLLM = POLICIES | {"session_affinity": "consistent_hash"}
OF_SMG = POLICIES | {"session_affinity": "consistent_hashing", "least_loaded": "least_load"}


def launch(
    program: Sequence[str],
    names: Mapping[str, str],
    router: Router,
    place: LaunchPlace,
    urls: Sequence[str],
    folder: Path,
) -> Launch:
    policy = policy_of(router, names)
    where = ["--host", place.host, "--port", str(place.port)]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port("127.0.0.1"))]
    own = ["--policy", policy, *flags_of(router.args, Spelling()), *router.flags]
    argv = [*(router.command or program[:1]), *program[1:], *where, "--worker-urls", *urls, *metrics, *own]
    return Launch(
        f"{program[0]} ({policy})",
        place.url,
        argv,
        health=("/health", "/readiness"),  # smg answers for ten seconds before it has registered its workers
        models=None,
        lenient=True,  # vllm-router has no /readiness
        ready_s=READY_S,
        missing=f"pip install {program[0]} in an environment of its own, and name its program in server.router.command",
    )


VLLM_ROUTER = RouterEngine(launch=partial(launch, ("vllm-router",), OF_VLLM), title="vllm-router")
SGLANG_ROUTER = RouterEngine(launch=partial(launch, ("sglang-router", "launch"), POLICIES), title="sglang-router")
SMG = RouterEngine(launch=partial(launch, ("smg", "launch"), OF_SMG), title="smg")


LITELLM_POLICIES = {"random": "simple-shuffle", "least_loaded": "least-busy", "latency": "latency-based-routing"}
LITELLM_READY_S = 120.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNKEYED = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # required to start without a key


def launch_litellm(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    """Its configuration is YAML, of which JSON is a subset."""
    policy = policy_of(router, LITELLM_POLICIES)
    model = place.model or "model"
    models = [
        {
            "model_name": model,
            "litellm_params": {"model": f"hosted_vllm/{model}", "api_base": f"{url}/v1", "api_key": "none"},
        }
        for url in urls
    ]
    settings = {"model_list": models, "router_settings": {"routing_strategy": policy, "num_retries": 0} | router.args}
    file = folder / "litellm.yaml"
    file.write_bytes(orjson.dumps(settings, option=orjson.OPT_INDENT_2))
    program = router.command or ["litellm"]
    where = ["--host", place.host, "--port", str(place.port)]
    return Launch(
        f"LiteLLM ({policy})",
        place.url,
        [*program, "--config", str(file.absolute()), *where, *router.flags],
        env=UNKEYED if place.host in LOOPBACK else {},
        health=("/health/liveliness",),
        models=None,
        ready_s=LITELLM_READY_S,
        missing="pip install 'litellm[proxy]' in its own environment, and name its program in server.router.command",
    )


LITELLM = RouterEngine(launch=launch_litellm, title="LiteLLM")
