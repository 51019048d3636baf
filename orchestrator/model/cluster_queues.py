"""Queues, budgets and access of the cluster's model: who gets what, up to which limit.

Comes in: nothing. Goes out: `Queue`, `Budget`, `Access` and their parts. Called by: model.cluster, through which
everybody else has them. All of it is the controller's own affair: no node hears of it, and no job is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.change import UpdateClass
from orchestrator.model.cluster_words import AtLimit, FairShare, Preset, Reclaim, Role
from orchestrator.model.written import Effect, Form, identity, leaf, part, rows

CONTROLLER = UpdateClass.CONTROLLER
PASS = "the next pass follows it; running work stays"  # noqa: S105 - a pass of the scheduler
SUBMIT = "it counts for what is submitted or started from now on"
ACCESS = "the next request is judged by it"
SPENDING = "the next pass counts with it; if more is spent than allowed, its `at_limit` acts"
TAKEN_OVER = Effect(CONTROLLER, PASS)


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs counted in a pool or in a GPU model; exactly one of `pool` and `gpu_model` is given."""

    gpus: int = field(metadata=leaf(CONTROLLER, PASS, form=Form.WHOLE, given=True))
    pool: str = field(default="", metadata=identity())
    gpu_model: str = field(default="", metadata=identity())


@dataclass(frozen=True, slots=True)
class SchedulerSpec:
    """How the scheduler decides. `half_life_s`: after so long, a GPU-hour counts half in the fair share (with `decay`);
    `kept_jobs`: for so many blocked jobs, first in order, nodes are kept."""

    fair_share: FairShare = field(default=FairShare.INSTANT, metadata=leaf(CONTROLLER, PASS, given=True))
    half_life_s: int = field(
        default=7 * 86400,
        metadata=leaf(CONTROLLER, PASS, key="half_life", form=Form.SECONDS, given=True),
    )
    placement: Preset = field(default=Preset.STANDARD, metadata=leaf(CONTROLLER, PASS, given=True))
    kept_jobs: int = field(default=8, metadata=leaf(CONTROLLER, PASS, form=Form.WHOLE, given=True))


def _limit(key: str = "", form: Form = Form.WHOLE) -> int:
    return field(default=0, metadata=leaf(CONTROLLER, SUBMIT, key=key, form=form))


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a queue; 0 means no limit (for `default_time_limit_s`: the default of the job's workload)."""

    default_time_limit_s: int = _limit("default_time_limit", Form.SECONDS)
    max_time_limit_s: int = _limit("max_time_limit", Form.SECONDS)
    max_running_jobs: int = _limit()
    max_waiting_jobs: int = _limit()
    max_jobs_per_user: int = _limit()
    max_gpus_per_user: int = _limit()
    max_gpus_per_job: int = _limit()
    max_gpu_hours_per_month: int = _limit()


@dataclass(frozen=True, slots=True)
class Queue:
    """A place in the quota tree. `borrow_limit` counts beyond the guarantee; without one for a pool, none is set.
    `lending_limit` is how much of the guarantee others may use; without one for a pool, all of it."""

    name: str = field(metadata=identity())
    parent: str = field(default="", metadata=leaf(CONTROLLER, PASS))
    guarantee: tuple[Share, ...] = field(
        default=(), metadata=rows(TAKEN_OVER, TAKEN_OVER, by=("pool", "gpu_model"))
    )
    borrow_limit: tuple[Share, ...] = field(
        default=(), metadata=rows(TAKEN_OVER, TAKEN_OVER, by=("pool", "gpu_model"))
    )
    lending_limit: tuple[Share, ...] = field(
        default=(), metadata=rows(TAKEN_OVER, TAKEN_OVER, by=("pool", "gpu_model"))
    )
    weight: int = field(default=1, metadata=leaf(CONTROLLER, PASS, form=Form.WHOLE, given=True))
    reclaim: Reclaim = field(default=Reclaim.NEVER, metadata=leaf(CONTROLLER, PASS, given=True))
    limits: QueueLimits = field(default=QueueLimits(), metadata=part())


@dataclass(frozen=True, slots=True)
class Window:
    """A weekly period in the cluster's time zone. Days count from Monday = 0; minutes from midnight.

    `to_minute` is exclusive, at most 1440; one at or before `from_minute` means the next day.
    """

    days: tuple[int, ...] = field(metadata=identity(form=Form.DAYS))
    from_minute: int = field(metadata=identity(key="from", form=Form.DAY_TIME))
    to_minute: int = field(metadata=identity(key="to", form=Form.DAY_TIME))
    limit_watts: int = field(
        metadata=leaf(CONTROLLER, "it is met before the window opens", key="limit_kw", form=Form.KILOWATTS)
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """What a budget or a grant is about; all empty: the whole cluster. At most one is given."""

    site: str = field(default="", metadata=leaf(CONTROLLER))
    pool: str = field(default="", metadata=leaf(CONTROLLER))
    queue: str = field(default="", metadata=leaf(CONTROLLER))


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on power (`domain`, `windows`) or on money (`scope`, micro-dollars per hour and calendar month)."""

    name: str = field(metadata=identity())
    domain: str = field(default="", metadata=leaf(CONTROLLER, SPENDING))
    windows: tuple[Window, ...] = field(
        default=(), metadata=rows(TAKEN_OVER, TAKEN_OVER, by=("days", "from_minute", "to_minute"))
    )
    scope: Scope = field(default=Scope(), metadata=part("applies_to"))
    microusd_per_hour: int = field(
        default=0, metadata=leaf(CONTROLLER, SPENDING, key="usd_per_hour", form=Form.DOLLARS)
    )
    microusd_per_month: int = field(
        default=0, metadata=leaf(CONTROLLER, SPENDING, key="usd_per_month", form=Form.DOLLARS)
    )
    at_limit: tuple[AtLimit, ...] = field(
        default=(), metadata=leaf(CONTROLLER, "it counts from the next time on", form=Form.RANKED)
    )


@dataclass(frozen=True, slots=True)
class Group:
    """People, named by an OIDC claim, a POSIX group or user names."""

    name: str = field(metadata=identity())
    oidc: str = field(default="", metadata=leaf(CONTROLLER, ACCESS))
    posix: str = field(default="", metadata=leaf(CONTROLLER, ACCESS))
    users: tuple[str, ...] = field(default=(), metadata=leaf(CONTROLLER, ACCESS, form=Form.TEXTS))


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for a group, on one queue, pool or site, or on the whole cluster."""

    role: Role = field(metadata=identity())
    to: str = field(metadata=identity())
    on: Scope = field(default=Scope(), metadata=identity())


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what. No grants at all: only the controller's own admin token and its host's users."""

    groups: tuple[Group, ...] = field(
        default=(), metadata=rows(Effect(CONTROLLER, ACCESS), Effect(CONTROLLER, ACCESS), table=True)
    )
    grants: tuple[Grant, ...] = field(
        default=(),
        metadata=rows(Effect(CONTROLLER, ACCESS), Effect(CONTROLLER, ACCESS), by=("role", "to", "on")),
    )
