"""What was done, as a person reads it: the target, the workload, the load and the window; or the words of a plan."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from rich.table import Table

from inferometer.plan.model import Plan, Server
from inferometer.plan.wording import load_text, traffic_text, warmup_text, workload_text
from inferometer.record.environment import ImportOrigin
from inferometer.record.run import Run
from inferometer.show.console import facts_table
from inferometer.vocabulary import duration_text
from inferometer.wire.api import api_of

# -- own plan --------------------------------------------------------------------------------------------------------


def own_plan(run: Run) -> Plan | None:
    """None of a run without requests of ours, and of one whose plan another version of us wrote."""
    if run.kind != "serving" or run.source is not None:
        return None
    try:
        return Plan.model_validate(run.plan)
    except ValidationError:
        return None


def plan_texts(run: Run) -> Iterator[tuple[str, str]]:
    """What its plan and its file say, word by word."""
    if run.source:
        yield "imported", origin_text(run)
    for name, value in run.plan.items():
        if value not in (None, "", [], {}):
            yield str(name), _setting_text(value)
    if startup := run.summary.startup:
        facts = {"engine": startup.engine, "version": startup.version, "model": startup.model}
        yield from ((name, text) for name, text in (facts | {"load format": startup.load_format}).items() if text)


def origin_text(run: Run) -> str:
    """The format and the file that it was imported from: `vllm, result.json, line 7`."""
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
