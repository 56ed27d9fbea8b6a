"""The web application: addresses and their parameters, and its own reference. The answers are in `answers`, access
control in `access`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from inferometer import __version__
from inferometer.documents.document import JsonObject
from inferometer.errors import InferometerError, PlanError, StoreError
from inferometer.record.sanitize import harmless, json_text
from inferometer.show.dashboard.access import LIMIT_S, Guard, TimeLimit
from inferometer.show.dashboard.answers import (
    ComparisonDocument,
    ExperimentDocument,
    ExperimentsDocument,
    Histories,
    HistoryDocument,
    StoreAnswers,
)
from inferometer.show.dashboard.documents import ChartsDocument, LiveDocument, RunDocument
from inferometer.show.dashboard.explore import ExploreDocument
from inferometer.show.dashboard.listing import MOST, NotFound, Refused, RunsPage, entry_of
from inferometer.show.dashboard.overview import Overview
from inferometer.show.dashboard.pages import (
    ASSETS,
    PAGES,
    PagesNames,
    asset_address,
    asset_bytes,
    names_document,
    shell,
)

# -- reference -------------------------------------------------------------------------------------------------------

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>API · Inferometer</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/assets/style.css">
<link rel="stylesheet" href="/assets/pages.css"><script src="/assets/theme.js" defer></script></head>
<body><main class="wrap"><header class="top"><h1>JSON API</h1>
<button type="button" data-toggle-theme>Light or dark</button></header>
"""


def reference_page(openapi: Mapping[str, Any]) -> str:
    about = escape(openapi["info"].get("description", ""))
    intro = f'<p>{about} <a href="/api/openapi.json">OpenAPI</a> · <a href="/">back to the runs</a></p>'
    groups: dict[str, list[str]] = {}
    for group, text in _operations(openapi):
        groups.setdefault(group, []).append(text)
    body = "".join(f"<h2>{escape(group)}</h2>{''.join(texts)}" for group, texts in groups.items())
    return f"{_HEAD}{intro}{body}</main></body></html>"


