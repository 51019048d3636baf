"""The served controller of a test: empty, or with two nodes of 8 GPUs that are ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.served import Served, two_nodes


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> None:
    """Load schemathesis' plugin, which pyproject.toml keeps from loading, for the file that needs it."""
    if file_path.name == "test_schemathesis.py":
        parent.config.pluginmanager.import_plugin("schemathesis.pytest.plugin")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, None)
    yield served
    served.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, two_nodes())
    yield served
    served.close()
