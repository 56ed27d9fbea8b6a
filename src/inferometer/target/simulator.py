"""How the simulator is launched as a server of its own process."""

import orjson
from pydantic import ValidationError

from inferometer.errors import PlanError
from inferometer.plan.model import Server
from inferometer.simulator.settings import SimulatorSettings
from inferometer.target.server import Launch, python_module


def launch(server: Server) -> Launch:
    """Its settings are checked here: a mistake in them is one of the plan, not of the server."""
    try:
        SimulatorSettings.model_validate(server.args)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False)
        raise PlanError([_told(each["loc"], each["msg"], each["input"]) for each in mistakes]) from None
    arguments = ["--port", "0", "--until-stdin-closes", "--settings", orjson.dumps(server.args).decode()]
    return Launch("the simulator", python_module("inferometer.simulator", *arguments), ready)


def _told(path: tuple[int | str, ...], what: str, value: object) -> str:
    where = ".".join(map(str, ("server", "args", *path)))
    got = f", got {value!r}" if path else ""
    return f"{where}: {what[:1].lower()}{what[1:]}{got}"


def ready(line: bytes) -> str | None:
    """One line of JSON says that it listens, and where."""
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("port"), int):
        return None
    return str(said.get("url") or f"http://127.0.0.1:{said['port']}")
