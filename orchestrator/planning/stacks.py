"""The lasting things of aws sites in a plan: what Pulumi would do there, in which order, and what keeps it from that.

Comes in: a plan of the rest, the specs, what previews found, the work. Goes out: the same plan with changes, steps,
blockers and effects. Called by: whoever plans a cluster with an aws site.

What the file changed is told by the plan's own changes; the resources that follow from it stand in `stacks`. A resource
that differs although the file does not is a change of its own: somebody's hand (drift), or this version of Gangline.
Fixed nodes that are ended or started anew are drained first, few enough at a time; everything else of the site comes
before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.model.change import (
    Change,
    ChangeKind,
    ChangeSet,
    PlanStep,
    Source,
    StepKind,
    UpdateClass,
    WorkEffect,
)
from orchestrator.model.cluster import Acceptance, ClusterSpec, Pool, SiteKind
from orchestrator.model.stack_sight import GONE, StackOp, StackRow, StackSight, short_kind
from orchestrator.planning.digest import digest_of_plain
from orchestrator.planning.stack_digest import stack_digest
from orchestrator.planning.work import fate_of
from orchestrator.planning.world import Choices, Recorded, Workload

KINDS = {
    StackOp.CREATE: ChangeKind.ADDED,
    StackOp.UPDATE: ChangeKind.CHANGED,
    StackOp.REPLACE: ChangeKind.CHANGED,
    StackOp.DELETE: ChangeKind.REMOVED,
}
CLASSES = {
    StackOp.CREATE: UpdateClass.CONTROLLER,
    StackOp.UPDATE: UpdateClass.IN_PLACE,
    StackOp.REPLACE: UpdateClass.REPLACE,
    StackOp.DELETE: UpdateClass.REPLACE,
}


@dataclass(frozen=True, slots=True)
class Around:
    """What the plan of the rest was made from."""

    wanted: ClusterSpec
    recorded: Recorded
    workload: Workload
    choices: Choices
    now_us: int


def with_stacks(plan: ChangeSet, around: Around, sights: Sequence[StackSight]) -> ChangeSet:
    """The plan with what the aws sites need. Without a sight of a site nothing is done there."""
    if not sights:
        return plan
    changes = [change for sight in sights for change in _changes(sight, plan, around)]
    now = [sight for sight in sights if not _waits(sight, around)]
    steps = [step for sight in now for step in _steps(sight, around)]
    record, rest = _split(plan.steps)
    return replace(
        plan,
        observed=digest_of_plain([plan.observed, [_what_counts(sight) for sight in sights]]),
        changes=(*plan.changes, *changes),
        steps=(*record, *steps, *rest),
        work=tuple(sorted((*plan.work, *_effects(steps, around)), key=lambda effect: effect.job)),
        blockers=(*plan.blockers, *(one for sight in sights for one in _blockers(sight, around.choices))),
        unseen=(*plan.unseen, *(f"site {sight.site}: {_failure(sight)}" for sight in sights if sight.error)),
        stacks=tuple(sights),
    )


def aws_sites(spec: ClusterSpec) -> tuple[str, ...]:
    """The sites on which Pulumi keeps things."""
    return tuple(site.name for site in spec.sites if site.kind is SiteKind.AWS)


def _split(steps: tuple[PlanStep, ...]) -> tuple[list[PlanStep], list[PlanStep]]:
    """The steps of the controller, which come before any site's, and the others."""
    own = (StepKind.CONTROLLER, StepKind.RECORD)
    return [step for step in steps if step.kind in own], [step for step in steps if step.kind not in own]


def _failure(sight: StackSight) -> str:
    return f"{sight.error}; {sight.hint}" if sight.hint else sight.error


def _what_counts(sight: StackSight) -> list[object]:
    rows = [[row.op, row.kind, row.name, row.paths] for row in (*sight.rows, *sight.drift)]
    return [sight.site, bool(sight.error), rows]


# --- what differs although the file does not -------------------------------------------------------------------------


def _changes(sight: StackSight, plan: ChangeSet, around: Around) -> Iterator[Change]:
    """What an earlier apply left undone, resources that somebody changed by hand, and those that this version wants
    otherwise for the very same file."""
    if _behind(sight, around) and not _by_file(plan):
        yield Change(
            path=f"stack[{sight.site}]",
            kind=ChangeKind.CHANGED,
            cls=UpdateClass.CONTROLLER,
            source=Source.SPEC,
            old=_counts(sight) or "of another file",
            new="as the file says",
            why="the file was recorded, and the site was not brought to it yet",
        )
    for row in sight.drift:
        yield _change(sight, row, Source.DRIFT, "somebody changed it; `gangline apply` puts it right")
    for row in _own(sight, around):
        own = _change(sight, row, Source.GANGLINE, "this version of Gangline makes it otherwise")
        yield replace(own, deferred=around.choices.defer)


