"""Every kind of event, once: its type, its version, its body.

Comes in: bodies that the controller made of commands, reports and decisions. Goes out: their classes, and all of
`event` (the envelope and its stored form); those of elastic capacity are in events_capacity. Called by: controller
(makes), store (keeps the stored form), apply (folds).

An event is a fact: folding it calls no scheduler, no price, no catalog. To change a body incompatibly raise its
version and add an upcaster; a field with a default may be added freely. tests/ledger/golden keeps one stored event
of each type and version.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.ledger.event import (
    CLASS_OF,
    TYPE_OF,
    UPCASTERS,
    Event,
    StoredEvent,
    event_type,
    from_stored,
    job_subject,
    node_subject,
    to_stored,
)
from orchestrator.ledger.events_capacity import (
    CapacityGone,
    CapacityIntended,
    CapacityLaunched,
    CapacityProved,
    CapacityRefused,
    CapacityReleasing,
    CapacityReset,
    ClusterNamed,
)
from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.attempt import EndCause, JobState, Placement, RankResult
from orchestrator.model.change import PlanStep
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.dependency import Wait
from orchestrator.model.host import HostFacts, PoolDesired
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.node import Contact, Mark, MarkKind, NodeFacts
from orchestrator.model.power import PoolWatts
from orchestrator.model.protocol import EndOrder, Holding
from orchestrator.model.standing import PoolPrice

__all__ = [  # what comes from the modules beside; the rest is defined here
    "CLASS_OF",
    "TYPE_OF",
    "UPCASTERS",
    "CapacityGone",
    "CapacityIntended",
    "CapacityLaunched",
    "CapacityProved",
    "CapacityRefused",
    "CapacityReleasing",
    "CapacityReset",
    "ClusterNamed",
    "Event",
    "StoredEvent",
    "event_type",
    "from_stored",
    "job_subject",
    "node_subject",
    "to_stored",
]


# --- the ledger, the controller, access -----------------------------------------------------------------------


@event_type("controller.started")
@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller took the ledger under the event's epoch. `lease_s`: what it gives nodes; 0: not told."""

    version: str
    host: str
    lease_s: int = 0


@event_type("ledger.restored")
@dataclass(frozen=True, slots=True)
class LedgerRestored:
    """This ledger is an old backup: nothing starts until every node has told what it holds, or a person says so.

    Job ids below `next_job` may be in use by jobs that this ledger has forgotten.
    """

    next_job: int
    backup_t_us: int


@event_type("ledger.recovered")
@dataclass(frozen=True, slots=True)
class LedgerRecovered:
    """What the nodes hold is in the ledger again; starts go on. `without` names nodes that were not waited for."""

    without: tuple[str, ...] = ()


@event_type("token.created")
@dataclass(frozen=True, slots=True)
class TokenCreated:
    """A bearer token, by its SHA-256. `role` admin, operator, submit, read, join or node; `name` the POSIX user or the
    node it is bound to; `expires_us` 0 means never; `key` the SHA-256 of the public key that goes with it (hex of its
    SubjectPublicKeyInfo's), empty for none; `instance` the bought instance that was let in with it, empty for none, and
    `address` its own on the job network, where that is known."""

    id: str
    sha256: str
    role: str
    name: str
    expires_us: int = 0
    key: str = ""
    instance: str = ""
    address: str = ""


@event_type("token.revoked")
@dataclass(frozen=True, slots=True)
class TokenRevoked:
    """The token is worth nothing from now on."""

    id: str


@event_type("cluster.applied")
@dataclass(frozen=True, slots=True)
class ClusterApplied:
    """The wanted cluster, as of a person's apply. `digest` is the SHA-256 of its canonical form, `desired` what its
    hosts are to have, `commit` where the file stood when it was read, `watts` what GPUs draw on sites with power
    domains, `prices` what nodes cost that stand all the time, as the catalog had it."""

    spec: ClusterSpec
    digest: str
    desired: tuple[PoolDesired, ...] = ()
    commit: str = ""
    watts: tuple[PoolWatts, ...] = ()
    prices: tuple[PoolPrice, ...] = ()


