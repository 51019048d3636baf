"""The fixture `testbed`: one bed per test session, hosts booted on demand and as just installed for each test.

Comes in: pytest's session. Goes out: a `Bed`; `testbed.fresh(3, "12", "13")` is how most tests begin. Called by:
pytest, to which tests/conftest.py names this plugin. All tests of the tier run in one process, file by file: two beds
at once are no quicker on two processors, and crowd out what else runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.testbed import record
from tests.testbed.bed import Bed

LONGEST_S = 900  # for one test: the first may have to make base trees


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real hosts need what the bed needs, and more time than others."""
    for item in items:
        if item.get_closest_marker("testbed"):
            item.add_marker(pytest.mark.needs("testbed"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LONGEST_S))


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Files with tests of the tier go to one process, in their order; all other tests go wherever there is room."""

    def _split_scope(self, nodeid: str) -> str:
        return "testbed" if _has_hosts(nodeid.partition("::")[0], self.config.rootpath) else nodeid


@cache
def _has_hosts(file: str, root: Path) -> bool:
    return "pytest.mark.testbed" in (root / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """By files, not by xdist's own groups: with pytest 9.2 xdist 3.8 passes over the marker `xdist_group`."""
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def testbed() -> Iterator[Bed]:
    """The session's bed, without hosts at first. A killed session's bed is swept by the next one that makes a bed."""
    pid = os.getpid()
    with Bed.make(f"t{pid}", owner=record.process_mark(pid)) as bed:
        yield bed
