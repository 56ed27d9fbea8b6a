"""A cluster for the tests of this folder: the stand-in, or in `make test-kubernetes` a real control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stacks import calibrated

from kubernetes_stand_in.clusters import TestedCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedCluster]:
    tested = TestedCluster(tmp_path_factory.mktemp("cluster"))
    tested.start()
    try:
        yield tested
    finally:
        tested.stop()


@pytest.fixture
def namespace(cluster: TestedCluster) -> str:
    return cluster.new_namespace()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a calibration of this machine: making one takes seconds."""
    return calibrated(tmp_path_factory.mktemp("store"), "")
