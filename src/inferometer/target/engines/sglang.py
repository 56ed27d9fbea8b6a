"""How SGLang is launched: `python3 -m sglang.launch_server`."""

from inferometer.plan.model import Server
from inferometer.target.launch import Engine, Image, Launch, LaunchPlace, Spelling, flags_of, served_names
from inferometer.wire.child import SAFE_PATH

SPELLING = Spelling()
PROGRAM = ("python3", "-m", "sglang.launch_server")
RESETS = ("/flush_cache",)


def launch(server: Server, place: LaunchPlace) -> Launch:
    program = server.command or list(PROGRAM)
    where = ["--model-path", str(place.model), "--host", place.host, "--port", str(place.port)]
    argv = [*map(place.filled, program), *where, *flags_of(server.args, SPELLING), *server.flags]
    return Launch(
        "SGLang",
        place.url,
        argv,
        env={} if server.command else dict(SAFE_PATH),  # older versions of python3 do not have -P
        names=served_names(argv, place),
        resets=RESETS,
        reset_hint="SGLang refuses while requests run",
        version=("/get_server_info", "version"),
        missing="pip install sglang, or name its program (server.command='/bin/python -m sglang.launch_server')",
    )


ENGINE = Engine(
    launch=launch,
    title="SGLang",
    owners=("sglang",),
    program="python3 -m sglang",
    image=Image(
        name="sglang",
        port=30000,
        model_flag="--model-path",
        spelling=SPELLING,
        before=PROGRAM,
        listen=("--host", "0.0.0.0", "--port", "30000"),
        resets=RESETS,
    ),
    log_signs=r"server_args=ServerArgs\(|The server is fired up and ready to roll|sglang",
)
