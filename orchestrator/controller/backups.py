"""Copies of the ledger on a schedule, while it is worked on.

Comes in: the state folder, and what the wanted cluster says about backups, asked anew before each. Goes out:
STATE/backups/TIME.ledger, each proved to be readable; of more than are to be kept the oldest go. Called by: api.serve,
as a task beside the server. A copy that can't be made is told in the log and tried again; it stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.cluster import Backup
from orchestrator.model.errors import GanglineError
from orchestrator.store import backup as store

log = logging.getLogger("gangline.backups")

LOOK_S = 60.0  # between two looks whether one is due
FORM = "%Y%m%dT%H%M%SZ"
SUFFIX = ".ledger"


class Backups:
    """Keeps the last copies. `wanted` None: no cluster yet, so there is nothing worth a copy."""

    def __init__(self, state: Path, wanted: Callable[[], Backup | None], clock: Clock) -> None:
        self._state = state
        self._folder = state / "backups"
        self._wanted = wanted
        self._clock = clock
        self._begun_us = clock.now_us()

    async def run(self) -> None:
        """For ever: make one whenever it is due."""
        while True:
            if self.due():
                await asyncio.to_thread(self.make)
            await asyncio.sleep(LOOK_S)

    def due(self) -> bool:
        """Whether the last copy, or the start where there is none, is long enough ago."""
        wanted = self._wanted()
        if wanted is None or not wanted.every_s:
            return False
        copies = self.copies()
        last_us = _time_of(copies[-1]) if copies else self._begun_us
        return self._clock.now_us() - last_us >= wanted.every_s * SECOND

    def copies(self) -> list[Path]:
        """Those there are, the oldest first."""
        return sorted(path for path in self._folder.glob(f"*{SUFFIX}") if _time_of(path))

    def make(self) -> Path | None:
        """Make one now and let old ones go; None, and a line in the log, if that fails."""
        now = datetime.fromtimestamp(self._clock.now_us() / SECOND, UTC)
        target = self._folder / f"{now.strftime(FORM)}{SUFFIX}"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            store.backup(self._state, target)
            store.verify(target)
            self._let_go()
        except (GanglineError, OSError) as error:
            log.warning("no backup: %s; it is tried again in %d s", error, LOOK_S)
            return None
        log.info("backup: %s", target)
        return target

    def _let_go(self) -> None:
        wanted = self._wanted()
        keep = wanted.keep if wanted is not None else 1
        for path in self.copies()[:-keep]:
            path.unlink(missing_ok=True)


def _time_of(path: Path) -> int:
    """When a copy was made, by its name, in microseconds UTC; 0 for a file of another kind."""
    try:
        made = datetime.strptime(path.name.removesuffix(SUFFIX), FORM).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(made.timestamp()) * SECOND
