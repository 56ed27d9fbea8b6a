"""Messages to real receivers on loopback: HTTP and SMTP servers that refuse, hang, redirect and recover."""

import shutil
import ssl
import subprocess
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message
from aiosmtpd.smtp import AuthResult

from inferometer.cli import main
from inferometer.cli.work.notify import notify_findings
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.show.notify import Event, channels_of, posting
from inferometer.show.notify.news import deliver_finding, notebook, of_job
from inferometer.show.notify.posting import Patience, deliver
from inferometer.store.store import open_store
from receivers import receiving

QUICK = Patience(attempts=3, first_wait_s=0.01, timeout_s=0.3, deadline_s=3.0)
PATIENT = Patience(attempts=3, first_wait_s=0.01, timeout_s=30.0, deadline_s=90.0)  # of receivers that answer
EVENT = Event(
    "failure", "s", "chat: failed", ("A limit failed: ttft p99 < 1ms.",), {"model": "<m>"}, "r-1", None, "now"
)


def sent(name, patience=PATIENT, **variables):
    (found,) = deliver(EVENT, channels_of([name], variables), patience)
    return found


def called(*words):
    try:
        return main([*words]) or 0
    except SystemExit as end:
        return int(end.code or 0)


def test_slack_gets_blocks() -> None:
    with receiving() as receiver:
        assert sent("slack", SLACK_WEBHOOK_URL=receiver.url).arrived
    (message,) = receiver.messages
    assert message["blocks"][0]["text"]["text"] == "❌ chat: failed"
    assert "&lt;m&gt;" in str(message["blocks"])


def test_a_webhook_gets_the_event_with_a_key_and_a_token() -> None:
    with receiving() as receiver:
        sent("webhook", INFEROMETER_WEBHOOK_URL=receiver.url, INFEROMETER_WEBHOOK_TOKEN="t0k\n")
    assert receiver.messages == [EVENT.document()] and receiver.messages[0]["schema"] == "inferometer/event/1"
    assert receiver.headers[0]["Authorization"] == "Bearer t0k"
    assert receiver.headers[0]["Idempotency-Key"] == EVENT.id


def test_a_busy_receiver_is_tried_again() -> None:
    with receiving((503, {}), (429, {"Retry-After": "0"}), (200, {})) as receiver:
        assert sent("teams", TEAMS_WEBHOOK_URL=receiver.url).arrived
    assert len(receiver.messages) == 3


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (500, 3), (302, 1)])
def test_a_refusal_is_said_without_the_secret(status: int, attempts: int) -> None:
    with receiving((status, {"Location": "http://127.0.0.1:1/elsewhere"})) as receiver:
        found = sent("slack", SLACK_WEBHOOK_URL=receiver.url)
    assert f"answered {status}" in found.why_not and "sEcReT" not in found.why_not
    assert len(receiver.messages) == attempts


def test_what_a_receiver_repeats_of_the_address_is_not_said() -> None:
    with receiving((404, {})) as receiver:
        receiver.body = "The requested URL /services/T0/B0/sEcReT was not found on this server."
        found = sent("slack", SLACK_WEBHOOK_URL=receiver.url)
        spoilt = sent("slack", SLACK_WEBHOOK_URL=receiver.url.replace("sEcReT", "sEc ReT"))
    assert "The requested URL … was not found" in found.why_not
    assert "found at least" in spoilt.why_not and "sec ret" not in spoilt.why_not.lower()


def test_a_date_to_come_again_is_understood() -> None:
    past, late = (format_datetime(datetime.now(UTC) + timedelta(seconds=s)) for s in (-60, 3600))
    with receiving((429, {"Retry-After": past}), (503, {"Retry-After": "soon²"}), (200, {})) as receiver:
        assert sent("slack", SLACK_WEBHOOK_URL=receiver.url).arrived
    with receiving((429, {"Retry-After": late}), (200, {})) as receiver:
        assert not sent("slack", SLACK_WEBHOOK_URL=receiver.url).arrived and len(receiver.messages) == 1


