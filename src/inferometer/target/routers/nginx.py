"""nginx in front of a fleet: round robin, least connections, or a hash of the session; knows nothing of prompts."""

from collections.abc import Sequence
from pathlib import Path

from inferometer.plan.fleet import Router
from inferometer.target.launch import Launch, Place
from inferometer.target.routers import READY_S, RouterEngine, authorities, policy_of

BALANCING = {  # its directive for each of our policies
    "round_robin": "",
    "least_loaded": "least_conn;",
    "power_of_two": "random two least_conn;",
    "random": "random;",
    "session_affinity": "hash $http_x_session_id consistent;",
}
CONFIGURATION = """worker_processes 1;
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


def launch(router: Router, place: Place, urls: Sequence[str], folder: Path) -> Launch:
    policy = policy_of(router, {name: name for name in BALANCING}, "least_loaded")
    servers = " ".join(f"server {authority};" for authority in authorities(urls))
    text = CONFIGURATION.format(
        folder=folder.absolute(), balancing=BALANCING[policy], servers=servers, host=place.host, port=place.port
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


ROUTER = RouterEngine(launch=launch, title="nginx")
