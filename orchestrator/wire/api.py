"""Every message of the HTTP API, once: what the server renders, the client parses and `-o json` prints.

Comes in: values from the controller's view (server) or bytes from the network (client). Goes out: the same models,
their JSON and their part of OpenAPI. Called by: api, client, cli. Jobs and errors are here, all else in
`api_cluster`.

Rules: base units (seconds, bytes), times as RFC 3339 in UTC, `null` for what has not happened. Answers tolerate
fields and words that a newer server sends, so words are plain text here and their known values stand in the
description; requests refuse unknown fields. Lists come in an envelope with `apiVersion`, `kind` and `items`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.model.attempt import AttemptState, EndCause, JobState, PartState
from orchestrator.model.dependency import On
from orchestrator.model.ids import JOB_FORM
from orchestrator.model.job import HIGHEST_PRIORITY, LaunchKind, OnLost, Workload
from orchestrator.model.node import Contact

PREFIX = "/api/v1"
API_VERSION = "gangline/v1"
MOST_ITEMS = 1000  # of one page
MOST_LOG_BYTES = 4 * 1024 * 1024  # of one answer with output
MOST_WAIT_S = 60  # that one request may be held

# Headers beside the bytes of a rank's output.
SIZE_HEADER = "X-Gangline-Size"  # bytes that there are now
ENDED_HEADER = "X-Gangline-Ended"  # 1: no more will come
NODE_HEADER = "X-Gangline-Node"
ATTEMPT_HEADER = "X-Gangline-Attempt"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(t_us: int) -> datetime | None:
    """UTC microseconds as a time; None for 0."""
    return _EPOCH + timedelta(microseconds=t_us) if t_us else None


def micros_of(time: datetime) -> int:
    """The inverse, for a time with a zone."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def words(known: type[Enum], text: str) -> Any:
    """A field that holds one of the words of an enum, now or in a newer server."""
    listed = [str(member) for member in known]
    return Field(description=f"{text} One of {', '.join(listed)}; accept others.", examples=listed[:1])


class Answer(BaseModel):
    """What the server sends. `defer_build`: a command that prints one model builds that one only."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Asked(BaseModel):
    """What a client sends; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Page(Answer):
    """The envelope of lists."""

    apiVersion: Literal["gangline/v1"] = "gangline/v1"  # noqa: N815 - the name in documents
    next: str | None = Field(None, description="Cursor of the next page; null on the last.")


JobId = Annotated[int, Field(ge=1, le=2**53 - 1, description="Number of the job.", examples=[1234])]
JOB_PATTERN = f"^{JOB_FORM}$"  # of a job in a path: 1234, or the task 1234_7 of an array


# --- errors ---------------------------------------------------------------------------------------------------------


class ProblemItem(Answer):
    """One of several faults of an input, with its place."""

    path: str = Field("", description="Where in the input.", examples=["spec.per_node.gpus"])
    line: int = Field(0, description="Line from 1; 0 where the input has none.")
    column: int = Field(0, description="Column from 1; 0 where the input has none.")
    code: str = Field("", examples=["spec.unknown-field"])
    message: str = Field("", examples=["unknown field"])
    hint: str = Field("", examples=["did you mean 'gpus'?"])


class Problem(Answer):
    """An error, as RFC 9457 has it (application/problem+json)."""

    type: str = Field("about:blank", description="Kind of the problem as a URI.")
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(description="What happened, for people.", examples=["there is no job 7"])
    code: str = Field(description="Stable word to decide on.", examples=["job.not-found"])
    hint: str = Field("", description="What to do about it; may be empty.")
    path: str = Field("", description="Place of a single fault; may be empty.")
    errors: list[ProblemItem] = Field([], description="Every fault of an invalid input.")
    request_id: str = Field("", description="Finds the server's log of an internal error.")


# --- reasons --------------------------------------------------------------------------------------------------------


class Reason(Answer):
    """Why a job waits or something is as it is: a stable code, its sentence, what to do."""

    code: str = Field(examples=["wait.gpus"])
    category: str = Field(examples=["capacity"])
    sentence: str = Field(examples=["job 12, before it in order, waits for nodes of the same pool h100"])
    action: str = Field(examples=["`gangline nodes` shows each node's reason"])
    facts: dict[str, str | int] = Field({}, description="The numbers and names in the sentence.")


class Blocker(Answer):
    """A job that holds devices where the asked one could run."""

    job: int
    label: str = Field("", description="What people call it: the id, or `1234_7` for a task of an array.")
    owner: str
    gpus: int
    ends_at: datetime | None = Field(None, description="When its time limit ends it; null without one.")


