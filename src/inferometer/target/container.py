"""An engine in a docker or podman container, through their common command line: start, follow and stop it by its id."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from msgspec import structs

from inferometer.errors import TargetError
from inferometer.plan.model import Server
from inferometer.plan.redactor import Redactor
from inferometer.plan.secrets import is_secret, resolve
from inferometer.record.environment import ServerStart, field_names
from inferometer.target.launch import Engine, Image, Launch, LaunchPlace, engines, flags_of, served_names, variables_of
from inferometer.target.process import StartedProcess
from inferometer.vocabulary import duration_text

# -- engine ----------------------------------------------------------------------------------------------------------

LABEL = "inferometer.server"
ANSWER_S = 30.0
START_S = 3600.0  # an image of 10 GB may have to be pulled first
KNOWN = ("docker", "podman")


class ContainerEngine:
    """The program that runs containers."""

    def __init__(self, program: str) -> None:
        self.program = program

    def start(self, argv: Sequence[str], env: Mapping[str, str], token: str) -> str:
        """Call `PROGRAM run --detach ...` with a label to find it by; returns the container's id."""
        program, run, *rest = argv
        command = [program, run, "--label", f"{LABEL}={token}", *rest]
        done = self._call(command, START_S, {**os.environ, **env})
        lines = done.stdout.split()
        if done.returncode or not lines:
            raise TargetError(f"the container was not started: {_last_line(done.stderr) or 'no id came back'}")
        return lines[-1]

    def labelled(self, token: str) -> list[str]:
        """Containers started with this label, including those that have ended."""
        return self._ask("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}={token}").split()

    def state(self, container: str) -> dict[str, Any]:
        """`Running`, `ExitCode`, `OOMKilled`, `Error`; empty if there is no such container."""
        return _document(self._ask("inspect", "--format", "{{json .State}}", container))

    def image(self, image: str) -> ServerStart:
        """The local image: its name, id and digest, because `latest` changes."""
        facts = _document(self._ask("image", "inspect", image))
        digests = [digest.partition("@")[2] for digest in facts.get("RepoDigests") or []]
        digest = digests[0] if digests else None
        return ServerStart(names=field_names(ServerStart), image=image, image_id=facts.get("Id"), digest=digest)

    def remove(self, container: str, grace_s: float) -> bool:
        """Stop and remove a container; returns whether there was one."""
        there = bool(self.state(container))
        self._ask("stop", "-t", str(max(1, round(grace_s))), container, within_s=grace_s + ANSWER_S)
        self._ask("rm", "--force", container)
        return there

    def _ask(self, *args: str, within_s: float = ANSWER_S) -> str:
        try:
            done = self._call([self.program, *args], within_s)
        except TargetError:
            return ""
        return "" if done.returncode else done.stdout

    def _call(
        self, command: Sequence[str], within_s: float, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=within_s,
                check=False,
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us: it must not leave a half-created container
            )
        except subprocess.TimeoutExpired:
            raise TargetError(f"{self.program} {command[1]} did not answer within {duration_text(within_s)}") from None
        except OSError as error:
            raise TargetError(f"{self.program} could not be run: {(error.strerror or str(error)).lower()}") from None


def container_program(wanted: str | None) -> str:
    """Docker or podman, whichever is installed."""
    names = [wanted] if wanted else list(KNOWN)
    program = next((path for name in names if (path := shutil.which(name))), None)
    if program is None:
        raise TargetError(
            f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not installed: a container needs one of them",
            "install docker or podman, or start the engine without a container: server.type=vllm",
        )
    return program


def _document(text: str) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    first = document[0] if isinstance(document, list) and document else document
    return first if isinstance(first, dict) else {}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    helpful = [line for line in lines if not line.startswith(("See ", "Run '"))]
    return (helpful or [""])[-1][:500]


# -- container -------------------------------------------------------------------------------------------------------

HF_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
HF_CACHE = "/root/.cache/huggingface"


UNKNOWN = Image()  # the assumptions for any other image


def image_named(name: str) -> Image:
    """The known properties of an image, by its name."""
    known = (engine.image for engine in engines().values() if engine.image is not None)
    return next((image for image in known if image.name in name), UNKNOWN)


def launch(server: Server, place: LaunchPlace) -> Launch:
    image = image_named(str(server.image))
    port = server.container_port or image.port
    inside = LaunchPlace("0.0.0.0", port, place.model)
    program = container_program(server.engine)
    args = _args_inside(server, image, inside)
    argv = [program, "run", "--detach", *_options(server, program, place, port), str(server.image), *args]
    resets = server.keep == "shared" and server.reset_cache is not False
    return Launch(
        f"the container {server.image}",
        place.url,
        with_variables(argv, image.reset_env) if resets else argv,
        env=_hidden(server, place),
        names=served_names(argv, place),
        models=image.models,
        lenient=image is UNKNOWN,
        resets=image.resets,
        version=image.version,
        is_container=True,
    )


