"""Describes a run in words, in the same way on every page, in reports and messages: its header, the name of its series,
and what was done."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rich.table import Table

from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity
from inferometer.plan.model import Plan, Server
from inferometer.plan.wording import load_text, traffic_text, warmup_text, workload_text
from inferometer.record.environment import ImportOrigin
from inferometer.record.run import Run, engine_name
from inferometer.show.console import facts_table
from inferometer.store.entry import flat
from inferometer.vocabulary import duration_text
from inferometer.wire.api import api_of

MOST_SETTINGS = 3  # settings that distinguish series with otherwise equal names
UNNAMED = "all runs"
_IN_WORDS = ("kind", "workload.", "load.", "target.", "asked.", "model", "engine", "traffic[")  # of an identity
_NO_NAMES = ("type", "name")  # path endings that mean nothing by themselves


def series_names(runs: Mapping[str, Run], versions: bool = True) -> dict[str, str]:
    """Names by the keys of `runs`. Without `versions`, names do not contain the engine's version, so that a line of
    history continues through an upgrade."""
    names = _differing({key: _facets(run, versions) for key, run in runs.items()})
    for group in _alike(names):
        settings = _differing_settings({key: runs[key] for key in group})
        names |= {key: ", ".join(filter(None, (names[key], settings[key]))) for key in group}
    return _numbered({key: name or UNNAMED for key, name in names.items()})


def short_model(model: str | None) -> str:
    """`meta-llama/Llama-3.1-8B` without its owner."""
    return model.rstrip("/").rpartition("/")[2] if model else ""


def hardware_name(run: Run) -> str:
    """Accelerators, else the run's own description of its hardware, else the processor of this machine if the server
    runs on it."""
    subject, machine = run.subject, run.environment.machine
    own = machine.cpu if machine and machine.cpu and not subject.hosts_elsewhere else ""
    return subject.accelerators_text or subject.hardware or own


def stack_text(run: Run) -> str:
    """`Llama-3.1-8B · vLLM 0.24.0 · 2 x NVIDIA H200`, as far as known."""
    return " · ".join(filter(None, (short_model(run.subject.model), run.subject.engine_text, hardware_name(run))))


def _facets(run: Run, versions: bool) -> list[str]:
    subject = run.subject
    engine = engine_name(subject.engine, subject.engine_version if versions else None)
    model, hardware = short_model(subject.model), hardware_name(run)
    return [subject.name or "", model, engine, hardware, subject.workload, subject.load]


def _differing(facets: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Only the names if every series has a different one; else all facets that differ."""
    names = [parts[0] for parts in facets.values()]
    if all(names) and len(set(names)) == len(names) > 1:
        return {key: parts[0] for key, parts in facets.items()}
    varied = [at for at, column in enumerate(zip(*facets.values(), strict=True)) if len(set(column)) > 1]
    return {key: ", ".join(parts[at] for at in varied if parts[at]) for key, parts in facets.items()}


def _alike(names: Mapping[str, str]) -> Iterator[list[str]]:
    """Groups of keys with the same name."""
    for name, count in Counter(names.values()).items():
        if count > 1:
            yield [key for key, own in names.items() if own == name]


def _differing_settings(runs: Mapping[str, Run]) -> dict[str, str]:
    """`speed 4`: the settings that differ in their plans, by the last part of each path."""
    settings = {key: _settings(run) for key, run in runs.items()}
    paths = dict.fromkeys(path for own in settings.values() for path in own)
    varied = [path for path in paths if len({own.get(path) for own in settings.values()}) > 1][:MOST_SETTINGS]
    return {
        key: ", ".join(f"{_last(path)} {own[path]}" for path in varied if path in own) for key, own in settings.items()
    }


def _settings(run: Run) -> dict[str, str]:
    parts = identity(run).parts
    flattened = flat(parts["workload"]) | flat(parts["stack"])
    paths = (path for path in flattened if not path.startswith(_IN_WORDS) and _last(path) not in _NO_NAMES)
    return {path: flattened[path] for path in paths}


def _last(path: str) -> str:
    return path.rpartition(".")[2].replace("_", " ")


def _numbered(names: Mapping[str, str]) -> dict[str, str]:
    """Series with the same name would be drawn as one line: the second gets a number."""
    seen: Counter[str] = Counter()
    distinct = {}
    for key, name in names.items():
        seen[name] += 1
        distinct[key] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return distinct


@dataclass(frozen=True)
class About:
    """What a run is about: the header on every page, report and message."""

    id: str
    name: str | None  # name of the plan, as given by a person
    model: str
    engine: str  # including its version
    hardware: str
    workload: str
    load: str
    started: str
    commit: str | None

    @property
    def stack(self) -> str:
        return " · ".join(filter(None, (self.model, self.engine, self.hardware)))

    @property
    def traffic(self) -> str:
        return " · ".join(filter(None, (self.workload, self.load)))

    @property
    def when(self) -> str:
        """`2026-11-16 00:26 UTC`; without `UTC` it is the local time of the run's machine."""
        return self.started[:16].replace("T", " ") + (" UTC" if self.started.endswith("+00:00") else "")

    @property
    def title(self) -> str:
        """On one line, starting with the name if there is one."""
        return " · ".join(filter(None, (self.name, self.stack, self.traffic))) or self.id


