"""How much of a site's load hangs on each of its power domains.

Comes in: a site and the watts of its nodes. Goes out: watts by domain. Called by: figures. How power flows is said in
model.power.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.model.cluster import Site
from orchestrator.model.power import carried, home_of


def loads(site: Site, watts: Mapping[str, int]) -> dict[str, int]:
    """IT watts on each domain of the site, rounded up, with what Gangline does not control; `watts` by node."""
    domains = {domain.name: domain for domain in site.power.domains}
    own = dict.fromkeys(domains, 0)
    for node, name in home_of(domains, watts).items():
        own[name] += watts[node]
    return carried(site, own)
