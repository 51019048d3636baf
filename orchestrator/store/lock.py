"""Who has a ledger open: an advisory lock on STATE/ledger.lock that the kernel drops when its holder dies.

Comes in: the state directory. Goes out: a lock that many may share, or one alone (to create, upgrade or replace the
file). Called by: opening, backup, restore. It does not decide which controller may write: epochs do (base.Store).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from orchestrator.model.errors import Conflict, Unavailable
from orchestrator.store.faults import reported

NAME = "ledger.lock"
WAIT_S = 30.0  # for another process to finish creating, upgrading or restoring; tests shorten it
_POLL_S = 0.02


class LedgerLock:
    """One open file description; released by `close` or by death. Not inherited by programs that are started."""

    def __init__(self, state: Path) -> None:
        self.path = state / NAME
        with reported(self.path, "open"):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def alone(self) -> bool:
        """Take it alone, or say at once that somebody else has it."""
        return self._take(fcntl.LOCK_EX)

    def share(self, wait_s: float | None = None) -> None:
        """Take it together with others; Unavailable if somebody has it alone for longer than `wait_s` seconds."""
        deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
        while not self._take(fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise Unavailable(
                    "ledger.locked",
                    f"{self.path.parent} is being created, upgraded or restored by another process",
                    hint=f"wait for it, or see who it is: fuser -v {self.path}",
                    path=str(self.path.parent),
                )
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Let go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def in_use(state: Path, wanted: str) -> Conflict:
    """The error for what needs the ledger alone while somebody has it open."""
    return Conflict(
        "ledger.in-use",
        f"can't {wanted} the ledger in {state}: a controller or another command has it open",
        hint=f"stop it first; see who it is: fuser -v {state / NAME}",
        path=str(state),
    )
