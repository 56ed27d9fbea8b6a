"""What every page has to be, seen in a browser."""

from itertools import pairwise

NAMELESS = """[...document.querySelectorAll('a, button, input, select, summary, [role=img], [role=region]')]
  .filter(e => e.offsetParent !== null)
  .filter(e => !((e.getAttribute('aria-label') || '').trim()
    || (e.labels && [...e.labels].some(l => l.textContent.trim()))
    || (e.tagName !== 'INPUT' && e.tagName !== 'SELECT' && e.textContent.trim())))
  .map(e => e.outerHTML.slice(0, 120))"""
HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1]))"
DRAWN = "[...document.querySelectorAll('figure.chart')].filter(e => e.querySelector('.plot svg')).length"


def check_accessible(tab):
    """Everything that can be used has a name; headings go down one level at a time; there is one first heading."""
    nameless = tab.run(NAMELESS)
    assert nameless == [], nameless
    levels = tab.run(HEADINGS)
    assert levels.count(1) == 1 and levels[0] == 1, levels
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    assert tab.run("document.documentElement.lang") == "en" and tab.run("document.title")


def check_stays_home(tab, origin):
    """Nothing was asked of anybody else."""
    own = (origin, "data:", "blob:", "about:")
    outside = [address for address in tab.requests if not address.startswith(own)]
    assert outside == [], outside
    assert tab.requests
