"""How much of a site's load hangs on each of its power domains.

Comes in: a site and the watts of its nodes. Goes out: watts by domain. Called by: figures.

A domain carries its own nodes, what hangs on it without Gangline (`unmanaged_watts`) and the domains under it. With
several feeds it burdens each by its share: 2N all of it, N its nth part, N+1 what is left when one feed fails; and what
the feeds hang on carries it once. Nodes that no domain names hang on the site's root if there is one root.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from orchestrator.model.cluster import PowerDomain, Redundancy, Site

Shares = dict[str, Fraction]


def loads(site: Site, watts: Mapping[str, int]) -> dict[str, int]:
    """IT watts on each domain of the site, rounded up; `watts` by node."""
    domains = {domain.name: domain for domain in site.power.domains}
    own = _own(domains, watts)
    total = dict.fromkeys(domains, Fraction(0))
    for name, domain in domains.items():
        through = _shares(name, domains)
        for upper, share in through.items():
            total[upper] += own[name] * share
            if upper == name or domain.parent:  # what feeds a domain twice is counted by its feeds, once each
                total[upper] += domain.unmanaged_watts * share
    return {name: -int(-load // 1) for name, load in total.items()}


def _own(domains: Mapping[str, PowerDomain], watts: Mapping[str, int]) -> dict[str, int]:
    """What the nodes of each domain draw; those that no domain names hang on the only root."""
    named: dict[str, str] = {}
    for name, domain in domains.items():
        for node in domain.nodes:
            named.setdefault(node, name)
    roots = [name for name, domain in domains.items() if not domain.parent and not domain.fed_by]
    own = dict.fromkeys(domains, 0)
    for node, drawn in watts.items():
        place = named.get(node) or (roots[0] if len(roots) == 1 else "")
        if place:
            own[place] += drawn
    return own


def _shares(name: str, domains: Mapping[str, PowerDomain]) -> Shares:
    """The part of a domain's load that flows through itself and each one above it."""
    domain = domains[name]
    found: Shares = {name: Fraction(1)}
    feeds = (domain.parent,) if domain.parent else domain.fed_by
    each = _each(domain, len(feeds))
    above: Shares = {}
    for feed in feeds:
        for upper, share in _shares(feed, domains).items():
            above[upper] = above.get(upper, Fraction(0)) + each * share
    return found | {upper: min(Fraction(1), share) for upper, share in above.items()}


def _each(domain: PowerDomain, feeds: int) -> Fraction:
    if domain.parent or domain.redundancy is Redundancy.TWO_N:
        return Fraction(1)
    spare = 1 if domain.redundancy is Redundancy.N_PLUS_1 else 0
    return Fraction(1, max(1, feeds - spare))
