"""A job document to the model.

Comes in: a `JobDocument` without faults. Goes out: `JobSpec`. Called by: `load`.
"""

from __future__ import annotations

from typing import Any

from orchestrator.model import job as m
from orchestrator.model.array import Array
from orchestrator.model.dependency import Dependency
from orchestrator.wire.job import (
    CheckpointDocument,
    ElasticDocument,
    GroupDocument,
    JobDocument,
    JobSpecDocument,
    ResourcesDocument,
    StopDocument,
    TopologyDocument,
)


def job_spec(document: JobDocument) -> m.JobSpec:
    """The model of a job document."""
    spec = document.spec
    return m.JobSpec(
        name=document.metadata.name,
        request=_request(spec),
        command=() if spec.groups else spec.command,
        queue=spec.queue,
        workload=spec.workload,
        launch=spec.launch.kind,
        priority=spec.priority,
        env=tuple(sorted(spec.env.items())),
        workdir=spec.workdir or "",
        output=spec.output or "",
        time_limit_s=spec.time_limit or 0,
        stop=_stop(spec.stop),
        retries=m.Retries(spec.retries.node_failure, spec.retries.job_failure),
        on_lost=spec.on_lost,
        hold=spec.hold,
        topology=_topology(spec.topology),
        elastic=_elastic(spec.elastic) if spec.elastic is not None else None,
        checkpoint=_checkpoint(spec.checkpoint) if spec.checkpoint is not None else m.Checkpoint(),
        gpu_power=m.GpuPower(spec.gpu_power.min_watts or 0, spec.gpu_power.max_watts or 0),
        needs=tuple(sorted(spec.needs)),
        compat=str(spec.compat) if spec.compat is not None else "",
        labels=tuple(sorted(document.metadata.labels.items())),
        array=Array(spec.array.tasks, spec.array.at_most or 0) if spec.array is not None else None,
        depends_on=tuple(Dependency(one.job.job, one.on, one.job.task) for one in spec.depends_on),
        singleton=spec.singleton,
        commands=tuple(one.command or spec.command for one in spec.groups),
    )


def _request(spec: JobSpecDocument) -> m.Request:
    if spec.groups:
        groups = tuple(m.Group(one.name, m.Gang(**_gang(one))) for one in spec.groups)
        return m.Request(exclusive=spec.exclusive, groups=groups)
    return m.Request(**_gang(spec), exclusive=spec.exclusive)


def _gang(spec: JobSpecDocument | GroupDocument) -> dict[str, Any]:
    """The fields of a `Gang`."""
    if spec.tasks is not None:
        return {"tasks": spec.tasks, "per_task": _resources(spec.per_task)}
    return {
        "nodes": spec.nodes or 1,
        "tasks_per_node": spec.tasks_per_node or 1,
        "per_node": _resources(spec.per_node),
    }


def _resources(one: ResourcesDocument | None) -> m.PerNode:
    if one is None:
        return m.PerNode()
    return m.PerNode(
        gpus=one.gpus if one.gpus is not None else int(one.mig is not None),
        cores=one.cores,
        memory=one.memory or 0,
        gpu_models=one.gpu_model or (),
        gpu_milli=one.gpu_share or 0,
        gpu_memory=one.gpu_memory or 0,
        mig=one.mig or "",
        labels=tuple(sorted(one.labels.items())),
    )


def _topology(one: TopologyDocument) -> m.Topology:
    segment = one.segment
    return m.Topology(
        required=one.required or "",
        preferred=one.preferred or "",
        segment_nodes=segment.nodes if segment is not None else 0,
        segment_level=segment.level if segment is not None else "",
    )


def _stop(one: StopDocument) -> m.Stop:
    return m.Stop(str(one.signal), str(one.to), one.grace)


def _elastic(one: ElasticDocument) -> m.Elastic:
    return m.Elastic(one.min_nodes, str(one.mode))


def _checkpoint(one: CheckpointDocument) -> m.Checkpoint:
    return m.Checkpoint(
        by=str(one.by),
        every_s=one.every or 0,
        stop=_stop(one.stop) if one.stop is not None else None,
        report_path=one.report.path if one.report is not None else "",
    )
