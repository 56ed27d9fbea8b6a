"""Routers and gateways for LLMs in front of a fleet: SGLang's and those that came from it, and LiteLLM."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import orjson

from inferometer.plan.server import Router
from inferometer.target.launch import Launch, LaunchPlace, Spelling, flags_of
from inferometer.target.routers import READY_S, RouterEngine, free_port, policy_of

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
        health=("/health", "/readiness"),  # smg answers the first ten seconds before it has registered its workers
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
UNKEYED = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # it would not start without a key, here too


def launch_litellm(router: Router, place: LaunchPlace, urls: Sequence[str], folder: Path) -> Launch:
    """Its configuration is YAML, which JSON is too."""
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
