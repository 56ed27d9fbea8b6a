"""How Text Generation Inference is launched: `text-generation-launcher`."""

from inferometer.plan.model import Server
from inferometer.target.arguments import Spelling, flags_of
from inferometer.target.launch import Launch, Place
from inferometer.target.vllm import served_names

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
