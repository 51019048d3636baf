"""Queues, budgets and access of a cluster document: who gets what, up to which limit.

Comes in: the sections `queues`, `budgets` and `access`. Goes out: their documents. Called by: `cluster`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.model.cluster import AtLimit, Reclaim, Role
from orchestrator.wire.common import (
    Count,
    Days,
    DayTime,
    Dollars,
    GpuHours,
    Kilowatts,
    Name,
    Positive,
    Reference,
    Rows,
    Span,
    Table,
    Text,
    UserName,
    Weight,
    choice_leaf,
)
from orchestrator.wire.leaf import Strict

ReclaimWord = Annotated[Reclaim, choice_leaf(Reclaim)]
AtLimitWord = Annotated[AtLimit, choice_leaf(AtLimit)]
RoleWord = Annotated[Role, choice_leaf(Role)]


class ShareDocument(Strict):
    """GPUs, counted in a pool or in a GPU model."""

    pool: Reference | None = Field(None, description="Pool in which they are counted.")
    gpu_model: Reference | None = Field(
        None, description="GPU model in which they are counted, instead of a pool."
    )
    gpus: Count = Field(description="Number of GPUs.", examples=[48])


class LimitsDocument(Strict):
    """Limits of a queue; what is absent is not limited."""

    default_time_limit: Span | None = Field(None, description="For jobs that say none.", examples=["4h"])
    max_time_limit: Span | None = Field(None, description="Longest time limit that a job may ask for.")
    max_running_jobs: Positive | None = Field(None, description="Most jobs that run at once.")
    max_waiting_jobs: Positive | None = Field(
        None, description="Most jobs that wait; further submits are refused."
    )
    max_jobs_per_user: Positive | None = Field(None, description="Most running jobs of one user.")
    max_gpus_per_user: Positive | None = Field(None, description="Most GPUs of one user.")
    max_gpus_per_job: Positive | None = Field(None, description="Most GPUs of one job.")
    max_gpu_hours_per_month: GpuHours | None = Field(
        None,
        description="Most GPU-hours in a calendar month of the cluster's zone: used, and what running jobs may still "
        "use until their time limit.",
        examples=[20000],
    )


class QueueDocument(Strict):
    """A place in the quota tree."""

    name: Name = Field(description="Name of the queue.")
    parent: Reference | None = Field(None, description="Queue above it.")
    guarantee: Rows[ShareDocument] = Field([], description="GPUs that it can always have back.")
    borrow_limit: Rows[ShareDocument] = Field([], description="Most GPUs beyond the guarantee.")
    lending_limit: Rows[ShareDocument] = Field(
        [],
        description="Most GPUs of the guarantee that other queues may use; the rest stays free for this one. "
        "Absent for a pool: all of it.",
        examples=[[{"pool": "h100", "gpus": 32}]],
    )
    weight: Weight = Field(1, description="Share of what is left, against its siblings.", examples=[2])
    reclaim: ReclaimWord = Field(
        Reclaim.NEVER, description="What it may take back by preemption under its guarantee."
    )
    limits: LimitsDocument = Field(LimitsDocument(), description="Limits on its jobs.")


class WindowDocument(Strict):
    """A weekly period with its own power limit, in the cluster's time zone."""

    days: Days = Field(
        "mon-sun", validate_default=True, description="Days on which it opens.", examples=["mon-fri"]
    )
    from_: DayTime = Field(alias="from", description="When it opens.", examples=["17:00"])
    to: DayTime = Field(
        description="When it closes; at or before `from`: on the next day.", examples=["20:00"]
    )
    limit_kw: Kilowatts = Field(description="Limit in kW while it is open.", examples=[120])


class ScopeDocument(Strict):
    """One site, pool or queue."""

    site: Reference | None = Field(None, description="A site.")
    pool: Reference | None = Field(None, description="A pool.")
    queue: Reference | None = Field(None, description="A queue.")


class BudgetDocument(Strict):
    """A limit that people set on power or on money."""

    name: Name = Field(description="Name of the budget.")
    domain: Reference | None = Field(None, description="Power domain that its windows limit.")
    windows: Rows[WindowDocument] = Field([], description="Periods with a power limit.")
    applies_to: ScopeDocument | None = Field(
        None, description="What the money is spent on; absent: all of the cluster."
    )
    usd_per_hour: Dollars | None = Field(
        None,
        description="Most dollars an hour. Of a queue: for nodes that are bought for it and those below it, and parts "
        "of others that their work takes.",
        examples=[400],
    )
    usd_per_month: Dollars | None = Field(
        None, description="Most dollars a calendar month.", examples=[90000]
    )
    at_limit: Rows[AtLimitWord] = Field(
        [AtLimit.STOP_BUYING],
        description="What is done when it is used up, in order.",
        examples=[["stop_buying"]],
    )


class GroupDocument(Strict):
    """People, named in one or more ways."""

    oidc: Text | None = Field(None, description="Group or address as the OIDC provider says it.")
    posix: UserName | None = Field(None, description="POSIX group.")
    users: Rows[UserName] = Field([], description="Users by POSIX name.")


class GrantDocument(Strict):
    """A role for a group."""

    role: RoleWord = Field(description="What is allowed; each role includes those before it.")
    to: Reference = Field(description="Group that gets it.")
    on: ScopeDocument | None = Field(None, description="Where; absent: on the whole cluster.")


class AccessDocument(Strict):
    """Who may do what."""

    groups: Table[GroupDocument] = Field({}, description="Groups by name.")
    grants: Rows[GrantDocument] = Field(
        [],
        description="Roles given to groups. Absent: whoever has an account may submit everywhere; present: "
        "only whom a grant names.",
    )
