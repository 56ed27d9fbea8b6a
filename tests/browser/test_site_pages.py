"""The static site in a real browser, opened from the disk: no server at all."""

from chrome import Tab
from pages import DRAWN, ROWS, check_accessible, check_drawn, check_links, check_stays_home

from shown_stores import NASTY


def test_the_overview_is_the_first_page(tab: Tab, home: str) -> None:
    tab.open(home + "index.html")
    tab.wait("document.querySelector('table.overview tbody tr')")
    check_accessible(tab)
    check_links(tab)
    assert "worse since" in tab.text() and "B is better" in tab.text()


def test_runs_are_explored_without_a_server(tab: Tab, home: str) -> None:
    tab.open(home + "explore.html")
    check_drawn(tab)
    every = tab.run("document.getElementById('count').innerText")
    tab.open(home + "explore.html?where=ttft.p50<100ms")
    tab.wait("document.getElementById('count')")
    assert tab.run("document.getElementById('count').innerText") != every
    check_stays_home(tab, home)


def test_runs_are_found_without_a_server(tab: Tab, home: str) -> None:
    tab.open(home + "runs.html")
    tab.wait(f"{ROWS} === 50")
    check_accessible(tab)
    tab.open(home + "runs.html?search=onerror")
    tab.wait(f"{ROWS} === 1")
    assert NASTY in tab.text()
    tab.open(home + "runs.html?where=ttft p50 < 100ms&where=engine_version=0.24.0&sort=ttft.p50")
    tab.wait(f"{ROWS} > 0 && {ROWS} < 30")
    tab.open(home + "runs.html?search=nightly")
    tab.wait(f"{ROWS} === 1")
    tab.run("document.querySelector('td.name a').click()")
    tab.wait("document.querySelector('.verdict') && document.body.innerText.includes('rerun')")
    check_accessible(tab)
    check_stays_home(tab, home)


def test_history_is_drawn_and_by_series_too(tab: Tab, home: str) -> None:
    tab.open(home + "history.html")
    tab.wait("document.querySelectorAll('ul.list a').length >= 2")
    assert "Last update" in tab.text()
    tab.run(
        "[...document.querySelectorAll('ul.list a')].find(e => e.innerText.startsWith('m ')"
        " && e.nextSibling.innerText.includes('2 series')).click()"
    )
    tab.wait(f"{DRAWN} >= 1")
    check_accessible(tab)
    tab.open(tab.run("location.href") + "&by=series")
    tab.wait(f"{DRAWN} >= 1")
    assert tab.run("document.querySelectorAll('details.part').length") >= 2
    check_accessible(tab)
    check_stays_home(tab, home)


def test_numbers_are_put_beside_each_other(tab: Tab, home: str) -> None:
    tab.open(home + "runs.html")
    tab.wait(f"{ROWS} === 50")
    ids = tab.run("[...document.querySelectorAll('td.name a')].slice(3, 6).map(e => e.title)")
    tab.open(f"{home}compare.html?before={ids[0]}&after={ids[1]},{ids[2]}")
    tab.wait("document.querySelectorAll('table.grid thead th').length === 4")
    assert "inferometer compare" in tab.text()


def test_a_run_is_judged_against_the_one_before_it(tab: Tab, home: str) -> None:
    tab.open(home + "runs.html?cases=1&where=experiment!=x")
    tab.wait(f"{ROWS} > 10")
    tab.run("document.querySelectorAll('td.name a')[8].click()")
    tab.wait("[...document.querySelectorAll('a')].some(e => e.innerText === 'compare with the previous run')")
    tab.run("[...document.querySelectorAll('a')].find(e => e.innerText === 'compare with the previous run').click()")
    tab.wait("document.querySelector('.verdict') && document.querySelectorAll('table.grid').length === 2")
    assert "without statistics" not in tab.text()
    check_accessible(tab)
    check_stays_home(tab, home)


def test_an_old_run_says_that_its_charts_are_elsewhere(tab: Tab, home: str) -> None:
    tab.open(home + "runs.html?where=kind=serving&sort=started")
    tab.wait(f"{ROWS} === 50")
    tab.run("document.querySelector('td.name a').click()")
    tab.wait("document.body.innerText.includes('The site has no charts of this run')")


def test_batch_sizes_are_switched_off_one_by_one(tab: Tab, home: str) -> None:
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


def test_an_experiment_without_a_server(tab: Tab, home: str) -> None:
    tab.open(home + "experiments.html")
    tab.wait("document.querySelector('ul.list a')")
    tab.run("[...document.querySelectorAll('ul.list a')].find(e => e.innerText.includes('sweep</b>')).click()")
    check_drawn(tab, 2)
    check_accessible(tab)