def test_however_much_there_is_to_tell_a_hanging_receiver_is_waited_for_once(tmp_path: Path, monkeypatch, capsys):
    """Counted by what was sent, not by the clock: a busy machine takes its time over 40 findings. Whether the wait or
    the receiver's thread ends first, and how much of the 3 s is left when the first is sent, is luck as well."""
    monkeypatch.setattr(posting, "PATIENCE", QUICK)
    with receiving(None) as hanging:
        to = channels_of(["slack"], {"SLACK_WEBHOOK_URL": hanging.url})
        notify_findings([of_job(f"job {n}", fine=False) for n in range(40)], tmp_path, to)
        assert len(hanging.messages) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert "no answer within" in first or "did not answer in time" in first
    assert len(others) == 39 and all("no time left to send it" in line for line in others)


def test_a_command_that_is_telling_holds_no_other_up(tmp_path: Path) -> None:
    """The first may be waiting for a receiver that hangs, with the notes in its hands."""
    store, found = open_store(tmp_path), of_job("nightly", fine=False)
    with receiving() as receiver:
        to = channels_of(["slack"], {"SLACK_WEBHOOK_URL": receiver.url})
        with notebook(store):
            (late,) = deliver_finding(store, found, to, until=time.monotonic() + 0.1)
        assert not late.arrived and not receiver.messages
        (then,) = deliver_finding(store, found, to, until=time.monotonic() + 20)
    assert then.arrived


def test_a_receiver_that_asks_for_an_hour_is_not_waited_for() -> None:
    started = time.monotonic()
    with receiving((429, {"Retry-After": "3600"})) as receiver:
        assert not sent("slack", SLACK_WEBHOOK_URL=receiver.url).arrived
    assert time.monotonic() - started < 3


def test_a_hanging_receiver_holds_nobody_up() -> None:
    started = time.monotonic()
    with receiving(None) as hanging, receiving() as well:
        both = channels_of(["slack", "teams"], {"SLACK_WEBHOOK_URL": hanging.url, "TEAMS_WEBHOOK_URL": well.url})
        found = deliver(EVENT, both, QUICK)
    assert [each.arrived for each in found] == [False, True]
    assert "did not answer in time" in found[0].why_not
    assert time.monotonic() - started < 5


def test_a_deadline_ends_even_what_trickles() -> None:
    with receiving(None) as receiver:
        late = Patience(attempts=1, timeout_s=20.0, deadline_s=0.3)
        found = sent("slack", late, SLACK_WEBHOOK_URL=receiver.url)
    assert not found.arrived


def test_secrets_do_not_go_in_the_clear() -> None:
    clear = {"INFEROMETER_WEBHOOK_URL": "http://in.example.org/hook", "INFEROMETER_WEBHOOK_TOKEN": "t0k"}
    assert "would be sent in the clear" in sent("webhook", **clear).why_not
    found = sent("slack", SLACK_WEBHOOK_URL="http://hooks.example.org/sEcReT")
    assert found.why_not == "http://hooks.example.org: would be sent in the clear; use https://"
    assert "must begin with https://" in sent("slack", SLACK_WEBHOOK_URL="ftp:sEcReT").why_not


class Inbox(Message):
    def __init__(self) -> None:
        super().__init__()
        self.mails = []  # type: ignore[var-annotated]

    def handle_message(self, message):
        self.mails.append(message)


@pytest.fixture(scope="module")
def trust(tmp_path_factory) -> Path:
    """A certificate for localhost, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("tls")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(
        [*words.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True
    )
    return folder


class FreePort(Controller):
    """aiosmtpd asks its own port whether it answers, which it does not know when it is 0."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        super()._trigger_server()


@contextmanager
def mailing(**options):
    inbox = Inbox()
    server = FreePort(inbox, hostname="127.0.0.1", port=0, **options)
    server.start()
    try:
        yield inbox, server.port
    finally:
        server.stop()


def server_side(trust):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(trust / "cert.pem", trust / "key.pem")
    return context


