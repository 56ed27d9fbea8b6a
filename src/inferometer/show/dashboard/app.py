"""The web application: addresses and their parameters, and its own reference. What they answer is in `answers`, who may
ask in `access`."""

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from inferometer import __version__
from inferometer.errors import InferometerError, PlanError, StoreError
from inferometer.record.sanitize import harmless, json_text
from inferometer.show.dashboard.access import Guard
from inferometer.show.dashboard.answers import Answers
from inferometer.show.dashboard.documents import MOST, page_of
from inferometer.show.dashboard.pages import ASSETS, PAGES, asset_bytes, names_document, shell
from inferometer.show.dashboard.reading import NotFound, Refused, entry_of

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
        for method, said in methods.items():
            heading = f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            about = f"<p>{escape(said.get('description') or said.get('summary') or '')}</p>"
            yield (said.get("tags") or ["other"])[0], heading + about + _parameters(said.get("parameters") or [])


def _parameters(parameters: list[Mapping[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(_parameter(each) for each in parameters)
    return f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'


def _parameter(said: Mapping[str, Any]) -> str:
    schema = said.get("schema") or {}
    default = schema.get("default")
    notes = [said.get("description") or "", "needed" if said.get("required") and said["in"] != "path" else ""]
    notes += [f"default {default}"] if default not in (None, "", []) else []
    text = escape(" ".join(note for note in notes if note))
    return f"<tr><td><code>{escape(said['name'])}</code></td><td>{text}</td></tr>"


# -- app -------------------------------------------------------------------------------------------------------------

ABOUT = "Everything that the pages show, as JSON. Seconds, bytes, tokens and shares; a missing number is null."
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS

RunId = Annotated[str, Path(description="An id, the start or the name of one, `latest`, a baseline or a tag.")]
Names = Annotated[str, Query(description="With commas between them.")]


def made_app(answers: Answers, *, token: str | None = None, write: bool = False) -> Guard:
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
    return Guard(app, token, write)


def json_answer(content: object, status: int = 200) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(json_text(content, _OPTIONS), status, headers, media_type="application/json")


def _refused_for(home: str) -> Callable[[Request, Exception], Response]:
    """Mistakes as the command line tells them, but not where the store is."""

    def refused(_request: Request, error: Exception) -> Response:
        said = {name: getattr(error, name, None) for name in ("message", "hint")}
        told = {name: text and text.replace(f"{home}/", "").replace(home, "the store") for name, text in said.items()}
        return json_answer({"error": told["message"] or type(error).__name__, "hint": told["hint"]}, _status(error))

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
            return 409  # being written, half copied, on another machine
    return 500


def _unknown(_request: Request, error: Exception) -> Response:
    """No such address, or not by this method."""
    status = getattr(error, "status_code", 404)
    return json_answer(
        {"error": str(getattr(error, "detail", error)).lower(), "hint": "/api lists the addresses"}, status
    )


def _unfit(_request: Request, error: Exception) -> Response:
    """A parameter that is missing or not what it should be."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    told = [
        f"{each['loc'][-1]}: {each['msg'][:1].lower()}{each['msg'][1:]}, got {each['input']!r:.80}" for each in found
    ]
    return json_answer({"error": "; ".join(told), "hint": "/api tells what each address takes"}, 400)


def _add_runs(app: FastAPI, answers: Answers) -> None:
    @app.get("/api/runs", tags=["runs"])
    def runs(
        where: Annotated[list[str], Query(description="A condition of `list --where`: `ttft p99 < 500ms`.")] = [],  # noqa: B006
        search: Annotated[str, Query(description="Words that a run has somewhere.")] = "",
        sort: Annotated[str | None, Query(description="Any name; `-output_rate` has the largest first.")] = None,
        columns: Names = "",
        limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """A page of the runs that fit, the newest first, and how many there are."""
        named = words(columns)
        found = page_of(answers.store, where=where, search=search, sort=sort, columns=named, limit=limit, offset=offset)
        return json_answer(found)

    @app.get("/api/runs/{run}", tags=["runs"])
    def run(run: RunId) -> Response:
        """Verdict, numbers, limits, plan, environment and the names of its files."""
        return json_answer(answers.run(run))

    @app.get("/api/runs/{run}/charts", tags=["runs"])
    def charts(run: RunId) -> Response:
        """Its charts as Vega-Lite, and those that cannot be made, with the reason."""
        return json_answer(answers.charts(run))

    @app.get("/api/runs/{run}/live", tags=["runs"])
    def live(run: RunId) -> Response:
        """The same as the run, of what its logs hold so far; `running` says whether it is still written."""
        return json_answer(answers.live_state(run))

    @app.get("/api/runs/{run}/files/{name}", tags=["runs"])
    def file(run: RunId, name: str) -> Response:
        """A text file of a run, as text; of a large one the end."""
        text = harmless(answers.file(run, name))
        return Response(text, media_type="text/plain", headers={"cache-control": "no-store"})


def _add_judgements(app: FastAPI, answers: Answers) -> None:
    @app.get("/api/compare", tags=["judging"])
    def compare(before: Names, after: Names, measures: Names = "", every: bool = False) -> Response:
        """What is better, worse, the same or unclear, as `compare --json` says it, with all numbers beside."""
        return json_answer(answers.comparison(words(before), words(after), words(measures), every))

    @app.get("/api/histories", tags=["judging"])
    def histories() -> Response:
        """What is watched over time: kinds of runs of one model, engine and hardware, with their series."""
        return json_answer(answers.histories())

    @app.get("/api/histories/{history}", tags=["judging"])
    def history(history: str, measures: Names = "") -> Response:
        """Measures over time, with change points, versions and commits."""
        return json_answer(answers.history(history, words(measures)))

    @app.get("/api/histories/{history}/trade-offs", tags=["judging"])
    def trade_offs(history: str) -> Response:
        """The newest run of each series beside each other: throughput, speed of one user, cost."""
        return json_answer(answers.trade_offs(history))

    @app.get("/api/experiments", tags=["experiments"])
    def experiments() -> Response:
        """The newest first."""
        return json_answer(answers.experiments())

    @app.get("/api/experiments/{experiment}", tags=["experiments"])
    def experiment(experiment: str) -> Response:
        """Its cases with parameters and numbers, and its charts."""
        return json_answer(answers.experiment(experiment))


def _add_changes(app: FastAPI, answers: Answers) -> None:
    store = answers.store
    Words = Annotated[list[str], Body(embed=True)]  # noqa: N806

    @app.post("/api/runs/{run}/tags", tags=["changes"])
    def tag(run: RunId, tags: Words) -> Response:
        """Add tags. Changes need the header `X-Inferometer: 1` and a dashboard started with `--write`."""
        return json_answer({"tags": list(store.tag(entry_of(store, run).id, tags).tags)})

    @app.delete("/api/runs/{run}/tags/{tag:path}", tags=["changes"])
    def untag(run: RunId, tag: str) -> Response:
        """Take a tag away."""
        return json_answer({"tags": list(store.untag(entry_of(store, run).id, [tag]).tags)})

    @app.put("/api/baselines/{name}", tags=["changes"])
    def set_baseline(name: str, run: Annotated[str, Body(embed=True)]) -> Response:
        """Make a run the baseline of that name."""
        return json_answer({"baseline": name, "run": store.set_baseline(name, entry_of(store, run).id).id})

    @app.delete("/api/baselines/{name}", tags=["changes"])
    def remove_baseline(name: str) -> Response:
        """The name goes, the run stays."""
        store.remove_baseline(name)
        return json_answer({"baseline": name, "run": None})

    @app.delete("/api/runs/{run}", tags=["changes"])
    def delete(run: RunId) -> Response:
        """Delete a run with all its files. Its whole id is needed."""
        entry = entry_of(store, run)
        if entry.id != run:
            raise PlanError(f"to delete a run its whole id is needed, got {run!r}")
        store.remove(entry)
        return json_answer({"deleted": entry.id})


def _add_pages(app: FastAPI, write: bool) -> None:
    for name in PAGES:
        app.add_api_route(f"/{name}.html", _page(name), include_in_schema=False)
    app.add_api_route("/", _page("index"), include_in_schema=False)
    app.add_api_route("/assets/{name}", _asset, include_in_schema=False)

    @app.get("/api/names", tags=["about"])
    def names() -> Response:
        """What columns, measures, kinds and states are called, and the colours of charts."""
        return json_answer(names_document() | {"write": write, "live": True, "version": __version__})

    @app.get("/api/openapi.json", tags=["about"])
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
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=ASSETS[name], headers=headers)


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