class Explanation(Answer):
    """Why a job does not run, with its place and what is in its way."""

    job: int
    label: str = Field("", description="`1234_7` for a task of an array.")
    state: str = words(JobState, "State of the job.")
    reason: Reason | None = Field(description="Null for a job that runs as it should.")
    place: int = Field(
        0, description="Place among the waiting jobs of its queue, from 1; 0 if it does not wait."
    )
    waiting: int = Field(0, description="How many jobs wait in its queue.")
    ahead_gpus: int = Field(
        0, description="GPUs that the jobs before it count for in limits at least, rounded up."
    )
    ahead_milli: int = Field(0, description="The same in thousandths: the sum of their `gpu_milli`.")
    blockers: list[Blocker] = []
    why: str = Field("", description="How it ended, if it has.")


# --- jobs -----------------------------------------------------------------------------------------------------------


class JobCreated(Answer):
    """A job was accepted, and is in the ledger."""

    id: int = Field(description="Of an array: the id of its first task, and its own.", examples=[1234])
    tasks: int = Field(1, description="How many jobs were made: those of an array have ids in a row.")
    repeated: bool = Field(False, description="The same Idempotency-Key had made it before.")


class Resources(Answer):
    """What each node, or each task, gets."""

    gpus: int
    cores: int
    memory_bytes: int
    gpu_models: list[str] = Field([], description="Models that will do; empty: any.")
    gpu_milli: int = Field(
        0, description="Thousandths of one GPU that others may use as well; 0: whole GPUs."
    )
    gpu_memory_bytes: int = Field(0, description="Of each GPU; 0: any.")
    mig: str = Field("", description="Profile of MIG instances, instead of whole GPUs.")
    labels: dict[str, str] = Field({}, description="That the pool of its nodes has.")


class Stop(Answer):
    """How the job is asked to end."""

    signal: str
    to: str
    grace_s: int


class Dependency(Answer):
    """What another job has to do first."""

    job: str = Field(examples=["1234_7"])
    on: str = words(On, "What it has to do.")


class ArraySpec(Answer):
    """What an array was asked for as."""

    tasks: str = Field(description="The indices.", examples=["0-98:2"])
    count: int = Field(description="How many tasks.")
    at_most: int = Field(description="So many have an attempt at a time; 0: any number.")


class Topology(Answer):
    """How close together the gang is; empty and 0: no matter."""

    required: str
    preferred: str
    segment_nodes: int
    segment_level: str


class Tasks(Answer):
    """How the tasks of an array stand."""

    states: dict[str, int] = Field(description="How many are in each state.", examples=[{"running": 4}])
    exit_code: int = Field(description="The highest of those that have ended.")


class GroupSpec(Answer):
    """A group of a gang: `nodes` with `per_node`, or `tasks` with `per_task`."""

    name: str
    nodes: int
    tasks: int
    tasks_per_node: int
    per_node: Resources | None
    per_task: Resources | None
    command: list[str]


class JobSpec(Answer):
    """What was asked for, in base units: `nodes` with `per_node`, `tasks` with `per_task`, or `groups`."""

    nodes: int
    tasks: int
    tasks_per_node: int
    per_node: Resources | None
    per_task: Resources | None
    launch: str = words(LaunchKind, "How processes start.")
    command: list[str]
    env: dict[str, str] | None = Field(None, description="Shown to its owner and operators; null to others.")
    workdir: str
    output: str
    stop: Stop
    on_lost: str = words(OnLost, "What lets it start again when a node is lost.")
    node_failure_retries: int
    job_failure_retries: int
    needs: list[str]
    labels: dict[str, str]
    exclusive: bool = False
    topology: Topology | None = None
    array: ArraySpec | None = None
    depends_on: list[Dependency] = []
    singleton: bool = False
    groups: list[GroupSpec] = Field([], description="In the order of their ranks; `command` is empty then.")


class Part(Answer):
    """One node's share of the live attempt."""

    node: str
    state: str = words(PartState, "How far this node is.")
    slots: list[int] = Field(description="Devices by slot.")
    instances: list[str] = Field(
        [], description="MIG instances: slot, profile and first slice, as in 0:3g.40gb@4."
    )
    first_rank: int
    tasks: int = Field(description="Ranks on this node.")
    pids: list[int] = Field([], description="By rank, once started.")
    error: str = ""
    contact: str = words(Contact, "Whether the node answers.")
    group: str = Field("", description="Name of its group, where the gang has groups.")


