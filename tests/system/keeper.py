"""What goes on beside a test's own thread: whatever dies is started again, and jobs are submitted meanwhile.

Comes in: a cluster. Goes out: who died of what; ids of jobs. Called by: the tests that kill by failpoint or at random.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tests.system.harness import Cluster
from tests.system.members import Agent, Controller
from tests.system.processes import until
from tests.system.workload import Work

LOOK_S = 0.005


class Keeper:
    """Starts the controller and agents again, without any failpoint.

    `deaths`: (`controller` or the node, exit code).
    """

    def __init__(self, cluster: Cluster) -> None:
        self.deaths: list[tuple[str, int]] = []
        self._watched: dict[str, Controller | Agent] = {"controller": cluster.controller, **cluster.agents}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            for name, watched in self._watched.items():
                code = watched.process.code()
                if code is not None:
                    self.deaths.append((name, code))
                    watched.start()


class Submitter:
    """A thread that submits what it is given, in order, while controllers come and go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: queue.SimpleQueue[tuple[str, Work, Mapping[str, Any], dict[str, Any]] | None] = (
            queue.SimpleQueue()
        )
        self._jobs: list[int] = []
        self._error: BaseException | None = None
        self._count = 0
        self._thread = threading.Thread(target=self._run, name="submitter", daemon=True)

    def __enter__(self) -> Submitter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def put(self, work: Work, shape: Mapping[str, Any], **spec: Any) -> None:
        """Submit another job."""
        self._queue.put((f"job-{self._count}", work, shape, spec))
        self._count += 1

    def wait(self) -> list[int]:
        """The ids of all that were given, once all are acknowledged."""
        until(
            lambda: self._error or len(self._jobs) == self._count,
            f"{self._count} submits are acknowledged",
            120,
        )
        assert self._error is None, self._error
        return self._jobs

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                name, work, shape, spec = item
                self._jobs.append(self._cluster.submit(name, work, shape, **spec))
        except BaseException as error:  # noqa: BLE001 - told by `wait`
            self._error = error
