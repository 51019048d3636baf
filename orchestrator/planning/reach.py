"""Which nodes a change of the file reaches, and which roles carry it out there.

Comes in: a judged case. Goes out: pool, nodes, roles. Called by: diff.

Reached are nodes that were there before and stay: what is new gets everything anyway, and what goes is told by its own
change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.model.change import ChangeKind, UpdateClass
from orchestrator.model.cluster import Pool, SiteKind
from orchestrator.planning.desired import AGENT, BASE
from orchestrator.planning.rules import Judged

EVERYWHERE = ("identity", "controller")
BY_CONTROLLER = ("storage[].purge", "storage[].per_job")  # it alone tells jobs whether a folder is theirs

# By the beginning of a pattern, the most telling one first. What is not here concerns no role that there is today.
ROLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sites[].system", (BASE,)),
    ("identity.users", (BASE,)),
    ("identity.groups", (BASE,)),
    ("identity.source", (BASE, AGENT)),
    ("identity.min_uid", (AGENT,)),
    ("controller.address", (AGENT,)),
    ("pools[].gpu", (AGENT,)),
    ("pools[].cores", (AGENT,)),
    ("pools[].memory", (AGENT,)),
    ("pools[].software", (BASE, AGENT)),
    ("pools[].fabric", (BASE, AGENT)),
    ("pools[].nodes", (BASE, AGENT)),
    ("pools[].site", (BASE, AGENT)),
    ("pools", (BASE, AGENT)),
    ("storage", (BASE,)),
)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a change touches. `pool` is empty where it is more than one."""

    pool: str = ""
    nodes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class Reacher:
    """Answers for two specs; remembers which nodes of each pool stay."""

    def __init__(self, before: tuple[Pool, ...], after: tuple[Pool, ...]) -> None:
        old = {pool.name: pool for pool in before}
        self._stay: dict[str, tuple[str, ...]] = {}
        for pool in after:
            was = dict.fromkeys(old[pool.name].nodes) if pool.name in old else {}
            self._stay[pool.name] = tuple(name for name in pool.nodes if name in was)

    def reach(self, judged: Judged, cls: UpdateClass) -> Reach:
        """Nothing for what the controller does alone, and for what is refused."""
        if cls in (UpdateClass.CONTROLLER, UpdateClass.REFUSED):
            return Reach()
        pattern = judged.case.pattern
        if pattern.startswith("pools"):
            return self._pool(judged)
        pools = tuple(self._pools(judged))
        nodes = tuple(name for pool in pools for name in self._stay[pool])
        return Reach(pools[0] if len(pools) == 1 else "", nodes, roles_for(pattern) if nodes else ())

    def _pool(self, judged: Judged) -> Reach:
        pool: Pool = judged.row()
        case = judged.case
        roles = () if case.kind is ChangeKind.REMOVED else roles_for(case.pattern)
        if case.pattern == "pools":
            return Reach(pool.name, pool.nodes, roles)
        if case.pattern == "pools[].nodes":
            return Reach(pool.name, (str(case.new or case.old),), roles)
        return Reach(pool.name, self._stay[pool.name], roles_for(case.pattern))

    def _pools(self, judged: Judged) -> Iterator[str]:
        """The pools on metal that a change outside of pools reaches."""
        for pool in judged.after.pools:
            if judged.after.site_of(pool).kind is SiteKind.METAL and _reaches(judged, pool):
                yield pool.name


def _reaches(judged: Judged, pool: Pool) -> bool:
    pattern = judged.case.pattern
    if pattern.startswith("sites"):
        return bool(judged.row().name == pool.site)
    if pattern.startswith("storage"):
        return pattern not in BY_CONTROLLER and _has_storage(judged, pool)
    return pattern.startswith(EVERYWHERE)


def _has_storage(judged: Judged, pool: Pool) -> bool:
    pair = judged.case.rows[0]
    sites = [one.sites for one in (pair.old, pair.new) if one is not None]
    return any(not one or pool.site in one for one in sites)


def roles_for(pattern: str) -> tuple[str, ...]:
    """The roles that carry a change there out."""
    return next((roles for start, roles in ROLES if pattern.startswith(start)), ())
