"""The `target` and `observe` of a plan: what is measured through which API, and which telemetry is sampled."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from inferometer.documents.document import JsonObject
from inferometer.plan import short
from inferometer.plan.fields import Count, Duration, Headers, Line, Mistake, RequestPath, Section, one_or_several
from inferometer.vocabulary import http_url
from inferometer.wire.api import APIS, api_of, endpoints

# -- target ----------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:  # reading a plan needs no TLS
    from inferometer.wire.origin import Trust

    Api = str
else:
    Api = Literal[tuple(APIS)]


_NO_SCHEME = re.compile(  # localhost, 10.0.0.7:8000, gpu-node:8000/v1; a bare name may be a typo, or want https
    r"(localhost|\d+(\.\d+){3}|\[[\da-f:.]+\]|[a-z0-9][\w.-]*(?=:\d))(:\d+)?(/\S*)?", re.ASCII | re.IGNORECASE
)


def _address(text: str) -> str:
    """The address as typed: `localhost:8000` is http://localhost:8000."""
    return http_url(f"http://{text.strip()}" if _NO_SCHEME.fullmatch(text.strip()) else text)


Url = Annotated[str, AfterValidator(http_url)]
Address = Annotated[str, AfterValidator(_address)]


class Tls(Section):
    """TLS settings of an https target."""

    verify: bool = Field(True, description="verify the server's certificate")
    ca: str | None = Field(None, description="file with trusted certificate authorities")
    cert: str | None = Field(None, description="file with the client certificate")
    key: str | None = Field(None, description="file with its private key, if not in cert")

    @property
    def trust(self) -> "Trust":
        """The settings in the form that connections use."""
        return self.verify, self.ca, self.cert, self.key

    def disagreements(self) -> Iterator[Mistake]:
        if self.key and not self.cert:
            yield Mistake(("key",), "belongs to a certificate: give tls.cert too")


class Timeouts(Section):
    """Timeouts after which a request fails."""

    connect: Duration = Field(10.0, gt=0, description="timeout for opening a connection")
    request: Duration | None = Field(
        600.0, gt=0, description="timeout of a request, from sending to the end of the answer"
    )
    idle: Duration | None = Field(None, gt=0, description="maximum silence while waiting for or streaming an answer")


class Bounds(Section):
    """Limits on the size of answers. Normal servers stay far below; a server that streams without end does not."""

    answer: Count = Field(
        64 * 1024**2, gt=0, description="maximum bytes of one answer; a larger one ends with the outcome oversized"
    )
    memory: Count = Field(
        4 * 1024**3,
        gt=0,
        description="maximum bytes of all answers in flight in one worker; above it the largest ends as oversized",
    )
    poll: Count = Field(4 * 1024**2, ge=16 * 1024, description="bytes read between checks of timeouts and interrupts")


