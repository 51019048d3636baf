"""The fixture `testbed`: one bed per test session, hosts booted on demand and as just installed for each test.

Comes in: pytest's session. Goes out: a `Bed`; `testbed.fresh(3, "12", "13")` is how most tests begin. Called by:
pytest, to which tests/conftest.py names this plugin. All tests of the tier run in one xdist group, so in one process:
two beds at once are no quicker on two processors, and crowd out what else runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.testbed import record
from tests.testbed.bed import Bed

LONGEST_S = 900  # for one test: the first may have to make base trees


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real hosts share one bed, and need what it needs."""
    for item in items:
        if item.get_closest_marker("testbed"):
            item.add_marker(pytest.mark.xdist_group("testbed"))
            item.add_marker(pytest.mark.needs("testbed"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LONGEST_S))


@pytest.fixture(scope="session")
def testbed() -> Iterator[Bed]:
    """The session's bed, without hosts at first. A killed session's bed is swept by the next one that makes a bed."""
    pid = os.getpid()
    with Bed.make(f"t{pid}", owner=record.process_mark(pid)) as bed:
        yield bed
