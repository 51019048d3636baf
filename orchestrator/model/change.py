"""A plan: what differs between the cluster that is wanted, the one that was recorded and the one that was seen.

Comes in: what `planning.plan` found. Goes out: `ChangeSet`, which people and pull requests read, `plan --out` saves
and apply follows. Called by: planning (makes), provision and controller (follow, record), api, cli (show).

A change is about one value. Its class says what it takes to carry it out; classes are ordered from the mildest to the
one that is never done.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word
from orchestrator.model.host import PoolDesired
from orchestrator.model.stack_sight import StackSight


class UpdateClass(Word):
    """What it takes to carry a change out."""

    CONTROLLER = "controller-only"  # the controller takes it over; no node hears of it
    IN_PLACE = "in-place"  # on the node, while work runs
    RECONFIGURE = "drain-and-reconfigure"  # the node's work must leave first
    REPLACE = "replace"  # the node leaves, and another or the same comes back as a new one
    DESTROYS = "destroys-data"  # as REPLACE or IN_PLACE, and data is lost: needs a consent by name
    REFUSED = "refused"  # never done by a change of the file


class Source(Word):
    """What a change comes from."""

    SPEC = "spec"  # the file differs from what was recorded
    DRIFT = "drift"  # a host differs from what was recorded
    GANGLINE = "gangline"  # this version wants something else for the same file


class ChangeKind(Word):
    """What happens to the value."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Change:
    """One value: `path` in the words of the file (`pools[h100].gpu.count`) or of a host
    (`host[h1].package[chrony].held`).

    `old` and `new` are texts in the units of the file, empty where absent. `pool` and `nodes` are what it touches (none
    for CONTROLLER). `unblock` says what would let a refused one pass; `consent` is the name to give for
    data loss and for what else a person must agree to.
    A `deferred` one is shown and left alone until its nodes are drained for another reason.
    """

    path: str
    kind: ChangeKind
    cls: UpdateClass
    source: Source
    old: str
    new: str
    why: str = ""
    unblock: str = ""
    consent: str = ""
    pool: str = ""
    nodes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # that carry it out on the nodes
    deferred: bool = False


class StepKind(Word):
    """What a step does. A batch of nodes goes through those of them that it needs, in this order."""

    CONTROLLER = (
        "controller"  # the role of the controller's own host runs; it ends when the controller answers
    )
    RECORD = "record"  # the controller takes the wanted cluster over
    STACK = (
        "stack"  # Pulumi makes the lasting things of a site what the file says, but for nodes of later steps
    )
    ENROL = "enrol"  # let new hosts in: join token, agent's config
    CORDON = "cordon"
    DRAIN = "drain"
    CONFIGURE = "configure"  # the roles run
    REBOOT = "reboot"
    ACCEPT = "accept"  # the proof that the node is what the spec says
    UNCORDON = "uncordon"
    RETIRE = "retire"  # stop the agent and forget the node


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step over some hosts of one pool, or over what lasts of an aws `site`; `id` is unique in the plan and stable
    for the same plan. The nodes of a STACK step are those that it may end or start anew."""

    id: str
    kind: StepKind
    why: str
    pool: str = ""
    nodes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    batch: int = 0
    site: str = ""


class WorkFate(Word):
    """What becomes of a running job."""

    DELAYED = "delayed"  # it waits longer to start, or its nodes come back later
    DRAINED = "drained"  # its nodes take nothing new; it ends by itself before the deadline
    STOPPED = "stopped"  # it outlives the deadline, and the pool's policy ends or checkpoints it
    BLOCKS = "blocks"  # it outlives the deadline, and the policy waits for it


@dataclass(frozen=True, slots=True)
class WorkEffect:
    """What the plan does to one job. `until_us` is when it ends at the latest, 0 if nobody knows."""

    job: int
    owner: str
    fate: WorkFate
    nodes: tuple[str, ...]
    until_us: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A figure as it is at least, as expected, and at most."""

    floor: int
    expected: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Money in micro-dollars per hour and IT watts, before and after; `binds` names the budget or domain with the
    least headroom after it, `headroom` in its own unit (`watts` or `microusd_per_hour`), negative when exceeded."""

    cost_now: Span
    cost_then: Span
    watts_now: Span
    watts_then: Span
    binds: str = ""
    headroom: int = 0
    headroom_unit: str = ""
    uncounted: tuple[str, ...] = ()  # costs that are not in the figures, in words
    assumed: tuple[str, ...] = ()  # prices that are taken dearer than their source says, in words


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The whole plan. It applies only if the world still matches: `recorded` and `observed` are digests of what it was
    made from, `wanted` of the file. `blockers` are reasons in words why apply would refuse; empty if it would not.
    `desired` is what hosts are to have afterwards: what RECORD records and CONFIGURE brings about. `only`: the hosts
    that may be acted on, all if empty; `changes` are the file's all the same. `stacks`: what becomes of the lasting
    things of aws sites."""

    cluster: str
    wanted: str
    recorded: str
    observed: str
    changes: tuple[Change, ...] = ()
    steps: tuple[PlanStep, ...] = ()
    work: tuple[WorkEffect, ...] = ()
    figures: Figures | None = None
    blockers: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # hosts that could not be looked at, with the reason
    desired: tuple[PoolDesired, ...] = ()
    only: tuple[str, ...] = ()
    stacks: tuple[StackSight, ...] = ()

    def empty(self) -> bool:
        """Whether there is nothing to do now; deferred changes wait."""
        return all(change.deferred for change in self.changes)

    def own(self) -> tuple[Change, ...]:
        """What this version of Gangline would change now although the file does not: never applied unseen."""
        return tuple(one for one in self.changes if one.source is Source.GANGLINE and not one.deferred)
