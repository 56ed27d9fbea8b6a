"""Checks that apply to every page, in a browser."""

from itertools import pairwise

from chrome import Tab

NAMELESS = """[...document.querySelectorAll('a, button, input, select, summary, [role=img], [role=region]')]
  .filter(e => e.offsetParent !== null)
  .filter(e => !((e.getAttribute('aria-label') || '').trim()
    || (e.labels && [...e.labels].some(l => l.textContent.trim()))
    || (e.tagName !== 'INPUT' && e.tagName !== 'SELECT' && e.textContent.trim())))
  .map(e => e.outerHTML.slice(0, 120))"""
HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1]))"
DRAWN = "[...document.querySelectorAll('figure.chart')].filter(e => e.querySelector('.plot svg')).length"
ROWS = "document.querySelectorAll('table.runs tbody tr').length"
COVERED = """(() => {
  const covered = [];
  for (const plot of document.querySelectorAll('figure.chart .plot')) {
    const labels = [...plot.querySelectorAll('svg text')].filter(e => e.textContent.trim()
      && e.getBoundingClientRect().width && getComputedStyle(e).display !== 'none'
      && Number(getComputedStyle(e).opacity) > 0);
    const boxes = labels.map(e => [e, e.getBoundingClientRect()]);
    boxes.forEach(([one, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1.5 && high > 3) covered.push(plot.parentNode.id + ': ' + one.textContent + ' / ' + other.textContent);
    }));
  }
  return covered;
})()"""
MOST_OF_A_LINK = 300
SQUEEZED = """[...document.querySelectorAll('main a, main td, main th, main p, main li')]
  .filter(e => e.offsetParent !== null && e.textContent.trim().length > 5)
  .map(e => [e, e.getBoundingClientRect()])
  .filter(([e, box]) => box.width > 0 && box.width < 24 && box.height > 60)
  .map(([e]) => e.outerHTML.slice(0, 120))"""


def check_accessible(tab: Tab) -> None:
    """Everything that can be used has a name; headings go down one level at a time; there is one first heading."""
    nameless = tab.run(NAMELESS)
    assert nameless == [], nameless
    levels = tab.run(HEADINGS)
    assert levels.count(1) == 1 and levels[0] == 1, levels
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    assert tab.run("document.documentElement.lang") == "en" and tab.run("document.title")


def check_stays_home(tab: Tab, origin: str) -> None:
    """Nothing was asked of anybody else."""
    own = (origin, "data:", "blob:", "about:")
    outside = [address for address in tab.requests if not address.startswith(own)]
    assert outside == [], outside
    assert tab.requests


def check_drawn(tab: Tab, least: int = 1) -> None:
    """That many charts, and no text in them covers another one."""
    tab.wait(f"{DRAWN} >= {least}")
    covered = tab.run(COVERED)
    assert covered == [], covered


def check_fits(tab: Tab, width: int) -> None:
    """Nothing sticks out of the page, and no text stands in a column of single letters."""
    assert tab.run("document.documentElement.scrollWidth") <= width
    squeezed = tab.run(SQUEEZED)
    assert squeezed == [], squeezed


def check_links(tab: Tab) -> None:
    """Every link on the page, and the page's own address, can be sent in a message."""
    long = tab.run(f"[location.href, ...[...document.links].map(e => e.href)].filter(e => e.length > {MOST_OF_A_LINK})")
    assert long == [], long
