"""One tree of integer limits: a start fits at every ancestor, or the tree says which one binds and by how much.

Comes in: paths of scopes with ceilings per dimension, and what starts take. Goes out: whether it fits, the binding
limit, use per scope. Called by: Statement (tries), apply (keeps the books). Dimensions here are `jobs`, in milli-GPU
`gpus`, `gpus@POOL` and `gpus~MODEL`, `watts` (ledger.power), micro-dollars an hour, `usd` (ledger.spending), and
milli-GPU-seconds of a month, `gpu_hours` (ledger.hours).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.ledger.lending import Lending, UsedIn
from orchestrator.model.reasons import Reason, amount_words, dimension_words, reason

Amounts = tuple[tuple[str, int], ...]  # (dimension, amount), amounts in the dimension's base unit


class Binding(NamedTuple):
    """The limit that a start does not fit: `over` is by how much it would pass the ceiling. `keepers`: the scopes of
    queues that keep `kept` back; `used` counts that. `budget`: the one that sets the ceiling."""

    scope: str
    dimension: str
    ceiling: int
    used: int
    over: int
    kept: int = 0
    keepers: tuple[str, ...] = ()
    budget: str = ""


@dataclass(slots=True)
class Scope:
    """One place in the tree. A dimension without a ceiling is only counted; `budgets` names those that set ceilings."""

    name: str
    parent: str
    ceilings: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    budgets: dict[str, str] = field(default_factory=dict)


class LimitTree:
    """Scopes by name; a scope is created before anything is taken in it."""

    __slots__ = ("_limited", "_paths", "lending", "scopes", "version")

    def __init__(self) -> None:
        self.scopes: dict[str, Scope] = {}
        self.lending: Lending | None = None  # what queues keep back, if any does
        self.version = 0  # another one: something may fit now that did not
        self._paths: dict[str, tuple[Scope, ...]] = {}
        self._limited: tuple[Scope, ...] | None = None

    def add(
        self, name: str, parent: str, ceilings: dict[str, int], budgets: dict[str, str] | None = None
    ) -> None:
        """Create a scope, or set the ceilings of one that exists; use is kept."""
        scope = self.scopes.setdefault(name, Scope(name, parent))
        scope.parent, scope.ceilings, scope.budgets = parent, dict(ceilings), dict(budgets or {})
        self._paths.clear()
        self._limited = None
        self.version += 1

    def drop(self, name: str) -> None:
        """Forget a scope without children in which nothing is taken; one that there is not is no error."""
        if self.scopes.pop(name, None) is not None:
            self._paths.pop(name, None)
            self._limited = None

    def lend(self, lending: Lending) -> None:
        """Queues keep that back from now on."""
        self.lending = lending if lending.by_dimension else None
        self._limited = None

    def limited(self) -> tuple[Scope, ...]:
        """The scopes that have a ceiling, or in which it matters what is used."""
        if self._limited is None:
            kept = self.lending.scopes() if self.lending is not None else ()
            self._limited = tuple(
                scope for scope in self.scopes.values() if scope.ceilings or scope.name in kept
            )
        return self._limited

    def used_in(self, name: str) -> dict[str, int]:
        """What is used in a scope, by dimension."""
        return self.scopes[name].used

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
        if self.lending is None:
            return None
        path = tuple(scope.name for scope in self.path(name))
        return kept_back(self.lending, path, amounts, self.used_in, self.lending.there())

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
        self.version += 1
        for scope in path:
            used = scope.used
            for dimension, amount in amounts:
                used[dimension] = used.get(dimension, 0) - amount
                if not used[dimension]:
                    del used[dimension]


def kept_back(
    lending: Lending, path: tuple[str, ...], amounts: Amounts, used: UsedIn, there: dict[str, int]
) -> Binding | None:
    """What other queues keep of these amounts, or None if they leave as much. Where all that
    is kept is used, nodes alone say what is left: shares by memory may count for more than they take."""
    for dimension, amount in amounts:
        keeping = lending.by_dimension.get(dimension)
        if keeping is None or amount <= 0:
            continue
        found = keeping.lent(path, used, there[dimension])
        if found.kept and amount > found.left:
            over = amount - found.left
            taken = found.there - found.left
            return Binding(path[-1], dimension, found.there, taken, over, found.kept, found.queues)
    return None


def limit_reason(over: Binding) -> Reason:
    """A binding limit in words."""
    if over.keepers:
        return reason(
            "wait.lent",
            queues=keepers_words(over),
            kept=amount_words(over.dimension, over.kept),
            what=dimension_words(over.dimension),
            left=amount_words(over.dimension, max(over.ceiling - over.used, 0)),
            over=amount_words(over.dimension, over.over),
        )
    if over.budget:
        return reason(
            "wait.spending",
            budget=over.budget,
            scope=scope_words(over.scope),
            ceiling=amount_words(over.dimension, over.ceiling),
            used=amount_words(over.dimension, over.used),
            need=amount_words(over.dimension, over.over + over.ceiling - over.used),
        )
    if over.dimension == "gpu_hours":
        return reason(
            "wait.gpu-hours",
            scope=scope_words(over.scope),
            ceiling=amount_words(over.dimension, over.ceiling),
            used=amount_words(over.dimension, over.used),
            need=amount_words(over.dimension, over.over + over.ceiling - over.used),
        )
    tasks = over.dimension == "jobs" and "/array=" in over.scope
    return reason(
        "wait.limit",
        scope=scope_words(over.scope),
        what="task(s) at a time" if tasks else dimension_words(over.dimension),
        ceiling=amount_words(over.dimension, over.ceiling),
        used=amount_words(over.dimension, over.used),
        over=amount_words(over.dimension, over.over),
    )


def keepers_words(over: Binding) -> str:
    """The names of the queues that keep something back."""
    return ", ".join(scope_words(scope).removeprefix("queue ") for scope in over.keepers)


def scope_words(scope: str) -> str:
    """`queue=research/user=alice` -> `alice in queue research`, `.../array=1234` -> `array 1234`."""
    scope, _, array = scope.partition("/array=")
    if array:
        return f"array {array}"
    queue, _, user = scope.partition("/user=")
    queue = queue.replace("queue=", "queue ")
    return f"{user} in {queue}" if user else queue
