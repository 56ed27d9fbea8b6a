"""How vLLM is launched: `vllm serve MODEL`."""

from inferometer.plan.model import Server
from inferometer.target.launch import Engine, Image, Launch, LaunchPlace, Spelling, flags_of, served_names
from inferometer.wire.child import SAFE_PATH

SPELLING = Spelling(negated=True)  # its switches are argparse.BooleanOptionalAction
DEV_MODE = "VLLM_SERVER_DEV_MODE"  # without it /reset_prefix_cache does not exist
RESETS = ("/reset_prefix_cache",)


def launch(server: Server, place: LaunchPlace) -> Launch:
    program = server.command or ["vllm", "serve"]
    where = ["--host", place.host, "--port", str(place.port)]
    argv = [*map(place.filled, program), str(place.model), *where, *flags_of(server.args, SPELLING), *server.flags]
    return Launch(
        "vLLM",
        place.url,
        argv,
        env=_environment(server),
        names=served_names(argv, place),
        resets=RESETS,
        reset_hint=f"vLLM offers it with server.env.{DEV_MODE}=1",
        version=("/version", "version"),
        missing="pip install vllm, name its program (server.command='/where/it/is/vllm serve'), or use a container",
    )


def _environment(server: Server) -> dict[str, str]:
    """vLLM's processes start as `python -c`, which would import from the working folder; a custom command may intend
    that."""
    developing = {DEV_MODE: "1"} if server.keep == "shared" and server.reset_cache is not False else {}
    return developing if server.command else {**SAFE_PATH, **developing}


ENGINE = Engine(
    launch=launch,
    title="vLLM",
    owners=("vllm",),
    program="vllm",
    image=Image(
        name="vllm",
        port=8000,
        model_flag="--model",
        spelling=SPELLING,
        resets=RESETS,
        reset_env=(f"{DEV_MODE}=1",),
    ),
)
