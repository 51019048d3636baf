"""The published view: what others may read without asking the core.

Comes in: State after each commit, and which jobs and nodes that commit touched. Goes out: frozen `JobView`s and
`NodeView`s, the reasons of waiting classes, tokens, what each node should have. Called by: loop (publishes), api
(reads). Every value is immutable; the core replaces entries one by one, so a reader sees each job whole, and lists
are as fresh as the last commit. Times are UTC microseconds, 0 where something has not happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.controller.view_capacity import BoughtView, PoolView, bought_view
from orchestrator.ledger.records import Apply, Attempt, Job, Node, Token
from orchestrator.ledger.state import ClassKey, State, class_key
from orchestrator.model.apply import HostResult, Outcome, StepState
from orchestrator.model.attempt import AttemptState, AttemptSummary, JobState, PartState
from orchestrator.model.change import PlanStep
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.host import HostFacts, PoolDesired
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.node import Contact, Mark, NodeFacts
from orchestrator.model.reasons import Reason, reason
from orchestrator.store.base import HistoryRow


@dataclass(frozen=True, slots=True)
class PartView:
    """One node's share of the live attempt."""

    node: str
    state: PartState
    slots: tuple[int, ...]
    tasks: int
    pids: tuple[int, ...] = ()
    error: str = ""
    contact: Contact = Contact.OK


