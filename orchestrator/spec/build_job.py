"""A job document to the model.

Comes in: a `JobDocument` without faults. Goes out: `JobSpec`. Called by: `load`.
"""

from __future__ import annotations

from orchestrator.model import job as m
from orchestrator.wire.job import (
    CheckpointDocument,
    ElasticDocument,
    JobDocument,
    JobSpecDocument,
    ResourcesDocument,
    StopDocument,
)


def job_spec(document: JobDocument) -> m.JobSpec:
    """The model of a job document."""
    spec = document.spec
    return m.JobSpec(
        name=document.metadata.name,
        request=_request(spec),
        command=spec.command,
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
        topology=m.Topology(spec.topology.required or "", spec.topology.preferred or ""),
        elastic=_elastic(spec.elastic) if spec.elastic is not None else None,
        checkpoint=_checkpoint(spec.checkpoint) if spec.checkpoint is not None else m.Checkpoint(),
        gpu_power=m.GpuPower(spec.gpu_power.min_watts or 0, spec.gpu_power.max_watts or 0),
        needs=tuple(sorted(spec.needs)),
        compat=str(spec.compat) if spec.compat is not None else "",
        labels=tuple(sorted(document.metadata.labels.items())),
    )


def _request(spec: JobSpecDocument) -> m.Request:
    if spec.tasks is not None:
        return m.Request(tasks=spec.tasks, per_task=_resources(spec.per_task))
    return m.Request(
        nodes=spec.nodes or 1, tasks_per_node=spec.tasks_per_node or 1, per_node=_resources(spec.per_node)
    )


def _resources(one: ResourcesDocument | None) -> m.PerNode:
    return (
        m.PerNode(one.gpus, one.cores, one.memory or 0, one.gpu_model or ())
        if one is not None
        else m.PerNode()
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
