"""What was done, as facts: the target, the workload, the load and the window that was measured."""

from collections.abc import Iterator

from rich.table import Table

from inferometer.plan.model import Plan
from inferometer.record.run import Run
from inferometer.show.console import facts_table
from inferometer.show.deeds import load_text, traffic_text, warmup_text, workload_text
from inferometer.vocabulary import duration_text
from inferometer.wire.api import api_of


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


def _target(run: Run, plan: Plan) -> str:
    target, found = plan.target, run.environment.get("target") or {}
    where = ", ".join(target.url) or f"the {plan.server.type if plan.server else 'simulator'}"
    model = target.model or found.get("model") or run.environment.get("model")
    server = " ".join(filter(None, [found.get("server"), found.get("version")])) if target.url else ""
    streaming = ("streaming" if target.stream else "not streaming") if api_of(target.api).generates else ""
    return ", ".join(filter(None, [where, server, f"model {model}" if model else "", target.api, streaming]))


def _window(run: Run, plan: Plan) -> str:
    window = run.summary["window"]
    warmup = warmup_text(plan.warmup)
    left_out = f"; the first {warmup} are warm-up" if warmup else ""
    whole = f" of {duration_text(window['run_s'])}" if window["run_s"] else ""
    return f"{duration_text(window['length_s'])}{whole}, {window['requests']:,} requests{left_out}"
