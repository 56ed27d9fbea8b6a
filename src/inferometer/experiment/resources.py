"""What cases share: one started server at a time, and one engine in this process, while their settings stay."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from inferometer.errors import InferometerError, TargetError
from inferometer.plan.cases import Case
from inferometer.target.offline.engine import Answer, EngineFacts, EngineSettings, OfflineEngine, Prompt, open_engine
from inferometer.target.server import StartedServer, running

Notes = Callable[[str], None]


class NotStarted(TargetError):
    """The server of a case did not start for the case before it already, and is not tried once more."""


class Servers:
    """Starts a server when a case needs another one than the case before. One that did not start is not tried again."""

    def __init__(self, folder: Path, say: Notes, *, each_case: bool) -> None:
        self._folder, self._say, self._each_case = folder, say, each_case
        self._open = ExitStack()
        self._server: StartedServer | None = None
        self._stack = ""
        self._failed: dict[str, str] = {}
        self.starts = len(list(folder.glob("server-*.log")))  # of an experiment that is resumed, those before

    def of(self, case: Case) -> StartedServer | None:
        """None where the plan names an address."""
        if case.plan.server is None:
            self.close()
            return None
        if case.stack in self._failed:
            raise NotStarted(f"not tried: its server did not start for case {self._failed[case.stack]}")
        if self._server is None or self._each_case or self._stack != case.stack or self._server.ended():
            self._start(case)
        return self._server

    def _start(self, case: Case) -> None:
        self.close()
        self.starts += 1
        log = self._folder / f"server-{self.starts}.log"
        server = running(
            case.plan.server,
            self._folder,
            target=case.plan.target,
            say=self._say,
            holder=self._folder.name,
            log=log,
            shared=not self._each_case,
        )
        try:
            self._server, self._stack = self._open.enter_context(server), case.stack
        except InferometerError:
            self._failed[case.stack] = case.name
            raise

    def close(self) -> None:
        self._server, self._stack = None, ""
        self._open.close()


class Engines:
    """One offline engine for all cases that ask for the same."""

    def __init__(self) -> None:
        self._asked: tuple[str, EngineSettings] | None = None
        self._engine: OfflineEngine | None = None

    def opener(self) -> Callable[[str, EngineSettings], OfflineEngine]:
        """For one case. Who asks a second time has found the engine dead: it gets a new one."""
        asked_before = False

        def opened(name: str, settings: EngineSettings) -> OfflineEngine:
            nonlocal asked_before
            if asked_before or self._engine is None or self._asked != (name, settings):
                self.close()
                self._engine, self._asked = open_engine(name, settings), (name, settings)
            asked_before = True
            return _Shared(self._engine)

        return opened

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(Exception):  # it is given up in any case
                engine.close()


class _Shared:
    """An engine that outlives the case that closes it."""

    def __init__(self, engine: OfflineEngine) -> None:
        self._engine = engine
        self.facts: EngineFacts = engine.facts
        self.now = engine.now
        self.profiled = engine.profiled

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[Answer]:
        return self._engine.generate(prompts, output_tokens)

    def close(self) -> None:
        """Left to `Engines`."""


@contextmanager
def shared(folder: Path, say: Notes, *, each_case: bool) -> Iterator[tuple[Servers, Engines]]:
    """Ended with all that was started, whatever happens."""
    servers, engines = Servers(folder, say, each_case=each_case), Engines()
    try:
        yield servers, engines
    finally:
        engines.close()
        servers.close()


def conductor(name: str) -> Any:
    """`module:attribute`, imported when a case needs it."""
    from importlib import import_module

    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
