"""The messages of the HTTP API about applies and what was recorded, by the rules of `wire.api`.

Comes in: values from the controller's view (server) or bytes from the network (client). Goes out: the same models,
their JSON and their part of OpenAPI. Called by: api, client, cli.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from orchestrator.model.apply import Outcome, StepState
from orchestrator.model.change import StepKind
from orchestrator.wire.api import Answer, Asked, Page, words

MOST_STEPS = 100_000
LONGEST_LEASE_S = 3600

ShortText = Annotated[str, Field(max_length=253)]
LongText = Annotated[str, Field(max_length=4096)]
Lease = Annotated[
    int,
    Field(ge=5, le=LONGEST_LEASE_S, description="Seconds for which nobody else may apply.", examples=[60]),
]


class PlannedStep(Asked):
    """One step of a plan."""

    id: ShortText
    kind: Literal[
        "controller",
        "record",
        "stack",
        "enrol",
        "cordon",
        "drain",
        "configure",
        "reboot",
        "accept",
        "uncordon",
        "retire",
    ] = Field(description="What it does.")
    why: LongText = ""
    pool: ShortText = ""
    nodes: list[ShortText] = Field([], max_length=MOST_STEPS)
    roles: list[ShortText] = Field([], max_length=64)
    batch: int = Field(0, ge=0, le=10**9)
    site: ShortText = Field("", description="The aws site that it is about.")


class StartApply(Asked):
    """A plan that is to be carried out by the caller."""

    holder: ShortText = Field(
        min_length=1, description="Who carries it out, the same when run again.", examples=["alice@ctl"]
    )
    digest: ShortText = Field(description="Of the wanted cluster.")
    steps: list[PlannedStep] = Field(max_length=MOST_STEPS)
    lease_s: Lease = 60
    commit: ShortText = Field("", description="Commit of the file, where it is known.")


class RenewApply(Asked):
    """The holder is still at it."""

    lease_s: Lease = 60


class HostResult(Answer):
    """What a step came to on one host."""

    host: str
    ok: bool
    error: str = ""
    changed: int = Field(0, description="Items that were not as wanted before.")


class GivenResult(Asked):
    """What a step came to on one host."""

    host: ShortText
    ok: bool
    error: LongText = ""
    changed: int = Field(0, ge=0, le=10**9)


class EndStep(Asked):
    """What a step came to."""

    ok: bool
    hosts: list[GivenResult] = Field([], max_length=MOST_STEPS)


class EndApply(Asked):
    """How an apply ended."""

    outcome: Literal["done", "partial", "failed", "given-up"]
    detail: LongText = ""


class Step(Answer):
    """A step and how far it is."""

    id: str
    kind: str = words(StepKind, "What it does.")
    why: str
    pool: str
    nodes: list[str]
    roles: list[str]
    batch: int
    site: str = ""
    state: str = words(StepState, "How far it is.")
    started_at: datetime | None
    ended_at: datetime | None
    hosts: list[HostResult]


class Apply(Answer):
    """One apply. Without an outcome it is under way, or its holder died and its lease has not run out."""

    id: str
    holder: str
    by: str
    commit: str
    digest: str
    started_at: datetime | None
    lease_until: datetime | None
    ended_at: datetime | None
    outcome: str | None = Field(
        description=f"How it ended. One of {', '.join(map(str, Outcome))}; accept others."
    )
    detail: str
    steps: list[Step]


class ApplyList(Page):
    """The last applies, newest first."""

    kind: Literal["ApplyList"] = "ApplyList"
    items: list[Apply]


class Configured(Asked):
    """A host that was seen to have all it should."""

    desired: ShortText = Field(description="Digest of what it has.")
    host: dict[str, Any] | None = Field(None, description="What a probe read of it.")


class Recorded(Answer):
    """What was applied last: the cluster, what its hosts are to have, and what each was seen to have."""

    digest: str
    commit: str
    spec: dict[str, Any] | None = Field(description="In base units, without what is at its default.")
    pools: dict[str, str] = Field(description="Digest of what its hosts are to have, by pool.")
    desired: list[dict[str, Any]] = Field(description="What is to be had, by digest.")
    nodes: dict[str, str] = Field(description="Digest of what each host was last seen to have; empty: never.")
    hosts: dict[str, dict[str, Any]] = Field(description="What a probe read of each host.")
    uid: str = Field("", description="What marks all that the cluster has at a cloud; empty: nothing yet.")
    ca_sha256: str = Field(
        "", description="Of the authority that bought nodes trust the controller by; may be empty."
    )


class Record(Answer):
    """What was applied to the cluster at one time."""

    record: str = Field(description="Name of the record.", examples=["r812"])
    at: datetime
    by: str
    commit: str = Field(description="Commit of the file, where it was known.")
    digest: str = Field(description="Of the cluster.")
    current: bool = Field(description="Whether it is what the controller goes by now.")


class RecordList(Page):
    """What was applied, newest first; the last 100 are kept."""

    kind: Literal["RecordList"] = "RecordList"
    items: list[Record]


class RecordedSpec(Record):
    """A record with its cluster."""

    spec: dict[str, Any] = Field(description="In base units, without what is at its default.")
