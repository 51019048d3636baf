"""The clusters and queues of `bench-scale`: KAI's published scenarios, and one of this project's own.

Comes in: a scenario's size, a seed. Goes out: a State with its waiting jobs, made by the ledger's own fold. Called by:
scale.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.event import Event
from orchestrator.ledger.state import State
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.cluster import (
    ClusterSpec,
    Emulate,
    GpuSpec,
    Network,
    Pool,
    Queue,
    Site,
    SiteKind,
)
from orchestrator.model.cluster_sites import FabricDomain, SiteFabric, Unit
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec, LaunchKind, Owner, PerNode, Request, Topology
from orchestrator.model.node import Device, MarkKind, NodeFacts

GIB = 1 << 30
T0 = 1_800_000_000_000_000
DEVICES = 8
CORES, MEMORY = 128, 1024 * GIB
MODELS = ("H100-SXM5-80GB", "A100-SXM4-80GB", "A100-SXM4-40GB", "L40S-48GB")
LIMITS_S = tuple(hours * 1800 for hours in (1, 2, 4, 8, 12, 24, 48, 96))
OWNERS = tuple(Owner(f"user{number}", 2000 + number, 2000 + number) for number in range(5))


class Ledger:
    """A State and the fold, without a disk."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.state = State()
        self.now_us = T0
        self.record(events.ClusterApplied(spec, "digest"))
        for pool in spec.pools:
            model = pool.gpu.model if pool.gpu else ""
            devices = tuple(Device(slot, model, 80 * GIB, emulated=True) for slot in range(DEVICES))
            for name in pool.nodes:
                self.record(
                    events.NodeJoined(name, NodeFacts("boot", CORES, MEMORY, devices), f"outbox-{name}")
                )
                self.record(events.NodeUnmarked(name, MarkKind.UNPROVED))

    def record(self, body: Any) -> None:
        """Fold one event."""
        seq = self.state.seq + 1
        apply(self.state, Event(seq, self.now_us, 1, seq, "bench", "bench", body))

    def submit(self, spec: JobSpec, owner: Owner = OWNERS[0]) -> int:
        """A waiting job; its id."""
        job_id = self.state.next_job
        self.record(events.JobSubmitted(job_id, spec, owner))
        return job_id

    def enact(self, decisions: tuple[Start, ...]) -> None:
        """Record starts, as the controller does."""
        for start in decisions:
            self.record(
                events.AttemptAllocated(
                    start.attempt,
                    start.placements,
                    start.master_address,
                    start.master_port,
                    start.time_limit_s,
                )
            )
            self.record(events.AttemptCommitted(start.attempt))

    def end(self, job_id: int) -> None:
        """A running job is over."""
        attempt = self.state.jobs[job_id].attempt
        assert attempt is not None
        for part in attempt.parts:
            self.record(events.AttemptPartEnded(attempt.id, part.placement.node))
        self.record(events.AttemptEnded(attempt.id, EndCause.COMPLETED))
        self.record(events.JobEnded(job_id, JobState.SUCCEEDED))


def job(share: PerNode, nodes: int = 0, queue: str = "default", **rest: Any) -> JobSpec:
    """A gang of nodes, or one task."""
    request = Request(nodes=nodes, per_node=share) if nodes else Request(tasks=1, per_task=share)
    rest.setdefault("launch", LaunchKind.LAUNCHER if nodes else LaunchKind.RANKS)
    return JobSpec("bench", request, ("true",), queue=queue, **rest)


def flat(nodes: int, fabric: SiteFabric | None = None) -> ClusterSpec:
    """One pool of so many nodes."""
    site = Site("here", SiteKind.LOCAL, Network("", 20000, 29999), fabric or SiteFabric())
    names = tuple(f"n{number:05d}" for number in range(nodes))
    pool = Pool("p", "here", names, GpuSpec(MODELS[0], DEVICES, Emulate.ALWAYS), CORES, MEMORY)
    return ClusterSpec("bench", sites=(site,), pools=(pool,), queues=(Queue("default"),))


