"""Which node is where, has come in, is ready, could be looked at.

Comes in: the specs, what was recorded and what was seen. Goes out: answers by node name. Called by: plan and its parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.cluster import ClusterSpec, Pool, SiteKind
from orchestrator.model.host import Sight, Step
from orchestrator.planning.world import NodeNow, Observed, Recorded


@dataclass(frozen=True, slots=True)
class Roster:
    """Nodes of pools that Gangline configures, that is on metal sites.

    `old` and `new` are the pools by node, as recorded and as wanted; `left` those of hosts that were not let go; `now`
    the nodes that have come in; `unseen` why a host could not be looked at.
    """

    old: dict[str, Pool]
    new: dict[str, Pool]
    now: dict[str, NodeNow]
    sights: dict[str, Sight]
    unseen: dict[str, str]
    left: dict[str, Pool]

    def joined(self, name: str) -> bool:
        """Whether it has come in once."""
        return name in self.now

    def ready(self, name: str) -> bool:
        """Whether it takes work or could."""
        return name in self.now and self.now[name].ready and name not in self.unseen

    def gone(self) -> tuple[str, ...]:
        """Nodes that Gangline configured and that no pool names any more, unless they went as they should."""
        joined = tuple(name for name in self.now if name in self.old or name in self.left)
        others = tuple(name for name in self.left if name not in self.now)
        return tuple(name for name in joined + others if name not in self.new)

    def was(self, name: str) -> Pool | None:
        """The pool that a node is or was in."""
        return self.new.get(name) or self.old.get(name) or self.left.get(name)


def roster(wanted: ClusterSpec, recorded: Recorded, observed: Observed) -> Roster:
    """The nodes of both specs. A host at which nobody looked (`--limit`) counts as being what was recorded."""
    old = pools_by_node(recorded.spec) if recorded.spec is not None else {}
    new = pools_by_node(wanted)
    sights = {sight.host: sight for sight in observed.sights}
    unseen = {
        name: failure(sights[name])
        for name in new
        if name in sights and sights[name].reached is not Step.DONE
    }
    left = {one.name: one.pool for one in recorded.left}
    return Roster(old, new, _now(recorded, old), sights, unseen, left)


def pools_by_node(spec: ClusterSpec) -> dict[str, Pool]:
    """The pool of each node on a metal site."""
    metal = {site.name for site in spec.sites if site.kind is SiteKind.METAL}
    return {name: pool for pool in spec.pools if pool.site in metal for name in pool.nodes}


def failure(sight: Sight) -> str:
    """How far the probe came, and what to do about it."""
    hint = f"; {sight.hint}" if sight.hint else ""
    return f"{sight.reached}: {sight.error or 'failed'}{hint}"


def _now(recorded: Recorded, old: dict[str, Pool]) -> dict[str, NodeNow]:
    """Nodes that came in, without those of pools on other kinds of sites."""
    if recorded.nodes is None:
        return {name: NodeNow(name) for name in old}
    elsewhere = _nodes_elsewhere(recorded.spec, old)
    return {node.name: node for node in recorded.nodes if node.name not in elsewhere}


def _nodes_elsewhere(spec: ClusterSpec | None, metal: dict[str, Pool]) -> frozenset[str]:
    pools = spec.pools if spec is not None else ()
    return frozenset(name for pool in pools for name in pool.nodes if name not in metal)
