"""How llama.cpp is launched: `llama-server -m FILE`, or `-hf REPOSITORY`."""

from inferometer.plan.model import Server
from inferometer.target.launch import (
    OTHER_READY_S,
    Engine,
    Image,
    Launch,
    LaunchPlace,
    Spelling,
    flags_of,
    served_names,
)

_SHORT = (
    *("cb", "cd", "ctk", "ctv", "fa", "hf", "hff", "hfr", "lcs", "lv", "mg", "mm", "mu", "ncmoe", "ngl", "nkvo"),
    *("np", "ot", "sm", "sps", "tb", "td", "ts", "ub"),
)
_NEGATED = (
    "cont-batching",
    "context-shift",
    "kv-offload",
    "mmap",
    "mmproj",
    "perf",
    "repack",
    "slots",
    "warmup",
    "webui",
)
SPELLING = Spelling(short=frozenset(_SHORT), negated=frozenset(_NEGATED), repeated=True)
VERSION = ("/props", "build_info")


def launch(server: Server, place: LaunchPlace) -> Launch:
    program = server.command or ["llama-server"]
    where = ["--host", place.host, "--port", str(place.port)]
    flags = [*flags_of(server.args, SPELLING), *server.flags]
    argv = [*map(place.filled, program), *_model(place.model), *where, *flags]
    return Launch(
        "llama-server",
        place.url,
        argv,
        names=_names(argv, place),
        ready_s=OTHER_READY_S,
        reset_hint="llama.cpp has no such request; its cache is per slot",
        version=VERSION,
        missing="build llama.cpp, or name its program: server.command=/where/it/is/llama-server",
    )


def _model(model: str | None) -> list[str]:
    """A file, or a repository to download from; nothing if the flags name it."""
    if model is None:
        return []
    return ["-m", model] if _is_file(model) else ["-hf", model]


def _is_file(model: str) -> bool:
    return model.endswith(".gguf") or model.startswith(("/", "./", "../", "~"))


def _names(argv: list[str], place: LaunchPlace) -> list[str]:
    """An alias, or the file. The name of a downloaded model differs between versions."""
    nameless = LaunchPlace(place.host, place.port)
    alias = served_names(argv, nameless, "--alias") or served_names(argv, nameless, "-a")
    return alias or ([place.model] if place.model and _is_file(place.model) else [])


ENGINE = Engine(
    launch=launch,
    title="llama.cpp",
    owners=("llamacpp", "llama.cpp"),
    program="llama-server",
    image=Image(
        name="llama.cpp",
        port=8080,
        model_flag="-hf",
        spelling=SPELLING,
        listen=("--host", "0.0.0.0", "--port", "8080"),
        version=VERSION,
    ),
    log_signs=r"llama_model_loader:|llama_server|main: server is listening|load_model: loading model",
)
