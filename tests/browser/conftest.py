"""One Chromium for all tests of the pages."""

import chrome
import pytest


@pytest.fixture(scope="session")
def browser():
    if chrome.found() is None:
        pytest.skip("no Chromium: sh deploy/install-chromium.sh")
    with chrome.chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser):
    """Complaints of the page fail the test that looked at it, whatever it looked for."""
    with browser.tab() as tab:
        tab.size(1280)
        yield tab
        tab.run("1")
        assert tab.errors == []
