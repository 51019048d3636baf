"""The steps of a plan, in the order in which they are carried out.

Comes in: what each node needs, and what runs where. Goes out: `PlanStep`s, and why some nodes can't be taken now.
Called by: plan.

First the controller takes the file over. Then pool by pool: new nodes come in, all at once since no work is on them;
changes in place, first on a few nodes to see that they work; then those for which work must leave, never more at a time
than the pool allows to be away. Nodes that go are last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.cluster import Acceptance, Pool
from orchestrator.model.units import fold
from orchestrator.planning.needs import Needs, Why
from orchestrator.planning.render import Rendering
from orchestrator.planning.roster import Roster
from orchestrator.planning.world import Workload

REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Steps:
    """`stuck` says which nodes can't be taken without having too few ready, in words."""

    steps: tuple[PlanStep, ...]
    stuck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    """Nodes that go through the same kinds of steps together."""

    kinds: tuple[StepKind, ...]
    nodes: tuple[str, ...]
    roles: tuple[str, ...]
    why: str
    reboot: tuple[str, ...] = ()


def steps_of(
    record: bool,
    pools: Sequence[Needs],
    leaving: Sequence[Needs],
    rendered: dict[str, Rendering],
    nodes: Roster,
    workload: Workload,
) -> Steps:
    """All steps. `record`: the controller has something to take over."""
    steps = [PlanStep("record", StepKind.RECORD, "the controller takes the file over")] if record else []
    stuck: list[str] = []
    jobs = _jobs_by_node(workload)
    for needs in pools:
        roles = tuple(role.role for role in rendered[needs.pool.name].desired.roles)
        batches, problem = _pool(needs, roles, nodes, jobs)
        steps += _numbered(needs.pool, batches)
        stuck += problem
    for needs in leaving:
        steps += _numbered(needs.pool, list(_retire(needs, jobs)), prefix="retire")
    return Steps(tuple(steps), tuple(stuck))


def _pool(
    needs: Needs, roles: tuple[str, ...], nodes: Roster, jobs: dict[str, tuple[int, ...]]
) -> tuple[list[_Batch], list[str]]:
    proof = (StepKind.ACCEPT,) if needs.pool.acceptance is Acceptance.REQUIRED else ()
    batches = list(_new(needs, roles, proof))
    batches += _in_place(needs)
    batches += _given_back(needs, proof)
    rolling, stuck = _rolling(needs, roles, proof, nodes, jobs)
    return batches + rolling, stuck


def _new(needs: Needs, roles: tuple[str, ...], proof: tuple[StepKind, ...]) -> Iterator[_Batch]:
    if needs.enrol:
        kinds = (StepKind.ENROL, StepKind.CONFIGURE, *proof)
        yield _Batch(kinds, tuple(needs.enrol), roles, _reasons(needs.enrol.values()))


def _in_place(needs: Needs) -> Iterator[_Batch]:
    """By the roles that run: a few nodes first, then the rest."""
    by_roles: dict[tuple[str, ...], list[str]] = {}
    for name in needs.in_place:
        by_roles.setdefault(needs.roles[name], []).append(name)
    for roles, names in by_roles.items():
        few = needs.pool.update.max_unavailable
        for part in (names[:few], names[few:]):
            if part:
                why = _reasons(needs.in_place[name] for name in part)
                yield _Batch((StepKind.CONFIGURE,), tuple(part), roles, why)


def _given_back(needs: Needs, proof: tuple[StepKind, ...]) -> Iterator[_Batch]:
    if needs.give_back:
        why = "an apply that did not end left them cordoned"
        yield _Batch((*proof, StepKind.UNCORDON), tuple(needs.give_back), (), why)


