"""What would come of a job that is not submitted.

Comes in: a person's question. Goes out: the start that it would get, or why it would be refused or wait. Called by:
intake, in the core thread between two cycles; nothing is recorded.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.controller import capacity_commands, commands, queue_room, waiting_for
from orchestrator.controller.desk import Desk
from orchestrator.controller.explain import how_far
from orchestrator.controller.view import dependency_reason
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import State, name_of
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import policy_of
from orchestrator.scheduler.what_if import Outlook, what_if


def answer(desk: Desk, command: commands.WhatIf) -> Outlook:
    """As a submit at this moment would fare in its first pass. Raises as a submit does where its queue is full, or what
    it depends on is not there."""
    spec = command.spec
    alone = replace(spec, array=None) if spec.singleton else spec  # its tasks go one after the other
    found = _of_pass(desk, replace(command, spec=alone))
    if found.why is not None and found.why.code.startswith("never."):
        return found
    tasks = spec.array.count() if spec.array is not None else 1
    queue_room.check(desk.state, spec.queue, tasks)
    waits = waiting_for.resolve(desk, spec)
    if waits.doom:
        return Outlook((), reason("end.dependency", why=waits.doom), tasks)
    job = Job(desk.state.next_job, spec, command.owner, 0, 0, waits=waits.open)
    job.behind = spec.singleton and any(name_of(each) == name_of(job) for each in desk.state.jobs.values())
    if job.blocked:
        return Outlook((), _dependency(desk.state, job), tasks)
    if spec.singleton and found.starts and tasks > 1:
        job.behind = True
        return Outlook(found.starts, _dependency(desk.state, job), tasks, 2)
    return replace(found, tasks=tasks)


def _of_pass(desk: Desk, command: commands.WhatIf) -> Outlook:
    return what_if(
        desk.state,
        policy_of(desk.state.cluster),
        command.spec,
        command.owner,
        desk.clock.now_us(),
        desk.settings.work_budget,
        capacity_commands.shapes(desk),
    )


def _dependency(state: State, job: Job) -> Reason:
    return dependency_reason(job, lambda other: how_far(state, other))