@event_type("month.began")
@dataclass(frozen=True, slots=True)
class MonthBegan:
    """GPU-hours of queues count from then on in [begin_us, ends_us), a calendar month of the cluster's zone: the next
    one, or the present one as another zone has it."""

    begin_us: int
    ends_us: int


@event_type("apply.started")
@dataclass(frozen=True, slots=True)
class ApplyStarted:
    """Someone carries out a plan, and nobody else may until `lease_us`. `id` is `apply-` and this event's seq."""

    id: str
    holder: str
    digest: str
    steps: tuple[PlanStep, ...]
    lease_us: int
    commit: str = ""


@event_type("apply.leased")
@dataclass(frozen=True, slots=True)
class ApplyLeased:
    """The holder is still at it."""

    id: str
    lease_us: int


@event_type("apply.step_started")
@dataclass(frozen=True, slots=True)
class ApplyStepStarted:
    """Written before the step touches anything."""

    id: str
    step: str


@event_type("apply.step_ended")
@dataclass(frozen=True, slots=True)
class ApplyStepEnded:
    """What the step came to, host by host."""

    id: str
    step: str
    ok: bool
    hosts: tuple[HostResult, ...] = ()


@event_type("apply.ended")
@dataclass(frozen=True, slots=True)
class ApplyEnded:
    """Nobody works at it any more."""

    id: str
    outcome: Outcome
    detail: str = ""


# --- nodes ----------------------------------------------------------------------------------------------------


@event_type("node.joined")
@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node's agent told what it runs on; again after a reboot, a change of hardware or a loss of its journal."""

    node: str
    facts: NodeFacts
    outbox: str


@event_type("node.contact")
@dataclass(frozen=True, slots=True)
class NodeContact:
    """The node began or ceased to answer."""

    node: str
    contact: Contact


@event_type("node.marked")
@dataclass(frozen=True, slots=True)
class NodeMarked:
    """A reason against new work on the node."""

    node: str
    mark: Mark


@event_type("node.unmarked")
@dataclass(frozen=True, slots=True)
class NodeUnmarked:
    """Marks of that kind (of that job, unless 0) are withdrawn."""

    node: str
    kind: MarkKind
    job: int = 0
    why: str = ""


@event_type("node.configured")
@dataclass(frozen=True, slots=True)
class NodeConfigured:
    """The host was seen to have all of the `Desired` with that digest, and to be what `host` says."""

    node: str
    desired: str
    host: HostFacts | None = None


# --- jobs -----------------------------------------------------------------------------------------------------


@event_type("job.submitted")
@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job was taken in, or an array: its tasks have the ids from `job` on, in the order of their indices. `key` and
    `digest` make a repeated submit find the same job. `waits`: what of `spec.depends_on` was open then; `doom`: why it
    can never be met, empty if it can."""

    job: int
    spec: JobSpec
    owner: Owner
    key: str = ""
    digest: str = ""
    waits: tuple[Wait, ...] = ()
    doom: str = ""


@event_type("array.throttled")
@dataclass(frozen=True, slots=True)
class ArrayThrottled:
    """So many of its tasks, at most, have an attempt at a time from now on; 0: any number."""

    array: int
    at_most: int


@event_type("job.held")
@dataclass(frozen=True, slots=True)
class JobHeld:
    """The job gets no attempt until it is released."""

    job: int
    why: str
    code: str = "held"


@event_type("job.released")
@dataclass(frozen=True, slots=True)
class JobReleased:
    """A person let a held job wait again; its counts of failures start anew."""

    job: int


@event_type("job.prioritized")
@dataclass(frozen=True, slots=True)
class JobPrioritized:
    """A job without an attempt has another priority from now on, in place of its spec's."""

    job: int
    priority: int


@event_type("job.cancel_requested")
@dataclass(frozen=True, slots=True)
class JobCancelRequested:
    """A person wants the job gone; its attempt, if any, is told to end first."""

    job: int
    why: str = ""


@event_type("job.requeued")
@dataclass(frozen=True, slots=True)
class JobRequeued:
    """After an attempt the job waits again, at its old place."""

    job: int
    why: str


