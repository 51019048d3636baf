"""The lives of attempts: from the decision to the first process, to the last one, and what follows for the job.

Comes in: decisions of the scheduler, what falls due, nodes that are lost and come back. Goes out: recorded facts, as
agents and the controller would make them; rows of the book. Called by: world, machines.

The rules of what an end means are the controller's own (`ledger/ends`). Processes obey at once when they are told to
end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.ledger import events
from orchestrator.ledger.ends import (
    RETRY_CLASS,
    WORDS,
    breaking_cause,
    detail_of,
    exit_code,
    may_retry,
)
from orchestrator.ledger.events import job_subject
from orchestrator.ledger.records import Attempt, Job
from orchestrator.model.attempt import EndCause, JobState, PartState, Placement, RankResult
from orchestrator.model.clock import SECOND
from orchestrator.model.decisions import Start
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from orchestrator.model.protocol import EndOrder
from orchestrator.simulate.book import NEVER, gang_milli

if TYPE_CHECKING:
    from orchestrator.simulate.world import World

BY_SCHEDULER = "scheduler"
WELL = (RankResult(0),)
FAILED = RankResult(0, code=1)


@dataclass(slots=True)
class Life:
    """One attempt that is not over. `due` is the serial of what happens to it next; `away` are its nodes that are
    lost."""

    index: int  # of the trace
    id: AttemptId
    subject: str  # of its events
    placements: tuple[Placement, ...]
    milli: int
    model: str
    allocated_us: int
    limit_us: int
    started_us: int = NEVER
    due: int = 0
    away: dict[str, bool] = field(default_factory=dict)  # node -> whether it is still away


# --- the way up -----------------------------------------------------------------------------------------------------


def start(world: World, decision: Start) -> Life:
    """Record the decision."""
    attempt, placements = decision.attempt, decision.placements
    subject = job_subject(attempt.job)
    body = events.AttemptAllocated(
        attempt, placements, decision.master_address, decision.master_port, decision.time_limit_s
    )
    world.record(body, subject, BY_SCHEDULER)
    index = world.index_of[attempt.job]
    life = Life(
        index,
        attempt,
        subject,
        placements,
        gang_milli(placements),
        world.sampler.take(placements),
        world.now_us,
        decision.time_limit_s * SECOND,
    )
    world.lives[attempt.job] = life
    world.sampler.waits(world.trace.shape[index], -1)
    world.commitment.touch(world.state, attempt.job)
    _remember_reason(world, life)
    if len(placements) == 1:
        world.record(events.AttemptCommitted(attempt), subject, BY_SCHEDULER)
    return life


def launch(world: World, life: Life) -> None:
    """Let its nodes have it. One that is away, and nobody knows, has it when it is back."""
    if world.down:
        life.away = {part.node: True for part in life.placements if part.node in world.down}
    if not life.away:
        get_ready(world, life)


def _remember_reason(world: World, life: Life) -> None:
    """Why it waited until now, if a pass before this one has looked at it."""
    if world.settings.reasons and world.before_us >= world.trace.submit_us[life.index]:
        code = world.reporter.code(world.class_of(life.index))
        if code:
            world.book.reason[life.index] = code


def get_ready(world: World, life: Life) -> None:
    """All its nodes are there: its processes start as soon as they can."""
    settings = world.settings
    after_us = settings.launch_us + (settings.prepare_us if len(life.placements) > 1 else 0)
    special = world.trace.special.get(life.index)
    if special is not None and special.launch_us is not None:
        after_us = special.launch_us
    if after_us:
        life.due = world.at(world.now_us + after_us, _begin, life)
    else:
        _begin(world, life, life.due)


def _begin(world: World, life: Life, serial: int) -> None:
    """Every node of it runs its ranks."""
    if serial != life.due:
        return
    nodes = [part.node for part in life.placements]
    attempt, subject, record = life.id, life.subject, world.record
    if len(nodes) > 1:
        for node in nodes:
            record(events.AttemptPrepared(attempt, node), subject)
        record(events.AttemptCommitted(attempt), subject)
    for node in nodes:
        record(events.AttemptStarted(attempt, node), subject)
    life.started_us = world.now_us
    world.book.started(life.index, world.now_us, life.placements)
    _plan_end(world, life)


def _plan_end(world: World, life: Life) -> None:
    """What ends it, if no node does: its work is done, a rank fails, or its time is over."""
    run_us = remaining_us(world, life)
    what = _complete
    special = world.trace.special.get(life.index)
    if special is not None and 0 < special.fail_after_us < run_us and special.fails(life.id.number):
        run_us, what = special.fail_after_us, _fail
    if life.limit_us and life.limit_us < run_us:
        run_us, what = life.limit_us, _time_out
    if what is _complete:
        run_us += world.settings.release_us
    life.due = world.at(life.started_us + run_us, what, life)
    if what is _complete and special is not None:
        for part, sooner_us in zip(life.placements, special.sooner_us, strict=False):
            if sooner_us:
                world.at(life.started_us + max(run_us - sooner_us, 0), _leave, (life, part, life.due))


def remaining_us(world: World, life: Life) -> int:
    """How long its processes still have to run, on the GPUs that it got."""
    full_us = world.trace.run_on_us(life.index, life.model)
    done_us = world.done_us.get(life.index, 0)
    if not done_us:
        return full_us
    plain_us = world.trace.run_us[life.index]
    return max(full_us - full_us * done_us // plain_us, 0)


# --- the way down ---------------------------------------------------------------------------------------------------


def _leave(world: World, whom: tuple[Life, Placement, int], serial: int) -> None:
    """One node is free before the last one, unless something else has befallen the attempt."""
    life, part, due = whom
    if life.due == due:
        world.commitment.touch(world.state, life.id.job)
        _part_ended(world, life, part, WELL)


def _complete(world: World, life: Life, serial: int) -> None:
    """Every rank has left with 0, and nothing is left of it."""
    if serial != life.due:
        return
    special = world.trace.special.get(life.index)
    for part in life.placements:
        if special is None or not special.sooner_us or _live(world, life, part.node):
            _part_ended(world, life, part, WELL)
    conclude(world, life)


def _part_ended(
    world: World,
    life: Life,
    part: Placement,
    results: tuple[RankResult, ...],
    cause: str = "",
    presumed: bool = False,
) -> None:
    started = life.started_us != NEVER
    body = events.AttemptPartEnded(life.id, part.node, started, results, cause, presumed=presumed)
    world.record(body, life.subject)
    world.sampler.free(part)


def _fail(world: World, life: Life, serial: int) -> None:
    """A rank leaves with 1 on its first node, and the others are told to end."""
    if serial != life.due:
        return
    node = life.placements[0].node
    world.record(events.AttemptRankFailed(life.id, node, FAILED), life.subject)
    end(world, life, EndCause.RANK_FAILED, "")


def _time_out(world: World, life: Life, serial: int) -> None:
    if serial != life.due:
        return
    detail = f"its time limit of {life.limit_us // SECOND} s was reached"
    end(world, life, EndCause.TIME_LIMIT, detail)


def end(world: World, life: Life, cause: EndCause, detail: str) -> None:
    """Tell every node of the gang to end it; those that are there obey."""
    job = world.state.jobs[life.id.job]
    if job.attempt is not None and job.attempt.ending is None:
        stop = job.spec.stop
        order = EndOrder(str(cause), stop.signal, stop.to, stop.grace_s)
        world.record(events.AttemptEnding(life.id, cause, order, detail), life.subject)
    life.due = world.at(world.now_us + world.settings.release_us, _released, life)
    if not world.settings.release_us:
        _released(world, life, life.due)


def _released(world: World, life: Life, serial: int) -> None:
    """What its nodes that are there had of it is proved gone."""
    if serial != life.due or life.id.job not in world.lives:
        return
    life.due = 0
    for part in life.placements:
        if not life.away.get(part.node) and _live(world, life, part.node):
            _part_ended(world, life, part, WELL if life.started_us != NEVER else ())
    if not any(life.away.values()):
        conclude(world, life)


def _live(world: World, life: Life, node: str) -> bool:
    attempt = world.state.jobs[life.id.job].attempt
    part = attempt.part(node) if attempt is not None else None
    return part is not None and part.state is not PartState.ENDED


def conclude(world: World, life: Life) -> None:
    """All its parts have ended: the attempt has, and the job may have."""
    job = world.state.jobs[life.id.job]
    attempt = job.attempt
    assert attempt is not None
    cause = attempt.ending.cause if attempt.ending else breaking_cause(attempt) or EndCause.COMPLETED
    detail = (attempt.ending.detail if attempt.ending else "") or detail_of(attempt, cause)
    code = exit_code(attempt, cause)
    body = events.AttemptEnded(life.id, cause, code, detail, RETRY_CLASS.get(cause, ""))
    world.commitment.touch(world.state, life.id.job)
    world.record(body, life.subject)
    life.due = 0
    del world.lives[life.id.job]
    world.sampler.over(life.placements, life.milli * (world.now_us - life.allocated_us))
    _account(world, life, job, cause)
    _follow(world, life, job, cause, code, detail)


def _account(world: World, life: Life, job: Job, cause: EndCause) -> None:
    """GPU time of the attempt: what it ran counts as lost where its work is neither done nor kept."""
    held_us = world.now_us - life.allocated_us
    ran_us = world.now_us - life.started_us if life.started_us != NEVER else 0
    kept_us = ran_us
    if cause is not EndCause.COMPLETED:
        kept_us = _kept_us(job, cause, ran_us)
        if kept_us:
            _keep(world, life, kept_us)
    milli = life.milli
    world.book.attempt_over(job.spec.queue, milli * held_us, milli * ran_us, milli * (ran_us - kept_us))


def _kept_us(job: Job, cause: EndCause, ran_us: int) -> int:
    """What checkpoints have kept of an attempt that did not finish. One that is asked to end checkpoints first."""
    checkpoint = job.spec.checkpoint
    if not checkpoint.by:
        return 0
    if cause is EndCause.REQUEUED:
        return ran_us
    every_us = checkpoint.every_s * SECOND
    return ran_us // every_us * every_us if every_us else 0


def _keep(world: World, life: Life, kept_us: int) -> None:
    """The next attempt goes on from there, on whatever it gets."""
    full_us = world.trace.run_on_us(life.index, life.model)
    plain_us = world.trace.run_us[life.index]
    done_us = world.done_us.get(life.index, 0) + (kept_us * plain_us // full_us if full_us else 0)
    world.done_us[life.index] = min(done_us, plain_us)


def _follow(world: World, life: Life, job: Job, cause: EndCause, code: int, detail: str) -> None:
    if cause is EndCause.COMPLETED:
        _end_job(world, life, JobState.SUCCEEDED, code, "")
    elif cause is EndCause.REQUEUED or may_retry(job, cause):
        world.record(events.JobRequeued(job.id, detail or str(cause)), life.subject)
        world.sampler.waits(world.trace.shape[life.index], 1)
        world.book.state[life.index] = str(JobState.WAITING)
    else:
        _end_job(world, life, JobState.FAILED, code, detail or WORDS.get(cause, str(cause)))


def _end_job(world: World, life: Life, state: JobState, code: int, why: str) -> None:
    world.record(events.JobEnded(life.id.job, state, code, why), life.subject)
    world.book.ended(life.index, world.now_us, str(state))


def close(world: World) -> None:
    """The simulation is over: what still runs counts until now."""
    for life in world.lives.values():
        held_us = world.now_us - life.allocated_us
        ran_us = world.now_us - life.started_us if life.started_us != NEVER else 0
        queue = world.trace.spec(life.index).queue
        world.sampler.over(life.placements, life.milli * held_us)
        world.book.attempt_over(queue, life.milli * held_us, life.milli * ran_us, 0)
    world.reporter.begin()
    for job in world.state.jobs.values():
        if job.attempt is None:
            index = world.index_of[job.id]
            world.book.reason[index] = world.reporter.code(world.class_of(index))


# --- when nodes are lost --------------------------------------------------------------------------------------------


def lose(world: World, node: str) -> None:
    """The node is gone with all that ran on it, and nobody knows yet. A gang without one of its nodes comes no
    further, and its time limit runs on."""
    for life in [one for one in world.lives.values() if _live(world, one, node)]:
        life.away[node] = True
        if _ending(world, life):
            continue  # its other nodes are about to prove it gone
        life.due = 0
        if life.started_us != NEVER and life.limit_us:
            over_us = life.started_us + life.limit_us
            if over_us > world.now_us:
                life.due = world.at(over_us, _time_out, life)


def silent(world: World, node: str) -> None:
    """The node has not been heard of for two leases: what that proves."""
    for life in [one for one in world.lives.values() if _live(world, one, node)]:
        job = world.state.jobs[life.id.job]
        attempt = job.attempt
        assert attempt is not None
        part = attempt.part(node)
        if not attempt.committed_us:
            _gone(world, life, node, EndCause.NODE_FAILED, presumed=True)
        elif job.spec.on_lost is OnLost.SELF_FENCE and part is not None:
            _gone(world, life, node, EndCause.FENCED, presumed=True)


def back(world: World, node: str) -> None:
    """The node is there again, as empty as after any boot: what it had run is over, what it had not begun may
    begin."""
    for life in [one for one in world.lives.values() if _live(world, one, node)]:
        if life.started_us != NEVER or _ending(world, life):
            _gone(world, life, node, EndCause.NODE_FAILED)
            continue
        life.away[node] = False
        if not any(life.away.values()):
            get_ready(world, life)


def _ending(world: World, life: Life) -> bool:
    attempt: Attempt | None = world.state.jobs[life.id.job].attempt
    return attempt is not None and attempt.ending is not None


def _gone(world: World, life: Life, node: str, cause: EndCause, *, presumed: bool = False) -> None:
    """One part of it is proved gone, and with it the gang."""
    life.away[node] = False
    part = next(part for part in life.placements if part.node == node)
    _part_ended(world, life, part, (), str(cause), presumed)
    others = [part.node for part in life.placements if _live(world, life, part.node)]
    if not others:
        conclude(world, life)
    elif not _ending(world, life):
        end(world, life, cause, f"{node}: it was lost")
