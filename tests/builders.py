"""Builders for scenario tests: clusters, jobs and states in one line each.

Comes in: the few values that a scenario is about. Goes out: models with sensible rest. Called by: tests of ledger,
scheduler, controller and api.
"""

from __future__ import annotations

from typing import Any

from orchestrator import catalog
from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import Event
from orchestrator.ledger.state import State
from orchestrator.model.cluster import (
    ClusterSpec,
    Emulate,
    GpuSpec,
    Network,
    Pool,
    Queue,
    QueueLimits,
    Site,
    SiteFabric,
    SiteKind,
)
from orchestrator.model.job import Gang, Group, JobSpec, LaunchKind, Owner, PerNode, Request, Retries
from orchestrator.model.node import Device, MarkKind, NodeFacts

GPU = "H100-SXM5-80GB"
ALICE = Owner("alice", 1001, 1001)
BOB = Owner("bob", 1002, 1002)
EPOCH = 7
T0 = 1_800_000_000_000_000
NO_FABRIC = SiteFabric()


def pool(
    name: str = "p",
    nodes: int = 4,
    gpus: int = 8,
    cores: int = 64,
    model: str = GPU,
    mig: bool = False,
    **rest: Any,
) -> Pool:
    """A pool of `nodes` nodes named NAME-1..; without GPUs if `gpus` is 0, divided ones with `mig`."""
    names = tuple(f"{name}-{number}" for number in range(1, nodes + 1))
    layout = catalog.load().gpus[model].mig if mig else None
    gpu = GpuSpec(model, gpus, Emulate.ALWAYS, mig=mig, layout=layout) if gpus else None
    return Pool(name, "here", names, gpu, cores, memory=64 << 30, **rest)


def queue(name: str = "default", **limits: int) -> Queue:
    """A queue with these limits."""
    return Queue(name, limits=QueueLimits(**limits))


def cluster(
    *pools: Pool,
    queues: tuple[Queue, ...] = (Queue("default"),),
    ports: tuple[int, int] = (20000, 29999),
    fabric: SiteFabric = NO_FABRIC,
) -> ClusterSpec:
    """A local cluster."""
    site = Site("here", SiteKind.LOCAL, Network("", *ports), fabric)
    return ClusterSpec("test", sites=(site,), pools=pools or (pool(),), queues=queues)


def job(
    name: str = "j",
    *,
    nodes: int = 0,
    tasks: int = 0,
    gpus: int = 1,
    cores: int = 0,
    memory: int = 0,
    models: tuple[str, ...] = (),
    mig: str = "",
    node_failures: int = 5,
    job_failures: int = 0,
    **rest: Any,
) -> JobSpec:
    """A gang of `nodes` nodes or `tasks` tasks (one task if neither is given), `gpus` (with `mig`, instances),
    `cores`, `memory` bytes each."""
    share = PerNode(gpus, cores, memory, models, mig=mig)
    request = Request(nodes=nodes, per_node=share) if nodes else Request(tasks=tasks or 1, per_task=share)
    rest.setdefault("launch", LaunchKind.RANKS)
    return JobSpec(name, request, ("true",), retries=Retries(node_failures, job_failures), **rest)


def grouped(name: str = "g", *, parts: dict[str, JobSpec], **rest: Any) -> JobSpec:
    """A gang of groups, by name, that ask for what these jobs ask for; each runs its job's command."""
    rest.setdefault("launch", LaunchKind.RANKS)
    groups = tuple(Group(each, _gang(one.request)) for each, one in parts.items())
    commands = tuple(one.command for one in parts.values())
    return JobSpec(name, Request(groups=groups), (), commands=commands, **rest)


def _gang(request: Request) -> Gang:
    return Gang(request.nodes, request.tasks, request.tasks_per_node, request.per_node, request.per_task)


def facts(spec: Pool, boot: str = "boot-1") -> NodeFacts:
    """What a node of the pool reports."""
    gpu = spec.gpu
    devices = tuple(Device(slot, gpu.model, emulated=True) for slot in range(gpu.count)) if gpu else ()
    return NodeFacts(boot, spec.cores, spec.memory, devices)


class Fold:
    """A State and the events that made it: records bodies as a writer does, without a disk."""

    def __init__(self, spec: ClusterSpec | None = None, *, ready: bool = True) -> None:
        self.state = State()
        self.events: list[Event] = []
        if spec is not None:
            self(events.ClusterApplied(spec, "digest"), "cluster")
            for each in spec.pools:
                for name in each.nodes if ready else ():
                    self(events.NodeJoined(name, facts(each), f"outbox-{name}"), f"node/{name}")
                    self(events.NodeUnmarked(name, MarkKind.UNPROVED), f"node/{name}")

    def __call__(self, body: Any, subject: str = "test", t_us: int = 0) -> Event:
        """Record and fold one body."""
        seq = self.state.seq + 1
        event = Event(seq, max(t_us, T0, self.state.t_us), EPOCH, seq, subject, "test", body)
        apply(self.state, event)
        self.events.append(event)
        return event

    def submit(self, spec: JobSpec, owner: Owner = ALICE) -> int:
        """A waiting job; its id."""
        job_id = self.state.next_job
        self(events.JobSubmitted(job_id, spec, owner), f"job/{job_id}")
        return job_id
