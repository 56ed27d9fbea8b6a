"""One Chromium, one store, one dashboard and one static site for all tests of the pages."""

from collections.abc import Iterator

import chrome
import pytest

from dashboards import dashboard
from inferometer.conduct.report import site
from inferometer.store.store import Store
from shown_stores import ab_test, batches, load_search, shown_store, unsynced


@pytest.fixture(scope="session")
def browser() -> Iterator[chrome.Browser]:
    if chrome.found() is None:
        pytest.skip("no Chromium: sh deploy/install-chromium.sh")
    with chrome.chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: chrome.Browser) -> Iterator[chrome.Tab]:
    """Messages of the page, of whatever kind, fail the test that looked at it, whatever it looked for."""
    with browser.tab() as tab:
        tab.size(1280)
        yield tab
        tab.run("1")
        assert tab.errors == []


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = shown_store(tmp_path_factory.mktemp("shown") / "store")
    with unsynced():
        ab_test(store)
        load_search(store)
        with store.batch():
            batches(store)
    return store


@pytest.fixture(scope="session")
def address(store: Store) -> Iterator[str]:
    with dashboard(store.home) as address:
        yield address


@pytest.fixture(scope="session")
def home(store: Store, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the static site, on the disk: no server at all."""
    folder = tmp_path_factory.mktemp("site") / "public"
    site(folder, store, charts=20)
    return folder.as_uri() + "/"
