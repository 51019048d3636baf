"""The mutable records that State is made of; a snapshot is their plain form.

Comes in: what apply folds. Goes out: jobs with their attempts, nodes, tokens, orphans. Called by: apply (changes
them), scheduler and controller (read them). Times are UTC microseconds, 0 where something has not happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.apply import HostResult, Outcome, StepState
from orchestrator.model.attempt import (
    AttemptState,
    AttemptSummary,
    EndCause,
    JobState,
    PartState,
    Placement,
    RankFailure,
    RankResult,
)
from orchestrator.model.capacity import Intent
from orchestrator.model.change import PlanStep
from orchestrator.model.dependency import Tally, Wait
from orchestrator.model.host import HostFacts
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.node import Contact, Hardware, Mark, NodeFacts
from orchestrator.model.protocol import EndOrder, Holding


@dataclass(slots=True)
class Part:
    """One node's share of an attempt. `slots`, `cores`, `memory` are held until its state is ENDED."""

    placement: Placement
    state: PartState = PartState.WAITING
    started: bool = False  # a rank may have run here: it is never started here again
    started_us: int = 0
    ended_us: int = 0
    pids: tuple[int, ...] = ()
    results: tuple[RankResult, ...] = ()
    failure: RankFailure | None = None
    error: str = ""
    code: str = ""
    cause: str = ""
    tail: str = ""


@dataclass(slots=True)
class Ending:
    """Why and how an attempt was told to end."""

    cause: EndCause
    order: EndOrder
    since_us: int
    detail: str = ""


@dataclass(slots=True)
class Attempt:
    """The one live attempt of a job. Parts are in gang order (the first holds rank 0)."""

    id: AttemptId
    parts: list[Part]
    state: AttemptState
    allocated_us: int
    master_address: str = ""
    master_port: int = 0
    time_limit_s: int = 0
    committed_us: int = 0
    started_us: int = 0
    ending: Ending | None = None

    def part(self, node: str) -> Part | None:
        """The share of that node, or None."""
        for part in self.parts:
            if part.placement.node == node:
                return part
        return None

    @property
    def deadline_us(self) -> int:
        """When its time limit ends it; 0 if it has none or has not started."""
        return self.started_us + self.time_limit_s * 1_000_000 if self.started_us and self.time_limit_s else 0


@dataclass(slots=True)
class Hold:
    """Why a job gets no attempt: `code` `held` by a person, else the reason's code."""

    why: str
    code: str
    by: str
    since_us: int


@dataclass(slots=True)
class NodeFault:
    """A node on which this job could not be prepared."""

    node: str
    code: str
    error: str
    t_us: int


@dataclass(slots=True)
class Job:
    """A job that is not over, and what is known of its past attempts."""

    id: int
    spec: JobSpec
    owner: Owner
    submitted_us: int
    waiting_us: int  # since when it waits, or waited last
    state: JobState = JobState.WAITING
    hold: Hold | None = None
    cancel_why: str | None = None
    attempts: int = 0  # numbers given so far
    attempt: Attempt | None = None
    past: list[AttemptSummary] = field(default_factory=list)  # the last PAST_KEPT of them
    failures: dict[str, int] = field(default_factory=dict)  # attempts ended, by retry class
    faults: list[NodeFault] = field(default_factory=list)
    ended_us: int = 0
    exit_code: int = 0
    why: str = ""
    from_nodes: bool = (
        False  # known from nodes' records alone: it starts nowhere anew before a person releases it
    )
    array: int = 0  # id of the array that it is a task of; 0: of none
    index: int = 0  # in that array
    waits: tuple[Wait, ...] = ()  # what has to happen to other jobs before it may start
    behind: bool = False  # a singleton that an earlier job of its name is in the way of
    doom: str = ""  # why what it waits for can never happen: it is about to be cancelled
    priority_set: int | None = None  # since it was submitted; None: its spec's holds

    @property
    def priority(self) -> int:
        """Higher goes first."""
        return self.spec.priority if self.priority_set is None else self.priority_set

    @property
    def begun(self) -> bool:
        """Whether a process of it has run."""
        running = self.attempt is not None and self.attempt.started_us
        return bool(running or any(past.started_us for past in self.past))

    @property
    def blocked(self) -> bool:
        """Whether it waits for other jobs, so that no pass need look at it."""
        return bool(self.waits or self.behind or self.doom)

    @property
    def label(self) -> str:
        """`1234`, or `1234_7` for a task."""
        return f"{self.array}_{self.index}" if self.array else str(self.id)


