"""Real Ray clusters of several nodes on this machine: only with INFEROMETER_RAY=1 and the extra `ray`, in
`make test-ray`; never in `make test`, for which 490 MB would be installed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferometer.conduct.instrument import calibrate
from inferometer.plan.model import Server
from inferometer.target.server import running

SECRETS = ("RAY_ADDRESS", "INFEROMETER_NODE_FOLDER")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("INFEROMETER_RAY") == "1":
        return
    here = str(Path(__file__).parent)
    skip = pytest.mark.skip(reason="INFEROMETER_RAY is not 1: make test-ray")
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if os.environ.get("INFEROMETER_RAY") != "1":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.delenv(name, raising=False)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(Server(args={"speed": 5}), tmp_path_factory.mktemp("server")) as server:
        yield server.url


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a first run learns of this machine; every store begins with it."""
    home = tmp_path_factory.mktemp("first")
    calibrate(quick=True, store=home)
    return home / "calibration"


@pytest.fixture
def store(tmp_path: Path, calibrated: Path) -> Path:
    home = tmp_path / "store"
    shutil.copytree(calibrated, home / "calibration")
    return home
