"""The summary and verdict of an imported run: the file's own numbers, or ours of the records that it holds."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from inferometer.exchange.importing.found import ImportedRun
from inferometer.exchange.importing.units import contradictions
from inferometer.measure.facts import Facts
from inferometer.measure.summary import HEADLINE, HEADLINE_OPEN, summarize
from inferometer.plan.model import Plan
from inferometer.record.schema import schema_of
from inferometer.vocabulary import MEASURES, duration_text

RULE = "as the tool chose it"
DIFFERS = 0.02  # between a mean of the file and ours of its records: more, and they are not about the same thing
_COMPARED = ("ttft", "tpot", "e2e")


def summary_of(run: ImportedRun) -> dict[str, Any]:
    """A summary like that of any run, without what the file does not tell."""
    return _of_records(run) if run.records is not None and len(run.records) else _of_file(run)


def verdict_of(run: ImportedRun, summary: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Doubtful at best: nobody measured how the load was delivered, nor the tool's own error."""
    text = f"Imported from {title}: whether it is valid as a measurement was not measured by us."
    doubts = [("imported", text), *run.doubts, *contradictions(summary["measures"]), *_disagreements(run, summary)]
    if summary["outcomes"].get("ok") == 0:
        doubts.insert(0, ("nothing_answered", "No request was answered, so its times mean nothing."))
    reasons = [{"word": _word(code), "code": code, "text": said} for code, said in doubts]
    reasons.sort(key=lambda reason: reason["word"] != "invalid")
    return {"schema": schema_of("verdict"), "word": reasons[0]["word"], "reasons": reasons}


def _word(code: str) -> str:
    return "invalid" if code in ("nothing_answered", "said_invalid") else "doubtful"


def _disagreements(run: ImportedRun, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the file's own means are not those of the requests in it."""
    found = []
    for name in _COMPARED if run.records is not None else ():
        theirs, ours = (part.get(name, {}).get("mean") for part in (run.measures, summary["measures"]))
        if theirs and ours and abs(ours / theirs - 1) > DIFFERS:
            text = f"{MEASURES[name].title} is {duration_text(theirs)} on average in the file's own words, but"
            found.append(("disagrees", f"{text} {duration_text(ours)} of the requests in it in our window."))
    return found


def _of_file(run: ImportedRun) -> dict[str, Any]:
    """What the file says, and nothing else."""
    rates = {name: _rate(name, value) for name, value in run.rates.items()}
    return {
        "schema": schema_of("summary"),
        "loop": _loop(run.plan),
        "confidence": 0.95,
        "headline": _headline(run.measures),
        "headline_quantiles": ["p50", "p90"],
        "window": {"length_s": run.duration_s, "run_s": run.duration_s, "rule": RULE, "requests": run.answered},
        "measures": run.measures,
        "rates": rates,
        "values": run.values,
        "concurrency": _concurrency(run),
        **_outcomes(run),
        "errors": [],
        "stages": [],
        "traffic": {},
        "definitions": run.definitions,
        "notes": list(run.notes),
    }


def _of_records(run: ImportedRun) -> dict[str, Any]:
    """Ours of the records, without the measures that these cannot tell; the file's own numbers stand beside."""
    assert run.records is not None
    summary = summarize(run.records, _plan(run), Facts())
    kept = {name: each for name, each in summary["measures"].items() if name not in run.underivable}
    own = {"measures": run.measures, "rates": {name: _rate(name, value) for name, value in run.rates.items()}}
    named = {name: _rate(name, summary["rates"][name]["window"]) | summary["rates"][name] for name in summary["rates"]}
    return {
        **summary,
        "measures": kept | {name: each for name, each in run.measures.items() if name not in summary["measures"]},
        "rates": {name: each for name, each in named.items() if name not in run.underivable},
        "headline": _headline(kept),
        "instrument": None,
        "delivery": None,
        "slices": _slices(summary["slices"], run.underivable),
        "stalls": None if "stall" in run.underivable else summary["stalls"],
        "goodput": None,
        "values": run.values,
        "reported": own,
        "definitions": run.definitions,
        "notes": list(run.notes),
    }


def _slices(slices: dict[str, Any] | None, underivable: tuple[str, ...]) -> dict[str, Any] | None:
    """Where nothing is known of a schedule, requests are due when they are sent: the measure is the plain one."""
    if slices is None:
        return None
    name = "ttft" if slices["measure"] in underivable else slices["measure"]
    blank = {"tokens_per_s": None} if "output_rate" in underivable else {}
    return slices | {"measure": name, "rows": [row | blank for row in slices["rows"]]}


def _plan(run: ImportedRun) -> Plan:
    """The plan in whose window the records are measured. A load that is not told has no window of its own."""
    try:
        return Plan.model_validate(run.plan)
    except ValidationError:
        return Plan()


def _headline(measures: Mapping[str, Any]) -> list[str]:
    own = [name for name in measures if name not in MEASURES]
    usual = dict.fromkeys((*HEADLINE_OPEN, *HEADLINE, "ntpot", "input_tokens"))
    return [name for name in usual if name in measures] + own


def _rate(name: str, value: float | None) -> dict[str, Any]:
    return {"unit": MEASURES[name].unit, "window": value, "run": value}


def _loop(plan: Mapping[str, Any]) -> str:
    load = plan.get("load") or {}
    return "closed" if load.get("type", "concurrency") == "concurrency" else "open"


def _concurrency(run: ImportedRun) -> dict[str, Any]:
    asked = (run.plan.get("load") or {}).get("concurrency")
    return {"unit": MEASURES["concurrency"].unit, "mean": run.concurrency, "max": None, "asked": asked}


def _outcomes(run: ImportedRun) -> dict[str, Any]:
    """What became of the requests; failures have no kind where the file tells none."""
    counts = {"ok": run.answered, "failed": run.failed, "cancelled": run.unfinished}
    known = {word: n for word, n in counts.items() if n is not None and (n or word == "ok")}
    decided = (run.answered or 0) + (run.failed or 0)
    rate = run.failed / decided if run.failed is not None and run.answered is not None and decided else None
    return {"outcomes": known, "failures": {"failure_rate": rate, "failed": run.failed, "by_outcome": {}}}
