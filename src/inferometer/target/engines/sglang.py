"""How SGLang is launched: `python3 -m sglang.launch_server`."""

from inferometer.plan.model import Server
from inferometer.target.engines.vllm import served_names
from inferometer.target.launch import Launch, Place, Spelling, flags_of
from inferometer.wire.child import SAFE_PATH

SPELLING = Spelling()


def launch(server: Server, place: Place) -> Launch:
    program = server.command or ["python3", "-m", "sglang.launch_server"]
    where = ["--model-path", str(place.model), "--host", place.host, "--port", str(place.port)]
    argv = [*map(place.filled, program), *where, *flags_of(server.args, SPELLING), *server.flags]
    return Launch(
        "SGLang",
        place.url,
        argv,
        env={} if server.command else dict(SAFE_PATH),  # -P is not known to an older python3
        names=served_names(argv, place),
        resets=("/flush_cache",),
        reset_hint="SGLang refuses while requests run",
        version=("/get_server_info", "version"),
        missing="pip install sglang, or name its program (server.command='/bin/python -m sglang.launch_server')",
    )
