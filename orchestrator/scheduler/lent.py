"""What other queues keep back, as a bound of a line: like a ceiling, of a size that depends on what those queues use.

Comes in: the limit tree, a line's path. Goes out: `LentBound`s. Called by: order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.ledger.capacity import FAR
from orchestrator.ledger.lending import Keeping
from orchestrator.ledger.limits import LimitTree


@dataclass(frozen=True, slots=True)
class LentBound:
    """What gangs of a line that go to these pools alone may take of what others keep a part of. Within a pass it only
    shrinks: what a queue takes of its own part leaves others as much as before."""

    limits: LimitTree
    keeping: Keeping
    path: tuple[str, ...]
    pools: tuple[int, ...]

    @property
    def dimension(self) -> str:
        """What it is counted in."""
        return self.keeping.dimension

    def left(self) -> int:
        """How much a gang may still take; where nobody keeps anything, as much as nodes have."""
        lending = self.limits.lending
        there = self.keeping.there(lending.capacity) if lending is not None else 0
        found = self.keeping.lent(self.path, self.limits.used_in, there)
        return found.left if found.kept else FAR

    def lets(self, ask: int, pool: int) -> bool:
        """Whether one more gang that asks for so much, and can only go to that pool, may start for all that it says."""
        return pool not in self.pools or ask <= 0 or ask <= self.left()


def lent_bounds(limits: LimitTree, scope: str, counted: Mapping[str, tuple[int, ...]]) -> Iterator[LentBound]:
    """One for each dimension in which queues keep something."""
    path = tuple(one.name for one in limits.path(scope))
    for dimension, keeping in limits.lending.by_dimension.items() if limits.lending is not None else ():
        if dimension in counted:
            yield LentBound(limits, keeping, path, counted[dimension])
