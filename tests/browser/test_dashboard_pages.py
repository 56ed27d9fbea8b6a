"""The dashboard in a real browser: loads, filters, compares, toggles, follows, survives."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from chrome import until
from pages import DRAWN, check_accessible, check_stays_home

from dashboards import dashboard
from inferometer.store.store import open_store
from shown_stores import NASTY, shown_store

ROWS = "document.querySelectorAll('table.runs tbody tr').length"
COUNT = "(document.getElementById('count') || {}).innerText || ''"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return shown_store(tmp_path_factory.mktemp("shown") / "store")


@pytest.fixture(scope="module")
def address(store):
    with dashboard(store.home) as address:
        yield address


def test_runs_load_filter_and_sort_and_the_address_says_so(tab, address):
    tab.open(address)
    tab.wait(f"{ROWS} > 40")
    check_accessible(tab)
    assert NASTY in tab.text(), "shown as the text that it is"
    assert tab.run("document.querySelectorAll('main img, main script').length") == 0
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
    tab.wait("document.body.innerText.includes('No run fits')")
    check_stays_home(tab, address)


def test_a_wrong_condition_is_told_in_the_page(tab, address):
    tab.open(f"{address}?where=ttfft.p99<1")
    tab.wait("document.querySelector('[role=alert]')")
    assert "ttft" in tab.text()
    tab.errors = [text for text in tab.errors if "400" not in text]  # the browser itself logs the status


def test_columns_of_choice(tab, address):
    tab.open(f"{address}?columns=verdict,plan.load.concurrency")
    tab.wait(f"{ROWS} > 40")
    assert tab.run("document.querySelectorAll('table.runs thead th').length") == 4
    assert "plan.load.concurrency" in tab.text()


def test_runs_are_picked_by_keyboard_and_compared(tab, address, store):
    tab.open(f"{address}?where=plan.workload.input_tokens%3D2000")
    tab.wait(f"{ROWS} > 5")
    for number in (0, 4):
        tab.run(f"document.querySelectorAll('td.pick input')[{number}].focus()")
        tab.press(" ", 32)
    tab.run("document.querySelector('button.primary').focus()")
    tab.press("Enter", 13)
    tab.wait("location.pathname.endsWith('compare.html') && document.querySelector('.verdict b')")
    check_accessible(tab)
    tab.wait(f"{DRAWN} >= 1")
    assert "What changed" in tab.text() and "before" in tab.run("location.search")
    check_stays_home(tab, address)


def test_a_run_shows_its_verdict_first_and_its_files(tab, address, store):
    tab.open(f"{address}run.html?id={store.entry('nightly').id}")
    tab.wait("document.querySelector('.verdict')")
    check_accessible(tab)
    first = tab.run("document.querySelector('main .verdict, main h2').className")
    assert first.startswith("verdict")
    tab.run("[...document.querySelectorAll('a')].find(e => e.innerText === 'server.log').click()")
    tab.wait("document.querySelector('pre.file').innerText.includes('INFO started')")


def test_history_toggles_a_series(tab, address):
    family = _nightly(tab, address)
    tab.open(f"{address}history.html?family={family}&measures=ttft")
    tab.wait(f"{DRAWN} >= 1")
    check_accessible(tab)
    assert "+3" in tab.text(), "the step is told"
    lines = "document.querySelectorAll('figure.chart .plot')[0].querySelectorAll('.mark-line path').length"
    before = tab.wait(lines)
    tab.click("[data-series='in 300, out 100, c 8']")
    tab.wait(f"{lines} === {before - 1}")
    assert (
        tab.run("document.querySelector(\"[data-series='in 300, out 100, c 8']\").getAttribute('aria-pressed')")
        == "false"
    )
    tab.open(tab.run("location.href"))
    tab.wait(f"{DRAWN} >= 1 && {lines} === {before - 1}")
    check_stays_home(tab, address)


def _nightly(tab, address):
    tab.open(f"{address}history.html")
    tab.wait("document.querySelectorAll('ul.list a').length >= 2")
    return tab.run(
        "new URL([...document.querySelectorAll('ul.list a')].find(e => e.innerText.startsWith('m ')).href)"
        ".searchParams.get('family')"
    )


def test_an_experiment_is_drawn(tab, address):
    tab.open(f"{address}experiments.html")
    tab.wait("document.querySelector('ul.list a')")
    assert "<b>sweep</b>" in tab.text()
    tab.run("document.querySelector('ul.list a').click()")
    tab.wait(f"{DRAWN} >= 2 && document.querySelectorAll('table.grid tbody tr').length === 9")
    check_accessible(tab)
    check_stays_home(tab, address)


def test_dark_and_light_and_a_phone(tab, address):
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.size(390, dark=True)
    tab.open(address)
    tab.wait(f"{ROWS} > 40")
    dark = tab.run(ground)
    assert tab.run("document.documentElement.scrollWidth") <= 390, "nothing sticks out"
    tab.click("[data-toggle-theme]")
    assert tab.run(ground) != dark
    tab.run("localStorage.clear()")


def test_an_empty_store(tab, tmp_path):
    with dashboard(tmp_path / "empty") as address:
        for page, words in (
            ("", "No runs yet"),
            ("history.html", "No finished runs"),
            ("experiments.html", "No experiments"),
        ):
            tab.open(address + page)
            tab.wait(f"document.body.innerText.includes({json.dumps(words)})")
            check_accessible(tab)


def test_it_follows_a_run_through_a_restart_of_the_server(tab, tmp_path):
    """The run is a real one, against the simulator; the dashboard is ended and started again while it goes on. It is
    stopped when that was seen, however long it took."""
    store = open_store(tmp_path / "store")
    with load_on(store.home) as load:
        with dashboard(store.home) as address:
            until(lambda: [*(store.home / "runs").glob("*")], "a run to begin")
            tab.open(address)
            tab.wait("document.querySelector('td.name a')")
            tab.run("document.querySelector('td.name a').click()")
            tab.wait("document.querySelector('.tile .value')")
            seen = tab.run("document.querySelector('#numbers').innerText")
            assert "partial" in tab.text()
            assert "in progress" in seen and "was interrupted" not in seen
        with dashboard(store.home, port=urlsplit(address).port):
            tab.wait(f"(document.querySelector('#numbers') || {{}}).innerText !== {json.dumps(seen)}")
            load.send_signal(signal.SIGINT)
            load.wait(60)
            tab.wait("document.querySelector('h1 .word') && document.querySelector('h1 .word').innerText !== 'partial'")
            assert "interrupted" in tab.text()
            tab.wait(f"{DRAWN} >= 1")
    tab.errors = [text for text in tab.errors if "ERR_CONNECTION_REFUSED" not in text]  # while it was down


@contextmanager
def load_on(store):
    """A run that goes on until it is stopped."""
    command = [sys.executable, "-m", "inferometer", "run", "--rate", "20", "--duration", "5min", "--quiet"]
    with subprocess.Popen(
        [*command, "--store", str(store)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as load:
        try:
            yield load
        finally:
            load.kill()
