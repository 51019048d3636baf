"""One start of a job: where it runs, how far it is, how it ended.

Comes in: decisions and agents' reports. Goes out: `Placement`, the states of an attempt, its results. Called by:
ledger, scheduler, controller, agent, API.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word
from orchestrator.model.mig import MigInstance


class AttemptState(Word):
    """allocated -> preparing -> prepared -> committed -> running -> ending -> releasing -> ended (DESIGN section 5)."""

    ALLOCATED = "allocated"  # devices taken; no agent has answered yet
    PREPARING = "preparing"  # some agents of the gang have answered
    PREPARED = "prepared"  # all have
    COMMITTED = "committed"  # in the ledger before any agent hears that it may run
    RUNNING = "running"
    ENDING = "ending"  # told to end, or a rank has failed
    RELEASING = "releasing"  # some nodes have proved their processes gone
    ENDED = "ended"


class PartState(Word):
    """How far one node of the gang is."""

    WAITING = "waiting"
    PREPARED = "prepared"
    STARTED = "started"
    STUCK = "stuck"  # a process can't be killed or the epilog fails: devices stay taken
    ENDED = "ended"  # proved: nothing of it is left on the node


class JobState(Word):
    """What people see of a job."""

    HELD = "held"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_STATES = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class EndCause(Word):
    """Why an attempt ends; the first cause stands."""

    COMPLETED = "completed"  # every rank left with 0
    RANK_FAILED = "rank_failed"  # a rank left with another code or a signal
    PREPARE_FAILED = "prepare_failed"  # a node could not set it up: not started, uncharged
    CANCELLED = "cancelled"
    REQUEUED = "requeued"  # a person asked for a new attempt
    TIME_LIMIT = "time_limit"
    NODE_FAILED = "node_failed"  # rebooted, lost its records, or died with proof
    FENCED = "fenced"  # out of contact, ended by its own agent or by lease


@dataclass(frozen=True, slots=True)
class Use:
    """What a job may use of a node that is its alone; the fields are those of `Placement`."""

    slots: tuple[int, ...] = ()
    cores: int = 0
    memory: int = 0
    milli: tuple[int, ...] = ()
    device_bytes: tuple[int, ...] = ()
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """The part of a gang that one node gives: device slots in order, tasks (ranks), cores, memory in bytes.

    `milli` empty: the slots are whole devices. Else it pairs each slot with the thousandths taken of it, which others
    share, and `device_bytes` with the bytes of its memory; or the `instances` say what is taken, and `milli` what they
    make of each slot. With `alone` the node is nobody else's: slots, cores and memory are all that it had at the start,
    and `alone` is what the job asked for of that. `group`: the number of its group, where the gang has groups; parts
    are in their order."""

    node: str
    slots: tuple[int, ...] = ()
    tasks: int = 1
    cores: int = 0
    memory: int = 0
    milli: tuple[int, ...] = ()
    device_bytes: tuple[int, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    alone: Use | None = None
    group: int = 0

    @property
    def usable(self) -> Use | Placement:
        """What of it the job's processes get."""
        return self.alone or self


@dataclass(frozen=True, slots=True)
class RankResult:
    """How one process ended: `code` of exit, or the `signal` that killed it (0: none). Times UTC microseconds."""

    rank: int
    code: int = 0
    signal: int = 0
    ended_us: int = 0

    @property
    def ok(self) -> bool:
        """Whether it left with 0 by itself."""
        return self.code == 0 and self.signal == 0

    @property
    def exit_code(self) -> int:
        """As shells count: the code, or 128 + signal."""
        return 128 + self.signal if self.signal else self.code


@dataclass(frozen=True, slots=True)
class RankFailure:
    """The first rank that failed: where, how, and the end of what it printed."""

    node: str
    result: RankResult
    tail: str = ""


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """What is kept of an attempt when it is over. Times UTC microseconds, 0 where it never came so far."""

    number: int
    cause: EndCause
    placements: tuple[Placement, ...]
    allocated_us: int
    started_us: int = 0
    ended_us: int = 0
    exit_code: int = 0
    detail: str = ""
    first_failed: RankFailure | None = None
