"""The fixture `testbed`: one bed per test session, hosts booted on demand and as just installed for each test.

Comes in: pytest's session. Goes out: a `Bed`; `testbed.fresh(3, "12", "13")` is how most tests begin. Called by:
pytest, to which tests/conftest.py names this plugin. All tests of the tier run in one process (tests/spread.py).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails tells what its lab was like: what goes wrong once in a hundred runs is seen no second time."""
    report = yield
    if report.failed and call.when == "call" and item.get_closest_marker("testbed"):
        from tests.testbed.lab import Lab  # takes a second to load

        labs = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Lab)]
        report.sections += [("the lab", lab.told()) for lab in labs]
    return report


@pytest.fixture(scope="session")
def testbed() -> Iterator[Bed]:
    """The session's bed, without hosts at first. A killed session's bed is swept by the next one that makes a bed."""
    pid = os.getpid()
    with Bed.make(f"t{pid}", owner=record.process_mark(pid)) as bed:
        yield bed
