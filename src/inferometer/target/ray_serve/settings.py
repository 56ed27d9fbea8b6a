"""The driver's settings, passed as one JSON document on its command line."""

import math
import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server
from inferometer.plan.server import RAY_POLICY, Router
from inferometer.record.environment import is_loopback
from inferometer.router.policies.prefix import PrefixAwareSettings
from inferometer.router.policy import checked_settings, wrong_setting
from inferometer.simulator.settings import settings_from

MADE_FOR = "2.60.0"  # the tested version, as its routers are not a public interface
OLDEST = (2, 49)  # the first with request_router_kwargs and the prefix-aware router
METRICS_INTERVAL_MS = 100  # Ray's default of 10 s would miss the end of a run
NO_LIMIT = 1_000_000  # requests in flight; Serve's default is 5
SERVED_AS = ("served-model-name", "served_model_name")  # in vLLM's arguments; Ray uses model_id
_Millis = Annotated[int, msgspec.Meta(ge=10, le=600_000)]


class RayPolicy(NamedTuple):
    """One of Ray's request routers: its original class, and our class that records its decisions."""

    as_it_is: str
    recorded: str


_RAY, _HERE = "ray.llm._internal.serve.routing_policies.prefix_aware", "inferometer.target.ray_serve.recording"
POLICIES = {  # by our names
    "power_of_two": RayPolicy(
        "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter", f"{_HERE}:RecordedPowerOfTwo"
    ),
    "prefix_aware": RayPolicy(f"{_RAY}.prefix_aware_router:PrefixCacheAffinityRouter", f"{_HERE}:RecordedPrefixAware"),
}


class RayArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`server.args` of a plan."""

    address: str | None = None  # of a running Ray: `auto` or host:port; None starts one here
    app: str = "inferometer"  # name of the application
    metrics_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None  # of a Ray that is started here
    metrics_interval_ms: _Millis = METRICS_INTERVAL_MS
    stream_interval_ms: Annotated[float, msgspec.Meta(ge=0)] = (
        50.0  # tokens within this time are sent together, as in Ray's LLM apps
    )
    record: bool = True  # record the router's decisions
    record_text: bool = False  # including the prompts, for a replay
    cpus_per_replica: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # that Ray reserves for a simulator
    accelerator_type: str | None = None  # vLLM: such as L4
    llm_config: dict[str, Any] = {}  # vLLM: additional fields of Ray's LLMConfig, such as placement_group_config


class RayServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The application: its replicas, and which of Ray's routers is used."""

    args: RayArgs
    engine: Literal["simulator", "vllm"]
    engine_args: dict[str, Any]  # simulator: its settings; vLLM: its engine arguments
    replicas: int
    policy: str
    router_kwargs: dict[str, Any]
    seed: int
    max_in_flight: int
    model: str  # served name
    source: str  # vLLM: location of the weights


def settings_of(server: Server, model: str | None) -> RayServeSettings:
    """From the plan's server, with `model` if its replicas name none; mistakes are reported before anything starts."""
    of, router = server.of or Server(), server.router or Router()
    try:
        args = msgspec.convert(server.args, RayArgs)
    except msgspec.ValidationError as error:
        raise PlanError(wrong_setting("server.args of ray-serve", RayArgs, server.args, error)) from None
    if of.type not in ("simulator", "vllm"):
        raise PlanError(f"server.of.type of ray-serve must be simulator or vllm, got {of.type}")
    _check_replica(of)
    engine_args = dict(of.args)
    if of.type == "simulator":
        engine_args |= {"model": of.model} if of.model else {}
        served = source = settings_from(engine_args, "server.of.args").model
    else:
        source = of.model or model or ""
        source = str(Path(source).expanduser()) if source.startswith("~") else source
        named = [engine_args.pop(name) for name in SERVED_AS if name in engine_args]
        served = str(named[0]) if named else source
    return RayServeSettings(
        args=args,
        engine="simulator" if of.type == "simulator" else "vllm",
        engine_args=engine_args,
        replicas=server.replicas or 1,
        policy=_policy(router),
        router_kwargs=_router_kwargs(router),
        seed=router.seed,
        max_in_flight=router.max_in_flight or NO_LIMIT,
        model=served,
        source=source,
    )


