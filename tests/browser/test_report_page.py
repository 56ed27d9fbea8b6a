"""A report in a real Chromium: it renders, loads nothing from the network, and fits a phone."""

from pathlib import Path

from chrome import Tab

from charted_runs import charted_run, samples_of
from inferometer.show.report.content import run_report
from inferometer.show.report.writing import as_html

UNDRAWN = "document.querySelectorAll('figure.chart:not([data-drawn])').length"


def test_a_report_draws_itself_in_light_and_dark_and_asks_for_nothing(tmp_path: Path, tab: Tab) -> None:
    name = "</script><script>window.ran = 1</script>"
    run = charted_run(500, samples=samples_of(), name=name)
    file = tmp_path / "report.html"
    file.write_text(as_html(run_report(run)))
    tab.size(400)
    tab.open(file.as_uri())
    tab.run("inferometerCharts.all().forEach((each, at) => setTimeout(inferometerCharts.draw, 20 * at, each))")
    tab.wait(f"{UNDRAWN} === 0")
    assert tab.run("document.documentElement.scrollWidth") <= 400
    assert name in tab.run("document.querySelector('header').textContent") and tab.run("window.ran") is None
    before = tab.run("getComputedStyle(document.body).backgroundColor")
    tab.run("document.querySelector('[data-toggle-theme]').click()")
    assert tab.run("getComputedStyle(document.body).backgroundColor") != before
    tab.wait("document.querySelectorAll('figure.chart svg').length === inferometerCharts.all().length")
    assert tab.requests == [file.as_uri()]
