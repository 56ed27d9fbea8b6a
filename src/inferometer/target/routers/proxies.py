"""HTTP proxies in front of a fleet, which know nothing of prompts: nginx and HAProxy."""

from collections.abc import Sequence
from pathlib import Path

from inferometer.plan.server import Router
from inferometer.target.launch import Launch, LaunchPlace
from inferometer.target.routers import READY_S, RouterEngine, authorities, policy_of

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


def launch_nginx(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    policy = policy_of(router, {name: name for name in NGINX_BALANCING})
    servers = " ".join(f"server {authority};" for authority in authorities(urls))
    text = NGINX_CONFIGURATION.format(
        folder=folder.absolute(), balancing=NGINX_BALANCING[policy], servers=servers, host=place.host, port=place.port
    )
    file = folder / "nginx.conf"
    file.write_text(text, encoding="utf-8")
    program = router.command or ["nginx"]
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
    program = router.command or ["haproxy"]
    return Launch(
        f"HAProxy ({policy})",
        place.url,
        [*program, "-db", "-f", str(file.absolute()), *router.flags],
        ready_s=READY_S,
        missing="apt install haproxy, or name its program in server.router.command",
    )


HAPROXY = RouterEngine(launch=launch_haproxy, title="HAProxy")
