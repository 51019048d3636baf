"""The domains of each level of each site, and what is free in them.

Comes in: the published view. Goes out: models of `wire.api_cluster`. Called by: the route of topology.

A site shows its levels from outside in, the site itself first; without a fabric that is all. Nodes that no domain of a
level holds are told as such: gangs that require the level don't go there. Power domains follow, where one is limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.controller.view import NodeView, PowerView, View
from orchestrator.ledger.scopes import power_scope
from orchestrator.model.cluster import ClusterSpec, Site
from orchestrator.model.need import SITE_LEVEL
from orchestrator.model.power import flows, home_of
from orchestrator.model.units import fold
from orchestrator.wire import api_cluster as wire

POWER_LEVEL = "power"  # of rows that are power domains: no job can ask for it


def topology(view: View) -> list[wire.TopologyDomain]:
    """Every domain of the wanted cluster, by site, level from outside in, and name."""
    cluster = view.cluster
    if cluster is None:
        return []
    nodes = dict(view.nodes)
    return [
        found
        for site in cluster.sites
        for found in (*_site(cluster, site, nodes), *_powered(view.power, cluster, site, nodes))
    ]


def _site(cluster: ClusterSpec, site: Site, nodes: Mapping[str, NodeView]) -> Iterator[wire.TopologyDomain]:
    pools = {pool.name for pool in cluster.pools if pool.site == site.name}
    here = sorted(name for name, node in nodes.items() if node.pool in pools)
    yield _domain((site.name, SITE_LEVEL, site.name), here, nodes)
    for level, domains in reversed(cluster.domains_of(site).items()):
        for name, members in sorted(domains.items()):
            yield _domain((site.name, level, name), members, nodes)
        inside = {node for members in domains.values() for node in members}
        outside = [name for name in here if name not in inside]
        if outside:
            yield _domain((site.name, level, ""), outside, nodes)


def _powered(
    power: PowerView | None, cluster: ClusterSpec, site: Site, nodes: Mapping[str, NodeView]
) -> Iterator[wire.TopologyDomain]:
    """Power domains in the order of the file, with the nodes that load them."""
    if power is None:
        return
    domains = {domain.name: domain for domain in site.power.domains}
    through = flows(domains)
    home = home_of(
        domains, {node: pool for pool in cluster.pools if pool.site == site.name for node in pool.nodes}
    )
    for name, domain in domains.items():
        if (at := power_scope(site.name, name)) not in power.domains:
            continue
        ceiling, used = power.domains[at]
        members = [node for node, hangs_on in home.items() if name in through[hangs_on]]
        use = wire.PowerUse(
            used_watts=used,
            limit_watts=ceiling,
            parent=domain.parent,
            fed_by=list(domain.fed_by),
            redundancy=str(domain.redundancy),
        )
        found = _domain((site.name, POWER_LEVEL, name), members, nodes)
        yield found.model_copy(update={"power": use, "largest_gang": 0, "gangs": []})


def _domain(
    place: tuple[str, str, str], members: Sequence[str], nodes: Mapping[str, NodeView]
) -> wire.TopologyDomain:
    site, level, name = place
    known = [nodes[member] for member in members if member in nodes]
    can_ask = _whole_nodes(known)
    return wire.TopologyDomain(
        site=site,
        level=level,
        domain=name,
        nodes=len(members),
        node_names=fold(sorted(members)) if members else "",
        open_nodes=sum(1 for one in known if one.open),
        gpus=sum(len(_slots(one)) for one in known),
        free_gpus=sum(_free(one) for one in known if one.open),
        largest_gang=max((shape.nodes for shape in can_ask), default=0),
        gangs=can_ask,
    )


def _slots(one: NodeView) -> Mapping[int, int]:
    return dict(one.slots)


def _free(one: NodeView) -> int:
    """Devices of a node that nobody holds any part of."""
    return sum(1 for job in _slots(one).values() if not job)


def _whole_nodes(known: Iterable[NodeView]) -> list[wire.WholeNodes]:
    """Nodes that are open and on which nothing runs, by how many GPUs each has and in which pool: a gang stays within
    one pool, and asks for the same of each node."""
    idle = Counter(
        (len(_slots(one)), one.pool)
        for one in known
        if one.open and one.slots and _free(one) == len(one.slots)
    )
    order = sorted(idle.items(), key=lambda item: (-item[1], -item[0][0], item[0][1]))
    return [wire.WholeNodes(nodes=count, gpus=gpus, pool=pool) for (gpus, pool), count in order]
