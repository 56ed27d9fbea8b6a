"""The static site in a real browser, opened from the disk: no server at all."""

import pytest
from pages import DRAWN, check_accessible, check_stays_home

from inferometer.conduct.dashboard import site
from shown_stores import NASTY, batches, shown_store, unsynced

ROWS = "document.querySelectorAll('table.runs tbody tr').length"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    store = shown_store(folder / "store")
    with unsynced(), store.batch():
        batches(store)
    site(folder / "public", store, charts=20)
    return (folder / "public").as_uri() + "/"


def test_runs_are_found_without_a_server(tab, home):
    tab.open(home + "index.html")
    tab.wait(f"{ROWS} === 50")
    check_accessible(tab)
    assert NASTY in tab.text()
    tab.open(home + "index.html?where=ttft p50 < 100ms&where=engine_version=0.24.0&sort=ttft.p50")
    tab.wait(f"{ROWS} > 0 && {ROWS} < 30")
    tab.open(home + "index.html?search=nightly")
    tab.wait(f"{ROWS} === 1")
    tab.run("document.querySelector('td.name a').click()")
    tab.wait("document.querySelector('.verdict') && document.body.innerText.includes('rerun')")
    check_accessible(tab)
    check_stays_home(tab, home)


def test_history_is_drawn_and_by_series_too(tab, home):
    tab.open(home + "history.html")
    tab.wait("document.querySelectorAll('ul.list a').length >= 2")
    assert "Last update" in tab.text()
    tab.run("[...document.querySelectorAll('ul.list a')].find(e => e.innerText.startsWith('m ')).click()")
    tab.wait(f"{DRAWN} >= 1")
    check_accessible(tab)
    tab.open(tab.run("location.href") + "&by=series")
    tab.wait(f"{DRAWN} >= 1")
    assert tab.run("document.querySelectorAll('details.part').length") >= 10
    check_accessible(tab)
    check_stays_home(tab, home)


def test_numbers_are_put_beside_each_other(tab, home):
    tab.open(home + "index.html")
    tab.wait(f"{ROWS} === 50")
    ids = tab.run("[...document.querySelectorAll('td.name a')].slice(3, 6).map(e => e.innerText)")
    tab.open(f"{home}compare.html?before={ids[0]}&after={ids[1]},{ids[2]}")
    tab.wait("document.querySelectorAll('table.grid thead th').length === 4")
    assert "inferometer compare" in tab.text()


def test_a_run_is_judged_against_the_one_before_it(tab, home):
    tab.open(home + "index.html?where=kind=latency&sort=-started")
    tab.wait(f"{ROWS} > 0")
    tab.run("document.querySelectorAll('td.name a')[0].click()")
    tab.wait("[...document.querySelectorAll('a')].some(e => e.innerText === 'against the run before')")
    tab.run("[...document.querySelectorAll('a')].find(e => e.innerText === 'against the run before').click()")
    tab.wait("document.querySelector('.verdict') && document.querySelectorAll('table.grid').length === 2")
    assert "Not judged" not in tab.text()
    check_accessible(tab)
    check_stays_home(tab, home)


def test_an_old_run_says_that_its_charts_are_elsewhere(tab, home):
    tab.open(home + "index.html?where=kind=serving&sort=started")
    tab.wait(f"{ROWS} === 50")
    tab.run("document.querySelector('td.name a').click()")
    tab.wait("document.body.innerText.includes('Charts of this run are not part of the site')")


def test_batch_sizes_are_switched_off_one_by_one(tab, home):
    """What the CI benchmark's page of latencies does."""
    tab.open(home + "history.html")
    tab.wait("document.querySelectorAll('ul.list a').length >= 2")
    four = "[...document.querySelectorAll('ul.list li')].find(e => e.innerText.includes('4 series'))"
    tab.run(f"{four}.querySelector('a').click()")
    tab.wait(f"{DRAWN} === 3")
    points = "document.querySelectorAll('#chart-latency-p50 .mark-symbol path').length"
    before = tab.run(points)
    tab.click("[data-series='batch 16']")
    tab.wait(f"{points} === {before} - 24")
    assert tab.run("document.querySelector(\"[data-series='batch 16']\").getAttribute('aria-pressed')") == "false"
    check_accessible(tab)


def test_an_experiment_without_a_server(tab, home):
    tab.open(home + "experiments.html")
    tab.wait("document.querySelector('ul.list a')")
    tab.run("document.querySelector('ul.list a').click()")
    tab.wait(f"{DRAWN} >= 2")
    check_accessible(tab)
