"""Runs that several tests export; `exported_runs` describes them."""

import exported_runs
import pytest

from inferometer.record.run import Run


@pytest.fixture(scope="session")
def run() -> Run:
    return exported_runs.open_run()


@pytest.fixture(scope="session")
def closed() -> Run:
    return exported_runs.closed_run()


@pytest.fixture(scope="session")
def latency() -> Run:
    return exported_runs.latency_run()


@pytest.fixture(scope="session")
def throughput() -> Run:
    return exported_runs.throughput_run()
