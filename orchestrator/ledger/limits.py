"""One tree of integer limits: a start fits at every ancestor, or the tree says which one binds and by how much.

Comes in: paths of scopes with ceilings per dimension, and what starts take. Goes out: whether it fits, the binding
limit, use per scope. Called by: Statement (tries), apply (keeps the books). Dimensions here are `jobs`, `gpus` and
`gpus@POOL`; watts and dollars join the same tree later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.model.reasons import Reason, dimension_words, reason

Amounts = tuple[tuple[str, int], ...]  # (dimension, amount), amounts in the dimension's base unit


class Binding(NamedTuple):
    """The limit that a start does not fit: `over` is by how much it would pass the ceiling."""

    scope: str
    dimension: str
    ceiling: int
    used: int
    over: int


@dataclass(slots=True)
class Scope:
    """One place in the tree. A dimension without a ceiling is only counted."""

    name: str
    parent: str
    ceilings: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)


class LimitTree:
    """Scopes by name; a scope is created before anything is taken in it."""

    __slots__ = ("_paths", "scopes")

    def __init__(self) -> None:
        self.scopes: dict[str, Scope] = {}
        self._paths: dict[str, tuple[Scope, ...]] = {}

    def add(self, name: str, parent: str, ceilings: dict[str, int]) -> None:
        """Create a scope, or set the ceilings of one that exists; use is kept."""
        scope = self.scopes.get(name)
        if scope is None:
            self.scopes[name] = Scope(name, parent, dict(ceilings))
        else:
            scope.parent, scope.ceilings = parent, dict(ceilings)
        self._paths.clear()

    def path(self, name: str) -> tuple[Scope, ...]:
        """The scope and its ancestors, inside out. KeyError for an unknown scope."""
        found = self._paths.get(name)
        if found is None:
            steps = [self.scopes[name]]
            while steps[-1].parent:
                steps.append(self.scopes[steps[-1].parent])
            found = self._paths[name] = tuple(steps)
        return found

    def binding(self, name: str, amounts: Amounts) -> Binding | None:
        """The innermost limit that these amounts would pass, or None if they fit everywhere."""
        for scope in self.path(name):
            for dimension, amount in amounts:
                ceiling = scope.ceilings.get(dimension)
                if ceiling is None or amount <= 0:
                    continue
                used = scope.used.get(dimension, 0)
                if used + amount > ceiling:
                    return Binding(scope.name, dimension, ceiling, used, used + amount - ceiling)
        return None

    def take(self, name: str, amounts: Amounts) -> None:
        """Count the amounts at the scope and every ancestor; ceilings are the caller's business."""
        for scope in self.path(name):
            used = scope.used
            for dimension, amount in amounts:
                used[dimension] = used.get(dimension, 0) + amount

    def release(self, name: str, amounts: Amounts) -> None:
        """Give back what was taken; ValueError, and nothing changed, if that much was never taken."""
        path = self.path(name)
        for scope in path:
            for dimension, amount in amounts:
                left = scope.used.get(dimension, 0) - amount
                if left < 0:
                    raise ValueError(f"limit {scope.name}: {dimension} would fall to {left}")
        for scope in path:
            used = scope.used
            for dimension, amount in amounts:
                used[dimension] = used.get(dimension, 0) - amount
                if not used[dimension]:
                    del used[dimension]


def limit_reason(over: Binding) -> Reason:
    """A binding limit in words."""
    return reason(
        "wait.limit",
        scope=scope_words(over.scope),
        what=dimension_words(over.dimension),
        ceiling=over.ceiling,
        used=over.used,
        over=over.over,
    )


def scope_words(scope: str) -> str:
    """`queue=research/user=alice` -> `alice in queue research`."""
    queue, _, user = scope.partition("/user=")
    queue = queue.replace("queue=", "queue ")
    return f"{user} in {queue}" if user else queue