def allowed(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (b"ci", b"p@ss"), handled=False)


def mail_to(url):
    return {"INFEROMETER_SMTP_URL": url, "INFEROMETER_EMAIL_TO": "a@example.org, B <b@example.org>"}


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_mail_goes_encrypted_with_user_and_password(scheme: str, trust: Path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(trust / "cert.pem"))
    tls = {"ssl_context": server_side(trust)} if scheme == "smtps" else {"tls_context": server_side(trust)}
    needs = {"require_starttls": True} if scheme == "smtp" else {"auth_require_tls": False}
    with mailing(authenticator=allowed, auth_required=True, **tls, **needs) as (inbox, port):
        found = sent("email", **mail_to(f"{scheme}://ci:p%40ss@localhost:{port}"), INFEROMETER_EMAIL_FROM="me@x.org")
        wrong = sent("email", **mail_to(f"{scheme}://ci:wrong@localhost:{port}"))
    assert found.why_not is None
    (mail,) = inbox.mails
    assert mail["To"] == "a@example.org, b@example.org" and mail["From"] == "me@x.org"
    assert "refused user and password" in wrong.why_not and "wrong" not in wrong.why_not


def test_an_untrusted_or_clear_mail_server_gets_nothing(trust: Path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with mailing(tls_context=server_side(trust)) as (inbox, port):
        untrusted = sent("email", **mail_to(f"smtp://localhost:{port}"))
    with mailing() as (clear, port):
        password = sent("email", **mail_to(f"smtp://ci:secret@localhost:{port}"))
        assert sent("email", **mail_to(f"smtp://localhost:{port}")).arrived
    assert "self" in untrusted.why_not and not inbox.mails
    assert "STARTTLS" in password.why_not and len(clear.mails) == 1


def test_a_channel_is_tried_by_hand(monkeypatch, capsys):
    with receiving() as receiver:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", receiver.url)
        assert called("notify", "--test", "slack") == 0
        assert receiver.messages[0]["blocks"][0]["text"]["text"].startswith("🔔")
    assert called("notify", "--test", "pigeon") == 2
    assert "there are slack, teams, webhook, email" in capsys.readouterr().err
    assert called("notify", "slack") == 2
    assert called("notify") == 0
    assert "SLACK_WEBHOOK_URL" in capsys.readouterr().out


def test_a_job_is_told_of_once(tmp_path: Path, monkeypatch):
    with receiving() as receiver:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", receiver.url)
        for result in ("success", "failure", "cancelled", "failure", "success", "success"):
            words = ("slack", "--job", "nightly", "--result", result, "--store", str(tmp_path))
            assert called("notify", *words) == 0
    titles = [message["blocks"][0]["text"]["text"] for message in receiver.messages]
    assert titles == ["❌ nightly: failed", "✅ nightly: recovered"]


def test_a_run_tells_when_its_target_is_gone_and_when_it_is_back(tmp_path: Path, simulator: str, monkeypatch, capsys):
    keep_curve(curve_of([]), tmp_path / "store")  # how well we measure is another test's matter
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: chat\nload: {concurrency: 2}\nstop: {requests: 8}\nworkload: {output_tokens: 4}\n")
    words = ("run", str(plan), "--notify", "slack", "--quiet", "--store", str(tmp_path / "store"))
    with receiving() as receiver:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", receiver.url)
        assert [called(*words, "--url", "http://127.0.0.1:9") for _ in range(2)] == [3, 3]
        assert called(*words, "--url", simulator) in (0, 4)
        assert called(*words, "--url", simulator, "--limit", "ttft p50 < 1us") in (1, 4)
    titles = [message["blocks"][0]["text"]["text"] for message in receiver.messages]
    assert titles[0] == "❌ chat: failed" and "refused the connection" in str(receiver.messages[0])
    assert titles[-1] == "❌ chat: failed" and "ttft p50 &lt; 1us" in str(receiver.messages[-1])
    assert "sEcReT" not in "".join(capsys.readouterr())
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"sEcReT" in file.read_bytes()]