class Target(Section):
    """The endpoint to measure and its API."""

    short_forms: ClassVar[list[JsonObject]] = [
        {"type": "string", "examples": ["http://localhost:8000"], "description": "its url"},
        {"type": "array", "items": {"type": "string"}, "description": "its urls"},
    ]

    url: Annotated[list[Address], one_or_several(Address)] = Field(
        [], description="URL of the server; several are used in turn"
    )
    model: Line | None = Field(None, description="model name; default: from /v1/models")
    api: Api = Field("completions", description="API of the server")
    path: RequestPath | None = Field(None, description="request path; default: that of the API")
    body: str | None = Field(
        None, description="for api template: the request body, with a literal {prompt}", repr=False
    )
    stream: bool = Field(True, description="stream the answers")
    continuous_usage: bool = Field(True, description="request running token counts if the server supports them")
    headers: Headers = Field(
        {}, description="headers of every request; ${NAME} is read from the environment", repr=False
    )
    session_header: str | None = Field(
        None, min_length=1, description="header with an id of the session, such as x-session-id"
    )
    key_env: str = Field(
        "OPENAI_API_KEY", description="environment variable with the API key; for anthropic ANTHROPIC_API_KEY"
    )
    tls: Tls = Field(Tls.usual(), description="certificates")
    proxy: Url | None = Field(None, description="HTTP proxy, http://host:port", repr=False)
    timeout: Timeouts = Field(Timeouts.usual(), description="timeouts")
    bounds: Bounds = Field(Bounds.usual(), description="limits on the size of answers")
    preconnect: bool = Field(True, description="open the connections before the load starts")
    exclusive: bool = Field(
        True, description="refuse to measure a server that another run on this machine is measuring"
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        opened = short.target(value)
        api = opened.get("api") if isinstance(opened, dict) else None
        usual = api_of(api).key_env if isinstance(api, str) and api in APIS else cls.model_fields["key_env"].default
        return opened if usual == cls.model_fields["key_env"].default else {"key_env": usual} | opened

    def disagreements(self) -> Iterator[Mistake]:
        api = api_of(self.api)
        if api.templated and (self.body is None or "{prompt}" not in self.body):
            yield Mistake(("body",), "must contain a literal {prompt}: api template sends it unchanged")
        if not api.templated and self.body is not None:
            yield Mistake(("body",), f"belongs to api template, but api is {self.api}")
        if self.path is None and api.path in endpoints():
            yield from self._of_endpoints()

    def _of_endpoints(self) -> Iterator[Mistake]:
        """Refuse a URL with the path of another API; `short` removes the path only if it agrees with `api`."""
        others = {api for url in self.url if (api := short.endpoint(url)[1]) is not None}
        for api in sorted(others):
            yield Mistake(("url",), f"ends in the path of api {api}, but api is {self.api}: leave the path out")


# -- observe ---------------------------------------------------------------------------------------------------------


def _switch(value: Any) -> Any:
    """A switch or a list: YAML reads `on` and `off` as true and false, and a single entry is a list of one."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) or (isinstance(value, str) and value.startswith(("http://", "https://"))):
        return [value]
    return value


Gpu = Annotated[
    Literal["auto", "on", "off"] | list[Annotated[int, Field(ge=0, lt=1024)]],
    BeforeValidator(_switch, json_schema_input_type=Literal["auto", "on", "off"] | bool | int | list[int]),
]
Metrics = Annotated[
    Literal["auto", "off"] | list[Url],
    BeforeValidator(_switch, json_schema_input_type=Literal["auto", "off"] | Literal[False] | str | list[str]),
]
Switch = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(_switch, json_schema_input_type=Literal["auto", "on", "off"] | bool),
]


class Observe(Section):
    """Telemetry that is sampled during the load, in a separate process; it never makes a run fail."""

    short_forms: ClassVar[list[JsonObject]] = [
        {"enum": ["off", False], "description": "nothing is sampled"},
    ]

    gpu: Gpu = Field("auto", description="on, off, a list of indexes; auto: all GPUs if the target is on this machine")
    metrics: Metrics = Field(
        "auto", description="Prometheus endpoints, one per replica; off; auto: /metrics of each target URL"
    )
    router: Switch = Field(
        "auto",
        description="decisions, load and memory of the router at the target (inferometer route); on, off; auto: of a "
        "fleet or Ray Serve application that the plan starts",
    )
    host: bool = Field(True, description="sample this machine: cores, memory, network, steal time")
    interval: Duration = Field(1.0, ge=0.1, le=600, description="sampling interval")
    profiler: bool = Field(False, description="start the server's profiler before the load and stop it afterwards")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        nothing = {"gpu": "off", "metrics": "off", "router": "off", "host": False}
        return nothing if value is False or value == "off" else value

    def disagreements(self) -> Iterator[Mistake]:
        for name in ("gpu", "metrics"):
            chosen = getattr(self, name)
            if isinstance(chosen, list) and not chosen:
                yield Mistake((name,), "must name at least one, or be off")

    @property
    def nothing(self) -> bool:
        return self.gpu == "off" and self.metrics == "off" and self.router != "on" and not self.host
