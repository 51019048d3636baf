"""Nodes, GPUs and the whole as the API shows them.

Comes in: the published view. Goes out: models of `wire.api_cluster`. Called by: the routes of nodes and cluster.

The core thread replaces entries of the view while this reads: tables are copied in one step before they are walked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.api import render_bought
from orchestrator.api.asked import Asked
from orchestrator.api.render_apply import last_apply
from orchestrator.controller.view import JobView, NodeView, View
from orchestrator.ledger.capacity import WHOLE
from orchestrator.ledger.records import Token as TokenRecord
from orchestrator.model.attempt import JobState
from orchestrator.model.cluster import ClusterSpec, GpuSpec, Pool
from orchestrator.model.node import Contact, Mark, NodeFacts
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import time_of

_NO_FACTS = NodeFacts(boot_id="", cores=0, memory=0)


def pools_of(cluster: ClusterSpec | None) -> dict[str, Pool]:
    """The pools by name."""
    return {pool.name: pool for pool in cluster.pools} if cluster is not None else {}


def nodes_of(view: View) -> list[NodeView]:
    """All nodes by name."""
    return sorted(view.nodes.values(), key=lambda node: node.name)


# --- nodes ----------------------------------------------------------------------------------------------------------


def node(view: NodeView, pools: dict[str, Pool], heard_us: int | None = None) -> wire.Node:
    """A node with its devices and who holds them. `heard_us`: when this controller has heard it last; before that
    the ledger's last change of its contact is what is known."""
    facts = view.facts or _NO_FACTS
    pool = pools.get(view.pool)
    holders = dict(view.slots)
    return wire.Node(
        name=view.name,
        pool=view.pool,
        site=pool.site if pool else "",
        contact=view.contact.value,
        contact_at=time_of(heard_us or view.contact_us),
        open=view.open,
        marks=[_mark(mark) for mark in view.marks],
        address=view.address,
        hostname=facts.hostname,
        boot_id=facts.boot_id,
        agent_version=facts.agent_version,
        supervisor=facts.supervisor,
        run_as=facts.run_as,
        can_switch_user=facts.can_switch_user,
        cores=(pool.cores if pool else 0) or facts.cores,
        free_cores=view.free_cores,
        memory_bytes=(pool.memory if pool else 0) or facts.memory,
        free_memory_bytes=view.free_memory,
        devices=_devices(facts, holders),
        jobs=sorted({job for job in holders.values() if job}),
        bought=render_bought.node(view.bought) if view.bought is not None else None,
    )


def _devices(facts: NodeFacts, holders: dict[int, int]) -> list[wire.Device]:
    return [
        wire.Device(
            slot=device.slot,
            model=device.model,
            memory_bytes=device.memory,
            uuid=device.uuid,
            pci=device.pci,
            emulated=device.emulated,
            numa=device.numa if device.numa >= 0 else None,
            job=holders.get(device.slot) or None,
        )
        for device in facts.devices
    ]


def _mark(mark: Mark) -> wire.Mark:
    return wire.Mark(
        kind=mark.kind.value, why=mark.why, by=mark.by, since=time_of(mark.since_us), job=mark.job or None
    )


# --- GPUs -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tally:
    """What is counted of one model in one pool."""

    emulated: bool = False
    nodes: int = 0
    open_nodes: int = 0
    total: int = 0
    free: int = 0
    allocated: int = 0
    not_ready: int = 0
    stranded: int = 0
    largest_milli: int = 0
    shapes: Counter[int] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)  # free ones of each MIG profile


def gpus(view: View, asked: Asked | None = None) -> list[wire.GpuPool]:
    """GPUs by pool and model. A node that has not reported counts as its pool says, and as not ready. `asked`: what
    waiting jobs could use, to tell what is stranded."""
    pools = pools_of(view.cluster)
    tallies: dict[tuple[str, str], _Tally] = {}
    for one in nodes_of(view):
        pool = pools.get(one.pool)
        if one.facts is not None:
            _count_reported(tallies, one, one.facts, asked)
            if pool is not None and pool.gpu is not None and pool.gpu.mig and one.open:
                _count_places(tallies, one, one.facts, pool.gpu)
        elif pool is not None and pool.gpu is not None:
            tally = tallies.setdefault((pool.name, " or ".join(pool.gpu.models())), _Tally())
            tally.nodes += 1
            tally.total += pool.gpu.count
            tally.not_ready += pool.gpu.count
    return [_gpu_pool(key, tally, pools) for key, tally in sorted(tallies.items())]


