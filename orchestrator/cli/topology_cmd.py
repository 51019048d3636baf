"""`topology`: which nodes stand close together, and how large a gang fits there now.

Comes in: nothing. Goes out: a table. Called by: the command's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.verbs import Example, verb

if TYPE_CHECKING:
    from orchestrator.cli.output import Listing
    from orchestrator.wire.api_cluster import TopologyDomain


@verb(
    "topology",
    examples=[
        Example("gangline topology", "every level of every site, from outside in"),
        Example(
            "gangline topology -o json | jq '.items[] | select(.level==\"spine\") | .largest_gang'",
            "how many whole nodes a gang can have within each spine now",
        ),
    ],
)
@options.listing
@options.controller
def topology() -> None:
    """Show the domains of each site and what is free in them.

    LARGEST GANG is the most whole nodes of one pool that are free in the domain now: what a job can ask for that
    requires the level. A domain without a name are the nodes that no domain of the level holds. Where power
    domains have limits, they are listed as the level `power`: KW is what is committed there, and what may be.
    """
    from orchestrator.cli.contexts import connect

    with connect() as client:
        found = client.topology()
        topology_listing(powered=any(one.power is not None for one in found)).print(found)


def topology_listing(*, powered: bool = False) -> Listing[TopologyDomain]:
    """The list of domains; `powered`: with those of power, and what is used there."""
    from orchestrator.cli.output import Column, Listing

    columns: tuple[Column[TopologyDomain], ...] = (
        Column("SITE", lambda one: one.site, cut=True),
        Column("LEVEL", lambda one: one.level, cut=True),
        Column("DOMAIN", lambda one: one.domain or "-", cut=True),
        Column("NODES", lambda one: one.node_names or "-", cut=True),
        Column("OPEN", lambda one: f"{one.open_nodes}/{one.nodes}", right=True),
        Column("FREE", lambda one: str(one.free_gpus), right=True),
        Column("GPUS", lambda one: str(one.gpus), right=True),
        Column("LARGEST GANG", largest, right=True),
    )
    if powered:
        columns += (Column("KW", kilowatts, right=True), Column("FED BY", feeds, cut=True))
    return Listing(
        "TopologyList",
        columns,
        lambda one: "/".join((one.site, one.level, one.domain or "-")),
        "no topology: no cluster has been applied yet",
    )


def kilowatts(one: TopologyDomain) -> str:
    """`31.2/44`; of a domain without a limit, what it carries."""
    if one.power is None:
        return "-"
    limit = f"/{one.power.limit_watts / 1000:g}" if one.power.limit_watts else ""
    return f"{one.power.used_watts / 1000:g}{limit}"


def feeds(one: TopologyDomain) -> str:
    """`2N a+b`, or the one domain that it hangs on."""
    if one.power is None:
        return "-"
    if one.power.fed_by:
        return f"{one.power.redundancy} {'+'.join(one.power.fed_by)}"
    return one.power.parent or "-"


def largest(one: TopologyDomain) -> str:
    """`4 x 8 GPUs`."""
    if not one.gangs:
        return "-"
    most = one.gangs[0]
    return f"{most.nodes} x {most.gpus} GPU{'' if most.gpus == 1 else 's'}"
