"""Scenes of the scheduler: a small cluster, what runs, what comes, and what should become of each job.

Comes in: rows of tables. Goes out: `Scene`, and a pass over it. Called by: test_scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.ledger import events
from orchestrator.ledger.state import class_key
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.cluster import ClusterSpec, Pool
from orchestrator.model.decisions import Reasons, Start
from orchestrator.model.job import JobSpec, LaunchKind, Owner, PerNode, Request
from orchestrator.model.node import Device, MarkKind, NodeFacts
from orchestrator.model.reasons import Reason
from orchestrator.scheduler import Policy, decide
from tests.builders import T0, Fold, cluster, pool

GIB, MIB = 1 << 30, 1 << 20
STARTS = "starts"


def share(milli: int = 0, memory: int = 0, tasks: int = 1, **rest: object) -> JobSpec:
    """Tasks that each take a share of a device: by thousandths, by bytes of its memory, or both."""
    request = Request(tasks=tasks, per_task=PerNode(gpu_milli=milli, gpu_memory=memory))
    return JobSpec("j", request, ("true",), launch=LaunchKind.RANKS, **rest)  # type: ignore[arg-type]


class Stage(Fold):
    """A ledger, passes over it, and why jobs wait. `device_memory` is what each device has, in bytes; `sockets`: over
    how many NUMA nodes those of a node are spread, if nodes say it."""

    def __init__(
        self, spec: ClusterSpec | None = None, device_memory: int = 80 * GIB, kept: int = 8, sockets: int = 0
    ) -> None:
        spec = spec or cluster(pool(nodes=2, gpus=4))
        super().__init__(spec, ready=False)
        for each in spec.pools:
            for name in each.nodes:
                self(events.NodeJoined(name, _facts(each, device_memory, sockets), f"outbox-{name}"))
                self(events.NodeUnmarked(name, MarkKind.UNPROVED))
        self.policy = Policy(kept=kept)
        self.now_us = T0
        self.waits: Reasons | None = None

    def waiting(self, reasons: Reasons) -> None:
        """As a Reporter."""
        self.waits = reasons

    def look(self) -> dict[int, Start]:
        """A pass, recorded: the jobs that it starts."""
        found = {
            start.attempt.job: start for start in decide(self.state, self.policy, self.now_us, 100_000, self)
        }
        for job, start in found.items():
            parts, address, port = start.placements, start.master_address, start.master_port
            body = events.AttemptAllocated(start.attempt, parts, address, port, start.time_limit_s)
            self(body, f"job/{job}", self.now_us)
        return found

    def why(self, job: int) -> Reason:
        """Why it waits, as the last pass said."""
        record = self.state.jobs[job]
        reason = self.waits.get(class_key(record.spec, record.owner.name)) if self.waits else None
        assert reason is not None, f"job {job} has no reason"
        return reason

    def outcome(self, job: int) -> str:
        """`STARTS`, or the code of the reason why it waits."""
        return STARTS if self.state.jobs[job].attempt is not None else self.why(job).code

    def devices(self) -> dict[tuple[str, int], list[int]]:
        """Which jobs hold each device, by records alone."""
        found: dict[tuple[str, int], list[int]] = {}
        for job in self.state.jobs.values():
            for part in job.attempt.parts if job.attempt is not None else ():
                for slot in part.placement.slots:
                    found.setdefault((part.placement.node, slot), []).append(job.id)
        return found

    def end(self, job: int) -> None:
        """Its work is over everywhere."""
        attempt = self.state.jobs[job].attempt
        assert attempt is not None
        for part in list(attempt.parts):
            self(events.AttemptPartEnded(attempt.id, part.placement.node), t_us=self.now_us)
        self(events.AttemptEnded(attempt.id, EndCause.COMPLETED), t_us=self.now_us)
        self(events.JobEnded(job, JobState.SUCCEEDED), t_us=self.now_us)


def _facts(spec: Pool, memory: int, sockets: int) -> NodeFacts:
    count, model = (spec.gpu.count, spec.gpu.model) if spec.gpu else (0, "")
    devices = tuple(
        Device(slot, model, memory, emulated=True, numa=slot * sockets // count if sockets else -1)
        for slot in range(count)
    )
    return NodeFacts("boot-1", spec.cores, spec.memory, devices)


@dataclass
class Scene:
    """Jobs that run already, jobs that come in one moment, and the outcome of each of these, in order."""

    jobs: list[JobSpec]
    want: list[str]
    spec: ClusterSpec = field(default_factory=lambda: cluster(pool(nodes=2, gpus=4)))
    runs: list[JobSpec] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)  # of the jobs; ALICE's where none is given
    closed: tuple[str, ...] = ()
    device_memory: int = 80 * GIB
    says: dict[int, str] = field(default_factory=dict)  # place of a job -> words of its reason
