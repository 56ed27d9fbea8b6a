"""What the end of a server's log means: well-known failures, and what to do about them."""

import re
from collections.abc import Iterable

_RUNTIME = (
    "the container sees no GPU: make nvidia the default runtime in /etc/docker/daemon.json "
    '("default-runtime": "nvidia") and restart docker, or set server.runtime=nvidia'
)
_FAILURES = (  # in the order of how much they say
    (r"platform (is )?not detected|failed to infer device type|unspecified platform", _RUNTIME),
    (
        r"could not select device driver|unresolvable CDI devices|nvidia-container-cli",
        "docker cannot hand out GPUs: install the nvidia container toolkit, or do without: server.gpus=none",
    ),
    (r"unknown or invalid runtime name", "this engine has no such runtime: install it, or leave out server.runtime"),
    (
        r"permission denied.*docker(\.sock| daemon)|cannot connect to the docker daemon",
        "is the docker daemon running, and may you use it?",
    ),
    (
        r"no available memory for the cache blocks|larger than the maximum number of tokens that can be stored|"
        r"estimated maximum model length",
        "too little memory for the KV cache: a smaller server.args.max-model-len, or more gpu-memory-utilization",
    ),
    (
        r"out of memory|less than desired gpu memory|free memory on device",
        "too little GPU memory: does something else use the GPU (nvidia-smi)? Else a smaller gpu-memory-utilization",
    ),
    (r"address already in use", "something else listens on this port: leave out server.port and a free one is found"),
    (r"no space left on device", "the disk is full"),
    (
        r"gated repo|401 client error|access to model .* is restricted",
        "the model needs a token: export HF_TOKEN=..., and accept its licence",
    ),
    (r"unrecognized arguments|unexpected argument|invalid argument: -", "server.args has a flag it does not know"),
    (r"no module named", "is the engine installed in the Python that server.command names?"),
)


def meaning(lines: Iterable[str]) -> str | None:
    """The remedy for the first known failure in a log's end."""
    text = "\n".join(lines)
    for pattern, remedy in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return remedy
    return None
