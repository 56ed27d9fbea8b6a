"""The dashboard in a real browser: answers, filters, comparisons, switches, live updates, restarts."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chrome import Tab, until
from pages import DRAWN, ROWS, check_accessible, check_drawn, check_fits, check_links, check_stays_home

from dashboards import dashboard
from inferometer.conduct.compare import compare_runs
from inferometer.show.comparison import comparison_view
from inferometer.show.experiment_answer import ab_sentence, search_sentence
from inferometer.store.experiments import AbResult, KeptExperiment, SearchOutcome, experiments_of
from inferometer.store.store import Store, open_store
from inferometer.vocabulary import change_text, value_text
from shown_stores import NASTY
from written_numbers import IN_PAGES, UNITS, values, written

COUNT = "(document.getElementById('count') || {}).innerText || ''"


def kept_of(store: Store, kind: str) -> KeptExperiment:
    return next(kept for kept in experiments_of(store.home) if kept.kind == kind)


# -- overview --------------------------------------------------------------------------------------------------------


def test_the_overview_says_what_got_worse_first(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.wait("document.querySelector('table.overview tbody tr')")
    check_accessible(tab)
    check_links(tab)
    text = tab.text()
    first = tab.run("[...document.querySelectorAll('table.overview tbody tr:not(.group)')][0].innerText")
    assert "worse since" in first and "TTFT" in first, "the step of version 0.25"
    heading = tab.run("document.querySelector('table.overview tr.group').innerText")
    assert "m · vLLM" in heading and "EPYC" in heading
    sections = tab.run("[...document.querySelectorAll('main h2')].map(e => e.innerText)")
    assert sections == ["Histories", "Last experiments", "One run so far"], "what changed before what was run once"
    assert "300 in, 100 out" in text and "8 in flight" in text
    assert tab.run("document.querySelectorAll('svg.spark').length") >= 2
    names = tab.run("[...document.querySelectorAll('table.overview td.name')].map(e => e.innerText)")
    assert {"batch 1", "batch 16"} <= set(names), "rows of one heading differ"
    assert "A/B test: speed 4 vs 5" in text and "B is better" in text and "sustains 30 req/s" in text
    assert "highest output token throughput: 780 tok/s at 1 in flight, 300 in (8 cases, 1 without a run)" in text
    assert "NaN" not in text and "undefined" not in text
    check_stays_home(tab, address)


# -- runs ------------------------------------------------------------------------------------------------------------


def test_runs_load_filter_and_sort_and_the_address_says_so(tab: Tab, address: str) -> None:
    tab.open(f"{address}runs.html")
    tab.wait(f"{ROWS} > 40")
    check_accessible(tab)
    heads = tab.run("[...document.querySelectorAll('table.runs thead th')].map(e => e.innerText.trim())")
    assert {"workload", "load", "hardware", "started", "tags"} <= set(heads)
    assert "cases of experiments are not shown" in tab.text()
    tab.type("input[list]", "ttft.p50 < 100ms")
    tab.press("Enter", 13)
    tab.wait(f"{ROWS} && {ROWS} < 40")
    few = tab.run(COUNT)
    tab.click("[id='sort-ttft.p50']")
    tab.wait("document.querySelector('[aria-sort=descending]')")
    link = tab.run("location.href")
    assert "where=ttft.p50" in link and "sort=-ttft.p50" in link
    tab.open(link)
    tab.wait(f"{COUNT} === {json.dumps(few)}")
    tab.type("input[type=search]", "no such thing")
    tab.wait("document.body.innerText.includes('No run matches')")
    check_stays_home(tab, address)


def test_a_wrong_condition_is_told_beside_its_field_and_the_table_stays(tab: Tab, address: str) -> None:
    tab.open(f"{address}runs.html?columns=verdict,model")
    tab.wait(f"{ROWS} > 40")
    before = tab.run(ROWS)
    tab.type("input[list]", "ttfft.p99 < 1")
    tab.press("Enter", 13)
    tab.wait("document.querySelector('#mistake [role=alert]')")
    assert "ttft" in tab.text() and tab.run(ROWS) == before
    tab.open(f"{address}run.html?id=no-such-run")
    tab.wait("document.querySelector('[role=alert]')")
    assert "no run 'no-such-run'" in tab.text() and tab.errors == [], "a refusal is on the page, not on the console"


def test_a_page_past_the_end_is_the_last_one(tab: Tab, address: str) -> None:
    tab.open(f"{address}runs.html?offset=5000")
    tab.wait(f"{ROWS} && location.search.includes('offset=50')")


def test_names_that_are_html_are_text(tab: Tab, address: str) -> None:
    tab.open(f"{address}runs.html?search=onerror")
    tab.wait(f"{ROWS} === 1")
    assert NASTY in tab.text(), "shown as the text that it is"
    assert tab.run("document.querySelectorAll('main img, main script').length") == 0


def test_columns_of_choice(tab: Tab, address: str) -> None:
    tab.open(f"{address}runs.html?columns=verdict,plan.load.concurrency")
    tab.wait(f"{ROWS} > 40")
    assert tab.run("document.querySelectorAll('table.runs thead th').length") == 4
    assert "load.concurrency" in tab.text()


def test_picks_survive_paging_and_back_and_are_compared(tab: Tab, address: str) -> None:
    tab.open(f"{address}runs.html")
    tab.wait(f"{ROWS} === 50")
    for number in (0, 4):
        tab.run(f"document.querySelectorAll('td.pick input')[{number}].focus()")
        tab.press(" ", 32)
    tab.run("[...document.querySelectorAll('.pager button')].find(e => e.innerText === 'Older').click()")
    tab.wait("location.search.includes('offset=50')")
    assert tab.run("document.querySelector('button.primary').innerText") == "Compare 2"
    tab.run("document.querySelector('button.primary').focus()")
    tab.press("Enter", 13)
    tab.wait("location.pathname.endsWith('compare.html') && document.querySelector('.verdict b')")
    check_accessible(tab)
    check_links(tab)
    check_drawn(tab)
    tab.run("history.back()")
    tab.wait("location.pathname.endsWith('runs.html') && document.querySelector('button.primary')")
    tab.wait("document.querySelector('button.primary').innerText === 'Compare 2'")
    tab.run("sessionStorage.clear()")


# -- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_says_model_and_load_and_the_numbers_of_show(tab: Tab, address: str, store: Store) -> None:
    entry = store.runs(where=["plan.workload.output_tokens=400"], limit=1)[0]
    run = store.load(entry.id)
    tab.open(f"{address}run.html?id={entry.id}")
    tab.wait("document.querySelector('.verdict')")
    check_accessible(tab)
    assert tab.run("document.querySelector('h1').innerText") == "m · vLLM 0.25.0 · EPYC"
    assert tab.run("document.querySelector('.traffic').innerText") == "2,000 in, 400 out · 8 in flight"
    small = tab.run("document.querySelector('.about .small').innerText")
    assert entry.id in small and "commit aaaaaaaaaaaa" in small
    tile = tab.run("document.querySelector('[data-key=\"ttft.p50\"] .value').innerText")
    assert tile == value_text(run.summary.measures["ttft"].p50, "s")
    assert tab.run("document.querySelector('main .verdict, main h2').className").startswith("verdict")


def test_files_of_a_run_are_shown(tab: Tab, address: str, store: Store) -> None:
    tab.open(f"{address}run.html?id={store.entry('nightly').id}")
    tab.wait("document.querySelector('.verdict')")
    tab.run("[...document.querySelectorAll('a')].find(e => e.innerText === 'server.log').click()")
    tab.wait("document.querySelector('pre.file').innerText.includes('INFO started')")
    assert tab.run("document.querySelectorAll('details[open] pre').length") == 0, "no YAML unless it is opened"


# -- history and charts ----------------------------------------------------------------------------------------------


def _nightly(tab: Tab, address: str) -> str:
    tab.open(f"{address}history.html")
    tab.wait("document.querySelectorAll('ul.list a').length >= 2")
    return str(
        tab.run(
            "new URL([...document.querySelectorAll('ul.list a')].find(e => e.innerText.startsWith('m ')"
            " && e.nextSibling.innerText.includes('2 series')).href).searchParams.get('family')"
        )
    )


def test_history_toggles_a_series_and_reacts(tab: Tab, address: str) -> None:
    family = _nightly(tab, address)
    tab.open(f"{address}history.html?family={family}&measures=ttft")
    check_drawn(tab)
    check_accessible(tab)
    assert "+3" in tab.text(), "the step is told"
    lines = "document.querySelectorAll('figure.chart .plot')[0].querySelectorAll('.mark-line path').length"
    before = tab.wait(lines)
    tab.click("[data-series='300 in, 100 out']")
    tab.wait(f"{lines} === {before - 1}")
    tab.open(tab.run("location.href"))
    tab.wait(f"{DRAWN} >= 1 && {lines} === {before - 1}")
    check_links(tab)
    tab.click("[data-series='300 in, 100 out']")
    tab.wait(f"{lines} === {before}")
    _crosshair(tab)
    _zoom(tab)
    _table(tab)
    tab.run(
        "document.querySelector('figure.chart .mark-symbol path')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    tab.wait("location.pathname.endsWith('run.html')")
    check_stays_home(tab, address)


def _plot(tab: Tab) -> list[float]:
    box: list[float] = tab.run(
        "(() => { const b = document.querySelector('figure.chart .plot svg').getBoundingClientRect();"
        "return [b.x, b.y, b.width, b.height]; })()"
    )
    return box


def _mouse(tab: Tab, kind: str, x: float, y: float, buttons: int = 0, clicks: int = 1) -> None:
    button = "left" if kind != "mouseMoved" or buttons else "none"
    tab.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=clicks)


def _crosshair(tab: Tab) -> None:
    tab.run("document.querySelector('figure.chart').scrollIntoView({block: 'center'})")
    x, y, width, height = _plot(tab)
    _mouse(tab, "mouseMoved", x + 0.6 * width, y + 0.5 * height)
    tab.wait("document.querySelector('figure.chart .values:not([hidden])')")
    shown = tab.run("document.querySelector('figure.chart .values').innerText")
    assert "300 in, 100 out" in shown and "2,000 in, 400 out" in shown and "2026-09-" in shown


def _zoom(tab: Tab) -> None:
    ticks = "[...document.querySelectorAll('figure.chart')][0].querySelector('.role-axis-label').textContent"
    before = tab.run(ticks)
    x, y, width, height = _plot(tab)
    middle = y + 0.5 * height
    _mouse(tab, "mousePressed", x + 0.4 * width, middle, 1)
    _mouse(tab, "mouseMoved", x + 0.6 * width, middle, 1)
    _mouse(tab, "mouseReleased", x + 0.6 * width, middle)
    tab.wait(f"document.querySelector('figure.zoomed') && {ticks} !== {json.dumps(before)}")
    assert "AM" not in tab.run(ticks) and "PM" not in tab.run(ticks), "24 hours"
    tab.run("document.querySelector('figure.zoomed .reset').click()")
    tab.wait(f"!document.querySelector('figure.zoomed') && {ticks} === {json.dumps(before)}")


def _table(tab: Tab) -> None:
    names = "[...document.querySelectorAll('figure.chart .chart-tools')][0].innerText"
    assert tab.run(names).split() == ["PNG", "SVG", "CSV", "Table"]
    tab.run("[...document.querySelectorAll('.chart-tools button')].find(e => e.innerText === 'Table').click()")
    tab.wait("document.querySelectorAll('.chart-table tbody tr').length > 20")
    assert tab.run("document.querySelector('figure.chart .plot').getAttribute('aria-label')").startswith("TTFT")


# -- experiments -----------------------------------------------------------------------------------------------------


def test_the_answer_of_an_ab_test_has_the_numbers_of_its_result(tab: Tab, address: str, store: Store) -> None:
    kept = kept_of(store, "ab")
    assert isinstance(kept.result, AbResult)
    tab.open(f"{address}experiment.html?id={kept.id}")
    tab.wait("document.querySelector('.answer b')")
    card = tab.run("document.querySelector('.answer b').innerText")
    assert card == ab_sentence(kept.result) and card.startswith("B is better: ")
    tpot = next(change for change in kept.result.changes if change.key == "tpot.mean")
    assert change_text(tpot.change) in card
    check_drawn(tab)
    check_accessible(tab)
    check_links(tab)


def test_the_answer_of_a_search_has_the_load_and_the_limit_that_breaks(tab: Tab, address: str, store: Store) -> None:
    kept = kept_of(store, "search")
    assert isinstance(kept.result, SearchOutcome)
    tab.open(f"{address}experiment.html?id={kept.id}")
    tab.wait("document.querySelector('.answer b')")
    card = tab.run("document.querySelector('.answer b').innerText")
    assert card == search_sentence(kept.result)
    assert card == "sustains 30 req/s (30 to 40) within tpot p90 < 15ms; first broken by tpot p90 < 15ms at 40 req/s"
    check_drawn(tab)
    assert "limit: tpot p90 < 15ms" in tab.run("document.querySelector('figure.chart').textContent")
    assert tab.run("document.querySelectorAll('table.answers tbody tr').length") == 4


def test_a_sweep_names_its_best_cases(tab: Tab, address: str, store: Store) -> None:
    tab.open(f"{address}experiments.html")
    tab.wait("document.querySelector('ul.list a')")
    assert "<b>sweep</b>" in tab.text()
    tab.open(f"{address}experiment.html?id={kept_of(store, 'sweep').id}")
    tab.wait("document.querySelectorAll('table.cases tbody tr').length === 9")
    check_drawn(tab, 2)
    text = tab.text()
    assert "Best case for each measure" in text and "Pareto front" in text and "1 in flight, 300 in" in text
    check_accessible(tab)
    check_stays_home(tab, address)


# -- across families -------------------------------------------------------------------------------------------------


def test_any_runs_are_explored_in_one_chart_and_three_tables(tab: Tab, address: str) -> None:
    tab.open(f"{address}explore.html?where=engine=vLLM")
    check_drawn(tab)
    check_accessible(tab)
    check_links(tab)
    assert tab.run("document.querySelectorAll('main section h2').length") == 3
    axes = tab.run("document.querySelector('figure.chart svg').textContent")
    assert "input + output" in axes and "output tok/s of one user" in axes
    tab.run(
        "(e => { e.value = 'workload'; e.dispatchEvent(new Event('change')); })"
        "(document.getElementById('choose-colour'))"
    )
    tab.wait(
        "[...document.querySelectorAll('figure.chart svg')].some(e => e.textContent.includes('2,000 in, 400 out'))"
    )
    assert "colour=workload" in tab.run("location.search")


# -- looks, ends and beginnings --------------------------------------------------------------------------------------


def test_dark_and_light_and_a_phone(tab: Tab, address: str, store: Store) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.size(390, dark=True)
    experiments = [f"experiment.html?id={kept_of(store, kind).id}" for kind in ("search", "sweep", "ab")]
    for page in ("", "runs.html", "explore.html", "experiments.html", *experiments):
        tab.open(address + page)
        tab.wait("document.querySelector('main table, main ul.list')")
        check_fits(tab, 390)
    tab.open(address)
    tab.wait("document.querySelector('table.overview')")
    labels = (
        "[...document.querySelectorAll('table.overview tbody tr:not(.group)')][0].querySelectorAll('td[data-name]')"
    )
    named = tab.run(f"[...{labels}].map(e => e.dataset.name)")
    assert {"TTFT p50", "TTFT p99", "Output tok/s"} <= set(named), "a number without its heading has its name"
    dark = tab.run(ground)
    tab.click("[data-toggle-theme]")
    assert tab.run(ground) != dark
    tab.run("localStorage.clear()")


def test_an_empty_store(tab: Tab, tmp_path: Path) -> None:
    pages = {"": "No runs yet", "runs.html": "No runs yet", "history.html": "No finished runs"}
    with dashboard(tmp_path / "empty") as address:
        for page, words in (pages | {"experiments.html": "No experiments", "explore.html": "No finished"}).items():
            tab.open(address + page)
            tab.wait(f"document.body.innerText.includes({json.dumps(words)})")
            check_accessible(tab)
        tab.open("about:blank")  # a script that is still being fetched would be refused, and that is a message


def test_it_follows_a_run_through_a_restart_of_the_server(tab: Tab, tmp_path: Path) -> None:
    """The run is a real one, against the simulator; the dashboard is ended and started again while it goes on. It is
    stopped when that was seen, however long it took."""
    store = open_store(tmp_path / "store")
    with load_on(store.home) as load:
        with dashboard(store.home) as address:
            until(lambda: [*(store.home / "runs").glob("*")], "a run to begin")
            tab.open(f"{address}runs.html")
            tab.wait("document.querySelector('td.name a')")
            tab.run("document.querySelector('td.name a').click()")
            tab.wait("document.querySelector('.tile .value') && document.querySelector('progress')")
            seen = tab.run("document.querySelector('#numbers').innerText")
            assert "running" in tab.text() and "20 planned" in tab.text() and "left" in tab.text()
            assert "in progress" in seen and "was interrupted" not in seen
        tab.wait("document.getElementById('gone')")
        with dashboard(store.home, port=urlsplit(address).port or 0):
            tab.wait(f"(document.querySelector('#numbers') || {{}}).innerText !== {json.dumps(seen)}")
            tab.wait("!document.getElementById('gone')")
            load.send_signal(signal.SIGINT)
            load.wait(60)
            tab.wait(
                "document.querySelector('h1 .word') && document.querySelector('h1 .word').innerText === 'interrupted'"
            )
            assert "interrupted" in tab.text()
            tab.wait(f"{DRAWN} >= 1")
    tab.errors = [text for text in tab.errors if "ERR_CONNECTION_REFUSED" not in text]  # while it was down


@contextmanager
def load_on(store: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on until it is stopped."""
    command = [sys.executable, "-m", "inferometer", "run", "--rate", "20", "--duration", "5min", "--quiet"]
    with subprocess.Popen(
        [*command, "--store", str(store)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as load:
        try:
            yield load
        finally:
            load.kill()


def test_a_token_is_entered_in_a_form(tab: Tab, tmp_path: Path) -> None:
    with dashboard(tmp_path, "--token", env={"INFEROMETER_TOKEN": "known-to-us-both"}) as address:
        tab.open(f"{address}runs.html")
        check_accessible(tab)
        tab.type("input[type=password]", "known-to-us-both")
        tab.press("Enter", 13)
        tab.wait("document.body.innerText.includes('No runs yet')")
        tab.open("about:blank")
    tab.errors = [text for text in tab.errors if "401" not in text]  # the browser itself logs the status


def test_numbers_are_written_as_in_the_terminal(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.wait("document.querySelector('table.overview')")
    shown = tab.run(f"({IN_PAGES})(...{json.dumps([values(), UNITS])})")
    assert shown == [written(value) for value in values()]


def test_a_comparison_has_the_rows_and_facts_of_the_terminal(tab: Tab, address: str, store: Store) -> None:
    ids = [entry.id for entry in store.runs(where=["plan.workload.input_tokens=2000"], limit=2)]
    view = comparison_view(compare_runs(ids[1], ids[0], store.home))
    tab.open(f"{address}compare.html?before={ids[1]}&after={ids[0]}")
    tab.wait("document.querySelector('.verdict b')")
    assert [
        text.split("\n")[0] for text in tab.run("[...document.querySelectorAll('.side-column')].map(e => e.innerText)")
    ] == [
        "Before",
        "After",
    ]
    assert "m · vLLM" in tab.run("document.querySelector('#side-before h3').innerText")
    tables = tab.run(
        "['grid', 'facts'].map(kind => [...document.querySelector('table.' + kind).tBodies[0].rows]"
        ".map(row => [...row.cells].map(cell => cell.textContent)))"
    )
    assert tables[0] == [[row.title, *row.cells.values(), row.status] for row in view.rows]
    assert tables[1] == [list(fact) for fact in view.facts]
    assert view.counts in tab.text() and all(objection.text in tab.text() for objection in view.objections)


@pytest.mark.parametrize(
    "ids", [["20260901-030000-a-b", "20260901-040000-c-d", "20260902-030000-e-f"], ["latest", "nightly"]]
)
def test_ids_in_links_are_short_and_read_again(tab: Tab, address: str, ids: list[str]) -> None:
    tab.open(address)
    tab.wait("document.querySelector('table.overview')")
    packed = tab.run(f"inferometer.packIds({json.dumps(ids)})")
    assert len(packed) <= len(",".join(ids)) and tab.run(f"inferometer.unpackIds({json.dumps(packed)})") == ids
