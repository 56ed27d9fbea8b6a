"""How an application on Ray Serve is launched: by our driver, which connects to Ray or starts it."""

import msgspec

from inferometer.plan.model import Server
from inferometer.target.launch import Engine, Launch, LaunchPlace
from inferometer.target.ray_serve.settings import settings_of
from inferometer.target.routers import free_port
from inferometer.wire.child import SAFE_PATH, python_command

MODULE = "inferometer.target.ray_serve"


def launch(server: Server, place: LaunchPlace) -> Launch:
    """Its settings are checked here. A Ray that we start exports its metrics at a port that we choose; for a running
    Ray the plan names the address (`observe.metrics`)."""
    settings = settings_of(server, place.model)
    where = ["--host", place.host, "--port", str(place.port)]
    metrics: tuple[str, ...] = ()
    if settings.args.address is None:
        port = settings.args.metrics_port or free_port(place.host)
        where += ["--metrics-port", str(port)]
        metrics = (f"http://127.0.0.1:{port}/metrics",)
    settings_flag = ["--settings", msgspec.json.encode(settings).decode()]
    command = [*server.command, "-P", "-m", MODULE, *where, *settings_flag] if server.command else None
    return Launch(
        f"Ray Serve ({settings.policy})",
        place.url,
        command or python_command(MODULE, *where, *settings_flag),
        env=SAFE_PATH,
        names=[settings.model] if settings.model else [],
        health=("/health",) if settings.engine == "simulator" else ("/v1/models",),  # Ray's ingress has no /health
        held_by_stdin=True,
        engine="Ray Serve",
        first_query=True,
        metrics=metrics,
        missing="name the Python that has Ray and Inferometer: server.command=/where/it/is/python",
    )


ENGINE = Engine(launch=launch, title="Ray Serve")