def kai_fabric(nodes: int = 512) -> SiteFabric:
    """4 zones of 8 blocks of 8 racks of 2 nodes."""
    racks = [tuple(f"n{number:05d}" for number in range(at, at + 2)) for at in range(0, nodes, 2)]
    blocks = [[f"r{rack}" for rack in range(at, at + 8)] for at in range(0, len(racks), 8)]
    zones = [[f"b{block}" for block in range(at, at + 8)] for at in range(0, len(blocks), 8)]
    return SiteFabric(
        ("unit", "block", "zone"),
        tuple(Unit(f"r{at}", members) for at, members in enumerate(racks)),
        (
            *(FabricDomain("block", f"b{at}", tuple(members)) for at, members in enumerate(blocks)),
            *(FabricDomain("zone", f"z{at}", tuple(members)) for at, members in enumerate(zones)),
        ),
    )


# --- the project's own ----------------------------------------------------------------------------------------


class Own:
    """Nodes of four models in units of 32 and spines of 16 units, queues of five people each, 1,000 shapes."""

    def __init__(self, nodes: int, waiting: int, shapes: int, queues: int, seed: int) -> None:
        self.dice = random.Random(seed)
        self.queues = tuple(f"q{number}" for number in range(queues))
        self.shapes = tuple(self._shape(nodes) for _ in range(shapes))
        self.ledger = Ledger(self._cluster(nodes))
        for _ in range(waiting):
            self.arrive()

    def _cluster(self, nodes: int) -> ClusterSpec:
        names = [f"n{number:05d}" for number in range(nodes)]
        units = [tuple(names[at : at + 32]) for at in range(0, nodes, 32)]
        spines = [
            [f"u{unit}" for unit in range(at, min(at + 16, len(units)))] for at in range(0, len(units), 16)
        ]
        fabric = SiteFabric(
            ("unit", "spine"),
            tuple(Unit(f"u{at}", members) for at, members in enumerate(units)),
            tuple(FabricDomain("spine", f"s{at}", tuple(members)) for at, members in enumerate(spines)),
        )
        site = Site("here", SiteKind.LOCAL, Network("", 20000, 29999), fabric)
        cut = [0, nodes // 2, nodes * 3 // 4, nodes * 9 // 10, nodes]
        pools = tuple(
            Pool(
                f"p{at}",
                "here",
                tuple(names[cut[at] : cut[at + 1]]),
                GpuSpec(model, DEVICES, Emulate.ALWAYS),
                CORES,
                MEMORY,
            )
            for at, model in enumerate(MODELS)
        )
        queues = tuple(Queue(name, weight=1 + at % 3) for at, name in enumerate(self.queues))
        return ClusterSpec("bench", sites=(site,), pools=pools, queues=queues)

    def _shape(self, nodes: int) -> JobSpec:
        """70 % one GPU or less (shares and work without GPUs included), 20 % one node, 10 % gangs of 2 to 64 nodes."""
        dice, kind = self.dice, self.dice.random()
        cores, memory = dice.randint(1, 12), dice.randint(1, 64) * GIB
        models = dice.choice(((), (), (MODELS[0],), (MODELS[1], MODELS[2]), (MODELS[3],)))
        limit = dice.choice(LIMITS_S)
        priority = dice.choice((0, 0, 0, 5, 10))
        if kind < 0.1:
            share = PerNode(0, cores, memory)
            return job(share, time_limit_s=limit, priority=priority)
        if kind < 0.3:
            share = PerNode(0, cores, memory, models, gpu_milli=dice.choice((100, 200, 250, 500, 750)))
            return job(share, time_limit_s=limit, priority=priority)
        if kind < 0.7:
            return job(PerNode(1, cores, memory, models), time_limit_s=limit, priority=priority)
        if kind < 0.9:
            gpus = dice.choice((2, 4, 8, 8))
            share = PerNode(gpus, min(CORES, cores * gpus), memory * gpus, models)
            return job(share, time_limit_s=limit, priority=priority)
        share = PerNode(DEVICES, min(CORES, cores * DEVICES), memory * DEVICES, models)
        level = dice.choice((Topology(), Topology("unit"), Topology("spine"), Topology("", "unit")))
        gang = dice.choice((2, 4, 8, 16, 32, 64) if level.required != "unit" else (2, 4, 8, 16))
        return job(share, min(gang, nodes // 16 or 1), topology=level, time_limit_s=limit, priority=priority)

    def arrive(self) -> int:
        """One more job of a random shape, queue and person."""
        spec = replace(self.dice.choice(self.shapes), queue=self.dice.choice(self.queues))
        return self.ledger.submit(spec, self.dice.choice(OWNERS))
