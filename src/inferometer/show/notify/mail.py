"""An event as an SMTP mail, encrypted: `smtps://` from the first byte, `smtp://` with STARTTLS. Only a server on this
machine is contacted without encryption."""

import smtplib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid, parseaddr
from urllib.parse import unquote, urlsplit

from inferometer.record.sanitize import cut
from inferometer.show.notify import Event, first_of
from inferometer.show.notify.posting import Undelivered

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_PARAGRAPHS, MOST_PARAGRAPH = 100, 4000


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int
    encrypted: bool  # from the first byte
    user: str | None
    password: str | None


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    server = server_of(variables["INFEROMETER_SMTP_URL"])
    to = addresses(variables["INFEROMETER_EMAIL_TO"])
    sender = addresses(variables.get("INFEROMETER_EMAIL_FROM") or f"inferometer@{socket.getfqdn() or 'localhost'}")[0]
    mail = message(event, sender, to)
    try:
        with _connected(server, timeout_s) as connection:
            if server.user is not None:
                connection.login(server.user, server.password or "")
            connection.send_message(mail)
    except smtplib.SMTPAuthenticationError as error:
        raise Undelivered(f"{server.host}: refused user and password ({error.smtp_code})") from None
    except smtplib.SMTPRecipientsRefused:
        raise Undelivered(f"{server.host}: refused the recipients") from None
    except smtplib.SMTPResponseException as error:
        reply = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise Undelivered(f"{server.host}: {error.smtp_code} {reply}", again=error.smtp_code < 500) from None
    except ssl.SSLCertVerificationError as error:
        raise Undelivered(f"{server.host}: {error.verify_message}") from None
    except (smtplib.SMTPException, OSError) as error:
        why = "did not answer in time" if isinstance(error, TimeoutError) else str(error)
        raise Undelivered(f"{server.host}: {why}", again=not isinstance(error, smtplib.SMTPNotSupportedError)) from None


def _connected(server: MailServer, timeout_s: float) -> smtplib.SMTP:
    trust = ssl.create_default_context()
    if server.encrypted:
        return smtplib.SMTP_SSL(server.host, server.port, timeout=timeout_s, context=trust)
    connection = smtplib.SMTP(server.host, server.port, timeout=timeout_s)
    try:
        _encrypt(connection, server, trust)
    except BaseException:
        connection.close()
        raise
    return connection


def _encrypt(connection: smtplib.SMTP, server: MailServer, trust: ssl.SSLContext) -> None:
    connection.ehlo()
    if connection.has_extn("starttls"):
        connection.starttls(context=trust)
        connection.ehlo()
    elif server.host not in _LOOPBACK or server.password:
        raise Undelivered(f"{server.host}: does not offer STARTTLS; nothing is sent in the clear")


def server_of(url: str) -> MailServer:
    """`smtps://user:password@mail.example.org:465`; special characters of a password as %40."""
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, parts.hostname
    except ValueError:
        raise Undelivered("INFEROMETER_SMTP_URL is not a URL") from None
    if parts.scheme not in ("smtp", "smtps") or not host:
        raise Undelivered("INFEROMETER_SMTP_URL must be smtps://user:password@host:465 or smtp://...:587")
    encrypted = parts.scheme == "smtps"
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    return MailServer(host, port or (465 if encrypted else 587), encrypted, user, password)


def addresses(text: str) -> list[Address]:
    """Several, separated by commas."""
    try:
        parsed = [Address(addr_spec=parseaddr(address)[1]) for address in text.split(",") if address.strip()]
    except (ValueError, IndexError):
        parsed = []
    if not parsed or any(not (address.username and address.domain) for address in parsed):
        raise Undelivered("INFEROMETER_EMAIL_TO and _FROM must be addresses such as team@example.org")
    return parsed


def message(event: Event, sender: Address, to: list[Address]) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = cut(" ".join(event.heading.split()), 200)  # a header is a single line
    mail["From"], mail["To"] = sender, to
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = make_msgid(event.id, domain=sender.domain)
    mail["Auto-Submitted"] = "auto-generated"  # prevents automatic replies
    mail.set_content(body(event))
    return mail


def body(event: Event) -> str:
    facts = (
        event.facts
        | ({"run": event.run} if event.run else {})
        | ({"page": event.page} if event.page else {})
        | ({"job": event.link} if event.link else {})
    )
    width = max((len(label) for label in facts), default=0)
    details = "".join(f"{label:<{width}}  {cut(value, MOST_PARAGRAPH)}\n" for label, value in list(facts.items())[:20])
    paragraphs = [cut(text, MOST_PARAGRAPH) for text in first_of(event.sentences, MOST_PARAGRAPHS)]
    return "\n\n".join([*paragraphs, details] if details else paragraphs) + "\n"