def _by_file(plan: ChangeSet) -> bool:
    """Whether the file changed something, of which resources may be what follows."""
    return any(change.source is Source.SPEC for change in plan.changes)


def _brought(sight: StackSight, around: Around) -> bool:
    """Whether the stack was last brought to what this very file says of it."""
    known = {site.name for site in around.wanted.sites}
    return sight.site in known and sight.spec == stack_digest(around.wanted, sight.site)


def _behind(sight: StackSight, around: Around) -> bool:
    """Whether the stack is not what the file says of it; also where nothing but its facts has to follow."""
    stays = any(site.name == sight.site for site in around.wanted.sites)
    return not sight.error and (not _brought(sight, around) if stays else bool(sight.rows))


def _own(sight: StackSight, around: Around) -> tuple[StackRow, ...]:
    """What is to be changed although nobody has changed the file or touched it."""
    by_hand = {(row.kind, row.name) for row in sight.drift}
    if not _brought(sight, around):
        return ()
    return tuple(row for row in sight.rows if (row.kind, row.name) not in by_hand)


def _change(sight: StackSight, row: StackRow, source: Source, why: str) -> Change:
    paths = ", ".join(row.paths)
    return Change(
        path=f"stack[{sight.site}].{short_kind(row.kind)}[{row.name}]",
        kind=KINDS[row.op],
        cls=CLASSES[row.op],
        source=source,
        old="" if row.op is StackOp.CREATE else paths or "present",
        new="" if row.op is StackOp.DELETE else "as the file says",
        why=why,
        nodes=(row.node,) if row.node else (),
    )


def _waits(sight: StackSight, around: Around) -> bool:
    """Whether all that would be done is put off."""
    return around.choices.defer and not sight.drift and len(_own(sight, around)) == len(sight.rows)


# --- what keeps an apply from it -------------------------------------------------------------------------------------


def _blockers(sight: StackSight, choices: Choices) -> Iterator[str]:
    for fault in sight.faults:
        yield f"site {sight.site}: {fault}"
    for row in sight.rows:
        if row.consent and row.consent not in choices.consents:
            yield f"site {sight.site}: {_loss(row)}; `--consent {row.consent}` of `gangline apply` agrees to it"


def _loss(row: StackRow) -> str:
    gone = row.op is StackOp.DELETE
    if row.data:
        what = "deleted" if gone else "replaced by an empty one"
        return f"storage {row.name} would be {what}, with all that is in it"
    told = f" for {', '.join(row.paths)}" if row.paths else ""
    return f"the controller's instance would be {'ended' if gone else f'replaced{told}'}: no controller runs meanwhile"


# --- steps -----------------------------------------------------------------------------------------------------------


def _steps(sight: StackSight, around: Around) -> Iterator[PlanStep]:
    """All but fixed nodes with work first; then those, pool by pool and batch by batch."""
    if sight.error or not (sight.rows or sight.drift or _behind(sight, around)):
        return
    ended = {row.node: row.op for row in sight.rows if row.node and row.op in GONE}
    batches = list(_batches(ended, around))
    new = tuple(row.node for row in sight.rows if row.node and row.op is StackOp.CREATE)
    why = _counts(sight) or "its facts follow the file"
    yield PlanStep(f"stack.{sight.site}", StepKind.STACK, why, site=sight.site, nodes=new)
    yield from _accepted(f"stack.{sight.site}", new, 0, around)
    for number, (pool, names) in enumerate(batches, start=1):
        yield from _batch(sight.site, number, pool, names, ended, around)


def _counts(sight: StackSight) -> str:
    """How many resources of each kind of change, in words."""
    ops = [row.op for row in sight.rows]
    told = [f"{ops.count(op)} to {op}" for op in StackOp if op in ops]
    return ", ".join([*told, *([f"{len(sight.drift)} to put right"] if sight.drift else [])])


