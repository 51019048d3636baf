"""How power flows to nodes: the part of a node's draw that each power domain carries, and what GPUs draw.

Comes in: a site's power domains, pools, the catalog. Goes out: parts as fractions, watts of GPUs by pool. Called by:
planning (figures), controller and simulate (tell the ledger what GPUs draw), ledger.power (counts).

A domain carries its own nodes and the domains under it. With several feeds it burdens each by its share: 2N all of it,
N its nth part, N+1 what is left when one feed fails; and what the feeds hang on carries it once. Nodes that no domain
names hang on the site's root domain if there is exactly one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec, PowerDomain, Redundancy, Site

Flows = dict[str, Fraction]  # domain -> the part of a load that it carries


@dataclass(frozen=True, slots=True)
class PoolWatts:
    """What a GPU of a pool draws: `idle` when nothing runs on it, at most `most`; both 0 where nobody knows it."""

    pool: str
    idle: int
    most: int


def pool_watts(spec: ClusterSpec, catalog: Catalog) -> tuple[PoolWatts, ...]:
    """Of each pool on a site with power domains: what the file says, else what the catalog knows of its model."""
    powered = {site.name for site in spec.sites if site.power.domains}
    found: list[PoolWatts] = []
    for pool in spec.pools:
        if pool.site in powered and pool.gpu is not None:
            known = catalog.gpus.get(pool.gpu.model)
            most = pool.gpu.max_watts or (known.max_watts if known is not None else 0)
            idle = known.idle_watts if known is not None else 0
            found.append(PoolWatts(pool.name, min(idle, most), most))
    return tuple(found)


def flows(domains: Mapping[str, PowerDomain]) -> dict[str, Flows]:
    """For each domain the part of its load that flows through itself and each one above it."""
    return {name: _flows(name, domains) for name in domains}


def home_of(domains: Mapping[str, PowerDomain], nodes: Mapping[str, object]) -> dict[str, str]:
    """The domain that each of these nodes hangs on; nodes that hang on none are left out."""
    named: dict[str, str] = {}
    for name, domain in domains.items():
        for node in domain.nodes:
            named.setdefault(node, name)
    roots = [name for name, domain in domains.items() if not domain.parent and not domain.fed_by]
    rest = roots[0] if len(roots) == 1 else ""
    found = {node: named.get(node, rest) for node in nodes}
    return {node: name for node, name in found.items() if name}


def carried(site: Site, own: Mapping[str, int]) -> dict[str, int]:
    """Watts on each domain, rounded up, where nodes put so many on it themselves: with what is under it, and with what
    Gangline does not control. Of a domain with several feeds the latter is told by the feeds, each its own part."""
    domains = {domain.name: domain for domain in site.power.domains}
    total = dict.fromkeys(domains, Fraction(0))
    for name, through in flows(domains).items():
        for upper, share in through.items():
            total[upper] += own.get(name, 0) * share
            if upper == name or domains[name].parent:
                total[upper] += domains[name].unmanaged_watts * share
    return {name: -int(-load // 1) for name, load in total.items()}


def _flows(name: str, domains: Mapping[str, PowerDomain]) -> Flows:
    domain = domains[name]
    feeds = (domain.parent,) if domain.parent else domain.fed_by
    each = _each(domain, len(feeds))
    above: Flows = {}
    for feed in feeds:
        for upper, share in _flows(feed, domains).items():
            above[upper] = above.get(upper, Fraction(0)) + each * share
    return {name: Fraction(1)} | {upper: min(Fraction(1), share) for upper, share in above.items()}


def _each(domain: PowerDomain, feeds: int) -> Fraction:
    if domain.parent or domain.redundancy is Redundancy.TWO_N:
        return Fraction(1)
    spare = 1 if domain.redundancy is Redundancy.N_PLUS_1 else 0
    return Fraction(1, max(1, feeds - spare))
