"""The gangs of a job document: the job itself, or its groups, and what contradicts between the two forms.

Comes in: a `JobSpecDocument` of which parts may be `UNKNOWN`. Goes out: faults, and what checks of one gang look at.
Called by: checks_job.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.job import LaunchKind
from orchestrator.spec.context import given, rows, run
from orchestrator.spec.reading import Found
from orchestrator.wire.faults import Loc, problem
from orchestrator.wire.job import GroupDocument, JobSpecDocument
from orchestrator.wire.leaf import UNKNOWN

Gang = JobSpecDocument | GroupDocument

MOST_GROUPS = 8  # so that every order of them, and every choice of their pools, can be tried
_SPEC: Loc = ("spec",)
_INSIDE = ("nodes", "per_node", "tasks_per_node", "tasks", "per_task")  # of a group, where there are groups
_BESIDE = {
    "elastic": "a gang of groups has one size",
    "compat": "Slurm's variables know no groups: read GANGLINE_GROUP and its like",
}


def gangs(spec: JobSpecDocument) -> list[tuple[Loc, Gang]]:
    """Each gang of equal units with its place in the document: the groups that could be read, or else the job."""
    if spec is UNKNOWN or spec.groups is UNKNOWN:
        return []
    if not spec.groups:
        return [(_SPEC, spec)]
    return [((*_SPEC, "groups", index), one) for index, one in rows(spec.groups)]


def check_groups(spec: JobSpecDocument) -> list[Found]:
    """What does not go with groups, and names that two of them have."""
    if spec is UNKNOWN or spec.groups is UNKNOWN or not spec.groups:
        return []
    return list(run((_one_form, _launch, _segments, _names, _count), spec))


def _one_form(spec: JobSpecDocument) -> Iterator[Found]:
    """Nodes and tasks are those of the groups. One fault tells it for all of them."""
    advice = dict.fromkeys(_INSIDE, "give it in each group that it is about") | _BESIDE
    for field in given(spec, *advice):
        if getattr(spec, field) is not UNKNOWN:
            yield _not_with((*_SPEC, field), field, advice[field])
            return


def _launch(spec: JobSpecDocument) -> Iterator[Found]:
    if spec.launch.kind == LaunchKind.BATCH:
        yield _not_with((*_SPEC, "launch"), "launch kind batch", "use launch kind ranks or launcher")


def _segments(spec: JobSpecDocument) -> Iterator[Found]:
    if spec.topology.segment is not None:
        advice = "say which level all of it must stay in: topology.required"
        yield _not_with((*_SPEC, "topology", "segment"), "segment", advice)


def _not_with(loc: Loc, field: str, advice: str) -> Found:
    return Found(loc, problem("job.not-with-form", field=field, form="groups", advice=advice), "key")


def _names(spec: JobSpecDocument) -> Iterator[Found]:
    seen: dict[str, bool] = {}
    for index, one in rows(spec.groups):
        if one.name is UNKNOWN:
            continue
        if one.name in seen:
            found = problem("spec.duplicate-name", name=one.name, what="group")
            yield Found((*_SPEC, "groups", index, "name"), found)
        seen[one.name] = True


def _count(spec: JobSpecDocument) -> Iterator[Found]:
    if len(spec.groups) > MOST_GROUPS:
        found = problem("job.too-many-groups", count=len(spec.groups), most=MOST_GROUPS)
        yield Found((*_SPEC, "groups"), found, "key")
