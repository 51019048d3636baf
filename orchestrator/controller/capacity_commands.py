"""What people and applies say about what is bought: the cluster's name for it, files that must not lose it, resets.

Comes in: commands, a spec that is to be applied. Goes out: recorded facts, or a GanglineError that says why not. Called
by: intake (its table, `apply_cluster`, `submit`).
"""

from __future__ import annotations

import secrets

from orchestrator.controller import instances
from orchestrator.controller.commands import InterruptNode, NameCluster, ResetCapacity
from orchestrator.controller.desk import Desk
from orchestrator.controller.elastic import site_of
from orchestrator.controller.offers import offers_of
from orchestrator.ledger import events
from orchestrator.model.capacity import Shape
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.errors import Conflict, InputError, NotFound
from orchestrator.model.ids import UID_FORM, UID_LENGTH, UID_SIGNS, is_uid


def name_cluster(desk: Desk, command: NameCluster) -> str:
    """The cluster's uid: as it was set up, as asked for, or a new one. Errors as of `check_uid`."""
    check_uid(desk, command.uid)
    known = desk.state.uid
    if not known:
        known = command.uid or "".join(secrets.choice(UID_SIGNS) for _ in range(UID_LENGTH))
        desk.writer.touched_capacity = True
        desk.writer.record(events.ClusterNamed(known), "cluster", command.by)
    return known


def check_uid(desk: Desk, uid: str) -> None:
    """A uid that is asked for (empty: none is) is one, and the cluster has no other. InputError or Conflict else."""
    known = desk.state.uid
    if uid and not is_uid(uid):
        raise InputError("cluster.bad-uid", f"'{uid}' is no uid of a cluster", f"a uid is {UID_FORM}")
    if uid and known and uid != known:
        raise Conflict(
            "cluster.other-uid",
            f"what this cluster has is marked with {known}, and the stack is of {uid}",
            "set `gangline:uid` of the stack to the cluster's own, or use another controller",
        )


def shapes(desk: Desk) -> dict[str, Shape]:
    """What a node of each bought pool has at most, by its offerings."""
    state, found = desk.state, dict[str, Shape]()
    if state.cluster is None:
        return found
    for offer in offers_of(state.cluster, desk.elastic.catalog, {}, {}, desk.clock.now_us()):
        known = found.get(offer.key.pool, offer.shape)
        cores, memory = max(known.cores, offer.shape.cores), max(known.memory, offer.shape.memory)
        found[offer.key.pool] = Shape(offer.shape.gpus, cores, memory)
    return found


def check_sites(desk: Desk, spec: ClusterSpec) -> None:
    """A site stays in the file, and where it is, while something that was bought there may exist: nobody else could
    find and end it. Conflict else."""
    wanted = {site.name: site for site in spec.sites}
    for fleet in desk.state.fleets.values():
        name, pool = fleet.intent.site, fleet.intent.pool
        if name not in wanted:
            raise Conflict(
                "capacity.site-in-use",
                f"site {name} still has instances of pool {pool}",
                "take its pools out first, wait until `gangline nodes` shows none of theirs, then take the site out",
            )
        known = site_of(desk.state, name)
        if known is not None and (known.kind, known.region) != (wanted[name].kind, wanted[name].region):
            raise Conflict(
                "capacity.site-moved",
                f"site {name} still has instances of pool {pool} in {known.region}",
                "add a site under another name for the new place, and take this one out once its nodes are gone",
            )


def check_names(desk: Desk, spec: ClusterSpec) -> None:
    """No listed node has the name of a bought one that comes, stands or is being given up: it would go with that one.
    Conflict else."""
    listed = {name: pool.name for pool in spec.pools for name in pool.nodes}
    asked = [fleet.intent for fleet in desk.state.fleets.values() if fleet.asked]
    bought = {name: intent.pool for intent in asked for name in intent.nodes}
    nodes = desk.state.nodes.values()
    bought.update((node.name, node.pool) for node in nodes if node.instance or node.releasing)
    for name, pool in bought.items():
        if name in listed:
            raise Conflict(
                "capacity.name-in-use",
                f"node {name}, which pool {listed[name]} lists, was bought for pool {pool} and is not gone yet",
                f"list it under another name, or take the nodes of pool {pool} out of the file, wait until `gangline "
                f"nodes` shows no {name}, and list it then",
            )


def interrupt_node(desk: Desk, command: InterruptNode) -> None:
    """The cloud takes a node's instance back."""
    node = desk.state.nodes.get(command.node)
    if node is None:
        raise NotFound("node.not-found", f"there is no node {command.node}")
    instances.interrupt(desk, node, command.at_us, command.why, command.by)


def reset(desk: Desk, command: ResetCapacity) -> None:
    """Buying for a pool may be tried again."""
    pool = desk.state.pool(command.pool)
    if pool is None or pool.size is None:
        raise NotFound("pool.not-bought", f"no pool {command.pool} is bought")
    desk.writer.touched_capacity = True
    desk.writer.record(events.CapacityReset(pool.name, command.why), f"pool/{pool.name}", command.by)
