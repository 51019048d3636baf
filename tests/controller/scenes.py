"""What scenario tests say again and again: a small world, how a job ended, what the ledger holds.

Comes in: a World. Goes out: what a test asserts on. Called by: the scenario tests of this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.controller.explain import Explanation, explain
from orchestrator.controller.settings import Settings
from orchestrator.controller.view import JobView, from_history
from orchestrator.ledger.events import Event, from_stored
from orchestrator.model.attempt import AttemptState
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec
from orchestrator.model.node import MarkKind
from orchestrator.model.protocol import Phase
from tests.builders import cluster, pool
from tests.controller.world import ModelAgent, World

LEASE_S = 60


def small(path: Path, nodes: int = 3, gpus: int = 4, **rest: Any) -> World:
    """One pool `p` of a few nodes, heard and accepted."""
    return world_of(path, cluster(pool(nodes=nodes, gpus=gpus, cores=16)), **rest)


def world_of(path: Path, spec: ClusterSpec, **rest: Any) -> World:
    """A world whose nodes are there."""
    world = World(path / "state", spec, Settings(**{"lease_s": LEASE_S, **rest}))
    world.beat()
    return world


def running(world: World, spec: JobSpec, **rest: Any) -> int:
    """A submitted job that runs everywhere."""
    job_id = world.submit(spec, **rest)
    world.settle(5)
    view = world.job(job_id)
    assert view is not None
    assert view.attempt is not None
    assert view.attempt.state is AttemptState.RUNNING
    return job_id


def on(world: World, job_id: int) -> list[ModelAgent]:
    """The agents that run something of the job, in gang order."""
    attempt = world.state.jobs[job_id].attempt
    assert attempt is not None
    return [world.agents[part.placement.node] for part in attempt.parts]


def finish(world: World, job_id: int, code: int = 0) -> None:
    """All ranks of the running attempt leave by themselves."""
    attempt = world.state.jobs[job_id].attempt
    assert attempt is not None
    for agent in on(world, job_id):
        agent.finish(attempt.id, code)
    world.settle(3)


def over(world: World, job_id: int) -> JobView:
    """How an ended job is kept."""
    assert job_id not in world.state.jobs, "it is not over"
    reader = world.store.reader()
    try:
        row = reader.job(job_id)
    finally:
        reader.close()
    assert row is not None
    return from_history(row)


def ending_of(world: World, job_id: int) -> tuple[str, int, str]:
    """State, exit code and why."""
    view = over(world, job_id)
    return str(view.state), view.exit_code, view.why


def ledger(world: World, after: int = 0) -> list[Event]:
    """What is on the disk."""
    return [from_stored(stored) for stored in world.store.tail(after)]


def kinds(world: World, after: int = 0) -> list[str]:
    """Types of what is on the disk, in order."""
    return [event.type for event in ledger(world, after)]


def marks(world: World) -> dict[str, list[str]]:
    """Kinds of marks by node; nodes without any are left out."""
    return {
        name: [str(mark.kind) for mark in node.marks]
        for name, node in world.state.nodes.items()
        if node.marks
    }


def mark_of(world: World, node: str, kind: MarkKind) -> str:
    """Why a node has that mark."""
    return next(mark.why for mark in world.state.nodes[node].marks if mark.kind is kind)


def wanted(world: World, node: str) -> dict[AttemptId, Phase]:
    """What a node is told to have."""
    return {attempt: desired.phase for attempt, desired in world.beats.desired(node).items()}


def why(world: World, job_id: int) -> Explanation:
    """The explanation of a job, as people get it."""
    return explain(world.state, world.view.reasons, job_id)


def silence(world: World, node: str, seconds: int) -> None:
    """Time passes, and all but this node are heard all along."""
    for _ in range(seconds // 10):
        world.wait(10)
        world.beat(*[name for name in world.agents if name != node])


def contact(world: World, node: str) -> str:
    return str(world.view.nodes[node].contact)
