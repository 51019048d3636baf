"""What differs between the recorded file and the wanted one, with what it takes.

Comes in: two specs. Goes out: `Change`s of source `spec`, in the order of the file's sections and of names; nothing for
another order, format or spelling of the same. Called by: plan, rollback.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.change import Change, ChangeKind, Source, UpdateClass
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.units import fold
from orchestrator.planning.compare import Case, compare
from orchestrator.planning.reach import Reacher
from orchestrator.planning.rules import Judged, judge


def diff(recorded: ClusterSpec | None, wanted: ClusterSpec) -> tuple[Change, ...]:
    """All changes; without a record, all that the file adds to an empty cluster of its name."""
    before = _nothing_of(wanted) if recorded is None else recorded
    if before is wanted:
        return ()
    reacher = Reacher(before.pools, wanted.pools)
    changes = tuple(_change(Judged(case, before, wanted), reacher) for case in compare(before, wanted))
    return _moved(changes, before, wanted)


def _nothing_of(wanted: ClusterSpec) -> ClusterSpec:
    """A cluster without anything: what can't be changed later is as it is wanted from the start."""
    return ClusterSpec(wanted.name, controller=wanted.controller, identity=wanted.identity, queues=())


def _change(judged: Judged, reacher: Reacher) -> Change:
    case: Case = judged.case
    verdict = judge(judged)
    effect = verdict.effect
    reach = reacher.reach(judged, effect.cls)
    return Change(
        path=case.path,
        kind=case.kind,
        cls=effect.cls,
        source=Source.SPEC,
        old=case.old_text,
        new=case.new_text,
        why=effect.why,
        unblock=effect.unblock,
        consent=verdict.consent,
        pool=reach.pool,
        nodes=reach.nodes,
        roles=reach.roles,
    )


def _moved(changes: tuple[Change, ...], before: ClusterSpec, after: ClusterSpec) -> tuple[Change, ...]:
    """A node that leaves one pool for another goes through a drain, not through forgetting and enrolling."""
    was, will = pool_of_nodes(before), pool_of_nodes(after)
    moved = {name: (was[name], pool) for name, pool in will.items() if was.get(name, pool) != pool}
    if not moved:
        return changes
    return tuple(_as_move(change, moved) for change in changes)


def pool_of_nodes(spec: ClusterSpec) -> dict[str, str]:
    """The pool of each node."""
    return {name: pool.name for pool in spec.pools for name in pool.nodes}


def _as_move(change: Change, moved: dict[str, tuple[str, str]]) -> Change:
    if not change.pool or not change.path.startswith("pools["):
        return change
    names = [name for name in change.nodes if name in moved]
    leaves = [name for name in names if moved[name][0] == change.pool]
    comes = [name for name in names if moved[name][1] == change.pool]
    if leaves and change.kind is ChangeKind.REMOVED:
        to = ", ".join(dict.fromkeys(moved[name][1] for name in leaves))
        return replace(change, why=f"{fold(leaves)} goes to pool {to}: its work leaves first")
    if comes and change.kind is ChangeKind.ADDED:
        where = ", ".join(dict.fromkeys(moved[name][0] for name in comes))
        why = f"{fold(comes)} comes from pool {where}: its work leaves first, then it is configured and proved anew"
        return replace(change, cls=UpdateClass.RECONFIGURE, why=why)
    return change
