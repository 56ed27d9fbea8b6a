"""Findings of runs, checks, experiments and jobs: what they are about, whether they are fine, and the words for it."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from inferometer.exchange.exporting.facts import engine_of, gpu_text, model_of, version_of
from inferometer.judge.identity import identity, identity_of
from inferometer.record.run import Run
from inferometer.record.sanitize import harmless, one_line
from inferometer.show.notify.event import Event, Kind
from inferometer.show.notify.news import Finding
from inferometer.store.experiments import CaseRow

Problem = tuple[str, str]  # what is wrong, in a word that stays the same, and in a sentence


def of_run(run: Run, problems: Sequence[Problem]) -> Finding:
    """Whether a run of this plan does what it should: the target answers, the limits hold, the numbers are valid."""
    return _failure(_planned(run.plan, run.kind), run_name(run), problems, run_facts(run), run.id)


def of_error(plan: Mapping[str, Any], error: str, kind: str = "serving") -> Finding:
    """A plan of which no run came."""
    name = str(plan.get("name") or _model(plan) or "a run")
    return _failure(_planned(plan, kind), name, [("error", error)], {}, None)


def of_check(run: Run, check: Mapping[str, Any]) -> Finding | None:
    """Whether a run is worse than those before it; None where that cannot be told, which is no news."""
    word, name = check.get("word"), run_name(run)
    if word not in ("worse", "better", "same"):
        return None
    worse = [each for each in check.get("measures", []) if each["word"] == "worse" and each["class"] == "alert"]
    what = tuple(sorted(each["key"] for each in worse)) if word == "worse" else ()
    titles = ", ".join(dict.fromkeys(str(each["title"]) for each in worse))
    title = f"{name}: worse in {titles}" if what else f"{name}: not worse any more"
    sentences = tuple(map(str, check.get("sentences", ())))
    kind: Kind = "regression" if what else "recovery"
    event = _event(kind, f"regression:{identity(run).key}", title, sentences, run_facts(run), run.id)
    return Finding(what, event)


def of_experiment(name: str | None, rows: Sequence[CaseRow], id_: str) -> Finding:
    """Whether all cases of an experiment went as they should."""
    called = name or "an experiment"
    wrong = [(row.name, f"{row.name}: {row.error or 'failed'}") for row in rows if row.state == "failed"]
    wrong += [(f"limits of {row.name}", f"{row.name}: a limit failed") for row in rows if row.limits_missed]
    return _failure(f"experiment:{_short_hash({'name': called})}", called, wrong, {"experiment": id_}, None)


def of_job(name: str, fine: bool, text: str | None = None) -> Finding:
    """Whether a job of CI ended well, whatever it did."""
    said = text or f"The job {name} failed."
    return _failure(f"job:{name}", name, [] if fine else [("failed", said)], {}, None)


def test_event() -> Event:
    return _event("test", "test", "Inferometer can reach you here", ("This is a test; nothing is wrong.",), {}, None)


def _failure(subject: str, name: str, problems: Sequence[Problem], facts: dict[str, str], run: str | None) -> Finding:
    what = tuple(sorted({word for word, _ in problems}))
    sentences = tuple(text for _, text in problems) if what else ("It is as it should be again.",)
    kind: Kind = "failure" if what else "recovery"
    title = f"{name}: failed" if what else f"{name}: recovered"
    return Finding(what, _event(kind, f"failure:{subject}", title, sentences, facts, run))


def _event(
    kind: Kind, subject: str, title: str, sentences: tuple[str, ...], facts: dict[str, str], run: str | None
) -> Event:
    """Names come from plans and servers: what a channel gets is text, the title one line of it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    said = tuple(map(harmless, sentences))
    known = {one_line(label): one_line(value) for label, value in facts.items()}
    return Event(kind, one_line(subject), one_line(title), said, known, run, job_link(os.environ), now)


def run_name(run: Run) -> str:
    return str(run.plan.get("name") or model_of(run) or run.kind)


def run_facts(run: Run) -> dict[str, str]:
    """What was measured, as far as it is known."""
    engine = " ".join(filter(None, (engine_of(run), version_of(run)))) or None
    commit = identity(run).axes.get("commit")
    facts = {"model": model_of(run), "engine": engine, "GPU": gpu_text(run), "commit": commit and commit[:12]}
    return {label: value for label, value in facts.items() if value}


def job_link(environment: Mapping[str, str]) -> str | None:
    """The page of the CI job that we run in."""
    server, repository, run = (
        environment.get(name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    )
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environment.get("CI_JOB_URL") or environment.get("BUILD_URL") or None


def _planned(plan: Mapping[str, Any], kind: str) -> str:
    """By the plan alone: of a run that failed nothing else is known."""
    found = identity_of(plan, {}, kind)
    return f"{found.workload}-{found.stack}-{_short_hash(plan.get('name'))}"


def _model(plan: Mapping[str, Any]) -> str | None:
    target = plan.get("target")
    return target.get("model") if isinstance(target, Mapping) else None


def _short_hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