def _rolling(
    needs: Needs,
    roles: tuple[str, ...],
    proof: tuple[StepKind, ...],
    nodes: Roster,
    jobs: dict[str, tuple[int, ...]],
) -> tuple[list[_Batch], list[str]]:
    """Nodes that are not ready first: taking them costs nothing. Then ready ones, few enough at a time. Those that
    could not be looked at are tried last, so that their failure stops nothing else."""
    kinds = (StepKind.CORDON, StepKind.DRAIN, StepKind.CONFIGURE, *proof, StepKind.UNCORDON)
    lost = [name for name in needs.rolling if name in nodes.unseen]
    down = [name for name in needs.rolling if name not in nodes.unseen and not nodes.ready(name)]
    up = [name for name in needs.rolling if nodes.ready(name)]
    away = sum(1 for name in needs.pool.nodes if _stays_away(name, needs, nodes))
    size = needs.pool.update.max_unavailable - away
    parts = [part for part in (down, *(_parts(up, jobs, size) if size > 0 else []), lost) if part]
    batches = [_rolled(needs, kinds, part, roles) for part in parts]
    return batches, [_stuck(needs.pool, up, away)] if up and size <= 0 else []


def _stays_away(name: str, needs: Needs, nodes: Roster) -> bool:
    """Whether a node of the pool is not ready now and nothing here makes it so. New nodes were never promised."""
    mended = name in needs.rolling and name not in nodes.unseen
    return nodes.joined(name) and not nodes.ready(name) and not mended


def _rolled(needs: Needs, kinds: tuple[StepKind, ...], part: list[str], roles: tuple[str, ...]) -> _Batch:
    why = _reasons(needs.rolling[name] for name in part)
    return _Batch(kinds, tuple(part), roles, why, tuple(name for name in part if name in needs.reboot))


def _stuck(pool: Pool, names: list[str], away: int) -> str:
    return (
        f"pool {pool.name}: {fold(sorted(names))} can't be taken out of work: {away} of its nodes are not ready and "
        f"max_unavailable is {pool.update.max_unavailable}; mend or remove them, or raise max_unavailable"
    )


def _parts(names: list[str], jobs: dict[str, tuple[int, ...]], size: int) -> list[list[str]]:
    """Batches of at most `size`: idle nodes first, and those of a gang in one batch where they fit, so that it is met
    once."""
    by_jobs: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        by_jobs.setdefault(jobs.get(name, ()), []).append(name)
    parts = _cut(by_jobs.pop((), []), size)
    for held in sorted(by_jobs):
        group = by_jobs[held]
        room = next((part for part in parts if len(part) + len(group) <= size), None)
        if room is None:
            parts += _cut(group, size)
        else:
            room += group
    return parts


def _cut(names: list[str], size: int) -> list[list[str]]:
    return [names[at : at + size] for at in range(0, len(names), size)]


def _jobs_by_node(workload: Workload) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for job in workload.running:
        for name in job.nodes:
            found.setdefault(name, []).append(job.job)
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}


def _retire(needs: Needs, jobs: dict[str, tuple[int, ...]]) -> Iterator[_Batch]:
    """Idle nodes first: they wait for nobody's work."""
    kinds = (StepKind.CORDON, StepKind.DRAIN, StepKind.RETIRE)
    idle = tuple(name for name in needs.retire if name not in jobs)
    busy = tuple(name for name in needs.retire if name in jobs)
    for part in filter(None, (idle, busy)):
        yield _Batch(kinds, part, (), _reasons(needs.retire[name] for name in part))


def _reasons(all_of: Iterable[Why]) -> str:
    """The changes that a batch carries out: a few by name."""
    paths = list(dict.fromkeys(path for why in all_of for path in why))
    more = len(paths) - REASONS_SHOWN
    return ", ".join(paths[:REASONS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _numbered(pool: Pool, batches: Sequence[_Batch], prefix: str = "") -> Iterator[PlanStep]:
    for number, batch in enumerate(batches, start=1):
        for kind in _kinds(batch):
            names = batch.reboot if kind is StepKind.REBOOT else batch.nodes
            roles = batch.roles if kind is StepKind.CONFIGURE else ()
            place = ".".join(part for part in (prefix, pool.name, str(number)) if part)
            yield PlanStep(f"{place}.{kind}", kind, batch.why, pool.name, names, roles, number)


def _kinds(batch: _Batch) -> Iterator[StepKind]:
    """Those of the batch, with a reboot after the configuration where a node needs one."""
    for kind in batch.kinds:
        yield kind
        if kind is StepKind.CONFIGURE and batch.reboot:
            yield StepKind.REBOOT