@dataclass(frozen=True, slots=True)
class AttemptView:
    """The live attempt. `lost`: a node of it is unreachable; it may run or not."""

    number: int
    state: AttemptState
    parts: tuple[PartView, ...]
    allocated_us: int
    started_us: int = 0
    deadline_us: int = 0
    master_address: str = ""
    master_port: int = 0
    ending: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as people see it; of an ended one, the history keeps exactly this."""

    id: int
    spec: JobSpec
    owner: Owner
    state: JobState
    submitted_us: int
    waiting_us: int
    started_us: int = 0
    ended_us: int = 0
    exit_code: int = 0
    why: str = ""
    hold: str = ""
    hold_code: str = ""
    attempts: int = 0
    attempt: AttemptView | None = None
    past: tuple[AttemptSummary, ...] = ()
    faults: tuple[str, ...] = ()  # "node: error" of failed preparations


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as people see it. `slots` are its devices' holders: job ids by slot, 0 for a free one."""

    name: str
    pool: str
    contact: Contact
    contact_us: int
    open: bool
    marks: tuple[Mark, ...]
    facts: NodeFacts | None
    address: str
    slots: tuple[tuple[int, int], ...] = ()
    free_cores: int = 0
    free_memory: int = 0
    configured: str = ""  # digest of what its host was last seen to have
    host: HostFacts | None = None
    bought: BoughtView | None = None  # of a node that was bought


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of an apply as people see it."""

    step: PlanStep
    state: StepState
    started_us: int
    ended_us: int
    hosts: tuple[HostResult, ...]


@dataclass(frozen=True, slots=True)
class ApplyView:
    """An apply as people see it. `outcome` None: not over."""

    id: str
    holder: str
    by: str
    commit: str
    digest: str
    started_us: int
    lease_us: int
    ended_us: int
    outcome: Outcome | None
    detail: str
    steps: tuple[StepView, ...]


@dataclass(slots=True)
class View:
    """What is published. `version` grows with every publication."""

    version: int = 0
    seq: int = 0
    t_us: int = 0
    epoch: int = 0
    recovering: bool = False
    cluster: ClusterSpec | None = None
    digest: str = ""
    jobs: dict[int, JobView] = field(default_factory=dict)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)  # by SHA-256
    reasons: dict[ClassKey, Reason] = field(default_factory=dict)
    orphans: tuple[tuple[str, str], ...] = ()  # (attempt, node)
    commit: str = ""
    desired: dict[str, PoolDesired] = field(default_factory=dict)  # by digest
    recorded: dict[str, str] = field(default_factory=dict)  # pool -> digest of what its hosts are to have
    applies: tuple[ApplyView, ...] = ()  # the last few, oldest first
    uid: str = ""  # what all that is bought is marked with
    bought: tuple[PoolView, ...] = ()  # pools that are bought

    def reason_of(self, job: JobView) -> Reason:
        """Why a waiting job waits: the reason of its class from the last pass, or that the next pass will tell."""
        return self.reasons.get(class_key(job.spec, job.owner.name)) or reason("wait.next-pass")


def job_view(state: State, job: Job) -> JobView:
    """The frozen form of a job."""
    attempt = job.attempt
    return JobView(
        id=job.id,
        spec=job.spec,
        owner=job.owner,
        state=job.state,
        submitted_us=job.submitted_us,
        waiting_us=job.waiting_us,
        started_us=attempt.started_us if attempt else (job.past[-1].started_us if job.past else 0),
        ended_us=job.ended_us,
        exit_code=job.exit_code,
        why=job.why,
        hold=job.hold.why if job.hold else "",
        hold_code=job.hold.code if job.hold else "",
        attempts=job.attempts,
        attempt=_attempt_view(state, attempt) if attempt else None,
        past=tuple(job.past),
        faults=tuple(f"{fault.node}: {fault.error}" for fault in job.faults),
    )


def _attempt_view(state: State, attempt: Attempt) -> AttemptView:
    parts = tuple(
        PartView(
            node=part.placement.node,
            state=part.state,
            slots=part.placement.slots,
            tasks=part.placement.tasks,
            pids=part.pids,
            error=part.error,
            contact=state.nodes[part.placement.node].contact,
        )
        for part in attempt.parts
    )
    return AttemptView(
        number=attempt.id.number,
        state=attempt.state,
        parts=parts,
        allocated_us=attempt.allocated_us,
        started_us=attempt.started_us,
        deadline_us=attempt.deadline_us,
        master_address=attempt.master_address,
        master_port=attempt.master_port,
        ending=str(attempt.ending.cause) if attempt.ending else "",
        lost=any(part.contact is Contact.UNREACHABLE and part.state is not PartState.ENDED for part in parts),
    )


def node_view(state: State, node: Node) -> NodeView:
    """The frozen form of a node."""
    capacity = state.capacity.nodes[node.name]
    devices = node.facts.devices if node.facts else ()
    return NodeView(
        name=node.name,
        pool=node.pool,
        contact=node.contact,
        contact_us=node.contact_us,
        open=node.open,
        marks=tuple(node.marks),
        facts=node.facts,
        address=node.address,
        slots=tuple(
            (device.slot, node.holders[device.slot].job if device.slot in node.holders else 0)
            for device in devices
        ),
        free_cores=capacity.free_cores,
        free_memory=capacity.free_memory,
        configured=node.configured,
        host=node.host,
        bought=bought_view(state, node.instance) if node.instance else None,
    )


def apply_view(apply: Apply) -> ApplyView:
    """The frozen form of an apply."""
    steps = tuple(
        StepView(step.step, step.state, step.started_us, step.ended_us, step.hosts) for step in apply.steps
    )
    return ApplyView(
        id=apply.id,
        holder=apply.holder,
        by=apply.by,
        commit=apply.commit,
        digest=apply.digest,
        started_us=apply.started_us,
        lease_us=apply.lease_us,
        ended_us=apply.ended_us,
        outcome=apply.outcome,
        detail=apply.detail,
        steps=steps,
    )


def history_row(state: State, job: Job) -> HistoryRow:
    """What the history keeps of a job that has just ended."""
    return HistoryRow(
        job=job.id,
        name=job.spec.name,
        owner=job.owner.name,
        queue=job.spec.queue,
        state=str(job.state),
        exit_code=job.exit_code,
        submitted_us=job.submitted_us,
        ended_us=job.ended_us,
        record=encode(job_view(state, job)),
    )


def from_history(row: HistoryRow) -> JobView:
    """The ended job that a row keeps."""
    return decode(JobView, row.record)