def _batches(ended: dict[str, StackOp], around: Around) -> Iterator[tuple[Pool, tuple[str, ...]]]:
    """Nodes that leave, all of a pool at once; those that come back, few enough at a time."""
    old = around.recorded.spec.pools if around.recorded.spec is not None else ()
    pools = {pool.name: pool for pool in (*old, *around.wanted.pools)}
    owner = {name: pool.name for pool in (*around.wanted.pools, *old) for name in pool.nodes}
    for pool in pools.values():
        mine = [name for name in ended if owner.get(name) == pool.name]
        leaving = tuple(name for name in mine if ended[name] is StackOp.DELETE)
        renewed = [name for name in mine if ended[name] is StackOp.REPLACE]
        if leaving:
            yield pool, leaving
        for at in range(0, len(renewed), pool.update.max_unavailable):
            yield pool, tuple(renewed[at : at + pool.update.max_unavailable])


def _batch(
    site: str, number: int, pool: Pool, names: tuple[str, ...], ended: dict[str, StackOp], around: Around
) -> Iterator[PlanStep]:
    place = f"stack.{site}.{pool.name}.{number}"
    back = tuple(name for name in names if ended[name] is StackOp.REPLACE)
    why = "being replaced" if back else "leaving the file"
    for kind in (StepKind.CORDON, StepKind.DRAIN):
        yield PlanStep(f"{place}.{kind}", kind, why, pool.name, names, batch=number)
    yield PlanStep(f"{place}.stack", StepKind.STACK, why, pool.name, names, batch=number, site=site)
    yield from _accepted(place, back, number, around)
    if back:
        yield PlanStep(f"{place}.uncordon", StepKind.UNCORDON, why, pool.name, back, batch=number)


def _accepted(place: str, names: tuple[str, ...], number: int, around: Around) -> Iterator[PlanStep]:
    """Until the nodes have come in and are proved, by pool."""
    for pool in around.wanted.pools:
        mine = tuple(name for name in names if name in pool.nodes)
        if mine and pool.acceptance is Acceptance.REQUIRED:
            at = f"{place}.{pool.name}.accept" if not number else f"{place}.accept"
            yield PlanStep(at, StepKind.ACCEPT, "its nodes come in", pool.name, mine, batch=number)


def _effects(steps: Iterable[PlanStep], around: Around) -> Iterator[WorkEffect]:
    """What draining fixed nodes does to the work on them."""
    pools = {pool.name: pool for pool in around.wanted.pools}
    if around.recorded.spec is not None:
        pools = {pool.name: pool for pool in around.recorded.spec.pools} | pools
    drained = {name: step for step in steps if step.kind is StepKind.DRAIN for name in step.nodes}
    for job in around.workload.running:
        names = tuple(name for name in job.nodes if name in drained)
        if names:
            step = drained[names[0]]
            yield fate_of(job, names, step, pools[step.pool].update.drain, around.now_us)


# --- the end ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """A cluster on its way out. `kept`: what the controller records, without a node; `rest`: without any aws site."""

    spec: ClusterSpec
    kept: ClusterSpec
    rest: ClusterSpec

    def steps(self, sites: Sequence[str], nodes: Mapping[str, Sequence[str]]) -> Iterator[PlanStep]:
        """Work leaves the bought nodes (by pool) as their pools say; then each site is ended, if all work has left."""
        for site in sites:
            gone: tuple[str, ...] = ()
            for pool in self.spec.pools:
                names = tuple(nodes.get(pool.name, ())) if pool.site == site else ()
                gone += names
                for kind in (StepKind.CORDON, StepKind.DRAIN) if names else ():
                    place = f"stack.{site}.{pool.name}.1.{kind}"
                    yield PlanStep(place, kind, "the cluster ends", pool.name, names, batch=1)
            yield PlanStep(f"stack.{site}", StepKind.STACK, "the cluster ends", site=site, nodes=gone)


def ending(spec: ClusterSpec) -> Ending:
    """Of the whole cluster: listed nodes go, bought ones are given back as soon as nothing runs on them."""
    aws = aws_sites(spec)
    kept = replace(spec, pools=tuple(_emptied(spec, pool) for pool in spec.pools))
    rest = replace(
        spec,
        sites=tuple(site for site in spec.sites if site.name not in aws),
        pools=tuple(pool for pool in spec.pools if pool.site not in aws),
    )
    return Ending(spec, kept, rest)


def _emptied(spec: ClusterSpec, pool: Pool) -> Pool:
    if spec.site_of(pool).kind is SiteKind.LOCAL:
        return pool
    size = replace(pool.size, min=0, max=0, idle_s=0) if pool.size is not None else None
    return replace(pool, nodes=(), size=size)