def _check_replica(of: Server) -> None:
    """Ray starts the replicas, so other settings of a server would not reach them."""
    for name, field in Server.model_fields.items():
        if name not in ("type", "model", "args") and getattr(of, name) != field.get_default(call_default_factory=True):
            raise PlanError(
                f"server.of.{name} has no effect with ray-serve: Ray starts the replicas",
                "environment: server.env for a Ray that is started here, else "
                "server.args.llm_config={runtime_env: {env_vars: {...}}}",
            )


def _policy(router: Router) -> str:
    policy = router.policy or RAY_POLICY
    if policy not in POLICIES:
        raise PlanError(
            f"server.router.policy of ray-serve must be one of {', '.join(POLICIES)}, got {policy}",
            "a fleet has our implementations of all policies: server.type=fleet",
        )
    return policy


def _router_kwargs(router: Router) -> dict[str, Any]:
    """The policy's settings under Ray's names, which are ours except for the interval's. The defaults of our policy
    equal Ray's, so all are passed."""
    checked = checked_settings(_policy(router), router.settings)
    if not isinstance(checked, PrefixAwareSettings):
        return {}
    imbalance = {} if math.isinf(checked.imbalance) else {"imbalanced_threshold": checked.imbalance}  # JSON has no inf
    return imbalance | {
        "match_rate_threshold": checked.match_rate_threshold,
        "do_eviction": checked.evicts,
        "eviction_threshold_chars": checked.eviction_threshold_chars,
        "eviction_target_chars": checked.eviction_target_chars,
        "eviction_interval_secs": checked.eviction_interval_s,
    }


def vllm_config(settings: RayServeSettings) -> dict[str, Any]:
    """`ray.serve.llm.LLMConfig` as in Ray's own benchmark: all replicas from the start."""
    routing = {
        "request_router_class": POLICIES[settings.policy].as_it_is,
        "request_router_kwargs": settings.router_kwargs,
    }
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": settings.model, "model_source": settings.source},
        "deployment_config": {
            "num_replicas": settings.replicas,
            "max_ongoing_requests": settings.max_in_flight,
            "request_router_config": routing,
        },
        "engine_kwargs": {name.replace("-", "_"): value for name, value in settings.engine_args.items()},
        "log_engine_metrics": True,
    }
    if settings.args.accelerator_type:
        config["accelerator_type"] = settings.args.accelerator_type
    for name, value in settings.args.llm_config.items():
        known = config.get(name)
        config[name] = known | value if isinstance(known, dict) and isinstance(value, dict) else value
    return config


# -- address of the cluster --------------------------------------------------------------------------------------------

# Whether a Ray cluster answers at an address, checked before Ray connects to it.

ANSWER_S = 5.0  # for a cluster's address to accept a connection, and to answer
_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # an empty HTTP/2 frame: length (3 bytes), type 4, flags, stream


def check_address(address: str, own_ip: str) -> None:
    """Raises an error if no Ray cluster answers; Ray itself would retry for many minutes. If a loopback address is
    given, this node's own address is used instead."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise PlanError(
            f"the address of a Ray cluster must be host:port, got {address}",
            "ray status prints the address of a cluster",
        )
    hint = "ray status shows whether a cluster runs"
    reached = own_ip if is_loopback(host.strip("[]")) else host.strip("[]")
    try:
        with socket.create_connection((reached, int(port)), ANSWER_S) as connection:
            if not os.environ.get("RAY_USE_TLS") and not _speaks_http2(connection):
                raise TargetError(f"Ray at {address} does not answer: what listens there is no Ray cluster", hint)
    except OSError as error:
        raise TargetError(f"Ray at {address} does not answer: {error.strerror or error}", hint) from error


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other side answers like a gRPC server, as the head of a cluster does: with a settings frame as soon
    as it has received ours (RFC 9113, 3.4)."""
    connection.settimeout(ANSWER_S)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
    answer = b""
    while len(answer) < len(_SETTINGS):
        data = connection.recv(1 << 10)
        if not data:
            return False
        answer += data
    return answer[3] == _SETTINGS[3]
