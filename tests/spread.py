"""How a run shares its tests among processes, and what each process does not load.

Comes in: xdist's nodes and pytest's session. Goes out: which process runs which test, files left unread, a collector of
garbage that passes over what lasts for the whole run. Called by: pytest, to which tests/conftest.py names this plugin.

Real hosts (tests/testbed) go to one process, file by file: two beds at once are no quicker on two processors, and crowd
out what else runs. They are the most tests of one scope, so that xdist gives them out first.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Tests that a process has in hand, so that it never waits for the next one, and most tests of a file meet in one, with
# what they share; fewer when few are left, to end together.
MOST_AHEAD = 64
LEAST_AHEAD = 3  # xdist's own: a process starts a test only when it knows the next one

_TIER_OF_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.(system|testbed|cloud|bench)\b", re.MULTILINE)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Files with tests of real hosts go to one process, in their order; all other tests go wherever there is room.

    xdist's own keeps what was done and counts it again after each test, and looks each test up in the list of all: with
    8,000 tests that is most of what its process does, and the others wait for it. By files, not by xdist's groups: with
    pytest 9.2 xdist 3.8 passes over the marker `xdist_group`.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._indices: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        return "testbed" if _has_hosts(nodeid.partition("::")[0], self.config.rootpath) else nodeid

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a test that is done, and give its process more."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        work = self.assigned_work[node]
        del work[scope][nodeid]
        if not work[scope]:
            del work[scope]
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        if not self.workqueue:
            node.shutdown()
            return
        ahead = len(self.workqueue) // (8 * len(self.assigned_work))
        ahead = max(LEAST_AHEAD, min(MOST_AHEAD, ahead))
        pending = self._pending_of(self.assigned_work[node])
        if pending < max(LEAST_AHEAD, ahead // 2):
            self._assign(node, ahead - pending)

    def _assign_work_unit(self, node: Any) -> None:
        self._assign(node, 1)

    def _assign(self, node: Any, most: int) -> None:
        """Send `most` tests, or one scope that holds more."""
        if not self._indices:
            self._indices = {nodeid: index for index, nodeid in enumerate(self.collection)}
        sent: list[int] = []
        while self.workqueue and len(sent) < most:
            scope, unit = self.workqueue.popitem(last=False)
            self.assigned_work[node][scope] = unit
            sent += [self._indices[nodeid] for nodeid in unit]
        node.send_runtest_some(sent)


@cache
def _has_hosts(file: str, root: Path) -> bool:
    return "pytest.mark.testbed" in (root / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Share tests out as `Scheduling` does."""
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't load a file all of whose tests are of a tier that `-m "not TIER and ..."` leaves out."""
    wanted = config.getoption("markexpr") or ""
    if "not " not in wanted or not collection_path.match("test_*.py"):
        return None
    found = _TIER_OF_FILE.search(collection_path.read_text(encoding="utf-8"))
    return True if found and f"not {found.group(1)}" in wanted.split(" and ") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the collector of garbage pass over modules and tests, which stay: a tenth of a run went there."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(2_000, 10, 40)  # what is left is small, and is looked at as a whole far too often
        gc.enable()