def _operations(openapi: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            heading = f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            about = f"<p>{escape(operation.get('description') or operation.get('summary') or '')}</p>"
            yield (
                (operation.get("tags") or ["other"])[0],
                heading + about + _parameters(operation.get("parameters") or []),
            )


def _parameters(parameters: list[Mapping[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(_parameter(parameter) for parameter in parameters)
    return f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema") or {}
    default = schema.get("default")
    notes = [
        parameter.get("description") or "",
        "needed" if parameter.get("required") and parameter["in"] != "path" else "",
    ]
    notes += [f"default {default}"] if default not in (None, "", []) else []
    text = escape(" ".join(note for note in notes if note))
    return f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{text}</td></tr>"


# -- app -------------------------------------------------------------------------------------------------------------

ABOUT = "Everything that the pages show, as JSON, in seconds, bytes, tokens and shares; a missing number is null."
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS

RunId = Annotated[str, Path(description="An id or its prefix, a name, `latest`, a baseline or a tag.")]
Names = Annotated[str, Query(description="Comma-separated.")]


@dataclass(frozen=True)
class Refusal:
    """The error, and what to do about it."""

    error: str
    hint: str | None


@dataclass(frozen=True)
class TagsDocument:
    tags: list[str]


@dataclass(frozen=True)
class BaselineDocument:
    baseline: str
    run: str | None


@dataclass(frozen=True)
class DeletedDocument:
    deleted: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": text}
    for status, text in {400: "not valid", 404: "not in the store", 503: "took too long"}.items()
}


def made_app(
    answers: StoreAnswers, *, token: str | None = None, write: bool = False, limit_s: float = LIMIT_S
) -> Guard:
    app = FastAPI(title="Inferometer", version=__version__, description=ABOUT, docs_url=None, redoc_url=None)
    app.openapi_url = None
    app.add_exception_handler(InferometerError, _refused_for(str(answers.store.home)))
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(RequestValidationError, _unfit)
    app.add_middleware(GZipMiddleware, minimum_size=4096, compresslevel=5)
    _add_runs(app, answers)
    _add_judgements(app, answers)
    if write:
        _add_changes(app, answers)
    _add_pages(app, write)
    return Guard(TimeLimit(app, limit_s), token, write)


def json_answer(content: object, status: int = 200) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(json_text(content, _OPTIONS), status, headers, media_type="application/json")


PAGE, STATUS = "x-inferometer-page", "x-inferometer-status"


def _refusal(request: Request, refusal: Refusal, status: int) -> Response:
    """A page shows a refusal itself: it gets the status in a header, because a browser logs every answer of 400 and
    above to its console."""
    if PAGE not in request.headers:
        return json_answer(refusal, status)
    answer = json_answer(refusal)
    answer.headers[STATUS] = str(status)
    return answer


def _refused_for(home: str) -> Callable[[Request, Exception], Response]:
    """Errors as the command line prints them, but without the location of the store."""

    def refused(request: Request, error: Exception) -> Response:
        texts = {name: getattr(error, name, None) for name in ("message", "hint")}
        cleaned = {
            name: text and text.replace(f"{home}/", "").replace(home, "the store") for name, text in texts.items()
        }
        refusal = Refusal(cleaned["message"] or type(error).__name__, cleaned["hint"])
        return _refusal(request, refusal, _status(error))

    return refused


def _status(error: Exception) -> int:
    match error:
        case NotFound():
            return 404
        case Refused():
            return 403
        case PlanError():
            return 400
        case StoreError():
            return 409  # being written, incompletely copied, or on another machine
    return 500


def _unknown(request: Request, error: Exception) -> Response:
    """Unknown address, or wrong method."""
    status = getattr(error, "status_code", 404)
    text = str(getattr(error, "detail", error)).lower()
    return _refusal(request, Refusal(text, "/api lists the addresses"), status)


def _unfit(request: Request, error: Exception) -> Response:
    """A missing or invalid parameter."""
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    messages = [
        f"{detail['loc'][-1]}: {detail['msg'][:1].lower()}{detail['msg'][1:]}, got {detail['input']!r:.80}"
        for detail in errors
    ]
    return _refusal(request, Refusal("; ".join(messages), "/api lists the parameters of each address"), 400)


def _add_runs(app: FastAPI, answers: StoreAnswers) -> None:
    @app.get("/api/runs", response_model=RunsPage, responses=REFUSALS, tags=["runs"])
    def runs(
        where: Annotated[list[str], Query(description="A condition of `list --where`: `ttft p99 < 500ms`.")] = [],  # noqa: B006
        search: Annotated[str, Query(description="Words to search for in a run.")] = "",
        sort: Annotated[str | None, Query(description="Any name; `-output_rate` sorts in descending order.")] = None,
        columns: Names = "",
        limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
        offset: Annotated[int, Query(ge=0)] = 0,
        experiments: Annotated[bool, Query(description="With cases of sweeps, searches and A/B tests.")] = True,
    ) -> Response:
        """A page of the matching runs, newest first, and their number."""
        named = comma_separated(columns)
        options = {"sort": sort, "columns": named, "limit": limit, "offset": offset, "experiments": experiments}
        return json_answer(answers.page(where=where, search=search, **options))  # type: ignore[arg-type]

    @app.get("/api/runs/{run}", response_model=RunDocument, responses=REFUSALS, tags=["runs"])
    def run(run: RunId) -> Response:
        """Verdict, numbers, limits, plan, environment and the names of its files."""
        return json_answer(answers.run(run))

    @app.get("/api/runs/{run}/charts", response_model=ChartsDocument, responses=REFUSALS, tags=["runs"])
    def charts(run: RunId) -> Response:
        """Its charts as Vega-Lite, and those that cannot be drawn, with the reason."""
        return json_answer(answers.charts(run))

    @app.get("/api/runs/{run}/live", response_model=LiveDocument, responses=REFUSALS, tags=["runs"])
    def live(run: RunId) -> Response:
        """The run with the content of its logs so far; `running` is whether it is still being written."""
        return json_answer(answers.live_state(run))

    @app.get("/api/runs/{run}/files/{name}", response_class=PlainTextResponse, responses=REFUSALS, tags=["runs"])
    def file(run: RunId, name: str) -> Response:
        """A text file of a run, as text; of a large one only the end."""
        text = harmless(answers.file(run, name))
        return Response(text, media_type="text/plain", headers={"cache-control": "no-store"})


def _add_judgements(app: FastAPI, answers: StoreAnswers) -> None:
    @app.get("/api/overview", response_model=Overview, responses=REFUSALS, tags=["judging"])
    def overview() -> Response:
        """Every line of history with its latest numbers and its state, current runs, and the last experiments."""
        return json_answer(answers.overview())

    @app.get("/api/explore", response_model=ExploreDocument, responses=REFUSALS, tags=["judging"])
    def explore(
        where: Annotated[list[str], Query(description="A condition of `list --where`.")] = [],  # noqa: B006
        search: Annotated[str, Query(description="Words to search for in a run.")] = "",
    ) -> Response:
        """Runs of any model, engine and hardware together: trade-offs as charts, numbers as rows."""
        return json_answer(answers.explore(where, search))

    @app.get("/api/compare", response_model=ComparisonDocument, responses=REFUSALS, tags=["judging"])
    def compare(before: Names, after: Names, measures: Names = "", every: bool = False) -> Response:
        """What is better, worse, the same or unclear, as in `compare --json`, with all numbers."""
        return json_answer(
            answers.comparison(comma_separated(before), comma_separated(after), comma_separated(measures), every)
        )

    @app.get("/api/histories", response_model=Histories, responses=REFUSALS, tags=["judging"])
    def histories() -> Response:
        """What is tracked over time: kinds of runs of one model, engine and hardware, with their series."""
        return json_answer(answers.histories())

    @app.get("/api/histories/{history}", response_model=HistoryDocument, responses=REFUSALS, tags=["judging"])
    def history(history: str, measures: Names = "") -> Response:
        """Measures over time, with change points, versions and commits."""
        return json_answer(answers.history(history, comma_separated(measures)))

    @app.get("/api/histories/{history}/trade-offs", response_model=ChartsDocument, responses=REFUSALS, tags=["judging"])
    def trade_offs(history: str) -> Response:
        """The newest run of each series side by side: throughput, speed of one user, cost."""
        return json_answer(answers.trade_offs(history))

    @app.get("/api/experiments", response_model=ExperimentsDocument, responses=REFUSALS, tags=["experiments"])
    def experiments() -> Response:
        """Experiments, newest first."""
        return json_answer(answers.experiments())

    @app.get(
        "/api/experiments/{experiment}", response_model=ExperimentDocument, responses=REFUSALS, tags=["experiments"]
    )
    def experiment(experiment: str) -> Response:
        """Its cases with parameters and numbers, and its charts."""
        return json_answer(answers.experiment(experiment))


def _add_changes(app: FastAPI, answers: StoreAnswers) -> None:
    store = answers.store
    Tags = Annotated[list[str], Body(embed=True)]  # noqa: N806

    @app.post("/api/runs/{run}/tags", response_model=TagsDocument, tags=["changes"])
    def tag(run: RunId, tags: Tags) -> Response:
        """Add tags. Changes need the header `X-Inferometer: 1` and a dashboard started with `--write`."""
        return json_answer(TagsDocument(list(store.tag(entry_of(store, run).id, tags).tags)))

    @app.delete("/api/runs/{run}/tags/{tag:path}", response_model=TagsDocument, tags=["changes"])
    def untag(run: RunId, tag: str) -> Response:
        """Remove a tag."""
        return json_answer(TagsDocument(list(store.untag(entry_of(store, run).id, [tag]).tags)))

    @app.put("/api/baselines/{name}", response_model=BaselineDocument, tags=["changes"])
    def set_baseline(name: str, run: Annotated[str, Body(embed=True)]) -> Response:
        """Make a run the baseline of that name."""
        return json_answer(BaselineDocument(name, store.set_baseline(name, entry_of(store, run).id).id))

    @app.delete("/api/baselines/{name}", response_model=BaselineDocument, tags=["changes"])
    def remove_baseline(name: str) -> Response:
        """Remove the name; the run stays."""
        store.remove_baseline(name)
        return json_answer(BaselineDocument(name, None))

    @app.delete("/api/runs/{run}", response_model=DeletedDocument, tags=["changes"])
    def delete(run: RunId) -> Response:
        """Delete a run with all its files. Requires its complete id."""
        entry = entry_of(store, run)
        if entry.id != run:
            raise PlanError(f"deleting a run requires its complete id, got {run!r}")
        store.remove(entry)
        return json_answer(DeletedDocument(entry.id))


def _add_pages(app: FastAPI, write: bool) -> None:
    for name in PAGES:
        app.add_api_route(f"/{name}.html", _page(name), include_in_schema=False)
    app.add_api_route("/", _page("index"), include_in_schema=False)
    app.add_api_route("/assets/{name}", _asset, include_in_schema=False)

    @app.get("/api/names", response_model=PagesNames, tags=["about"])
    def names() -> Response:
        """Names of columns, measures, kinds and states, and the colours of charts."""
        return json_answer(names_document(write=write, live=True))

    @app.get("/api/openapi.json", response_model=JsonObject, tags=["about"])
    def openapi() -> Response:
        """This API as OpenAPI 3.1."""
        return json_answer(app.openapi())

    @app.get("/api", include_in_schema=False)
    def reference() -> Response:
        return Response(reference_page(app.openapi()), media_type="text/html")


def _page(name: str) -> Callable[[], Response]:
    def answer() -> Response:
        return Response(shell(name), media_type="text/html", headers={"cache-control": "no-cache"})

    return answer


def _asset(name: str, request: Request) -> Response:
    if name not in ASSETS:
        raise NotFound(f"no such file: {name[:80]!r}")
    content, tag = asset_bytes(name)
    # Our pages request a file with a hash of its content: that address never gets other content.
    is_numbered = bool(request.url.query) and asset_address(name).endswith(f"?{request.url.query}")
    headers = {"etag": tag, "cache-control": "max-age=31536000, immutable" if is_numbered else "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=ASSETS[name], headers=headers)


def comma_separated(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
