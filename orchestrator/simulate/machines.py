"""The simulated nodes: what they are made of, how they come, are lost and come back.

Comes in: the cluster as wanted, `Faults`. Goes out: recorded facts of nodes, lives told of it. Called by: world.

Losses are drawn node by node from a generator of its own, so that one node's fate does not move another's. Pools that
are bought (`size`) have no nodes here.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from orchestrator import catalog
from orchestrator.ledger import events
from orchestrator.ledger.events import node_subject
from orchestrator.model.calendar import month_of
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import ClusterSpec, Pool
from orchestrator.model.node import Contact, Device, MarkKind, NodeFacts
from orchestrator.model.power import pool_watts
from orchestrator.model.standing import pool_prices
from orchestrator.simulate import lives
from orchestrator.simulate.settings import Faults

if TYPE_CHECKING:
    from orchestrator.simulate.world import World

UNSAID = 1 << 50  # cores or bytes of a pool whose file names none: more than any job asks, and still a number


def begin(world: World) -> None:
    """The wanted cluster, and its nodes: all there, or booting."""
    watts = pool_watts(world.cluster, catalog.load())
    prices = pool_prices(world.cluster, catalog.load(), world.now_us)
    body = events.ClusterApplied(world.cluster, "simulated", watts=watts, prices=prices)
    world.record(body, "cluster", "user")
    if world.state.hours is not None:
        _begin_month(world, None, 0)
    faults = world.settings.faults
    for pool in world.cluster.pools:
        for node in pool.nodes:
            dice = Random(f"{faults.seed}/{node}")  # seeded by the text, whatever the hash seed
            if faults.at_start:
                world.down[node] = world.now_us
                world.at(world.now_us + _boot_us(faults, dice), _come, (node, pool, dice))
            else:
                _come(world, (node, pool, dice), 0)


def _begin_month(world: World, _whom: None, _serial: int) -> None:
    """GPU-hours of queues count anew."""
    start_us = world.settings.start_us
    begin_us, ends_us = month_of(world.cluster.timezone, start_us + world.now_us)
    world.record(events.MonthBegan(begin_us, ends_us), "cluster")
    world.at(ends_us - start_us, _begin_month, None)


def facts_of(pool: Pool, boot: str) -> NodeFacts:
    """What a node of the pool would report."""
    gpu = pool.gpu
    devices: tuple[Device, ...] = ()
    if gpu is not None:
        known = catalog.load().gpus.get(gpu.model)
        memory = gpu.memory or (known.memory if known is not None else 0)
        devices = tuple(Device(slot, gpu.model, memory, emulated=True) for slot in range(gpu.count))
    return NodeFacts(boot, pool.cores or UNSAID, pool.memory or UNSAID, devices)


def unsaid(cluster: ClusterSpec) -> list[str]:
    """What had to be assumed of the cluster, in words."""
    words = [
        f"pool {pool.name} says no {what}: its nodes are taken to have enough for any job"
        for pool in cluster.pools
        for what, known in (("cores", pool.cores), ("memory", pool.memory))
        if pool.nodes and not known
    ]
    bought = [pool.name for pool in cluster.pools if pool.size is not None]
    if bought:
        words.append(f"pool {', '.join(bought)}: nodes that are bought are not simulated")
    return words


def _come(world: World, whom: tuple[str, Pool, Random], serial: int) -> None:
    """A node comes, and lasts until it is lost."""
    node, pool, dice = whom
    come(world, node, pool)
    mtbf_us = world.settings.faults.mtbf_us
    if mtbf_us:
        world.at(world.now_us + 1 + int(dice.expovariate(1.0) * mtbf_us), _lose, whom)


def come(world: World, node: str, pool: Pool) -> None:
    """The node is heard of, and proved."""
    subject, by = node_subject(node), f"node:{node}"
    world.down.pop(node, None)
    body = events.NodeJoined(node, facts_of(pool, f"boot-{world.now_us}"), f"outbox-{node}")
    world.record(body, subject, by)
    world.record(events.NodeUnmarked(node, MarkKind.UNPROVED, why="accepted"), subject)
    world.sampler.open(node, True, world.now_us)
    lives.back(world, node)


def _lose(world: World, whom: tuple[str, Pool, Random], serial: int) -> None:
    node, _, dice = whom
    faults = world.settings.faults
    lose(world, node)
    world.at(world.now_us + faults.repair_us + _boot_us(faults, dice), _come, whom)


def lose(world: World, node: str) -> None:
    """The node is gone, and nobody knows yet."""
    world.down[node] = world.now_us
    world.sampler.open(node, False, world.now_us)
    lives.lose(world, node)
    world.at(world.now_us + world.settings.lease_s * SECOND, _suspect, (node, world.now_us))


def _boot_us(faults: Faults, dice: Random) -> int:
    slow = faults.slow_milli and dice.randrange(1000) < faults.slow_milli
    return faults.slow_boot_us if slow else faults.boot_us


def _suspect(world: World, whom: tuple[str, int], serial: int) -> None:
    """One lease of silence: it gets no new work."""
    node, since_us = whom
    if world.down.get(node) == since_us:
        world.record(events.NodeContact(node, Contact.SUSPECT), node_subject(node))
        world.at(world.now_us + world.settings.lease_s * SECOND, _unreachable, whom)


def _unreachable(world: World, whom: tuple[str, int], serial: int) -> None:
    """Two leases of silence."""
    node, since_us = whom
    if world.down.get(node) == since_us:
        world.record(events.NodeContact(node, Contact.UNREACHABLE), node_subject(node))
        lives.silent(world, node)