def about_of(run: Run) -> About:
    subject = run.subject
    return About(
        id=run.id,
        name=subject.name,
        model=short_model(subject.model),
        engine=subject.engine_text,
        hardware=hardware_name(run),
        workload=subject.workload,
        load=subject.load,
        started=run.started_at,
        commit=subject.commit[:12] if subject.commit else None,
    )


# -- tiles -----------------------------------------------------------------------------------------------------------

MOST_TILES = 8


def one_of_each(numbers: Mapping[str, Quantity]) -> list[str]:
    """The first number of each measure that has a better direction: every batch size, but not eight numbers of one. A
    phase shorter than its log can resolve is written as 0 s and left out. For a single measure all numbers."""
    judged = [quantity for quantity in numbers.values() if quantity.direction is not None]
    first: dict[str, Quantity] = {}
    for quantity in judged:
        first.setdefault(quantity.name, quantity)
    telling = [quantity.key for quantity in first.values() if quantity.value or quantity.unit != "s"]
    return telling if len(telling) > 1 else [quantity.key for quantity in judged]


# -- links -----------------------------------------------------------------------------------------------------------

PAGES_URL = "INFEROMETER_PAGES_URL"  # of the dashboard or the site that messages link to


def page_link(id_: str | None, environment: Mapping[str, str], page: str = "run") -> str | None:
    """The page of a run or an experiment, if the address of the pages is configured."""
    base = environment.get(PAGES_URL, "").strip()
    if not id_ or not base.startswith(("http://", "https://")):
        return None
    return f"{base.rstrip('/')}/{page}.html?id={quote(id_)}"


# -- own plan --------------------------------------------------------------------------------------------------------


def own_plan(run: Run) -> Plan | None:
    """None for a run without requests of ours, and for one whose plan was written by another version."""
    if run.kind != "serving" or run.source is not None:
        return None
    return run.plan.checked


def plan_texts(run: Run) -> Iterator[tuple[str, str]]:
    """The text form of its plan and its file."""
    if run.source:
        yield "imported", origin_text(run)
    for name, value in run.plan.items():
        if value not in (None, "", [], {}):
            yield str(name), _setting_text(value)
    if startup := run.summary.startup:
        facts = {"engine": startup.engine, "version": startup.version, "model": startup.model}
        yield from ((name, text) for name, text in (facts | {"load format": startup.load_format}).items() if text)


def origin_text(run: Run) -> str:
    """The format and the file it was imported from: `vllm, result.json, line 7`."""
    origin = run.environment.imported or ImportOrigin()
    return ", ".join(filter(None, (run.source, origin.file, origin.part)))


def _setting_text(setting: Any) -> str:
    if isinstance(setting, Mapping):
        return ", ".join(
            f"{name} {_setting_text(value)}" for name, value in setting.items() if value not in (None, {}, [])
        )
    return ", ".join(map(_setting_text, setting)) if isinstance(setting, list) else str(setting)


# -- done ------------------------------------------------------------------------------------------------------------


def done_table(run: Run, plan: Plan) -> Table:
    table = facts_table()
    for name, value in _facts(run, plan):
        table.add_row(name, value)
    return table


def _facts(run: Run, plan: Plan) -> Iterator[tuple[str, str]]:
    generates = api_of(plan.target.api).generates
    if plan.name:
        yield "plan", plan.name
    yield "target", _target(run, plan)
    if len(plan.classes) == 1:
        only = plan.classes[0]
        yield "workload", workload_text(only.workload, generates)
        yield "load", f"{load_text(only.load, only.stop)} ({'open' if only.load.open_loop else 'closed'} loop)"
    else:
        for traffic in plan.classes:
            yield "traffic", traffic_text(traffic, generates)
    yield "window", _window(run, plan)


def _started(server: Server | None) -> str:
    if server is None or server.type != "ray-serve":
        return f"the {server.type if server else 'simulator'}"
    return f"{server.replicas} replicas on Ray Serve"


def _target(run: Run, plan: Plan) -> str:
    target, facts = plan.target, run.environment.known_target
    where = ", ".join(target.url) or _started(plan.server)
    model = run.subject.model
    server = " ".join(filter(None, [facts.server, facts.version])) if target.url else ""
    streaming = ("streaming" if target.stream else "not streaming") if api_of(target.api).generates else ""
    return ", ".join(filter(None, [where, server, f"model {model}" if model else "", target.api, streaming]))


def _window(run: Run, plan: Plan) -> str:
    window = run.summary.window
    warmup = warmup_text(plan.warmup)
    left_out = f"; the first {warmup} are warm-up" if warmup else ""
    whole = f" of {duration_text(window.run_s)}" if window.run_s else ""
    return f"{duration_text(window.length_s)}{whole}, {window.requests or 0:,} requests{left_out}"
