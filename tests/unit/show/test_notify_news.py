"""The content of notifications, and that each is sent once."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.errors import PlanError
from inferometer.judge.check import check
from inferometer.plan.stored import StoredPlan
from inferometer.show.notify import Channel, Event, channels_of, mail, posting
from inferometer.show.notify.news import (
    NOTEBOOK,
    deliver_finding,
    job_link,
    notebook,
    of_check,
    of_error,
    of_job,
    of_run,
)
from inferometer.show.notify.posting import Delivered, hidden
from inferometer.store.store import Store, open_store
from lined_runs import PLAN, line_of, lined_run

SLACK, MAIL = (Channel(name, lambda *_: None, {}) for name in ("slack", "email"))
texts = st.text(st.sampled_from("ab<>&|*`\n@é📉"), max_size=5000)


class Ears:
    """Whoever hears; `deaf` channels cannot be reached."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.deaf: set[str] = set()

    def __call__(self, event: Event, to: Sequence[Channel]) -> list[Delivered]:
        self.heard += [(each.name, event.kind) for each in to if each.name not in self.deaf]
        return [Delivered(each.name, "deaf" if each.name in self.deaf else None) for each in to]


@pytest.fixture
def ears():
    return Ears()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def finding(*what):
    return of_run(lined_run(1, 20.0), [(each, f"{each} is wrong.") for each in what])


def test_a_failure_is_told_once_and_its_end_once(store: Store, ears):
    for found in (finding(), finding("a"), finding("a"), finding(), finding()):
        deliver_finding(store, found, [SLACK], ears)
    assert ears.heard == [("slack", "failure"), ("slack", "recovery")]


def test_something_else_wrong_is_news_and_the_same_again_is_not(store: Store, ears):
    for what in (["a"], ["a", "b"], ["b"], ["a"], []):
        deliver_finding(store, finding(*what), [SLACK], ears)
    assert [kind for _, kind in ears.heard] == ["failure", "failure", "recovery"]


def test_who_could_not_be_reached_is_told_later(store: Store, ears):
    ears.deaf = {"email"}
    assert [each.arrived for each in deliver_finding(store, finding("a"), [SLACK, MAIL], ears)] == [True, False]
    ears.deaf = set()
    deliver_finding(store, finding("a"), [SLACK, MAIL], ears)
    assert ears.heard == [("slack", "failure"), ("email", "failure")]


def test_a_recovery_goes_only_to_those_who_heard(store: Store, ears):
    deliver_finding(store, finding("a"), [SLACK], ears)
    deliver_finding(store, finding(), [SLACK, MAIL], ears)
    assert ears.heard == [("slack", "failure"), ("slack", "recovery")]


def test_a_broken_notebook_is_begun_anew(store: Store, ears):
    store.home.mkdir(exist_ok=True)
    (store.home / NOTEBOOK).write_text("{")
    deliver_finding(store, finding("a"), [SLACK], ears)
    with notebook(store) as notes:
        assert [note.channels for note in notes.values()] == [("slack",)]


def test_a_notebook_of_version_1_is_still_known(store: Store, ears):
    deliver_finding(store, finding("a"), [SLACK], ears)
    file = store.home / NOTEBOOK
    document = json.loads(file.read_text())
    old = {subject: {"told": note.pop("channels"), **note} for subject, note in document["notes"].items()}
    file.write_text(json.dumps({"schema": "inferometer/notifications/1", "notes": old}))
    assert deliver_finding(store, finding("a"), [SLACK], ears) == [] and len(ears.heard) == 1


def test_where_nothing_can_be_remembered_it_is_told_nevertheless(tmp_path: Path, ears):
    (tmp_path / "file").write_text("")
    deliver_finding(open_store(tmp_path / "file" / "store"), finding("a"), [SLACK], ears)
    assert ears.heard == [("slack", "failure")]


def test_an_error_before_the_run_and_the_run_after_it_are_one_subject() -> None:
    assert of_error(PLAN, "refused").subject == of_run(lined_run(1, 20.0), []).subject
    other = {**PLAN, "load": {"concurrency": 9}}
    assert of_error(other, "refused").subject != of_error(PLAN, "refused").subject


def test_a_regression_names_its_measures_and_unclear_is_no_news() -> None:
    history, run = line_of([20.0, 20.1, 19.9, 20.05, 19.95, 20.1, 20.0]), lined_run(9, 24.0)
    found = of_check(run, check(history, run))
    assert found is not None and "tpot.mean" in found.what and found.event.kind == "regression"
    assert "worse in TPOT" in found.event.title and "20" in " ".join(found.event.sentences)
    known = {
        "model": "m",
        "engine": "vLLM 0.24.0",
        "hardware": "x",
        "workload": "256 in, 64 out",
        "load": "8 in flight",
    }
    assert found.event.facts == known | {"commit": "a" * 12}
    assert of_check(run, check([], run)) is None


def test_jobs_are_told_apart() -> None:
    assert of_job("a", True).what == () and of_job("a", False).what == ("failed",)
    assert of_job("a", False).subject != of_job("b", False).subject


