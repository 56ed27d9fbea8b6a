"""Findings of runs, checks, experiments and jobs: what they are about, whether they are fine, and the words for it."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from inferometer.documents.document import JsonObject
from inferometer.judge.check_result import CheckResult
from inferometer.judge.identity import identity, identity_of
from inferometer.measure.verdict import LEADING, failures_text
from inferometer.record.environment import Environment
from inferometer.record.run import Run, subject_of
from inferometer.record.sanitize import harmless, one_line
from inferometer.show.about import about_of, page_link
from inferometer.show.notify.channels import Event, Kind
from inferometer.show.notify.news import SubjectState
from inferometer.store.experiments import CaseRow

Problem = tuple[str, str]  # what is wrong, in a word that stays the same, and in a sentence


def of_run(run: Run, problems: Sequence[Problem]) -> SubjectState:
    """Whether a run of this plan does what it should: the target answers, the limits hold, the numbers are valid."""
    lead = other_failures(run) if problems else ""
    return _failure(_planned(run.plan, run.kind), run_name(run), problems, run_facts(run), run.id, lead)


def other_failures(run: Run) -> str:
    """What failed, where it is no reason for doubt: a few, or as many as a limit of the plan judges."""
    if not run.summary.failures.failed or any(reason.code in LEADING for reason in run.doubts):
        return ""
    return failures_text(run.summary)


def of_error(plan: JsonObject, error: str, kind: str = "serving") -> SubjectState:
    """A plan of which no run came."""
    subject = subject_of(plan, Environment())
    name = subject.name or subject.model or "a run"
    return _failure(_planned(plan, kind), name, [("error", error)], {}, None)


def of_check(run: Run, check: CheckResult) -> SubjectState | None:
    """Whether a run is worse than those before it; None if that is unclear, which is not reported."""
    name = run_name(run)
    if check.status not in ("worse", "better", "same"):
        return None
    worse = [measure.change for measure in check.with_status("worse")]
    what = tuple(sorted(change.key for change in worse)) if check.status == "worse" else ()
    titles = ", ".join(dict.fromkeys(change.title for change in worse))
    title = f"{name}: worse in {titles}" if what else f"{name}: no longer worse"
    kind: Kind = "regression" if what else "recovery"
    event = _event(kind, f"regression:{identity(run).key}", title, check.sentences, run_facts(run), run.id)
    return SubjectState(what, event)


def of_experiment(name: str | None, rows: Sequence[CaseRow], id_: str, runs: Sequence[Run] = ()) -> SubjectState:
    """Whether all cases of an experiment went as they should. What some of its `runs` share is what was measured."""
    called = name or "an experiment"
    wrong = [(row.name, f"{row.name}: {row.error or 'failed'}") for row in rows if row.state == "failed"]
    wrong += [(f"limits of {row.name}", f"{row.name}: a limit failed") for row in rows if row.limits_missed]
    known = [run_facts(run) for run in runs]
    shared = {
        label: value for label, value in (known or [{}])[0].items() if all(facts.get(label) == value for facts in known)
    }
    finding = _failure(
        f"experiment:{_short_hash({'name': called})}", called, wrong, {**shared, "experiment": id_}, None
    )
    page = page_link(id_, os.environ, "experiment")
    return replace(finding, event=replace(finding.event, page=page))


def of_job(name: str, fine: bool, text: str | None = None) -> SubjectState:
    """Whether a job of CI ended well, whatever it did."""
    reason = text or f"The job {name} failed."
    return _failure(f"job:{name}", name, [] if fine else [("failed", reason)], {}, None)


def test_event() -> Event:
    return _event(
        "test", "test", "Inferometer test message", ("This is a test of the notification channel.",), {}, None
    )


def _failure(
    subject: str,
    name: str,
    problems: Sequence[Problem],
    facts: dict[str, str],
    run: str | None,
    lead: str = "",
) -> SubjectState:
    what = tuple(sorted({problem for problem, _ in problems}))
    first = (f"{lead}.",) if lead else ()
    sentences = (*first, *(text for _, text in problems)) if what else ("It is as it should be again.",)
    kind: Kind = "failure" if what else "recovery"
    title = f"{name}: failed" if what else f"{name}: recovered"
    return SubjectState(what, _event(kind, f"failure:{subject}", title, sentences, facts, run))


def _event(
    kind: Kind, subject: str, title: str, sentences: tuple[str, ...], facts: dict[str, str], run: str | None
) -> Event:
    """Names come from plans and servers: what a channel gets is text, the title one line of it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    texts = tuple(dict.fromkeys(map(harmless, sentences)))  # a cause is reported once
    known = {one_line(label): one_line(value) for label, value in facts.items()}
    links = {"link": job_link(os.environ), "page": page_link(run, os.environ)}
    return Event(kind, one_line(subject), one_line(title), texts, known, run, at=now, **links)


def run_name(run: Run) -> str:
    return run.subject.name or run.subject.model or run.kind


def run_facts(run: Run) -> dict[str, str]:
    """What was measured, as far as it is known."""
    about = about_of(run)
    facts = {
        "model": run.subject.model,
        "engine": about.engine,
        "hardware": about.hardware,
        "workload": about.workload,
        "load": about.load,
        "commit": about.commit,
    }
    return {label: value for label, value in facts.items() if value}


def job_link(environment: Mapping[str, str]) -> str | None:
    """The page of the CI job that we run in."""
    server, repository, run = (
        environment.get(name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    )
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environment.get("CI_JOB_URL") or environment.get("BUILD_URL") or None


def _planned(plan: JsonObject, kind: str) -> str:
    """By the plan alone: of a run that failed nothing else is known."""
    identity = identity_of(plan, Environment(), kind)
    return f"{identity.workload}-{identity.stack}-{_short_hash(plan.get('name'))}"


def _short_hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]