CONTAINER = Engine(launch=launch)


def with_variables(argv: list[str], variables: Iterable[str]) -> list[str]:
    """The command with additional environment variables for the container: `NAME=value`, or a name whose value the
    engine takes from its own environment."""
    program, run, detach, *rest = argv
    return [program, run, detach, *(arg for variable in variables for arg in ("--env", variable)), *rest]


def _options(server: Server, program: str, place: LaunchPlace, port: int) -> list[str]:
    address = "" if place.host in ("0.0.0.0", "::") else f"{place.host}:"
    return [
        *_gpu_options(server.gpus, program),
        *(["--runtime", server.runtime] if server.runtime else []),
        *(["--ipc", server.ipc] if server.ipc else []),
        *(["--pull", server.pull] if server.pull != "missing" else []),
        *(["--entrypoint", server.entrypoint] if server.entrypoint else []),
        *(["--workdir", server.folder] if server.folder else []),
        *(arg for volume in _volumes(server) for arg in ("--volume", volume)),
        *(arg for name in _variables(server, place) for arg in ("--env", name)),
        *("--publish", f"{address}{place.port}:{port}"),
    ]


def _gpu_options(gpus: str, program: str) -> list[str]:
    """Podman uses its device interface, which every version supports."""
    if gpus == "none":
        return []
    if Path(program).name == "podman":
        return [arg for gpu in gpus.split(",") for arg in ("--device", f"nvidia.com/gpu={gpu.strip()}")]
    return ["--gpus", "all" if gpus == "all" else f'"device={gpus}"']


def _volumes(server: Server) -> list[str]:
    if server.volumes is None:
        cache = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
        return [f"{cache}:{HF_CACHE}"]
    return [str(Path(volume).expanduser()) if volume.startswith("~") else volume for volume in server.volumes]


def _variables(server: Server, place: LaunchPlace) -> list[str]:
    """`NAME=value`, but only the name if the value is a secret or comes from our environment: command lines are visible
    to all users, and the engine reads the value from its own environment."""
    named = [name for name in HF_TOKENS if name in os.environ and name not in server.env]
    return [*named, *(_variable(name, place.filled(text)) for name, text in server.env.items())]


def _variable(name: str, text: str) -> str:
    return name if _is_hidden(name, text) else f"{name}={text}"


def _hidden(server: Server, place: LaunchPlace) -> dict[str, str]:
    """Variables that the container program must find in its environment, and nothing else: its PATH is not the
    server's."""
    variables = variables_of(server, place)
    return {name: value for name, value in variables.items() if _is_hidden(name, place.filled(server.env[name]))}


def _is_hidden(name: str, text: str) -> bool:
    return is_secret(name) or resolve(text, os.environ, f"server.env.{name}") != text


def _args_inside(server: Server, image: Image, inside: LaunchPlace) -> list[str]:
    before = server.command or list(image.before)
    given = flags_of(server.args, image.spelling)
    named = image.model_flag is not None and inside.model and image.model_flag not in [*before, *given, *server.flags]
    model = [str(image.model_flag), str(inside.model)] if named else []
    listen = [] if server.command or "--port" in given else list(image.listen)
    return [inside.filled(arg) for arg in [*before, *model, *listen, *given, *server.flags]]


class Container:
    """A running container; one of our processes follows its log."""

    def __init__(
        self, launch: Launch, log: Path, token: str, limit: int, echo: bool, redactor: Redactor | None = None
    ) -> None:
        self._engine = ContainerEngine(launch.argv[0])
        self._token, self.id = token, ""
        try:
            self.id = self._engine.start(launch.argv, launch.env, token)
            follow = [self._engine.program, "logs", "--follow", self.id]
            self._logs = StartedProcess(follow, log, token, limit=limit, echo=echo, redactor=redactor)
        except BaseException:
            self._remove_all(1.0)
            raise

    def ended(self) -> str | None:
        """How it ended. Its log ends at the same time, so there is no need to poll."""
        if self._logs.ended() is None:
            return None
        state = self._engine.state(self.id)
        if state.get("Running"):
            return None
        if not state:
            return "and was removed"
        memory = ", out of memory" if state.get("OOMKilled") else ""
        return f"with exit status {state.get('ExitCode')}{memory}"

    def end(self, grace_s: float) -> list[Any]:
        try:
            self._remove_all(grace_s)
        finally:
            self._logs.end(1.0)
        return []

    def facts(self, image: str) -> ServerStart:
        engine = Path(self._engine.program).name
        return structs.replace(self._engine.image(image), container=self.id, engine=engine)

    def _remove_all(self, grace_s: float) -> None:
        """Also searches by label, because an interrupted start returns no id."""
        for container in {*self._engine.labelled(self._token), *([self.id] if self.id else [])}:
            self._engine.remove(container, grace_s)
