"""Which nodes a cluster document and its inventories know, for the checks.

Comes in: `Context`. Goes out: sets of node names, faults of nodes that stand nowhere or twice. Called by:
`checks_sites`, `checks_fabric`, `checks_pools`, `checks_power`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.spec.context import Context, run
from orchestrator.spec.reading import Found
from orchestrator.wire.faults import Loc, problem, suggestion
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


def placed(context: Context, site: str, listed: Sequence[tuple[Loc, str, Any]], what: str) -> Iterator[Found]:
    """Each node must exist on the site, and stand in one of the listed things only."""
    known = nodes_of_site(context, site)
    taken: dict[str, str] = {}
    for loc, name, nodes in listed:
        yield from run((_one_placed,), known, taken, (loc, name, nodes), what)


def _one_placed(
    known: frozenset[str] | None, taken: dict[str, str], listed: tuple[Loc, str, Any], what: str
) -> Iterator[Found]:
    loc, name, nodes = listed
    strange = [node for node in nodes if known is not None and node not in known]
    again = [node for node in nodes if node in taken]
    if strange:
        advice = suggestion(strange[0], sorted(known or ())[:1000], "node")
        found = problem(
            "spec.node-unknown", node=strange[0], more=more(strange), where="on this site", advice=advice
        )
        yield Found(loc, found)
    elif again:
        other = f"{what} {taken[again[0]]}"
        yield Found(loc, problem("spec.node-twice", node=again[0], more=more(again), other=other, what=what))
    taken.update((node, str(name)) for node in nodes if node not in taken)