@given(texts, st.lists(texts, max_size=80), st.dictionaries(texts, texts, max_size=30))
def test_slack_takes_every_message(title, sentences, facts):
    event = Event("failure", "s", title, tuple(sentences), facts, run="r", link="https://ci/1")
    made = posting.slack_message(event)
    assert made["text"] and len(made["blocks"]) <= 50
    for block in made["blocks"]:
        pieces = [*_pieces({"blocks": [block]})]
        assert 1 <= len(pieces) <= 10
        most = 150 if block["type"] == "header" else 2000 if "fields" in block else 3000
        assert all(0 < len(piece["text"]) <= most for piece in pieces)
        assert all("<!" not in piece["text"] for piece in pieces if piece["type"] == "mrkdwn")


HUGE = Event("regression", "s", "📉" * 9000, ("é📉<&>" * 5000,) * 300, {f"k{n}": "v📉" * 9000 for n in range(600)})


@pytest.mark.parametrize("more", [{}, {"run": "r" * 9000, "link": "https://ci/" + "x" * 9000}])
def test_the_largest_of_events_has_room_everywhere(more):
    event = replace(HUGE, **more)
    blocks = posting.slack_message(event)["blocks"]
    assert len(blocks) <= 50 and len(json.dumps(posting.slack_message(event))) < 200_000
    assert "… and 281 more" in str(blocks) and "… and 281 more" in str(posting.teams_message(event))
    assert len(json.dumps(posting.teams_message(event), ensure_ascii=False).encode()) < 28_000
    assert len(mail.message(event, mail.addresses("a@b.org")[0], []).as_bytes()) < 5_000_000


@given(texts, st.lists(texts, max_size=50), st.dictionaries(texts, texts, max_size=30))
def test_teams_takes_every_message(title, sentences, facts):
    made = posting.teams_message(Event("regression", "s", title, tuple(sentences), facts, link="https://ci/1"))
    card = made["attachments"][0]["content"]
    assert card["type"] == "AdaptiveCard" and len(json.dumps(made, ensure_ascii=False).encode()) < 28_000
    assert len(card["body"]) <= 32


def test_names_are_text_in_every_message() -> None:
    run = replace(lined_run(1, 20.0), plan=StoredPlan({"name": "a\n<!channel>\x1b[31m\ud800 http://x.org"}))
    event = of_run(run, [("limit", "\ud800 *is* wrong")]).event
    assert event.title == "a <!channel>�[31m� http://x.org: failed"
    made = posting.slack_message(event)
    assert all(piece["verbatim"] for piece in _pieces(made) if piece["type"] == "mrkdwn")
    for message in (made, posting.teams_message(event), event.document()):
        assert json.dumps(message, ensure_ascii=False).encode()
    assert mail.message(event, mail.addresses("a@b.org")[0], []).as_bytes() and event.id


def _pieces(made):
    for block in made["blocks"]:
        yield from [block["text"]] if "text" in block else block.get("fields") or block["elements"]


@pytest.mark.parametrize(
    "said",
    [
        "not found: /services/T0/B0/sEcReT7",
        "not found: https://h.org/services/T0/B0/sEcReT7?sig=a%2Fb%26cdef",
        "no such page: SECRET7",
        "sig was a/b&amp;cdef",
        "535 ci:p@ss refused",
        "Bearer t0k3n",
    ],
)
def test_what_a_receiver_repeats_is_hidden(said: str) -> None:
    there = {
        "SLACK_WEBHOOK_URL": "https://h.org/services/T0/B0/sEcReT7?sig=a%2Fb%26cdef\n",
        "INFEROMETER_SMTP_URL": "smtps://ci:p%40ss@mail.org",
        "INFEROMETER_WEBHOOK_TOKEN": " t0k3n",
        "INFEROMETER_EMAIL_TO": "team@example.org",
    }
    shown = hidden(f"{said} for team@example.org", there)
    assert "…" in shown and "team@example.org" in shown
    assert not [word for word in ("secret7", "cdef", "p@ss", "t0k3n") if word in shown.lower()]


@given(texts, st.lists(texts, max_size=5))
def test_a_mail_has_one_subject_line(title, sentences):
    made = mail.message(Event("failure", "s", title, tuple(sentences)), mail.addresses("a@b.org")[0], [])
    assert "\n" not in str(made["Subject"]) and made.as_bytes()


def test_what_a_channel_lacks_is_said_before_anything_is_measured() -> None:
    with pytest.raises(PlanError) as error:
        channels_of(["slack,pigeon", "email"], {"INFEROMETER_SMTP_URL": "smtp://localhost"})
    assert error.value.mistakes == [
        "--notify slack: needs SLACK_WEBHOOK_URL in the environment",
        "--notify: no channel 'pigeon'; there are slack, teams, webhook, email",
        "--notify email: needs INFEROMETER_EMAIL_TO in the environment",
    ]
    (made,) = channels_of(["slack", ""], {"SLACK_WEBHOOK_URL": "https://hooks/sEcReT"})
    assert "sEcReT" not in repr(made)


def test_links_to_the_job() -> None:
    there = {"GITHUB_SERVER_URL": "https://g", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "7"}
    assert job_link(there) == "https://g/a/b/actions/runs/7"
    assert job_link({"CI_JOB_URL": "https://l/1"}) == "https://l/1" and job_link({}) is None
