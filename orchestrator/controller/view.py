"""The published view: what others may read without asking the core.

Comes in: State after each commit, and which jobs and nodes that commit touched. Goes out: frozen `JobView`s and
`NodeView`s, the reasons of waiting classes, tokens, what each node should have. Called by: loop (publishes), api
(reads). Every value is immutable; the core replaces entries one by one, so a reader sees each job whole, and lists
are as fresh as the last commit. Times are UTC microseconds, 0 where something has not happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.controller.reporter import Told
from orchestrator.controller.view_capacity import BoughtView, PoolView, bought_view
from orchestrator.ledger.records import Apply, Attempt, Job, Node, Token
from orchestrator.ledger.state import ClassKey, State, class_key
from orchestrator.model.apply import HostResult, Outcome, StepState
from orchestrator.model.array import Array
from orchestrator.model.attempt import AttemptState, AttemptSummary, JobState, PartState
from orchestrator.model.change import PlanStep
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.dependency import Wait, wait_words
from orchestrator.model.host import HostFacts, PoolDesired
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.mig import MigInstance
from orchestrator.model.node import Contact, Mark, NodeFacts
from orchestrator.model.reasons import Reason, reason
from orchestrator.store.base import HistoryRow

MOST_NAMED = 5  # jobs that a reason names


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
    milli: tuple[int, ...] = ()  # of each slot; empty: whole devices
    instances: tuple[MigInstance, ...] = ()
    group: int = 0  # as in `Placement`


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
    array: int = 0  # id of the array that it is a task of; 0: of none
    index: int = 0  # in that array
    waits: tuple[Wait, ...] = ()  # for other jobs
    behind: bool = False  # a singleton that an earlier job of its name is in the way of
    at_most: int = 0  # of its array's tasks that may have an attempt at a time now
    priority_set: int | None = None  # since it was submitted; None: its spec's holds

    @property
    def priority(self) -> int:
        """Higher goes first."""
        return self.spec.priority if self.priority_set is None else self.priority_set

    @property
    def blocked(self) -> bool:
        """Whether other jobs have to get somewhere first."""
        return bool(self.waits) or self.behind

    @property
    def label(self) -> str:
        """`1234`, or `1234_7` for a task."""
        return f"{self.array}_{self.index}" if self.array else str(self.id)

    @property
    def class_key(self) -> ClassKey:
        """Its class while it waits: as `State.class_of` has it."""
        return class_key(self.spec, self.owner.name, self.array if self.at_most else 0)

    @property
    def whole(self) -> Array | None:
        """The array, of which it is the first task: it has the array's own id."""
        return self.spec.array if self.array == self.id else None


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
    held: tuple[tuple[int, int], ...] = ()  # thousandths of each device that somebody holds, by slot
    slices: tuple[
        tuple[int, int], ...
    ] = ()  # masks of slices that MIG instances hold, by slot, where any are


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


@dataclass(frozen=True, slots=True)
class PowerView:
    """Where watts are limited: by scope of a power domain its ceiling (0: none of its own) and what is committed; and
    what a GPU may draw, by pool."""

    domains: dict[str, tuple[int, int]]
    most: dict[str, int]


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
    # by queue: micro-dollars an hour that are committed and may be; empty: no budget is of dollars an hour
    dollars: dict[str, tuple[int, int]] = field(default_factory=dict)
    # by queue: milli-GPU-seconds that are used and committed this month; empty: no queue has a limit of them
    hours: dict[str, int] = field(default_factory=dict)
    month_ends_us: int = 0  # 0: that month is not known
    jobs: dict[int, JobView] = field(default_factory=dict)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)  # by SHA-256
    reasons: Told = field(default_factory=Told)
    orphans: tuple[tuple[str, str], ...] = ()  # (attempt, node)
    commit: str = ""
    desired: dict[str, PoolDesired] = field(default_factory=dict)  # by digest
    recorded: dict[str, str] = field(default_factory=dict)  # pool -> digest of what its hosts are to have
    applies: tuple[ApplyView, ...] = ()  # the last few, oldest first
    uid: str = ""  # what all that is bought is marked with
    bought: tuple[PoolView, ...] = ()  # pools that are bought
    power: PowerView | None = None  # None: no domain has a limit

    def reason_of(self, job: JobView) -> Reason:
        """Why a waiting job waits: for other jobs; else the reason of its class from the last pass, or that the next
        pass will tell."""
        if job.blocked:
            return dependency_reason(job, self._how_far)
        return self.reasons.get(job.class_key) or reason("wait.next-pass")

    def _how_far(self, job_id: int) -> str:
        job = self.jobs.get(job_id)
        return str(job.state) if job is not None else ""


def dependency_reason(job: JobView | Job, how_far: Callable[[int], str]) -> Reason:
    """What a job waits for in others, the first few of them; `how_far`: the state of a job, empty for an ended one."""
    words = []
    for wait in job.waits[:MOST_NAMED]:
        state = "" if wait.whole else how_far(wait.job)
        words.append(wait_words(wait) + (f" (it is {state})" if state else ""))
    if len(job.waits) > MOST_NAMED:
        words.append(f"{len(job.waits) - MOST_NAMED} more")
    if job.behind:
        words.append(f"earlier jobs of {job.owner.name} named {job.spec.name} to end")
    return reason("wait.dependency", jobs=", ".join(words))


def power_view(state: State) -> PowerView | None:
    """What is committed at each power domain."""
    power = state.power
    if power is None:
        return None
    return PowerView(
        {
            scope.name: (scope.ceilings.get("watts", 0), used)
            for scope, used in zip(power.scopes, power.used(), strict=True)
        },
        power.most,
    )


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
        array=job.array,
        index=job.index,
        waits=job.waits,
        behind=job.behind,
        at_most=_at_most(state, job),
        priority_set=job.priority_set,
    )


def _at_most(state: State, job: Job) -> int:
    """As its array has it now; of an ended array, as it was asked for."""
    array = state.arrays.get(job.array)
    if array is not None:
        return array.at_most
    return job.spec.array.at_most if job.array and job.spec.array is not None else 0


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
            milli=part.placement.milli,
            instances=part.placement.instances,
            group=part.placement.group,
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
    capacity = state.capacity.at(node.name)
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
        slots=tuple((device.slot, _holder(node, device.slot)) for device in devices),
        free_cores=capacity.free_cores,
        free_memory=capacity.free_memory,
        configured=node.configured,
        host=node.host,
        bought=bought_view(state, node.instance) if node.instance else None,
        held=_shares(state, node, tuple(device.slot for device in devices)),
        slices=state.capacity.slices_of(node.name),
    )


def _shares(state: State, node: Node, slots: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    used = state.capacity.shares_of(node.name)
    return tuple((slot, used[slot]) for slot in slots)


def _holder(node: Node, slot: int) -> int:
    """The job that has the device, or the first of those that share it; 0 if it is free."""
    if slot in node.holders:
        return node.holders[slot].job
    return node.sharers[slot][0].job if slot in node.sharers else 0


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
