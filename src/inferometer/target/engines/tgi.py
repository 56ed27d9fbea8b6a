"""How Text Generation Inference is launched: `text-generation-launcher`."""

from inferometer.plan.model import Server
from inferometer.target.engines.vllm import served_names
from inferometer.target.launch import Launch, Place, Spelling, flags_of

SPELLING = Spelling()


def launch(server: Server, place: Place) -> Launch:
    program = server.command or ["text-generation-launcher"]
    where = ["--model-id", str(place.model), "--hostname", place.host, "--port", str(place.port)]
    argv = [*map(place.filled, program), *where, *flags_of(server.args, SPELLING), *server.flags]
    return Launch(
        "TGI",
        place.url,
        argv,
        names=served_names(argv, place),
        models="/info",
        reset_hint="TGI has no such request",
        version=("/info", "version"),
        missing="TGI usually runs in its container: server.type=container",
    )