@dataclass(slots=True)
class TaskArray:
    """An array of which tasks are left. They share its `spec` and `owner`; `at_most` may differ from the spec's by now.
    The counts are those of `Tally`."""

    id: int
    spec: JobSpec
    owner: Owner
    at_most: int
    live: int = 0
    unstarted: int = 0
    failed: int = 0
    never_ran: int = 0

    def tally(self) -> Tally:
        """How its tasks stand."""
        return Tally(self.live, self.unstarted, self.failed, self.never_ran)


PRESUMED_KEPT = 50
PAST_KEPT = 10  # attempts whose summary a job carries along


@dataclass(slots=True)
class Node:
    """A node of the spec, or one that joined: what it is made of and why it may not be given work."""

    name: str
    pool: str
    contact: Contact = Contact.NEVER
    contact_us: int = 0
    facts: NodeFacts | None = None
    outbox: str = ""
    acked: int = 0  # the highest agent event that is in the ledger
    marks: list[Mark] = field(default_factory=list)
    address: str = ""
    wanted: bool = True  # in the spec; a node taken out of it keeps its work and gets no more
    presumed: list[AttemptId] = field(
        default_factory=list
    )  # ended here without its word; the last PRESUMED_KEPT
    moves_to: str = ""  # the pool that it belongs to once its present work is over
    holders: dict[int, AttemptId] = field(default_factory=dict)  # slot -> attempt that has the whole device
    sharers: dict[int, list[AttemptId]] = field(default_factory=dict)  # slot -> attempts that share it
    hardware: Hardware = field(
        default_factory=Hardware
    )  # as it was let in, or as a person has agreed to it since
    admitted: str = ""  # the bought instance that was let in as it
    configured: str = ""  # digest of the `Desired` that its host was last seen to have
    host: HostFacts | None = None
    instance: str = ""  # of a node that was bought: the id of its instance, until that is gone
    releasing: bool = False  # its instance is being ended
    idle_us: int = 0  # of a bought node: when it was proved, or its last work was over

    @property
    def open(self) -> bool:
        """Whether it may be given work."""
        stays = self.wanted and not self.moves_to and not self.releasing
        return stays and self.contact is Contact.OK and not self.marks and self.facts is not None


@dataclass(slots=True)
class Token:
    """A bearer token as the ledger knows it. `key`: the public key that must be shown with it; `instance`: the bought
    instance that it was given to, at `address` (see `events.TokenCreated`)."""

    id: str
    sha256: str
    role: str
    name: str
    created_us: int
    expires_us: int = 0
    key: str = ""
    instance: str = ""
    address: str = ""


@dataclass(slots=True)
class Orphan:
    """What one node holds of an attempt that the ledger does not know."""

    attempt: AttemptId
    node: str
    holding: Holding
    since_us: int


@dataclass(slots=True)
class ApplyStep:
    """A step of an apply and how far it is."""

    step: PlanStep
    state: StepState = StepState.PENDING
    started_us: int = 0
    ended_us: int = 0
    hosts: tuple[HostResult, ...] = ()


@dataclass(slots=True)
class Apply:
    """One apply. `outcome` None: it is under way, or its holder died and nobody has noticed."""

    id: str
    holder: str
    by: str
    digest: str
    started_us: int
    lease_us: int
    commit: str = ""
    steps: list[ApplyStep] = field(default_factory=list)
    outcome: Outcome | None = None
    detail: str = ""
    ended_us: int = 0


@dataclass(slots=True)
class Bought:
    """One instance that was bought, until it is gone. It is billed from `launched_us` on."""

    id: str
    node: str
    address: str
    launched_us: int
    proved_us: int = 0  # 0: it boots, here and below
    releasing_us: int = 0  # since when it is being ended
    why: str = ""


@dataclass(slots=True)
class Fleet:
    """An intent and what exists for it. `asked`: no instances yet, since the cloud has not answered."""

    intent: Intent
    since_us: int
    instances: list[Bought] = field(default_factory=list)

    @property
    def asked(self) -> bool:
        """Whether the cloud's answer is still to come."""
        return not self.instances


@dataclass(slots=True)
class Account:
    """What instances that are gone were billed, by pool and queue (empty: floors). `hours` pairs UTC hours since 1970
    with micro-dollars, oldest first, the last HOURS_KEPT of them; the sums are of all time."""

    pool: str
    site: str
    queue: str
    instances: int = 0
    seconds: int = 0
    microusd: int = 0
    hours: list[tuple[int, int]] = field(default_factory=list)


HOURS_KEPT = 32 * 24  # a calendar month in any zone
