"""`nodes`, `node cordon|uncordon`, `gpus`: what there is, what is free, and why something is not.

Comes in: filters, a node's name. Goes out: tables. Called by: the command's table. Emulated GPUs are called that
wherever they show.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from orchestrator.cli import completing, options
from orchestrator.cli.verbs import SETTINGS, Example, Verbs, verb

if TYPE_CHECKING:
    from orchestrator.cli.output import Listing
    from orchestrator.cli.tables import Cell
    from orchestrator.wire.api_cluster import GpuPool, Node


NO_NODES = "no nodes; `gangline up cluster.yaml` brings them"


# --- nodes --------------------------------------------------------------------------------------------------------


@verb(
    "nodes",
    examples=[
        Example("gangline nodes", "all nodes"),
        Example("gangline nodes --pool h100 -o wide", "one pool, with addresses and versions"),
        Example("gangline nodes -o json | jq '.items[] | select(.open | not)'", "those that get no work"),
    ],
)
@click.option("--pool", default="", metavar="NAME", help="Only of this pool.")
@click.option("-w", "--watch", is_flag=True, help="Show them again whenever something changes, until Ctrl-C.")
@options.listing
@options.controller
def nodes(pool: str, watch: bool) -> None:
    """List nodes and what is free on them.

    STATE is open, or why the node gets no work; `booting`: it is bought and not ready yet; `never`: its agent was
    not heard of yet. SEEN is how long ago it was.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.text import now
    from orchestrator.cli.watching import repeat

    with connect() as client:

        def ask() -> list[Node]:
            return [node for node in client.nodes() if pool in ("", node.pool)]

        if watch:
            repeat(lambda: node_listing(now(), pool), ask)
        else:
            node_listing(now(), pool).print(ask())


def node_listing(now: datetime, pool: str = "") -> Listing[Node]:
    """The list of nodes as of now; `pool`: the one that was asked for."""
    from orchestrator.cli.output import Column, Listing
    from orchestrator.cli.text import ago, safe, size

    columns: tuple[Column[Node], ...] = (
        Column("NAME", lambda node: node.name, cut=True),
        Column("POOL", lambda node: node.pool, cut=True),
        Column("STATE", node_state),
        Column("FREE", lambda node: str(node.free_gpus), right=True),
        Column("GPUS", lambda node: str(len(node.devices)), right=True),
        Column("MODEL", models, cut=True),
        Column("CORES", lambda node: f"{node.free_cores}/{node.cores}" if node.cores else "-", right=True),
        Column("MEMORY", lambda node: size(node.memory_bytes), right=True),
        Column("JOBS", lambda node: _some(node.jobs), cut=True),
        Column("SEEN", lambda node: ago(node.contact_at, now), right=True, wide=True),
        Column("ADDRESS", lambda node: node.address or "-", wide=True),
        Column("SUPERVISOR", lambda node: node.supervisor or "-", wide=True),
        Column("AGENT", lambda node: node.agent_version or "-", wide=True),
        Column("BOUGHT", bought_as, wide=True),
        Column("WHY", why_closed, cut=True),
    )
    none = f"no nodes in pool {safe(pool)}; `gangline nodes` shows those of all pools" if pool else NO_NODES
    return Listing("NodeList", columns, lambda node: node.name, none)


def node_state(node: Node) -> Cell:
    """Open, or the first thing that speaks against new work."""
    from orchestrator.cli.tables import Cell

    if node.open:
        return Cell("open", "ok")
    if node.bought is not None and node.bought.state != "ready":
        return Cell(node.bought.state, "wait")
    if node.contact != "ok":
        return Cell(node.contact, "wait" if node.contact in ("never", "suspect") else "bad")
    if node.marks:
        return Cell(node.marks[0].kind, "bad" if node.marks[0].kind == "draining" else "wait")
    return Cell("leaving", "wait")


def why_closed(node: Node) -> str:
    """The reasons against new work, in words."""
    bought = node.bought
    if bought is not None and bought.state == "releasing":
        return bought.why or "-"
    return "; ".join(mark.why for mark in node.marks) or "-"


def bought_as(node: Node) -> str:
    """What a bought node was bought as, and what it costs."""
    one = node.bought
    return f"{one.type} {one.market} {one.zone} ${one.usd_per_hour:,.2f}/h" if one is not None else "-"


def models(node: Node) -> str:
    """What its GPUs are, and that they are emulated where they are."""
    from orchestrator.cli.text import fold_models

    return fold_models([(device.model, device.emulated) for device in node.devices]) or "-"


