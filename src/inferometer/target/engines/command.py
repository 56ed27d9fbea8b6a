"""How any other command is launched: its arguments with the port filled in, followed by flags; and a server that runs
elsewhere, which is only waited for and checked."""

from inferometer.plan.model import Server
from inferometer.target.launch import OTHER_READY_S, Engine, Launch, LaunchPlace, flags_of
from inferometer.target.probe import base_url

# -- command ---------------------------------------------------------------------------------------------------------

ANY_RESET = ("/reset_prefix_cache", "/flush_cache")


def launch(server: Server, place: LaunchPlace) -> Launch:
    args = [*server.command, *flags_of(server.args), *server.flags]
    return Launch(
        server.command[0].rpartition("/")[2],
        place.url,
        [place.filled(arg) for arg in args],
        names=[server.model] if server.model else [],
        lenient=True,
        ready_s=OTHER_READY_S,
        resets=ANY_RESET,
        version=("/version", "version"),
        missing="is it spelled right, and on PATH? A path begins at server.folder",
    )


# -- external --------------------------------------------------------------------------------------------------------


def launch_nothing(server: Server, place: LaunchPlace) -> Launch:
    return Launch(
        "the external server",
        base_url(server.url or place.url),
        names=[server.model] if server.model else [],
        lenient=True,
        ready_s=OTHER_READY_S,
        resets=ANY_RESET,
        version=("/version", "version"),
    )


COMMAND = Engine(launch=launch)
EXTERNAL = Engine(launch=launch_nothing)
