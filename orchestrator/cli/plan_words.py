"""A plan and a drift report as people read them: what changes, where, why, whose work it touches, what it costs.

Comes in: a `ChangeSet`. Goes out: text for a terminal, or markdown for a pull request. Called by: change_cmd.

Hosts that get the same change stand under one line. Everything that a plan says has a place here; nothing that does not
change is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.cli.text import fold_names, plural, safe, span
from orchestrator.model.change import (
    Change,
    ChangeKind,
    ChangeSet,
    Figures,
    PlanStep,
    Source,
    Span,
    StepKind,
    UpdateClass,
    WorkEffect,
    WorkFate,
)
from orchestrator.model.stack_sight import StackOp, StackRow, StackSight, short_kind

SIGN = {ChangeKind.ADDED: "+", ChangeKind.CHANGED: "~", ChangeKind.REMOVED: "-"}
CLASS = {
    UpdateClass.CONTROLLER: "the controller alone",
    UpdateClass.IN_PLACE: "in place",
    UpdateClass.RECONFIGURE: "drain and reconfigure",
    UpdateClass.REPLACE: "replace",
    UpdateClass.DESTROYS: "destroys data",
    UpdateClass.REFUSED: "refused",
}
FATE = {
    WorkFate.DELAYED: "delayed",
    WorkFate.DRAINED: "drained: it ends by itself before the deadline",
    WorkFate.STOPPED: "stopped at the deadline",
    WorkFate.BLOCKS: "not stopped: the change waits for it",
}
SOURCE = {Source.SPEC: "", Source.DRIFT: "drift", Source.GANGLINE: "this version of Gangline"}
_ON_HOST = re.compile(r"host\[[^\]]*\]\.?")
MOST_JOBS = 20
LONGEST_VALUE = 60


def words(plan: ChangeSet) -> str:
    """The plan as text."""
    blocks = [
        _head(plan),
        *_pools(plan),
        *(_stack(sight) for sight in plan.stacks),
        _only(plan),
        _blockers(plan),
        _unseen(plan),
        _work(plan.work),
        _figures(plan.figures),
    ]
    blocks += [_steps(plan.steps)]
    return "\n\n".join(block for block in blocks if block)


def markdown(plan: ChangeSet) -> str:
    """The plan for a pull request: the head as a title, the rest as it stands."""
    head, *rest = words(plan).split("\n\n")
    body = "\n\n".join(rest)
    return f"### {head}\n" + (f"\n```diff\n{_as_diff(body)}\n```" if body else "")


def _as_diff(text: str) -> str:
    """Signs at the start of lines, where a reader of diffs colours them."""
    return "\n".join(
        re.sub(r"^  ([+~-]) ", lambda found: f"{found[1].replace('~', '!')} ", line)
        for line in text.splitlines()
    )


def _head(plan: ChangeSet) -> str:
    now = [change for change in plan.changes if not change.deferred]
    if not plan.changes:
        return f"cluster {safe(plan.cluster)}: nothing to change"
    if not now:
        return f"cluster {safe(plan.cluster)}: nothing to change now; {plural(len(plan.changes), 'change')} can wait"
    counts = [
        f"{sum(change.cls is cls for change in now)} {CLASS[cls]}"
        for cls in UpdateClass
        if any(change.cls is cls for change in now)
    ]
    return f"cluster {safe(plan.cluster)}: {plural(len(now), 'change')} ({', '.join(counts)})"


# --- changes ---------------------------------------------------------------------------------------------------------


def _pools(plan: ChangeSet) -> list[str]:
    """One block for what only the controller hears of, one for its host, one for each pool."""
    blocks: dict[str, list[Change]] = {}
    for change in plan.changes:
        blocks.setdefault(_place(change), []).append(change)
    return [_block(title, changes) for title, changes in blocks.items()]


def _place(change: Change) -> str:
    if change.pool:
        return f"pool {safe(change.pool)}"
    return "controller host" if change.nodes and change.cls is UpdateClass.CONTROLLER else "the whole cluster"


def _block(title: str, changes: Sequence[Change]) -> str:
    return "\n".join([title, *(line for group in _alike(changes) for line in _lines(group))])


def _alike(changes: Iterable[Change]) -> list[list[Change]]:
    """Changes that differ in their host alone, together."""
    groups: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        key = (
            _ON_HOST.sub("", change.path),
            change.old,
            change.new,
            change.cls,
            change.source,
            change.deferred,
        )
        groups.setdefault(key, []).append(change)
    return list(groups.values())


def _lines(group: Sequence[Change]) -> list[str]:
    first = group[0]
    nodes = list(dict.fromkeys(name for change in group for name in change.nodes))
    tags = [CLASS[first.cls]] + ([SOURCE[first.source]] if SOURCE[first.source] else [])
    tags += ["can wait"] if first.deferred else []
    where = f"  on {fold_names(nodes)}" if nodes else ""
    path = _ON_HOST.sub("", first.path)
    lines = [f"  {SIGN[first.kind]} {safe(path)}: {_values(first)}  [{', '.join(tags)}]{safe(where)}"]
    lines += [f"      {safe(first.why)}"] if first.why else []
    lines += [f"      to let it pass: {safe(first.unblock)}"] if first.unblock else []
    lines += [f"      it needs --consent {safe(first.consent)}"] if first.consent else []
    return lines


def _values(change: Change) -> str:
    old, new = (safe(_short(value)) for value in (change.old, change.new))
    if change.kind is ChangeKind.ADDED:
        return new or "added"
    if change.kind is ChangeKind.REMOVED:
        return f"{old} -> absent" if old else "removed"
    return f"{old or 'absent'} -> {new or 'absent'}"


def _short(value: str) -> str:
    """Texts of files are compared by a person in the file, not here; of one long line the beginning is shown."""
    lines = value.splitlines()
    if len(lines) > 1:
        return f"({plural(len(lines), 'line')})"
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 1]}…"


def _stack(sight: StackSight) -> str:
    """What Pulumi would do on a site: one line a resource, those of one kind that only come in one line."""
    rows = list(dict.fromkeys((*sight.rows, *sight.drift)))
    lines = [f"  ? {safe(warning)}" for warning in sight.warnings]
    if not rows and not lines:
        return ""
    new: dict[str, list[str]] = {}
    for row in rows:
        if row.op is StackOp.CREATE:
            new.setdefault(row.kind, []).append(row.name)
        else:
            lines.append(_resource(row))
    lines += [f"  + {safe(short_kind(kind))} {safe(fold_names(names))}" for kind, names in new.items()]
    counts = [
        f"{sum(row.op is op for row in rows)} to {op}" for op in StackOp if any(row.op is op for row in rows)
    ]
    return "\n".join([f"site {safe(sight.site)}, by Pulumi: {', '.join(counts) or 'nothing'}", *lines])


def _resource(row: StackRow) -> str:
    paths = f": {', '.join(row.paths)}" if row.paths else ""
    replaced = " is replaced" if row.op is StackOp.REPLACE else ""
    data = "; the data in it is lost" if row.data and row.op is not StackOp.UPDATE else ""
    sign = {StackOp.UPDATE: "~", StackOp.REPLACE: "~", StackOp.DELETE: "-"}[row.op]
    return safe(f"  {sign} {short_kind(row.kind)} {row.name}{replaced}{paths}{data}")


def _only(plan: ChangeSet) -> str:
    if not plan.only:
        return ""
    return f"only on {safe(fold_names(list(plan.only)))}, as --limit says: all other hosts stay as they are"


def _blockers(plan: ChangeSet) -> str:
    lines = [f"  ! {safe(reason)}" for reason in plan.blockers]
    return "\n".join(["apply would refuse this:", *lines]) if lines else ""


def _unseen(plan: ChangeSet) -> str:
    lines = [f"  ? {safe(reason)}" for reason in plan.unseen]
    return "\n".join(["could not be looked at:", *lines]) if lines else ""


# --- work, money, steps ----------------------------------------------------------------------------------------------


def _work(effects: Sequence[WorkEffect]) -> str:
    if not effects:
        return ""
    lines = [
        f"  job {effect.job} of {safe(effect.owner)} on {safe(fold_names(list(effect.nodes)))}: {FATE[effect.fate]}"
        + (f" ({safe(effect.why)})" if effect.why else "")
        for effect in effects[:MOST_JOBS]
    ]
    more = len(effects) - len(lines)
    lines += [f"  and {plural(more, 'more job', 'more jobs')}"] if more else []
    return "\n".join(["running work:", *lines])


def _figures(figures: Figures | None) -> str:
    if figures is None:
        return ""
    lines = []
    if figures.watts_now != figures.watts_then or figures.watts_then.ceiling:
        lines.append(_move("power", figures.watts_now, figures.watts_then, 1000, "kW"))
    if figures.cost_now != figures.cost_then or figures.cost_then.ceiling:
        lines.append(_move("cost", figures.cost_now, figures.cost_then, 1_000_000, "$/h"))
    if figures.binds:
        unit, scale = ("kW", 1000) if figures.headroom_unit == "watts" else ("$/h", 1_000_000)
        left = figures.headroom / scale
        words = f"{left:,.1f} {unit} left" if left >= 0 else f"exceeded by {-left:,.1f} {unit}"
        lines.append(f"  tightest: {safe(figures.binds)}, {words} at the ceiling")
    lines += [f"  assumed: {safe(what)}" for what in figures.assumed]
    lines += [f"  not counted: {safe(what)}" for what in figures.uncounted]
    return "\n".join(["at least, expected, at most:", *lines]) if lines else ""


def _move(name: str, now: Span, then: Span, scale: int, unit: str) -> str:
    def shown(value: Span) -> str:
        return ", ".join(f"{each / scale:,.1f}" for each in (value.floor, value.expected, value.ceiling))

    if now == then:
        return f"  {name}: {shown(now)} {unit}, unchanged"
    return f"  {name}: {shown(now)} -> {shown(then)} {unit}"


def _steps(steps: Sequence[PlanStep]) -> str:
    """Each batch in one line, in the order in which things happen."""
    lines = [f"  controller host: configure ({safe('+'.join(step.roles))})" for step in steps if _hosts(step)]
    batches: dict[tuple[str, int, str], list[PlanStep]] = {}
    for step in steps:
        if _hosts(step):
            continue
        batches.setdefault((step.pool, step.batch, "" if step.pool else step.site), []).append(step)
    for (pool, batch, site), found in batches.items():
        nodes = list(dict.fromkeys(name for step in found for name in step.nodes))
        kinds = ", ".join(dict.fromkeys(_step_words(step) for step in found))
        place = f"pool {pool}" + (f" batch {batch}" if batch else "") if pool else _place_of(site)
        lines.append(safe(f"  {place}: {kinds}" + (f": {fold_names(nodes)}" if nodes else "")))
    return "\n".join(["steps:", *lines]) if lines else ""


def _place_of(site: str) -> str:
    return f"site {site}" if site else "controller"


def _hosts(step: PlanStep) -> bool:
    """Whether it is about the controller's own host."""
    return step.kind is StepKind.CONTROLLER


def _step_words(step: PlanStep) -> str:
    if step.kind is StepKind.STACK and not step.pool:
        return f"{step.kind} ({step.why})"
    return (
        f"{step.kind} ({'+'.join(step.roles)})"
        if step.kind is StepKind.CONFIGURE and step.roles
        else str(step.kind)
    )


def lasted(seconds: float) -> str:
    """How long it took."""
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)