def _some(jobs: list[int], most: int = 3) -> str:
    shown = ",".join(map(str, jobs[:most]))
    return (f"{shown},+{len(jobs) - most}" if len(jobs) > most else shown) or "-"


@click.group(
    "node",
    cls=Verbs,
    context_settings=SETTINGS,
    examples=[Example('gangline node cordon n7 --why "fan replacement"', "no new work on n7")],
)
def node() -> None:
    """Take a node out of use, or back."""


@verb(
    "cordon",
    group=node,
    examples=[
        Example(
            'gangline node cordon n7 --why "fan replacement"', "what runs there runs on, nothing new starts"
        )
    ],
)
@click.argument("names", metavar="NODE...", nargs=-1, required=True, shell_complete=completing.node)
@click.option("--why", default="", metavar="TEXT", help="Why; shown to everyone whose job waits for it.")
@options.controller
def cordon(names: tuple[str, ...], why: str) -> None:
    """Give nodes no new work; what runs there runs on."""
    from orchestrator.cli.contexts import connect

    with connect() as client:
        for name in names:
            _tell(client.cordon(name, why))


@verb("uncordon", group=node, examples=[Example("gangline node uncordon n7", "n7 gets work again")])
@click.argument("names", metavar="NODE...", nargs=-1, required=True, shell_complete=completing.node)
@options.controller
def uncordon(names: tuple[str, ...]) -> None:
    """Let nodes have work again: withdraws all marks but those that only the node itself can clear."""
    from orchestrator.cli.contexts import connect

    with connect() as client:
        for name in names:
            _tell(client.uncordon(name))


def _tell(found: Node) -> None:
    from orchestrator.cli.text import safe

    why = why_closed(found)
    sys.stdout.write(
        f"{safe(found.name)}: {node_state(found).text}{f' ({safe(why)})' if why != '-' else ''}\n"
    )
    sys.stdout.flush()


# --- GPUs ---------------------------------------------------------------------------------------------------------


@verb(
    "gpus",
    examples=[
        Example("gangline gpus", "free of total, by pool and model"),
        Example("gangline gpus -o json | jq '.items[].free'", "for a script"),
    ],
)
@click.option("-w", "--watch", is_flag=True, help="Show them again whenever something changes, until Ctrl-C.")
@options.listing
@options.controller
def gpus(watch: bool) -> None:
    """Show GPUs by pool and model: free of total.

    FREE counts nodes that may be given work; NOT READY those that may not. CAN ASK says how many GPUs a job can have on
    how many nodes at once, SHARE how much of a single one. STRANDED are free GPUs that no waiting job could have where
    they are, for want of cores, memory or GPUs beside them.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.watching import repeat

    with connect() as client:
        if watch:
            repeat(gpu_listing, client.gpus)
        else:
            gpu_listing().print(client.gpus())


def gpu_listing() -> Listing[GpuPool]:
    """The list of GPUs."""
    from orchestrator.cli.output import Column, Listing
    from orchestrator.cli.text import fold_models

    columns: tuple[Column[GpuPool], ...] = (
        Column("MODEL", lambda pool: fold_models([(pool.model, pool.emulated)]), cut=True),
        Column("POOL", lambda pool: pool.pool, cut=True),
        Column("SITE", lambda pool: pool.site, cut=True, wide=True),
        Column("FREE", lambda pool: str(pool.free), right=True),
        Column("TOTAL", lambda pool: str(pool.total), right=True),
        Column("ALLOCATED", lambda pool: str(pool.allocated), right=True),
        Column("NOT READY", lambda pool: str(pool.not_ready), right=True),
        Column("NODES", lambda pool: f"{pool.open_nodes}/{pool.nodes}", right=True),
        Column("CAN ASK", _shapes),
        Column("SHARE", lambda pool: f"{pool.largest_milli / 1000:g}", right=True),
        Column("STRANDED", _stranded, right=True),
    )
    return Listing("GpuList", columns, lambda pool: f"{pool.pool}/{pool.model}", "no GPUs are known yet")


def _stranded(pool: GpuPool) -> str:
    """`6 (33%)` of what is free."""
    return f"{pool.stranded} ({100 * pool.stranded // pool.free}%)" if pool.stranded else "-"


def _shapes(pool: GpuPool) -> str:
    """`8 on 3 nodes, 2 on 1`; of GPUs in MIG mode `14 × 1g.10gb`, profile by profile."""
    if pool.instances:
        return ", ".join(f"{one.free} × {one.profile}" for one in pool.instances if one.free) or "-"
    parts = [f"{shape.gpus} on {shape.nodes}" for shape in pool.shapes if shape.gpus]
    return ", ".join(parts[:4]) + (", ..." if len(parts) > 4 else "") if parts else "-"
