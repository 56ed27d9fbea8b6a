"""How Text Generation Inference is launched: `text-generation-launcher`."""

from inferometer.plan.model import Server
from inferometer.target.launch import Engine, Image, Launch, LaunchPlace, Spelling, flags_of, served_names

SPELLING = Spelling()
INFO = "/info"  # contains what others return from /v1/models and /version


def launch(server: Server, place: LaunchPlace) -> Launch:
    program = server.command or ["text-generation-launcher"]
    where = ["--model-id", str(place.model), "--hostname", place.host, "--port", str(place.port)]
    argv = [*map(place.filled, program), *where, *flags_of(server.args, SPELLING), *server.flags]
    return Launch(
        "TGI",
        place.url,
        argv,
        names=served_names(argv, place),
        models=INFO,
        reset_hint="TGI has no such request",
        version=(INFO, "version"),
        missing="TGI usually runs in its container: server.type=container",
    )


ENGINE = Engine(
    launch=launch,
    title="TGI",
    owners=("tgi",),
    program="text-generation-launcher",
    image=Image(
        name="text-generation-inference",
        port=80,
        model_flag="--model-id",
        spelling=SPELLING,
        models=INFO,
        version=(INFO, "version"),
    ),
    log_signs=r"text_generation_launcher|text_generation_router",
)
