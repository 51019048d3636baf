"""What is committed at every limit over time, as steps.

Comes in: State after each instant. Goes out: for each scope and dimension of the LimitTree its ceiling and the steps
of its use. Called by: world (notes), report (reads).

Only what an attempt's start or end has touched is looked at. A long simulation has more steps than anybody reads: past
`MOST` in all, a step that comes within a while of the one before takes its place, keeping the larger of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.ledger.state import State

MOST = 200_000
CROWDED_US = 60_000_000  # how near to each other steps may not be, once there are that many

Key = tuple[str, str]  # scope and dimension


@dataclass(slots=True)
class Steps:
    """From each time on so much is used. `ceiling` None: it is only counted."""

    ceiling: int | None
    at_us: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)


class Commitment:
    """The steps of all limits."""

    def __init__(self, kept: bool = True) -> None:
        """Not `kept`: nobody will ask."""
        self._kept = kept
        self.limits: dict[Key, Steps] = {}
        self.exact_until_us: int | None = None  # None: to the end
        self._touched: dict[str, bool] = {}
        self._count = 0

    def touch(self, state: State, job: int) -> None:
        """Something of this job's starts or ends in this instant."""
        if self._kept:
            self._touched[state.scope(state.jobs[job])] = True

    def note(self, state: State, at_us: int) -> None:
        """The instant is over."""
        if not self._touched:
            return
        scopes = {scope.name: scope for name in self._touched for scope in state.limits.path(name)}
        if state.power is not None:
            scopes |= {scope.name: scope for scope in state.power.scopes}
        if state.spending is not None:
            scopes |= {scope.name: scope for scope in state.spending.scopes()}
        self._touched.clear()
        for scope in scopes.values():
            for dimension in {**scope.used, **scope.ceilings}:
                self._step(
                    (scope.name, dimension),
                    scope.ceilings.get(dimension),
                    at_us,
                    scope.used.get(dimension, 0),
                )
            self._gone(scope.name, scope.used, at_us)

    def _gone(self, name: str, used: dict[str, int], at_us: int) -> None:
        """Dimensions of which nothing is used any more are not in the tree; here they fall to 0."""
        for key in [key for key in self.limits if key[0] == name and key[1] not in used]:
            self._step(key, self.limits[key].ceiling, at_us, 0)

    def _step(self, key: Key, ceiling: int | None, at_us: int, used: int) -> None:
        steps = self.limits.get(key)
        if steps is None:
            steps = self.limits[key] = Steps(ceiling)
        if steps.used and steps.used[-1] == used:
            return
        if self._count >= MOST and steps.at_us and at_us - steps.at_us[-1] < CROWDED_US:
            if self.exact_until_us is None:
                self.exact_until_us = at_us
            steps.used[-1] = max(steps.used[-1], used)
            return
        steps.at_us.append(at_us)
        steps.used.append(used)
        self._count += 1
