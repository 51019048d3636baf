"""The lease of an apply, kept while its steps take their time.

Comes in: what renews it. Goes out: Conflict, once another has taken it. Called by: applying.
"""

from __future__ import annotations

import threading
from typing import Protocol

from orchestrator.model.errors import Conflict, GanglineError


class Renews(Protocol):
    """The part of the controller that a lease needs; GanglineError."""

    def renew(self, apply: str) -> None: ...


class Lease:
    """Keeps the lease while steps take their time, from a thread of its own."""

    def __init__(self, desk: Renews, apply: str, every_s: float) -> None:
        self._desk = desk
        self._apply = apply
        self._every_s = every_s
        self._over = threading.Event()
        self._lost: Conflict | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True, name="lease")

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Conflict if another has taken it: whoever lost it must touch nothing more."""
        if self._lost is not None:
            raise self._lost

    def _keep(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._desk.renew(self._apply)
            except Conflict as error:
                self._lost = error
                return
            except GanglineError:
                continue  # the controller may be restarting: it is asked again before the lease ends
