"""What is measured and how it is spoken to, and what is watched during the load: the `target` and
`observe` of a plan."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from inferometer.plan import short
from inferometer.plan.fields import Count, Duration, Headers, Line, Mistake, RequestPath, Section, one_or_several
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


def _http_url(text: str) -> str:
    url = text.strip()
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    try:
        parts = urlsplit(url)
        complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not complete or any(sign <= " " or sign == "\x7f" for sign in url):
        raise ValueError("must be a URL such as http://localhost:8000")
    return url


def _address(text: str) -> str:
    """As people type it: `localhost:8000` is http://localhost:8000."""
    return _http_url(f"http://{text.strip()}" if _NO_SCHEME.fullmatch(text.strip()) else text)


Url = Annotated[str, AfterValidator(_http_url)]
Address = Annotated[str, AfterValidator(_address)]


class Tls(Section):
    """How an https target is trusted, and how it knows us."""

    verify: bool = Field(True, description="check the server's certificate")
    ca: str | None = Field(None, description="file with the authorities to trust")
    cert: str | None = Field(None, description="file with our client certificate")
    key: str | None = Field(None, description="file with its private key, if not in cert")

    @property
    def trust(self) -> "Trust":
        """As connections are made with it."""
        return self.verify, self.ca, self.cert, self.key

    def disagreements(self) -> Iterator[Mistake]:
        if self.key and not self.cert:
            yield Mistake(("key",), "belongs to a certificate: give tls.cert too")


class Timeouts(Section):
    """After which time a request counts as failed."""

    connect: Duration = Field(10.0, gt=0, description="to open a connection")
    request: Duration | None = Field(600.0, gt=0, description="from sending to the end of the answer")
    idle: Duration | None = Field(None, gt=0, description="longest silence while an answer is awaited or streamed")


class Bounds(Section):
    """How much a server may make us read and keep. Most servers never come near; one that streams without end does."""

    answer: Count = Field(
        64 * 1024**2, gt=0, description="bytes of one answer; a larger one is ended with the outcome oversized"
    )
    memory: Count = Field(
        4 * 1024**3,
        gt=0,
        description="bytes of all answers under way in one worker; beyond it the largest one is ended as oversized",
    )
    poll: Count = Field(
        4 * 1024**2, ge=16 * 1024, description="bytes that are read before time limits and interrupts are looked at"
    )


class Target(Section):
    """What is measured, and how it is spoken to."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "string", "examples": ["http://localhost:8000"], "description": "its url"},
        {"type": "array", "items": {"type": "string"}, "description": "its urls"},
    ]

    url: Annotated[list[Address], one_or_several(Address)] = Field(
        [], description="where the server is; several take turns"
    )
    model: Line | None = Field(None, description="asked of /v1/models when not given")
    api: Api = Field("completions", description="how requests and answers are written")
    path: RequestPath | None = Field(None, description="request path, when it is not the API's usual one")
    body: str | None = Field(None, description="for api template: the body, with a literal {prompt}", repr=False)
    stream: bool = Field(True, description="whether answers come token by token")
    continuous_usage: bool = Field(True, description="ask for running token counts where the server offers them")
    headers: Headers = Field({}, description="sent with each request; ${NAME} is read from the environment", repr=False)
    key_env: str = Field(
        "OPENAI_API_KEY", description="environment variable that holds the API key; for anthropic ANTHROPIC_API_KEY"
    )
    tls: Tls = Field(Tls(), description="certificates")
    proxy: Url | None = Field(None, description="HTTP proxy, http://host:port", repr=False)
    timeout: Timeouts = Field(Timeouts(), description="when to give up")
    bounds: Bounds = Field(Bounds(), description="how much to read and keep of what it sends")
    preconnect: bool = Field(True, description="open connections before the load starts")
    exclusive: bool = Field(True, description="refuse to measure a server while another run of this machine does")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        said = short.target(value)
        api = said.get("api") if isinstance(said, dict) else None
        usual = api_of(api).key_env if isinstance(api, str) and api in APIS else cls.model_fields["key_env"].default
        return said if usual == cls.model_fields["key_env"].default else {"key_env": usual} | said

    def disagreements(self) -> Iterator[Mistake]:
        api = api_of(self.api)
        if api.templated and (self.body is None or "{prompt}" not in self.body):
            yield Mistake(("body",), "must hold a literal {prompt}: api template sends it as it is")
        if not api.templated and self.body is not None:
            yield Mistake(("body",), f"belongs to api template, but api is {self.api}")
        if self.path is None and api.path in endpoints():
            yield from self._of_endpoints()

    def _of_endpoints(self) -> Iterator[Mistake]:
        """A pasted path of another API: `short` takes it away only where it agrees with `api`."""
        others = {api for url in self.url if (api := short.endpoint(url)[1]) is not None}
        for api in sorted(others):
            yield Mistake(("url",), f"ends in the path of api {api}, but api is {self.api}: leave the path out")


# -- observe ---------------------------------------------------------------------------------------------------------


def _switch(value: Any) -> Any:
    """YAML reads `on` and `off` as true and false; one entry may stand for a list of one."""
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


class Observe(Section):
    """What is sampled beside the load, in a process of its own; none of it can make a run fail."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"enum": ["off", False], "description": "nothing is sampled"},
    ]

    gpu: Gpu = Field(
        "auto", description="on, off, a list of indexes; auto: every GPU when the target is on this machine"
    )
    metrics: Metrics = Field(
        "auto", description="Prometheus endpoints, one per replica; off; auto: /metrics of each target URL"
    )
    host: bool = Field(True, description="sample this machine: cores, memory, network, what its hypervisor takes away")
    interval: Duration = Field(1.0, ge=0.1, le=600, description="between two samples of the same thing")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"gpu": "off", "metrics": "off", "host": False} if value is False or value == "off" else value

    def disagreements(self) -> Iterator[Mistake]:
        for name in ("gpu", "metrics"):
            chosen = getattr(self, name)
            if isinstance(chosen, list) and not chosen:
                yield Mistake((name,), "must name at least one, or be off")

    @property
    def nothing(self) -> bool:
        return self.gpu == "off" and self.metrics == "off" and not self.host
