"""Fixtures of the system tests: clusters that are taken down whatever happens.

Comes in: what a test wants. Goes out: `Cluster`s in the test's own folder. Called by: pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system import processes
from tests.system.harness import Cluster

MakeCluster = Callable[..., Cluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first, so that other workers do the rest beside it.

    httpcore leaves the socket of a refused connection on a Unix path to the garbage collector; with controllers that
    die all the time that is no finding of these tests.
    """
    items.sort(key=lambda item: "test_storm" not in item.nodeid)
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session", autouse=True)
def _swept() -> None:
    """What a killed run has left would take this one's processors."""
    processes.sweep()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Make clusters that are up; they are ended after the test."""
    made: list[Cluster] = []

    def make(**wanted: Any) -> Cluster:
        folder = tmp_path if not made else tmp_path / str(len(made))
        folder.mkdir(exist_ok=True)
        made.append(Cluster(folder, **wanted))
        return made[-1].up()

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """Two nodes with eight emulated GPUs each."""
    return make_cluster()
