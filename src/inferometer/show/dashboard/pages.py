"""The pages: one frame for all, style and theme of the report, our own scripts, Vega from the installed package. Every
view loads its data with a script: from the server's API, or from the files of the static site."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files

from inferometer import __version__
from inferometer.documents.document import JsonObject
from inferometer.show.charts.chart import Theme, config
from inferometer.show.charts.registry import vega_bundle
from inferometer.show.dashboard.documents import Names, names
from inferometer.show.report.document import asset as report_asset

PAGES = {
    "index": "Overview",
    "runs": "Runs",
    "history": "History",
    "explore": "Explore",
    "compare": "Compare",
    "experiments": "Experiments",
    "run": "Run",
    "experiment": "Experiment",
}
IN_MENU = ("index", "runs", "history", "explore", "compare", "experiments")
THEMES: tuple[Theme, ...] = ("light", "dark")
_CSS, _JS = "text/css; charset=utf-8", "text/javascript; charset=utf-8"
SHARED = (
    *("theme.js", "formats.js", "words.js", "charting.js", "view-overview.js", "view-explore.js"),
    *("view-runs.js", "view-run.js", "view-compare.js", "view-history.js"),
)
SCRIPTS = (*SHARED, "view-experiments.js", "start.js")
ASSETS = {
    **dict.fromkeys(("style.css", "pages.css"), _CSS),
    **dict.fromkeys((*SCRIPTS, "from-server.js", "from-files.js", "charts.js", "vega.js"), _JS),
}
_OF_REPORT = ("style.css", "theme.js", "charts.js")


def shell(name: str, source: str = "from-server.js", policy: str | None = None) -> str:
    """The frame of a view. Script addresses contain a hash of the content, so that browsers with old ones reload
    them."""
    scripts = "\n".join(f'<script src="{asset_address(link)}" defer></script>' for link in (source, *SCRIPTS))
    text = _text("page.html")
    for mark, content in {
        "title": escape(PAGES[name]),
        "view": name,
        "menu": "\n".join(_link(link, name) for link in IN_MENU),
        "styles": "\n".join(
            f'<link rel="stylesheet" href="{asset_address(link)}">' for link in ("style.css", "pages.css")
        ),
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">' if policy else "",
        "scripts": scripts,
        "api": '<a href="api">API</a>' if source == "from-server.js" else "",
    }.items():
        text = text.replace(f"{{{{ {mark} }}}}", content)
    return text


@dataclass(frozen=True)
class ListFile:
    """A part of the table of runs of the static site."""

    name: str
    runs: int


@dataclass(frozen=True)
class PagesNames(Names):
    """Data for every page: names, the colours of charts, and its location."""

    themes: dict[str, JsonObject]
    vega: str
    drawing: str
    version: str
    write: bool = False
    live: bool = False  # a server answers, and runs in progress are updated
    lists: list[ListFile] = field(default_factory=list)
    total: int = 0
    updated: str = ""


def names_document(
    *, write: bool = False, live: bool = False, lists: Sequence[ListFile] = (), total: int = 0, updated: str = ""
) -> PagesNames:
    known = names()
    return PagesNames(
        known.measures,
        known.kinds,
        known.states,
        known.columns,
        known.plain,
        themes={theme: config(theme) for theme in THEMES},
        vega=asset_address("vega.js"),
        drawing=asset_address("charts.js"),
        version=__version__,
        write=write,
        live=live,
        lists=list(lists),
        total=total,
        updated=updated,
    )


@cache
def asset_bytes(name: str) -> tuple[bytes, str]:
    """A file of the pages and its content hash."""
    if name == "vega.js":
        content = vega_bundle()
    else:
        content = report_asset(name) if name in _OF_REPORT else _text(name)
    raw = content.encode()
    return raw, f'"{hashlib.sha256(raw).hexdigest()[:16]}"'


def asset_address(name: str) -> str:
    """With a hash of its content."""
    number = asset_bytes(name)[1].strip('"') if name != "vega.js" else _vega_number()
    return f"assets/{name}?{number[:8]}"


def _vega_number() -> str:
    """By the version, not by the content: users who only view numbers need not wait for the bundle to be built."""
    from importlib.metadata import version

    return hashlib.sha256(version("vl-convert-python").encode()).hexdigest()


def _link(name: str, current: str) -> str:
    mark = ' aria-current="page"' if name == current else ""
    return f'<a href="{name}.html"{mark}>{escape(PAGES[name])}</a>'


@cache
def _text(name: str) -> str:
    return files("inferometer.show.dashboard").joinpath("web", name).read_text(encoding="utf-8")
