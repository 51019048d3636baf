"""Which nodes a cluster document and its inventories know, for the checks.

Comes in: `Context`. Goes out: sets of node names. Called by: `checks_sites`, `checks_pools`, `checks_power`.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.spec.context import Context
from orchestrator.wire.leaf import UNKNOWN


def nodes_of_site(context: Context, site: str) -> frozenset[str] | None:
    """The nodes that pools and the inventory put on a site; None where a part of that could not be read."""
    if site in context.unread:
        return None
    known = {host.name for host in context.hosts.get(site, ())}
    pools = context.document.pools
    if pools is UNKNOWN:
        return None
    for pool in pools:
        if pool is UNKNOWN or pool.site is UNKNOWN or pool.nodes is UNKNOWN:
            return None
        if pool.site == site and pool.nodes is not None:
            known.update(pool.nodes)
    return frozenset(known)


def more(names: Sequence[str]) -> str:
    """` and 3 more` for a list of four."""
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
