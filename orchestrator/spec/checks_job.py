"""Checks of a job document: by itself, and against the cluster that it is meant for.

Comes in: a `JobDocument` of which parts may be `UNKNOWN`, and for the second kind a `ClusterSpec`. Goes out: faults.
Called by: `load`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec, Market, Pool
from orchestrator.model.job import LaunchKind
from orchestrator.model.need import known_levels
from orchestrator.spec.checks_groups import Gang, check_groups, gangs
from orchestrator.spec.context import given, rows, run, sure, twice
from orchestrator.spec.reading import Found
from orchestrator.wire.faults import Loc, plain, problem, suggestion
from orchestrator.wire.job import CheckpointBy, JobDocument, JobSpecDocument, ResourcesDocument
from orchestrator.wire.leaf import UNKNOWN
from orchestrator.wire.quantities import seconds_text

SPOT_NOTICE_S = 120  # AWS gives two minutes between the interruption notice of a spot instance and its end

_SPEC: Loc = ("spec",)
_NODES_ONLY = ("nodes", "per_node", "tasks_per_node", "elastic")

_INSTEAD = {
    "nodes": "with tasks, nodes are chosen by Gangline; for so many on each node, use nodes and tasks_per_node",
    "tasks_per_node": "it goes with nodes: give nodes instead of tasks",
}


def check_job_alone(document: JobDocument) -> list[Found]:
    """What contradicts inside one job document."""
    checks = (_elastic, _gpu_power, _checkpoint, _needs, _segments, _index)
    found = list(run(checks, document.spec))
    for loc, gang in gangs(document.spec):
        found += run((_form, _gpus), gang, loc)
        found += run((_launch,), document.spec, gang, loc)
    return [*found, *check_groups(document.spec)]


def _form(gang: Gang, loc: Loc) -> Iterator[Found]:
    """The gang is made of nodes or of tasks."""
    if gang.tasks is UNKNOWN:
        return  # misspelt or no number: what goes with it can be said when it is one
    if "tasks" in gang.model_fields_set:
        for field in _known(gang, *_NODES_ONLY):
            yield _not_with(loc, field, "tasks", _INSTEAD.get(field, "with tasks, use per_task"))
            return
    elif _known(gang, "per_task"):
        form = "nodes" if "nodes" in gang.model_fields_set else "a job without tasks"
        yield _not_with(loc, "per_task", form, "add tasks, or use per_node")


def _known(gang: Gang, *fields: str) -> list[str]:
    """Which of them the file gives, without those whose fault, such as a misspelt key, was told already."""
    return [field for field in given(gang, *fields) if getattr(gang, field) is not UNKNOWN]


def _not_with(loc: Loc, field: str, form: str, advice: str) -> Found:
    return Found((*loc, field), problem("job.not-with-form", field=field, form=form, advice=advice), "key")


def _launch(spec: JobSpecDocument, gang: Gang, loc: Loc) -> Iterator[Found]:
    """A launcher starts once on each node and makes the ranks itself."""
    if spec.launch.kind != LaunchKind.LAUNCHER:
        return
    for field in _known(gang, "tasks", "tasks_per_node"):
        advice = "it starts once per node: give nodes, or use launch kind ranks"
        yield _not_with(loc, field, "launch kind launcher", advice)
        return


def _elastic(spec: JobSpecDocument) -> Iterator[Found]:
    if spec.elastic is None or "tasks" in spec.model_fields_set or spec.groups:
        return
    nodes = spec.nodes if spec.nodes is not None else 1
    if spec.elastic.min_nodes > nodes:
        values = {"low_name": "min_nodes", "low": spec.elastic.min_nodes, "high_name": "nodes", "high": nodes}
        yield Found((*_SPEC, "elastic", "min_nodes"), problem("spec.min-over-max", **values))


def _gpu_power(spec: JobSpecDocument) -> Iterator[Found]:
    low, high = spec.gpu_power.min_watts, spec.gpu_power.max_watts
    if low is not None and high is not None and low > high:
        values = {"low_name": "min_watts", "low": low, "high_name": "max_watts", "high": high}
        yield Found((*_SPEC, "gpu_power", "min_watts"), problem("spec.min-over-max", **values))


def _checkpoint(spec: JobSpecDocument) -> Iterator[Found]:
    """A job that writes its checkpoint at a signal must say which."""
    checkpoint = spec.checkpoint
    if checkpoint is not None and checkpoint.by == CheckpointBy.SIGNAL and checkpoint.stop is None:
        advice = "say which signal makes it write one, and how long that may take"
        found = problem("spec.missing-field", field="stop", advice=advice)
        yield Found((*_SPEC, "checkpoint", "stop"), found, "parent")


def _needs(spec: JobSpecDocument) -> Iterator[Found]:
    yield from twice((*_SPEC, "needs"), spec.needs)


def _gpus(gang: Gang, loc: Loc) -> Iterator[Found]:
    """Whole GPUs, a share of one, or MIG instances: one of the three."""
    field, one = _resources(gang)
    if one is None:
        return
    at = (*loc, field)
    if "gpu_share" in one.model_fields_set:
        for other, advice in (
            ("gpus", "for whole GPUs leave gpu_share out"),
            ("mig", "a share is of a whole GPU"),
        ):
            if other in one.model_fields_set and getattr(one, other) is not UNKNOWN:
                values = {"field": "gpu_share", "form": other, "advice": advice}
                yield Found((*at, "gpu_share"), problem("job.not-with-form", **values), "key")
                return
    if "mig" in one.model_fields_set and "gpu_memory" in one.model_fields_set:
        values = {"field": "gpu_memory", "form": "mig", "advice": "the profile says how much memory it has"}
        yield Found((*at, "gpu_memory"), problem("job.not-with-form", **values), "key")
    if "mig" in one.model_fields_set and one.gpus == 0:
        values = {"field": "mig", "form": "no GPUs", "advice": "say how many instances: gpus: 1"}
        yield Found((*at, "mig"), problem("job.not-with-form", **values), "key")


def _segments(spec: JobSpecDocument) -> Iterator[Found]:
    """Segments are made of nodes, and all of one size."""
    segment = spec.topology.segment
    if segment is None or spec.groups:
        return
    at = (*_SPEC, "topology", "segment")
    if "tasks" in spec.model_fields_set:
        values = {"field": "segment", "form": "tasks", "advice": "give nodes instead of tasks"}
        yield Found(at, problem("job.not-with-form", **values), "key")
        return
    nodes = spec.nodes if spec.nodes is not None else 1
    if nodes % segment.nodes:
        yield Found((*at, "nodes"), problem("job.uneven-segments", nodes=nodes, segment=segment.nodes))


def _index(spec: JobSpecDocument) -> Iterator[Found]:
    """A job that is no array has no index to put into the name of its output."""
    sure(spec.array, spec.output)
    if spec.array is None and spec.output is not None and "a" in re.findall("%(.)", spec.output):
        yield Found((*_SPEC, "output"), problem("job.no-index"))


# --- against a cluster -----------------------------------------------------------------------------------------------


def check_job_in_cluster(document: JobDocument, cluster: ClusterSpec, catalog: Catalog) -> list[Found]:
    """What a job names must exist in its cluster, and it must be able to stop in time there."""
    checks = (_queue_exists, _storage_exists, _levels_exist)
    found = list(run(checks, document.spec, cluster))
    for loc, gang in gangs(document.spec):
        found += run((_models_exist,), gang, loc, cluster, catalog)
    found += run((_stops_in_time,), document.spec, cluster, catalog)
    return found


def _dangling(loc: Loc, what: str, name: str, known: list[str]) -> Found:
    advice = suggestion(name, known, what)
    return Found(loc, problem("spec.dangling-reference", what=what, name=plain(name, 60), advice=advice))


def _queue_exists(spec: JobSpecDocument, cluster: ClusterSpec) -> Iterator[Found]:
    known = [queue.name for queue in cluster.queues]
    if spec.queue not in known:
        place = (*_SPEC, "queue")
        mark_missing = "queue" not in spec.model_fields_set
        found = _dangling(place, "queue", spec.queue, known)
        yield Found(place, found.problem, "parent") if mark_missing else found


def _storage_exists(spec: JobSpecDocument, cluster: ClusterSpec) -> Iterator[Found]:
    known = [storage.name for storage in cluster.storage]
    for index, name in rows(spec.needs):
        if name not in known:
            yield _dangling((*_SPEC, "needs", index), "storage", name, known)


def _levels_exist(spec: JobSpecDocument, cluster: ClusterSpec) -> Iterator[Found]:
    known = list(known_levels(cluster))
    for field in ("required", "preferred"):
        yield from run((_level_exists,), getattr(spec.topology, field), (*_SPEC, "topology", field), known)
    if spec.topology.segment is not None:
        at = (*_SPEC, "topology", "segment", "level")
        yield from _level_exists(spec.topology.segment.level, at, known)


def _level_exists(name: str | None, loc: Loc, known: list[str]) -> Iterator[Found]:
    if name is not None and name not in known:
        yield _dangling(loc, "topology level", name, known)


def _resources(gang: Gang) -> tuple[str, ResourcesDocument | None]:
    return ("per_task", gang.per_task) if "tasks" in gang.model_fields_set else ("per_node", gang.per_node)


def _models_exist(gang: Gang, loc: Loc, cluster: ClusterSpec, catalog: Catalog) -> Iterator[Found]:
    field, resources = _resources(gang)
    pools = [_models(pool, catalog) for pool in cluster.pools]
    if resources is None or resources.gpu_model is None or None in pools:
        return
    known = sorted(set().union(*(models for models in pools if models is not None)))
    for index, name in enumerate(resources.gpu_model):
        if name not in known:
            yield _dangling((*loc, field, "gpu_model", index), "GPU model in any pool", name, known)


def _models(pool: Pool, catalog: Catalog) -> set[str] | None:
    """The GPU models of a pool; None if the catalog does not know one of its types."""
    if pool.gpu is not None:
        return set(pool.gpu.models())
    names = [name for offering in pool.offerings for name in offering.types]
    if not all(name in catalog.instances for name in names):
        return None
    return {catalog.instances[name].gpu_model for name in names}


def _stops_in_time(spec: JobSpecDocument, cluster: ClusterSpec, catalog: Catalog) -> Iterator[Found]:
    """A grace longer than a spot notice is cut off; a fault if no pool that fits has anything but spot."""
    own = spec.checkpoint.stop if spec.checkpoint is not None else None
    grace = (own or spec.stop).grace
    if grace <= SPOT_NOTICE_S:
        return
    for _, gang in gangs(spec):
        fitting = [pool for pool in cluster.pools if _may_fit(pool, _resources(gang)[1], catalog)]
        if not fitting or not all(_spot_only(pool) for pool in fitting):
            continue
        where: Loc = ("checkpoint", "stop", "grace") if own is not None else ("stop", "grace")
        values = {"grace": seconds_text(grace), "notice": seconds_text(SPOT_NOTICE_S)}
        yield Found((*_SPEC, *where), problem("job.grace-over-notice", **values))
        return


def _may_fit(pool: Pool, resources: ResourcesDocument | None, catalog: Catalog) -> bool:
    """Whether a node of the pool could carry a share of the job, by GPU model and count."""
    if resources is None:
        return True
    models, wanted = _models(pool, catalog), resources.gpu_model
    if models is None:
        return True
    counts = [pool.gpu.count] if pool.gpu is not None else []
    counts += [catalog.instances[name].gpus for offering in pool.offerings for name in offering.types]
    return max(counts, default=0) >= (resources.gpus or 0) and (wanted is None or bool(models & set(wanted)))


def _spot_only(pool: Pool) -> bool:
    return bool(pool.offerings) and all(offering.market == Market.SPOT for offering in pool.offerings)