@event_type("job.ended")
@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over. `exit_code` is that of its last attempt, as shells count."""

    job: int
    state: JobState
    exit_code: int = 0
    why: str = ""


# --- attempts -------------------------------------------------------------------------------------------------


@event_type("attempt.allocated")
@dataclass(frozen=True, slots=True)
class AttemptAllocated:
    """Devices are taken for a start. `time_limit_s` 0 means none."""

    attempt: AttemptId
    placements: tuple[Placement, ...]
    master_address: str = ""
    master_port: int = 0
    time_limit_s: int = 0


@event_type("attempt.prepared")
@dataclass(frozen=True, slots=True)
class AttemptPrepared:
    """One node has everything ready. `n` is the agent's number of the report, here and below."""

    attempt: AttemptId
    node: str
    n: int = 0


@event_type("attempt.prepare_failed")
@dataclass(frozen=True, slots=True)
class AttemptPrepareFailed:
    """One node could not set it up, and holds nothing of it."""

    attempt: AttemptId
    node: str
    code: str
    error: str
    n: int = 0


@event_type("attempt.committed")
@dataclass(frozen=True, slots=True)
class AttemptCommitted:
    """The gang may run: written before any agent hears of it."""

    attempt: AttemptId


@event_type("attempt.started")
@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """All ranks of one node have pids."""

    attempt: AttemptId
    node: str
    pids: tuple[int, ...] = ()
    n: int = 0


@event_type("attempt.rank_failed")
@dataclass(frozen=True, slots=True)
class AttemptRankFailed:
    """The first failing rank of one node, as the node saw it."""

    attempt: AttemptId
    node: str
    result: RankResult
    tail: str = ""
    n: int = 0


@event_type("attempt.ending")
@dataclass(frozen=True, slots=True)
class AttemptEnding:
    """The whole gang is told to end; the first cause stands, a later event can only shorten the grace."""

    attempt: AttemptId
    cause: EndCause
    order: EndOrder
    detail: str = ""


@event_type("attempt.stuck")
@dataclass(frozen=True, slots=True)
class AttemptStuck:
    """One node can't prove it gone: its devices stay taken."""

    attempt: AttemptId
    node: str
    error: str
    n: int = 0


@event_type("attempt.part_ended")
@dataclass(frozen=True, slots=True)
class AttemptPartEnded:
    """One node proved that nothing of the attempt is left: its devices are free. `cause` as in AgentEvent.

    `presumed`: the node said nothing; the lease or the missing commit is the proof. What it still holds when it is back
    is told to end.
    """

    attempt: AttemptId
    node: str
    started: bool = False
    results: tuple[RankResult, ...] = ()
    cause: str = ""
    error: str = ""
    tail: str = ""
    n: int = 0
    presumed: bool = False


@event_type("attempt.ended")
@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """All parts have ended; `retry_class` names the count of failures that it adds to (empty: none)."""

    attempt: AttemptId
    cause: EndCause
    exit_code: int = 0
    detail: str = ""
    retry_class: str = ""


@event_type("attempt.orphaned")
@dataclass(frozen=True, slots=True)
class AttemptOrphaned:
    """A node holds an attempt that this ledger does not know. It is left alone, listed, and can be taken back."""

    node: str
    holding: Holding


@event_type("attempt.orphan_gone")
@dataclass(frozen=True, slots=True)
class AttemptOrphanGone:
    """The node proved that nothing of an orphan is left, and there is nothing to take back: it is listed no more."""

    attempt: AttemptId
    node: str


@event_type("attempt.recovered")
@dataclass(frozen=True, slots=True)
class AttemptRecovered:
    """An orphan taken into the ledger: its job, if that was forgotten, and its devices on every node of the gang."""

    attempt: AttemptId
    spec: JobSpec
    owner: Owner
    placements: tuple[Placement, ...]
    submitted_us: int
    master_address: str = ""
    master_port: int = 0
    time_limit_s: int = 0
    started_on: tuple[str, ...] = ()
    started_us: int = 0  # 0: no node knows; its time limit runs from now
    # Nodes that hold it themselves: no other starts it, and its job, if it was forgotten, is one that only nodes know.
    held_on: tuple[str, ...] | None = None  # None: of a controller that did not tell
    array: int = 0  # of a task: the id of its array, and its index there
    array_index: int = 0
