"""The first request of a plan as a curl command, to be looked at or tried by hand; secrets are named, not shown."""

import re
import shlex
from collections.abc import Iterator, Mapping

from inferometer.load.transport import Encoder, request_headers, request_path
from inferometer.plan.model import Plan
from inferometer.plan.secrets import redacted, redacted_fields, redacted_url
from inferometer.wire.origin import origin_of
from inferometer.workload.context import context_of
from inferometer.workload.registry import new_nonce, workload_of

SOME_URL = "http://127.0.0.1:PORT"  # of a server that is not started yet
_POINTER = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\})")


def first_request_as_curl(plan: Plan, environ: Mapping[str, str], model: str | None = None) -> str:
    """As it would be sent by the first traffic class; `model` is what the server would be asked for."""
    traffic = plan.classes[0]
    context = context_of(plan.target, model)
    request = workload_of(traffic.workload, plan.seed, traffic.draw, new_nonce(), context)(0).turns[0]
    safe = redacted(plan)
    bare = safe.model_copy(update={"target": safe.target.model_copy(update={"headers": {}})})
    encoder = Encoder(bare, bare.classes[0].model_copy(update={"headers": {}}), model, {})
    headers = request_headers(plan.target, traffic, _Pointers(environ)) | request.headers
    lines = [
        f"curl {'-N ' if plan.target.stream else ''}{shlex.quote(_address(plan))}",
        *_settings(plan),
        *(f"-H {_double_quoted(f'{name}: {value}')}" for name, value in redacted_fields(headers).items()),
        f"-d {shlex.quote(encoder.body(request).decode())}",
    ]
    return " \\\n  ".join(lines)


def _address(plan: Plan) -> str:
    url = plan.target.url[0] if plan.target.url else SOME_URL.replace("PORT", "1")
    address = redacted_url(url.rstrip("/"))
    origin = origin_of(url)
    full = address.removesuffix(origin.path) + request_path(origin, plan.target)
    return full if plan.target.url else full.replace(":1/", ":PORT/", 1)


def _settings(plan: Plan) -> Iterator[str]:
    """What of the connection curl has to be told."""
    target = plan.target
    if not target.tls.verify:
        yield "--insecure"
    for flag, value in (("--cacert", target.tls.ca), ("--cert", target.tls.cert), ("--key", target.tls.key)):
        if value is not None:
            yield f"{flag} {shlex.quote(value)}"
    if target.proxy is not None:
        yield f"--proxy {shlex.quote(redacted_url(target.proxy))}"


class _Pointers(Mapping[str, str]):
    """An environment that gives, for each name, `${NAME}`: what the shell will fill in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> str:
        self._environ[name]
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


def _double_quoted(text: str) -> str:
    """In double quotes, where only pointers into the environment mean something to the shell."""
    parts = _POINTER.split(text)
    plain = (re.sub(r'([\\"`$])', r"\\\1", part) if number % 2 == 0 else part for number, part in enumerate(parts))
    return f'"{"".join(plain)}"'
