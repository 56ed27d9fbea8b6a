"""LiteLLM's proxy in front of a fleet. It needs the name of the model, and answers under it."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from inferometer.plan.fleet import Router
from inferometer.target.launch import Launch, Place
from inferometer.target.routers import RouterEngine, policy_of

POLICIES = {"random": "simple-shuffle", "least_loaded": "least-busy", "latency": "latency-based-routing"}
READY_S = 120.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNKEYED = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # it would not start without a key, here too


def launch(router: Router, place: Place, urls: Sequence[str], folder: Path) -> Launch:
    """Its configuration is YAML, which JSON is too."""
    policy = policy_of(router, POLICIES, "least-busy")
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
        ready_s=READY_S,
        missing="pip install 'litellm[proxy]' in its own environment, and name its program in server.router.command",
    )


ROUTER = RouterEngine(launch=launch, title="LiteLLM")
