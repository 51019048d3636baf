"""The fair order, said as plainly as can be, for worlds in which nothing but the order decides.

Comes in: a State of one pool, in which every job asks for one GPU of any node. Goes out: who starts, in order. Called
by: test_order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.ledger.records import Job
from orchestrator.ledger.state import State
from orchestrator.model.attempt import JobState
from orchestrator.model.cluster import Queue


@dataclass
class World:
    """What is free, what each queue and person holds, who waits."""

    queues: dict[str, Queue]
    free: int
    held: list[Job] = field(default_factory=list)
    waits: list[Job] = field(default_factory=list)

    @staticmethod
    def of(state: State) -> World:
        """As the records have it."""
        assert state.cluster is not None
        found = World({queue.name: queue for queue in state.cluster.queues}, 0)
        found.held = [job for job in state.jobs.values() if job.attempt is not None]
        found.waits = [job for job in state.jobs.values() if job.state is JobState.WAITING]
        gpus = sum(len(node.facts.devices) for node in state.nodes.values() if node.facts and node.open)
        found.free = gpus - len(found.held)
        return found

    def above(self, queue: str) -> list[str]:
        """The queue and those above it, inside out."""
        found = []
        while queue:
            found.append(queue)
            queue = self.queues[queue].parent
        return found

    def used(self, queue: str) -> int:
        """GPUs held in the queue and below it."""
        return sum(queue in self.above(job.spec.queue) for job in self.held)

    def of_person(self, job: Job) -> int:
        """GPUs that its person holds in its very queue."""
        mine = (job.spec.queue, job.owner.name)
        return sum((other.spec.queue, other.owner.name) == mine for other in self.held)

    def may(self, job: Job) -> bool:
        """Whether no limit of its queue, its person or any queue above would be passed."""
        for name in self.above(job.spec.queue):
            queue, used = self.queues[name], self.used(name)
            if queue.limits.max_running_jobs and used >= queue.limits.max_running_jobs:
                return False
            guarantee = sum(share.gpus for share in queue.guarantee)
            if any(used >= share.gpus + guarantee for share in queue.borrow_limit):
                return False
        most = self.queues[job.spec.queue].limits.max_gpus_per_user
        return not most or self.of_person(job) < most

    def guaranteed(self, job: Job) -> bool:
        """Whether it stays within its queue's guarantee, or within the nearest one above."""
        for name in self.above(job.spec.queue):
            if self.queues[name].guarantee:
                return self.used(name) < sum(share.gpus for share in self.queues[name].guarantee)
        return False

    def run(self, fair: bool) -> list[int]:
        """Everybody's turn: what is guaranteed first, then all else."""
        started: list[int] = []
        for round_of_guarantees in (True, False):
            while self.free:
                able = [job for job in self.waits if self.may(job)]
                able = [job for job in able if self.guaranteed(job)] if round_of_guarantees else able
                if not able:
                    break
                job = self._first("", able) if fair else min(able, key=in_line)
                self.waits.remove(job)
                self.held.append(job)
                self.free -= 1
                started.append(job.id)
        return started

    def _first(self, queue: str, able: list[Job]) -> Job:
        """Of a queue's own people and the queues below it, the one whose turn it is."""
        below = [name for name, one in self.queues.items() if one.parent == queue]
        inside = {name: [job for job in able if name in self.above(job.spec.queue)] for name in below}
        heads = {name: self._first(name, jobs) for name, jobs in inside.items() if jobs}
        if heads:  # every job of these worlds is in a queue without queues below it
            return heads[min(heads, key=lambda name: (self.share(name), in_line(heads[name])))]
        return min(able, key=lambda job: (-job.priority, self.of_person(job), job.id))

    def share(self, queue: str) -> int:
        """What it holds for its weight: a job counts for a thousandth of a thousandth, so that empty queues differ."""
        used = self.used(queue)
        return (used * 1_000_000 + used) // self.queues[queue].weight


def in_line(job: Job) -> tuple[int, int]:
    """Higher priority first, then who came first."""
    return -job.priority, job.id
