"""Try, check, undo: the one way in which a pass looks at what would be.

Comes in: a State's capacity and limits. Goes out: the same ones, changed while the pass runs and exactly as before
after `rollback(0)`. Called by: scheduler (placing now; preempting and backfilling later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.ledger.capacity import mask_of
from orchestrator.ledger.limits import Amounts
from orchestrator.model.attempt import Placement

if TYPE_CHECKING:
    from orchestrator.ledger.state import State

Operation = tuple[str, str, tuple[Placement, ...], Amounts, str, int]


class Statement:
    """A log of takes and releases on a State, each with its reverse."""

    __slots__ = ("_log", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._log: list[Operation] = []

    def checkpoint(self) -> int:
        """A point to roll back to."""
        return len(self._log)

    def take(
        self, scope: str, placements: tuple[Placement, ...], amounts: Amounts, address: str, port: int
    ) -> None:
        """Take a gang's devices, cores, memory, limits and rendezvous port (0: none); on an error, nothing."""
        self._put(placements)
        try:
            self._state.limits.take(scope, amounts)
        except KeyError:
            self._give_back(placements)
            raise
        if port:
            self._state.take_port(address, port)
        self._log.append(("take", scope, placements, amounts, address, port))

    def rollback(self, to: int) -> None:
        """Undo everything after the checkpoint, last first."""
        state = self._state
        while len(self._log) > to:
            _, scope, placements, amounts, address, port = self._log.pop()
            self._give_back(placements)
            state.limits.release(scope, amounts)
            if port:
                state.free_port(address, port)

    def _put(self, placements: tuple[Placement, ...]) -> None:
        for at, part in enumerate(placements):
            try:
                self._state.capacity.take(part.node, mask_of(part.slots), part.cores, part.memory)
            except (KeyError, ValueError):
                self._give_back(placements[:at])
                raise

    def _give_back(self, placements: tuple[Placement, ...]) -> None:
        for part in placements:
            self._state.capacity.release(part.node, mask_of(part.slots), part.cores, part.memory)
