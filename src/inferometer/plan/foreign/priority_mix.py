"""llm-d's priority-mix harness: traffic classes of different priority at one rate, as a plan."""

from collections.abc import Mapping
from typing import Any

from inferometer.plan.draft import WorkloadDraft
from inferometer.plan.foreign.account import Account, Settings
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.shapes import tidy

TOOL = "priority-mix"
_HEADERS = {"objective": "x-llm-d-inference-objective", "fairnessID": "x-llm-d-inference-fairness-id"}


def is_it(mapping: Mapping[str, Any]) -> bool:
    return "trafficClasses" in mapping and "endpoint_url" in mapping


def from_mapping(mapping: Mapping[str, Any]) -> Foreign:
    """Each class sends its share of the rate, as text of its own."""
    settings = Settings(mapping, Account(TOOL))
    load, api, common = settings.section("load"), settings.section("api"), settings.section("request")
    rate, lasts = load.number("rate_per_second", 1.0) or 1.0, load.number("duration_seconds", 60.0) or 60.0
    cap = load.count("max_in_flight")
    load.no_effect("fail_on_error", "failed requests are counted in every run")
    classes = settings.sections("trafficClasses")
    weights = [one.number("weight", 1.0) or 1.0 for one in classes]
    traffic = []
    for one, weight in zip(classes, weights, strict=True):
        share = weight / sum(weights)
        one.no_effect("priority", "is not sent: the objective names it")
        most = None if cap is None else max(1, round(cap * share))
        traffic.append(
            {
                "name": one.text("name"),
                "workload": _workload(one.section("request"), common),
                "load": {"type": "constant", "rate": tidy(round(rate * share, 6)), "max_concurrency": most},
                "stop": {"duration": f"{tidy(lasts)}s"},
                "headers": {header: one.text(name) for name, header in _HEADERS.items()},
            }
        )
    if cap is not None:
        load.note("max_in_flight", "each class has its share of it")
    kind = api.text("type", "chat")
    path = api.text("path")
    plan = {
        "target": {
            "url": settings.text("endpoint_url"),
            "model": settings.text("model"),
            "api": kind,
            "path": None if path == "/v1/chat/completions" else path,
            "stream": None if common.on("stream", True) else False,
            "timeout": {"request": load.number("request_timeout_seconds")},
        },
        "traffic": traffic,
    }
    for name, own in (("prompt", "promptTemplate"), ("max_tokens", "max_tokens")):
        if all(own in one.section("request").values for one in classes):
            common.no_effect(name, "every class has its own")
    settings.account.general.append("every class has even arrivals of its own; priority-mix has them in one row")
    return Foreign.of(settings.account, without_missing(plan))


def _workload(own: Settings, common: Settings) -> WorkloadDraft:
    """A text with `{variation}` for a number that differs in every request, repeated."""
    template, repeat = own.text("promptTemplate"), own.count("promptRepeat", 1) or 1
    output = own.count("max_tokens", common.count("max_tokens"))
    text = template if template is not None else own.text("prompt") or common.text("prompt") or ""
    return {"type": "text", "text": text.replace("{variation}", "{index}"), "repeat": repeat, "output_tokens": output}