def _count_reported(
    tallies: dict[tuple[str, str], _Tally], one: NodeView, facts: NodeFacts, asked: Asked | None
) -> None:
    holders = dict(one.slots)
    for model in dict.fromkeys(device.model for device in facts.devices):
        devices = [device for device in facts.devices if device.model == model]
        taken = sum(1 for device in devices if holders.get(device.slot))
        free = len(devices) - taken
        tally = tallies.setdefault((one.pool, model), _Tally())
        tally.emulated = tally.emulated or any(device.emulated for device in devices)
        tally.nodes += 1
        tally.total += len(devices)
        tally.allocated += taken
        if one.open:
            tally.open_nodes += 1
            tally.free += free
            tally.shapes[free] += 1
            tally.stranded += asked.stranded(one, free) if asked is not None else 0
            held = dict(one.held)
            left = max((WHOLE - held.get(device.slot, 0) for device in devices), default=0)
            tally.largest_milli = max(tally.largest_milli, left)
        else:
            tally.not_ready += free


def _count_places(
    tallies: dict[tuple[str, str], _Tally], one: NodeView, facts: NodeFacts, gpu: GpuSpec
) -> None:
    """Of GPUs in MIG mode no whole one and no share can be had: what can be is instances."""
    slices = dict(one.slices)
    for device in facts.devices:
        tally = tallies[one.pool, device.model]
        tally.shapes.clear()
        tally.largest_milli = 0
        for profile in gpu.layout.profiles if gpu.layout is not None else ():
            tally.places[profile.name] += profile.count(slices.get(device.slot, 0))


def _gpu_pool(key: tuple[str, str], tally: _Tally, pools: dict[str, Pool]) -> wire.GpuPool:
    name, model = key
    shapes = [
        wire.FreeShape(gpus=gpus, nodes=nodes) for gpus, nodes in sorted(tally.shapes.items(), reverse=True)
    ]
    return wire.GpuPool(
        model=model,
        pool=name,
        site=pools[name].site if name in pools else "",
        emulated=tally.emulated,
        nodes=tally.nodes,
        open_nodes=tally.open_nodes,
        total=tally.total,
        free=tally.free,
        allocated=tally.allocated,
        not_ready=tally.not_ready,
        largest=max(tally.shapes, default=0),
        shapes=shapes,
        largest_milli=tally.largest_milli,
        instances=[wire.FreeInstances(profile=name, free=free) for name, free in tally.places.items()],
        stranded=tally.stranded,
    )


# --- the whole ------------------------------------------------------------------------------------------------------


def status(view: View, version: str, now_us: int) -> wire.Status:
    """The cluster at a glance."""
    nodes = nodes_of(view)
    pools = gpus(view)
    now = time_of(now_us)
    assert now is not None
    return wire.Status(
        cluster=view.cluster.name if view.cluster is not None else "",
        digest=view.digest,
        version=version,
        epoch=view.epoch,
        seq=view.seq,
        updated_at=time_of(view.t_us),
        now=now,
        recovering=view.recovering,
        orphans=len(view.orphans),
        apply=last_apply(view.applies[-1], now_us) if view.applies else None,
        nodes=wire.NodeCounts(
            total=len(nodes),
            open=sum(1 for one in nodes if one.open),
            silent=sum(1 for one in nodes if one.contact is not Contact.OK),
            marked=sum(1 for one in nodes if one.marks),
        ),
        gpus=wire.GpuCounts(
            total=sum(pool.total for pool in pools),
            free=sum(pool.free for pool in pools),
            allocated=sum(pool.allocated for pool in pools),
            not_ready=sum(pool.not_ready for pool in pools),
            emulated=sum(pool.total for pool in pools if pool.emulated),
        ),
        jobs=_job_counts(list(view.jobs.values())),
        uid=view.uid,
        bought=[render_bought.pool(one, now_us) for one in view.bought],
    )


def _job_counts(jobs: Iterable[JobView]) -> wire.JobCounts:
    states: Counter[JobState] = Counter()
    lost = 0
    for one in jobs:
        states[one.state] += 1
        lost += one.attempt is not None and one.attempt.lost
    return wire.JobCounts(
        held=states[JobState.HELD],
        waiting=states[JobState.WAITING],
        starting=states[JobState.STARTING],
        running=states[JobState.RUNNING],
        ending=states[JobState.ENDING],
        lost=lost,
    )


def token(record: TokenRecord) -> wire.Token:
    """A token without its secret."""
    return wire.Token(
        id=record.id,
        role=record.role,
        name=record.name,
        created_at=time_of(record.created_us),
        expires_at=time_of(record.expires_us),
        key=record.key,
    )
