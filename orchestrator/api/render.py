"""Jobs as the API shows them.

Comes in: frozen views of the controller. Goes out: models of `wire.api`. Called by: the routes of jobs. Pure: the same
view renders to the same model.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.api.counted import Counted
from orchestrator.controller.explain import Explanation
from orchestrator.controller.view import AttemptView, JobView
from orchestrator.model.attempt import ENDED_STATES, AttemptSummary, JobState, Placement, RankFailure
from orchestrator.model.ids import AttemptId, JobRef
from orchestrator.model.job import Group, JobSpec, PerNode, Topology
from orchestrator.model.reasons import WORDS
from orchestrator.model.reasons import Reason as ReasonRecord
from orchestrator.wire import api as wire
from orchestrator.wire.api import time_of


def reason(record: ReasonRecord | None) -> wire.Reason | None:
    """A reason with its sentence; one whose words this version lacks shows its code."""
    if record is None:
        return None
    wording = WORDS.get(record.code)
    if wording is None:
        return wire.Reason(
            code=record.code, category="", sentence=record.code, action="", facts=dict(record.facts)
        )
    return wire.Reason(
        code=record.code,
        category=wording.category,
        sentence=record.sentence(),
        action=record.action(),
        facts=dict(record.facts),
    )


def summary(job: JobView, waits_for: ReasonRecord | None, counted: Counted) -> wire.JobSummary:
    """A job in a list."""
    return wire.JobSummary(**_summary(job, waits_for, counted))


def job(
    view: JobView,
    waits_for: ReasonRecord | None,
    counted: Counted,
    *,
    secrets: bool,
    **whole: object,
) -> wire.Job:
    """A job with all that is known; `secrets`: with its environment. `whole`: fields of an array that it stands for."""
    return wire.Job(
        **_summary(view, waits_for, counted),
        revision=revision(view),
        spec=_spec(view, secrets),
        attempt=_attempt(view, view.attempt) if view.attempt else None,
        past=[_past(view, past) for past in view.past],
        faults=list(view.faults),
        **whole,
    )


def revision(view: JobView) -> str:
    """A word that changes whenever the job does."""
    return format(hash(view) & 0xFFFF_FFFF_FFFF_FFFF, "x")


def _summary(view: JobView, waits_for: ReasonRecord | None, counted: Counted) -> dict[str, object]:
    spec = view.spec
    names = node_names(view)
    return {
        "id": view.id,
        "name": spec.name,
        "owner": view.owner.name,
        "queue": spec.queue,
        "workload": spec.workload.value,
        "priority": view.priority,
        "state": view.state.value,
        "nodes": spec.request.total_nodes() or len(names),
        "ranks": spec.request.total_tasks(),
        "gpus": spec.request.total_gpus(),
        "gpu_milli": counted.milli(spec),
        "submitted_at": time_of(view.submitted_us),
        "waiting_since": time_of(view.waiting_us),
        "started_at": time_of(view.started_us),
        "ended_at": time_of(view.ended_us),
        "time_limit_s": spec.time_limit_s,
        "exit_code": _exit_code(view),
        "why": view.why,
        "hold": view.hold,
        "attempts": view.attempts,
        "node_names": names,
        "lost": view.attempt.lost if view.attempt else False,
        "reason": reason(waits_for),
        "array": view.array or None,
        "index": view.index if view.array else None,
    }


def _exit_code(view: JobView) -> int | None:
    """None for what is not over, and for a job that was cancelled before any process of it ran: 0 would be success."""
    ran = view.started_us or view.exit_code or view.state is JobState.SUCCEEDED
    return view.exit_code if view.state in ENDED_STATES and ran else None


def node_names(view: JobView) -> list[str]:
    """Nodes of the live attempt, or of the last one, in gang order."""
    if view.attempt is not None:
        return [part.node for part in view.attempt.parts]
    if view.state in ENDED_STATES and view.past:
        return [placement.node for placement in view.past[-1].placements]
    return []


def _spec(view: JobView, secrets: bool) -> wire.JobSpec:
    spec, request, array = view.spec, view.spec.request, view.spec.array
    return wire.JobSpec(
        nodes=request.nodes,
        tasks=request.tasks,
        tasks_per_node=request.tasks_per_node,
        per_node=_resources(request.per_node) if request.nodes else None,
        per_task=_resources(request.per_task) if request.tasks else None,
        launch=spec.launch.value,
        command=list(spec.command),
        env=dict(spec.env) if secrets else None,
        workdir=spec.workdir,
        output=spec.output,
        stop=wire.Stop(signal=spec.stop.signal, to=spec.stop.to, grace_s=spec.stop.grace_s),
        on_lost=spec.on_lost.value,
        node_failure_retries=spec.retries.node_failure,
        job_failure_retries=spec.retries.job_failure,
        needs=list(spec.needs),
        labels=dict(spec.labels),
        exclusive=request.exclusive,
        topology=_topology(spec.topology),
        array=wire.ArraySpec(tasks=array.text(), count=array.count(), at_most=view.at_most)
        if array
        else None,
        depends_on=[
            wire.Dependency(job=str(JobRef(one.job, one.index)), on=one.on.value) for one in spec.depends_on
        ],
        singleton=spec.singleton,
        groups=[_group(one, spec.command_of(number)) for number, one in enumerate(spec.request.groups)],
    )


def _group(group: Group, command: tuple[str, ...]) -> wire.GroupSpec:
    gang = group.gang
    return wire.GroupSpec(
        name=group.name,
        nodes=gang.nodes,
        tasks=gang.tasks,
        tasks_per_node=gang.tasks_per_node,
        per_node=_resources(gang.per_node) if gang.nodes else None,
        per_task=_resources(gang.per_task) if gang.tasks else None,
        command=list(command),
    )


def group_name(spec: JobSpec, number: int) -> str:
    """Of a part of a gang; empty where the gang has no groups."""
    groups = spec.request.groups
    return groups[number].name if number < len(groups) else ""


def _topology(asked: Topology) -> wire.Topology | None:
    if asked == Topology():
        return None
    return wire.Topology(
        required=asked.required,
        preferred=asked.preferred,
        segment_nodes=asked.segment_nodes,
        segment_level=asked.segment_level,
    )


def _resources(asked: PerNode) -> wire.Resources:
    return wire.Resources(
        gpus=asked.gpus,
        cores=asked.cores,
        memory_bytes=asked.memory,
        gpu_models=list(asked.gpu_models),
        gpu_milli=asked.gpu_milli,
        gpu_memory_bytes=asked.gpu_memory,
        mig=asked.mig,
        labels=dict(asked.labels),
    )


def first_ranks(tasks: Iterable[int]) -> list[int]:
    """The first rank of each node of a gang, from the ranks of each, in gang order."""
    first, found = 0, []
    for count in tasks:
        found.append(first)
        first += count
    return found


def _attempt(view: JobView, attempt: AttemptView) -> wire.Attempt:
    firsts = first_ranks(part.tasks for part in attempt.parts)
    parts = [
        wire.Part(
            node=part.node,
            state=part.state.value,
            slots=list(part.slots),
            instances=list(map(str, part.instances)),
            first_rank=first,
            tasks=part.tasks,
            pids=list(part.pids),
            error=part.error,
            contact=part.contact.value,
            group=group_name(view.spec, part.group),
        )
        for part, first in zip(attempt.parts, firsts, strict=True)
    ]
    return wire.Attempt(
        id=str(AttemptId(view.id, attempt.number)),
        number=attempt.number,
        state=attempt.state.value,
        parts=parts,
        allocated_at=time_of(attempt.allocated_us),
        started_at=time_of(attempt.started_us),
        deadline_at=time_of(attempt.deadline_us),
        master_address=attempt.master_address,
        master_port=attempt.master_port,
        ending=attempt.ending,
        lost=attempt.lost,
    )


def _past(view: JobView, past: AttemptSummary) -> wire.PastAttempt:
    return wire.PastAttempt(
        id=str(AttemptId(view.id, past.number)),
        number=past.number,
        cause=past.cause.value,
        detail=past.detail,
        exit_code=past.exit_code,
        placements=_placements(view.spec, past.placements),
        allocated_at=time_of(past.allocated_us),
        started_at=time_of(past.started_us),
        ended_at=time_of(past.ended_us),
        first_failed=_first_failed(past.first_failed) if past.first_failed else None,
    )


def _placements(spec: JobSpec, placements: tuple[Placement, ...]) -> list[wire.Placement]:
    firsts = first_ranks(placement.tasks for placement in placements)
    return [
        wire.Placement(
            node=found.node,
            slots=list(found.slots),
            first_rank=first,
            tasks=found.tasks,
            group=group_name(spec, found.group),
        )
        for found, first in zip(placements, firsts, strict=True)
    ]


def _first_failed(failure: RankFailure) -> wire.FirstFailed:
    result = failure.result
    return wire.FirstFailed(
        node=failure.node,
        rank=result.rank,
        code=result.code,
        signal=result.signal,
        exit_code=result.exit_code,
        ended_at=time_of(result.ended_us),
        tail=failure.tail,
    )


def explanation(found: Explanation) -> wire.Explanation:
    """Why a job does not run."""
    return wire.Explanation(
        job=found.job,
        label=found.label,
        state=found.state.value,
        reason=reason(found.reason),
        place=found.place,
        waiting=found.waiting,
        ahead_gpus=-(-found.ahead_milli // 1000),
        ahead_milli=found.ahead_milli,
        blockers=[
            wire.Blocker(
                job=one.job,
                label=one.label,
                owner=one.owner,
                gpus=one.gpus,
                ends_at=time_of(one.ends_us),
            )
            for one in found.blockers
        ],
    )


def ended_explanation(view: JobView) -> wire.Explanation:
    """How an ended job ended, in the same form."""
    return wire.Explanation(job=view.id, label=view.label, state=view.state.value, reason=None, why=view.why)