class Attempt(Answer):
    """The live start of a job."""

    id: str = Field(examples=["1234/2"])
    number: int
    state: str = words(AttemptState, "How far it is.")
    parts: list[Part] = Field(description="In gang order: the first holds rank 0.")
    allocated_at: datetime | None
    started_at: datetime | None
    deadline_at: datetime | None = Field(description="When its time limit ends it.")
    master_address: str
    master_port: int
    ending: str = Field("", description="Why it ends, if it was told to.")
    lost: bool = Field(False, description="A node of it is unreachable: it may run or not.")


class Placement(Answer):
    """One node's share of a past attempt."""

    node: str
    slots: list[int]
    first_rank: int
    tasks: int
    group: str = Field("", description="Name of its group, where the gang had groups.")


class FirstFailed(Answer):
    """The first rank that failed: where, how, and the end of what it printed."""

    node: str
    rank: int
    code: int
    signal: int
    exit_code: int = Field(description="The code, or 128 + signal.")
    ended_at: datetime | None
    tail: str


class PastAttempt(Answer):
    """A start that is over."""

    id: str
    number: int
    cause: str = words(EndCause, "Why it ended.")
    detail: str
    exit_code: int
    placements: list[Placement]
    allocated_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    first_failed: FirstFailed | None = None


class JobSummary(Answer):
    """A job in a list."""

    id: int
    name: str
    owner: str
    queue: str
    workload: str = words(Workload, "Class of work.")
    priority: int
    state: str = words(JobState, "State of the job.")
    nodes: int = Field(description="Nodes it asks for; of a gang of tasks, those it has (0 while it waits).")
    ranks: int
    gpus: int = Field(description="Whole GPUs of the gang.")
    gpu_milli: int = Field(
        0,
        description="Thousandths of GPUs that limits count of it at least: MIG instances by their memory slices, "
        "shares by memory alone as on the largest device that suits, with `exclusive` all GPUs of its nodes.",
    )
    submitted_at: datetime | None
    waiting_since: datetime | None = Field(description="Since when it waits, or waited last.")
    started_at: datetime | None
    ended_at: datetime | None
    time_limit_s: int = Field(description="0: none of its own.")
    exit_code: int | None = Field(
        description="Null until it has ended, and if none of its processes ever ran."
    )
    why: str = Field("", description="Why it ended as it did.")
    hold: str = Field("", description="Why it is held.")
    attempts: int = Field(description="Starts so far.")
    node_names: list[str] = Field(description="Nodes of the live attempt, or of the last one; in gang order.")
    lost: bool = Field(False, description="A node of the live attempt is unreachable.")
    reason: Reason | None = Field(None, description="Why it waits; null otherwise.")
    array: int | None = Field(None, description="Id of the array that it is a task of.")
    index: int | None = Field(None, description="Its index in the array.")

    @property
    def label(self) -> str:
        """`1234`, or `1234_7` for a task of an array."""
        return f"{self.array}_{self.index}" if self.array else str(self.id)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.ended_at is not None


class Job(JobSummary):
    """A job with all that is known of it."""

    revision: str = Field(description="Changes with the job; give it to /wait to hear of the next change.")
    spec: JobSpec
    attempt: Attempt | None = None
    past: list[PastAttempt] = Field([], description="Earlier starts, the last ten.")
    faults: list[str] = Field([], description="`node: error` of nodes where it could not be prepared.")
    tasks: Tasks | None = Field(None, description="Of an array that was asked for as a whole.")
    acted: int | None = Field(
        None, description="Of a whole array that something was done to: to how many of its tasks."
    )
    next: int | None = Field(
        None,
        description="Of a large array, it was not done to tasks with ids below this yet: ask again, with `below`.",
    )


class JobList(Page):
    """Jobs, newest first."""

    kind: Literal["JobList"] = "JobList"
    items: list[JobSummary]


class Acting(Asked):
    """What everything that is done to a job takes."""

    below: int = Field(
        0,
        ge=0,
        le=2**53 - 1,
        description="Of a whole array: only tasks with ids below this, as `next` of the answer before said; 0: all.",
    )


class CancelJob(Acting):
    """How to end a job."""

    why: str = Field("", max_length=1024, description="Kept with the job.", examples=["wrong data set"])
    now: bool = Field(False, description="Without grace: kill at once.")


class PrioritizeJob(Acting):
    """Another place among those that wait."""

    priority: int = Field(
        ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, description="Higher starts first within the queue."
    )


class SetJob(Asked):
    """What of an array is changed; what is left out stays as it is."""

    at_most: int | None = Field(
        None, ge=0, le=1_000_000, description="So many tasks have an attempt at a time; 0: any number."
    )


class ActOnJob(Acting):
    """Why something is done to a job."""

    why: str = Field("", max_length=1024, examples=["looks at the last run first"])
