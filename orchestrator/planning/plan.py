"""The whole plan: what differs, what is done about it in which order, what it does to work, money and power.

Comes in: the wanted file, what was recorded and seen, the catalog, the work, the time. Goes out: `ChangeSet`. Called
by: controller and cli (`plan`, `apply`, `rollback`), simulate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from orchestrator.model.catalog import Catalog
from orchestrator.model.change import Change, ChangeKind, ChangeSet, UpdateClass
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.host import PoolDesired, Sight
from orchestrator.planning.desired import Resolved
from orchestrator.planning.diff import diff
from orchestrator.planning.digest import digest_of, digest_of_plain
from orchestrator.planning.figures import figures
from orchestrator.planning.hosts import drift
from orchestrator.planning.needs import HEAVY, limited, needs_of, retirements
from orchestrator.planning.render import Rendering, is_configured, recorded_as, render
from orchestrator.planning.roster import roster
from orchestrator.planning.steps import steps_of
from orchestrator.planning.strangers import ours_of
from orchestrator.planning.work import effects
from orchestrator.planning.world import NO_CHOICE, Choices, Observed, Recorded, Workload


def plan(
    wanted: ClusterSpec,
    recorded: Recorded,
    observed: Observed,
    catalog: Catalog,
    workload: Workload,
    now_us: int,
    resolved: Resolved,
    choices: Choices = NO_CHOICE,
) -> ChangeSet:
    """What `apply` would do, and why it would refuse. `now_us` is UTC microseconds."""
    nodes = roster(wanted, recorded, observed)
    of_file = _guarded(diff(recorded.spec, wanted), workload)
    rendered = _render(wanted, recorded, resolved, of_file, choices.defer)
    own = tuple(change for one in rendered.values() for change in one.changes)
    ours = ours_of(wanted, recorded.spec, resolved.controller_url)
    final = {name: one.desired for name, one in rendered.items()}
    drifted = drift(nodes, recorded.desired, final, recorded.owed, ours)
    changes = (*of_file, *own, *(one for one in drifted if choices.about(one.nodes)))
    desired = tuple(recorded_as(name, one.desired) for name, one in rendered.items())
    takes_over = bool(of_file) or _differs(desired, recorded.desired)
    done = steps_of(
        takes_over,
        limited(needs_of(wanted.pools, changes, nodes, rendered), choices.only),
        limited(retirements(changes, nodes), choices.only),
        rendered,
        nodes,
        workload,
    )
    return ChangeSet(
        cluster=wanted.name,
        wanted=digest_of(wanted),
        recorded=_recorded_digest(recorded),
        observed=_observed_digest(observed),
        changes=changes,
        steps=done.steps,
        work=effects(done.steps, workload, nodes, wanted, now_us),
        figures=figures(recorded.spec, wanted, catalog, workload, now_us),
        blockers=(*_blockers(changes, choices.consents), *done.stuck),
        unseen=tuple(f"{name}: {why}" for name, why in nodes.unseen.items() if choices.about((name,))),
        desired=desired,
        only=tuple(sorted(choices.only)),
    )


# --- what hosts are to have ------------------------------------------------------------------------------------------


def _render(
    wanted: ClusterSpec, recorded: Recorded, resolved: Resolved, changes: tuple[Change, ...], defer: bool
) -> dict[str, Rendering]:
    """By pool on metal. Where all nodes of a pool are drained for the file anyway, nothing has to be put off."""
    known = {one.pool: one for one in recorded.desired}
    drained = {name for change in changes if change.cls in HEAVY for name in change.nodes}
    return {
        pool.name: render(
            pool,
            known.get(pool.name),
            recorded.spec,
            wanted,
            resolved,
            drained=bool(pool.nodes) and all(name in drained for name in pool.nodes),
            defer=defer,
        )
        for pool in wanted.pools
        if is_configured(wanted, pool)
    }


def _differs(now: tuple[PoolDesired, ...], recorded: tuple[PoolDesired, ...]) -> bool:
    """Whether something is to be recorded anew; pools that are gone are told by the file's own change."""
    known = {one.pool: one.digest for one in recorded}
    return any(known.get(one.pool) != one.digest for one in now)


# --- why apply would refuse ------------------------------------------------------------------------------------------


def _guarded(changes: tuple[Change, ...], workload: Workload) -> tuple[Change, ...]:
    """A queue with jobs in it can't go: they would be nowhere."""
    jobs: dict[str, int] = {}
    queues = [job.queue for job in workload.running] + [job.queue for job in workload.waiting]
    for queue in queues:
        jobs[queue] = jobs.get(queue, 0) + 1
    return tuple(_queue_guarded(change, jobs) for change in changes)


def _queue_guarded(change: Change, jobs: dict[str, int]) -> Change:
    if change.kind is not ChangeKind.REMOVED or not change.path.startswith("queues["):
        return change
    name = change.path.removeprefix("queues[").removesuffix("]")
    if not jobs.get(name):
        return change
    return replace(
        change,
        cls=UpdateClass.REFUSED,
        why=f"{jobs[name]} jobs are in it",
        unblock="let them end, cancel them, or move them to another queue",
    )


def _blockers(changes: tuple[Change, ...], consents: tuple[str, ...]) -> Iterator[str]:
    for change in changes:
        if change.cls is UpdateClass.REFUSED:
            yield f"{change.path}: {change.why}; {change.unblock}"
        elif change.consent and change.consent not in consents:
            yield f"{change.path}: {change.why}; `--consent {change.consent}` of `gangline apply` agrees to it"


# --- what the plan was made from -------------------------------------------------------------------------------------


def _recorded_digest(recorded: Recorded) -> str:
    spec = digest_of(recorded.spec) if recorded.spec is not None else ""
    left = tuple(one.name for one in recorded.left)
    return digest_of((spec, tuple((one.pool, one.digest) for one in recorded.desired), recorded.owed, left))


def _observed_digest(observed: Observed) -> str:
    """What a plan depends on; not when a host was looked at, nor how far its clock is off or how often it booted."""
    seen = [_what_counts(sight) for sight in sorted(observed.sights, key=lambda one: one.host)]
    return digest_of_plain([observed.looked, seen])


def _what_counts(sight: Sight) -> list[Any]:
    facts = sight.facts
    host = (
        []
        if facts is None
        else [facts.machine_id, facts.gpus, facts.reboot_needed, facts.macs, facts.agent_url]
    )
    found = [(one.role, one.kind, one.name, one.value, one.wanted, one.found) for one in sight.drift]
    return [sight.host, sight.reached, host, sight.checked, found]
