"""SGLang's router and those that came from it, vllm-router and smg: the same flags, different programs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from inferometer.plan.fleet import Router
from inferometer.target.launch import Launch, Place, Spelling, flags_of
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
    place: Place,
    urls: Sequence[str],
    folder: Path,
) -> Launch:
    policy = policy_of(router, names, "cache_aware")
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
