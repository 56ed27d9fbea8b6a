"""Our own router in front of a fleet (`inferometer.router`)."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from inferometer.plan.server import Router
from inferometer.router.settings import check_policy, router_settings
from inferometer.target.launch import Launch, LaunchPlace
from inferometer.target.routers import READY_S, RouterEngine
from inferometer.wire.child import python_command


def launch(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    """Its settings are checked here, so that a mistake in them is reported as an error of the plan."""
    fields = {
        **router.args,
        "policy": router.fleet_policy,
        "settings": router.settings,
        "seed": router.seed,
        "upstreams": [{"name": f"replica-{at}", "url": url} for at, url in enumerate(urls, 1)],
    }
    if router.max_in_flight is not None:
        fields["max_in_flight"] = router.max_in_flight
    check_policy(router)
    router_settings(fields)
    where = ["--host", place.host, "--port", str(place.port), "--ready", f"{READY_S:g}", "--until-stdin-closes"]
    return Launch(
        f"the router ({router.fleet_policy})",
        place.url,
        python_command("inferometer.router", *where, "--settings", orjson.dumps(fields).decode()),
        ready_s=READY_S,
        held_by_stdin=True,
    )


ROUTER = RouterEngine(launch=launch, title="our router")
