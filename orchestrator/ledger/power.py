"""Watts that are committed in power domains: what idle nodes draw, and each GPU that somebody holds at its power limit.

Comes in: sites with power domains, what GPUs draw, which devices are taken and given back. Goes out: use in the limit
tree's scopes `power=SITE/DOMAIN` (dimension `watts`), and `Headroom` for those who place. Called by: state, statement.

A domain may use its limit after derating, less what Gangline does not control. A node loads each domain that feeds it
with its part (`model.power`), rounded up. A GPU counts at its power limit from its first holder to its last, however
little of it they hold: nothing makes it draw less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import Rows
from orchestrator.ledger.limits import LimitTree, Scope
from orchestrator.ledger.scopes import power_scope
from orchestrator.model.attempt import Placement
from orchestrator.model.cluster import ClusterSpec, Site
from orchestrator.model.power import PoolWatts, carried, flows, home_of

Numbers = NDArray[np.int64]
Feed = tuple[
    int, int, int
]  # a domain's number, and the part of a node's draw that it carries: numerator, denominator
UNLIMITED = 1 << 40  # watts


@dataclass(frozen=True, slots=True)
class Headroom:
    """Watts that may still be committed. `left`: [domains + 1], by number, the last of them unlimited; by row: `drawn`
    now, `each` GPU that is lit adds, `of` [rows, feeds] the domains, and `num` / `den` the parts of the draw there."""

    left: Numbers
    drawn: Numbers
    each: Numbers
    of: Numbers
    num: Numbers
    den: Numbers

    def copy(self) -> Headroom:
        """As it is now; what never changes is shared."""
        return replace(self, left=self.left.copy(), drawn=self.drawn.copy())

    def grown(self, before: Headroom) -> Rows:
        """Rows that some domain has more left for than it had then."""
        more = self.left > before.left
        more[-1] = False
        return np.flatnonzero(more[self.of].any(axis=1))

    def gpus(self, rows: Rows) -> Numbers:
        """How many more GPUs each of these rows could light if no other did."""
        found = np.full(len(rows), UNLIMITED, np.int64)
        here = np.flatnonzero(rows < len(self.each))  # nodes that came later hang on no domain
        rows = rows[here]
        of, num, den = self.of[rows], self.num[rows], self.den[rows]
        drawn, each = self.drawn[rows, None], self.each[rows]
        allowed = (self.left[of] + -(-drawn * num // den)) * den // num
        more = np.maximum((allowed - drawn).min(axis=1), 0)
        found[here] = np.where(each > 0, more // np.maximum(each, 1), UNLIMITED)
        return found

    def light(self, row: int, gpus: int) -> None:
        """So many more GPUs of a row draw what they may; fewer than 0: they idle again."""
        if row >= len(self.each):
            return
        before = int(self.drawn[row])
        after = before + gpus * int(self.each[row])
        self.drawn[row] = after
        for at in range(self.of.shape[1]):
            num, den = int(self.num[row, at]), int(self.den[row, at])
            self.left[self.of[row, at]] -= -(-after * num // den) - -(-before * num // den)


class Power:
    """The domains of all sites, and what is lit on their nodes."""

    def __init__(
        self, cluster: ClusterSpec, watts: dict[str, PoolWatts], limits: LimitTree, rows: int
    ) -> None:
        """`rows`: how many nodes there are at most; those that come later hang on no domain."""
        self.scopes: list[Scope] = []
        self.most: dict[str, int] = {}  # watts that a GPU of a pool may draw, of pools that load a domain
        self._limits = limits
        self._watts = watts
        self._feeds: dict[str, list[Feed]] = {}  # by node
        for site in cluster.sites:
            if any(domain.limit_watts for domain in site.power.domains):
                self._add(cluster, site)
        count, feeds = len(self.scopes), max((len(each) for each in self._feeds.values()), default=1)
        self.room = Headroom(
            np.array([*map(_most, self.scopes), UNLIMITED], np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.full((rows, feeds), count, np.int64),
            np.ones((rows, feeds), np.int64),
            np.ones((rows, feeds), np.int64),
        )
        self.idle = self.room  # what would be left if nothing ran: told by `settle`
        self._held: dict[str, dict[int, int]] = {}  # node -> slot -> how many hold something of it
        self._rows: dict[str, int] = {}

    def _add(self, cluster: ClusterSpec, site: Site) -> None:
        domains = {domain.name: domain for domain in site.power.domains}
        unmanaged, numbers = carried(site, {}), {}
        for name, domain in domains.items():
            usable = domain.usable_watts() - unmanaged[name]
            self._limits.add(
                power_scope(site.name, name), "", {"watts": usable} if domain.limit_watts else {}
            )
            numbers[name] = len(self.scopes)
            self.scopes.append(self._limits.scopes[power_scope(site.name, name)])
        through = flows(domains)
        nodes = {node: pool for pool in cluster.pools if pool.site == site.name for node in pool.nodes}
        for node, home in home_of(domains, nodes).items():
            parts = through[home].items()
            self._feeds[node] = [(numbers[name], *part.as_integer_ratio()) for name, part in parts]
            pool = nodes[node].name
            if pool in self._watts:
                self.most[pool] = self._watts[pool].most

    def place(self, name: str, pool: str, gpus: int, row: int) -> None:
        """A node that there is: it draws what it does when idle."""
        feeds, watts = self._feeds.get(name), self._watts.get(pool)
        if feeds is None or watts is None:
            return
        for at, (number, num, den) in enumerate(feeds):
            self.room.of[row, at], self.room.num[row, at], self.room.den[row, at] = number, num, den
        self._rows[name] = row
        self.room.each[row] = gpus * watts.idle
        self._light(row, 1)
        self.room.each[row] = watts.most - watts.idle

    def settle(self) -> None:
        """All nodes have their place, and nothing runs yet."""
        self.idle = self.room.copy()

    def used(self) -> tuple[int, ...]:
        """Watts that are committed now, in the order of `scopes`."""
        return tuple(scope.used.get("watts", 0) for scope in self.scopes)

    def take(self, part: Placement) -> None:
        """Somebody holds these devices from now on."""
        row = self._rows.get(part.node)
        if row is not None and part.slots:
            held = self._held.setdefault(part.node, {})
            new = 0
            for slot in part.slots:
                new += slot not in held
                held[slot] = held.get(slot, 0) + 1
            self._light(row, new)

    def release(self, part: Placement) -> None:
        """They hold them no more; KeyError if they did not."""
        row = self._rows.get(part.node)
        if row is not None and part.slots:
            held = self._held[part.node]
            gone = 0
            for slot in part.slots:
                held[slot] -= 1
                if not held[slot]:
                    del held[slot]
                    gone += 1
            self._light(row, -gone)

    def take_all(self, parts: tuple[Placement, ...]) -> None:
        """Somebody holds the devices of all these."""
        for part in parts:
            self.take(part)

    def release_all(self, parts: tuple[Placement, ...]) -> None:
        """They hold none of them any more."""
        for part in parts:
            self.release(part)

    def _light(self, row: int, gpus: int) -> None:
        if gpus:
            self.room.light(row, gpus)
            self._limits.version += gpus < 0
            for number in dict.fromkeys(self.room.of[row].tolist()):
                if number < len(self.scopes):
                    self._count(number)

    def _count(self, number: int) -> None:
        scope = self.scopes[number]
        used = _most(scope) - int(self.room.left[number])
        if used:
            scope.used["watts"] = used
        else:
            scope.used.pop("watts", None)

    def short(self, rows: list[int], gpus: int) -> tuple[Scope, int, int] | None:
        """A domain that feeds all these rows and would not carry so many GPUs on any of them if nothing ran: with what
        it carries beside idle nodes, and what they need of it at least."""
        idle = self.idle
        for number, scope in enumerate(self.scopes if max(rows) < len(idle.each) else ()):
            here = idle.of[rows] == number
            if scope.ceilings and here.any(axis=1).all():
                watts = gpus * idle.each[rows, None] * idle.num[rows] // idle.den[rows]
                need, left = int(watts[here].min()), int(idle.left[number])
                if need > left:
                    return scope, max(left, 0), need
        return None

    def over(self, rows: list[int], gpus: list[int], room: Headroom) -> tuple[Scope, int, int] | None:
        """The innermost domain that these GPUs more would pass, by how much, and what is used of it there."""
        then = room.copy()
        for row, count in zip(rows, gpus, strict=True):
            then.light(row, count)
        for row in rows:
            for number in room.of[row].tolist():
                if number < len(self.scopes) and then.left[number] < 0 and self.scopes[number].ceilings:
                    scope = self.scopes[number]
                    return scope, -int(then.left[number]), _most(scope) - int(room.left[number])
        return None


def _most(scope: Scope) -> int:
    """Watts that may be committed; of a domain without a limit of its own, more than anybody has."""
    return scope.ceilings.get("watts", UNLIMITED)


def power_of(
    cluster: ClusterSpec | None, watts: tuple[PoolWatts, ...], limits: LimitTree, rows: int
) -> Power | None:
    """None for a cluster without limits on power. Of pools that nobody has told of, what the file says."""
    sites = cluster.sites if cluster is not None else ()
    if cluster is None or not any(domain.limit_watts for site in sites for domain in site.power.domains):
        return None
    told = {pool.name: PoolWatts(pool.name, 0, pool.gpu.max_watts) for pool in cluster.pools if pool.gpu}
    return Power(cluster, told | {one.pool: one for one in watts}, limits, rows)
