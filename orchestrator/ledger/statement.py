"""Try, check, undo: the one way in which a pass looks at what would be.

Comes in: a State's capacity and limits. Goes out: the same ones, changed while the pass runs and exactly as before
after `rollback(0)`. Called by: scheduler (placing now; preempting and backfilling later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.ledger.capacity import FAR, Saved
from orchestrator.ledger.limits import Amounts
from orchestrator.ledger.scopes import scope_queue
from orchestrator.model.attempt import Placement

if TYPE_CHECKING:
    from orchestrator.ledger.state import State

Operation = tuple[str, tuple[Placement, ...], Amounts, str, int]
MANY = 64  # parts: as soon as so many are taken, going back to a copy is quicker than undoing one by one


class Statement:
    """A log of takes on a State, each with its reverse. Long ones have a copy of what was held at some point of the
    log, to which a rollback past it goes back at once."""

    __slots__ = ("_at", "_log", "_many", "_saved", "_since", "_state")

    def __init__(self, state: State, many: int = MANY) -> None:
        self._state = state
        self._many = many
        self._log: list[Operation] = []
        self._since = 0  # parts taken that no copy covers
        self._saved: Saved | None = None
        self._at = 0  # where in the log it was made

    def checkpoint(self) -> int:
        """A point to roll back to."""
        return len(self._log)

    def take(
        self,
        scope: str,
        placements: tuple[Placement, ...],
        amounts: Amounts,
        address: str = "",
        port: int = 0,
        until_us: int = FAR,
    ) -> None:
        """Take a gang's devices with their power and price, cores, memory, limits and rendezvous port (0: none); on an
        error, nothing. `until_us`: when its work ends at the latest."""
        self._since += len(placements)
        if self._since > self._many and self._saved is None:
            self._saved, self._at = self._state.capacity.save(), len(self._log)
        if len(placements) == 1:
            self._state.capacity.take(placements[0], until_us)
        else:
            self._state.capacity.take_all(placements, until_us)
        if self._state.power is not None:
            self._state.power.take_all(placements)
        try:
            self._state.limits.take(scope, amounts)
        except KeyError:
            self._give_back(placements)
            if self._state.power is not None:
                self._state.power.release_all(placements)
            raise
        if self._state.spending is not None:
            self._state.spending.take_all(placements, scope_queue(scope))
        if port:
            self._state.take_port(address, port)
        self._log.append((scope, placements, amounts, address, port))

    def rollback(self, to: int) -> None:
        """Undo everything after the checkpoint."""
        state, undone = self._state, self._log[to:]
        one_by_one = undone
        if self._saved is not None and to <= self._at:
            state.capacity.restore(self._saved)
            one_by_one = self._log[to : self._at]
            self._saved, self._since = None, 0
        for _, placements, _, _, _ in reversed(one_by_one):
            self._give_back(placements)
        if state.power is not None:
            for _, placements, _, _, _ in reversed(undone):
                state.power.release_all(placements)
        if state.spending is not None:
            for scope, placements, _, _, _ in reversed(undone):
                state.spending.release_all(placements, scope_queue(scope))
        for scope, amounts in _in_all(undone).items():
            state.limits.release(scope, tuple(amounts.items()))
        for _, _, _, address, port in undone:
            if port:
                state.free_port(address, port)
        del self._log[to:]

    def _give_back(self, placements: tuple[Placement, ...]) -> None:
        for part in placements:
            self._state.capacity.release(part)


def _in_all(log: list[Operation]) -> dict[str, dict[str, int]]:
    """What was taken of limits, by scope."""
    found: dict[str, dict[str, int]] = {}
    for scope, _, amounts, _, _ in log:
        totals = found.setdefault(scope, {})
        for dimension, amount in amounts:
            totals[dimension] = totals.get(dimension, 0) + amount
    return found
