"""Starts again, without any failpoint, whatever of a cluster dies while a test drives jobs through it.

Comes in: a cluster. Goes out: who died of what. Called by: the tests that kill by failpoint or at random moments.
"""

from __future__ import annotations

import threading
from types import TracebackType

from tests.system.harness import Agent, Cluster, Controller

LOOK_S = 0.005


class Keeper:
    """A thread that looks after the controller and all agents. `deaths`: (`controller` or the node, exit code)."""

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
