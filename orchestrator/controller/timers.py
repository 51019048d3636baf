"""What nobody asks for: time limits, silent nodes, deadlines of drains, devices that stay away, doomed jobs.

Comes in: the clock, who was heard when. Goes out: recorded facts. Called by: loop, once per cycle.

A controller that was away counts no silence: leases run from its own start, or from when it went on after it was
stopped. Silence takes nothing from a node; only what can't be running there counts as ended: a gang that was never
committed, and a job that chose `self_fence`, when its agent must have ended it long since.
"""

from __future__ import annotations

import heapq

from orchestrator.controller import outcome, waiting_for
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Attempt, Job, Node, Part
from orchestrator.model.attempt import EndCause, PartState
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import DrainThen
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from orchestrator.model.node import Contact

LOOK_EVERY_US = 2 * SECOND  # at nodes' silence
GONE_US = (
    60 * SECOND
)  # for a device to be told as not there before its work ends; agents look every 15 s meanwhile


class Timers:
    """Deadlines in a heap, and when nodes were last looked at."""

    def __init__(self) -> None:
        self._deadlines: list[tuple[int, AttemptId]] = []
        self._known: dict[AttemptId, int] = {}
        self._looked_us = 0
        self._away: dict[tuple[str, int, AttemptId], int] = {}  # device that work holds -> not there since

    def watch(self, job: Job | None) -> None:
        """Take in a job that has changed: its attempt may have a deadline now."""
        attempt = job.attempt if job is not None else None
        if attempt is not None and attempt.deadline_us and attempt.id not in self._known:
            self._known[attempt.id] = attempt.deadline_us
            heapq.heappush(self._deadlines, (attempt.deadline_us, attempt.id))

    def due(self, desk: Desk) -> None:
        """Record what is due by now."""
        now_us = desk.clock.now_us()
        while self._deadlines and self._deadlines[0][0] <= now_us:
            _, attempt_id = heapq.heappop(self._deadlines)
            self._known.pop(attempt_id, None)
            _end_by_limit(desk, attempt_id)
        monotonic_us = desk.clock.monotonic_us()
        if monotonic_us - self._looked_us >= LOOK_EVERY_US:
            self._looked_us = monotonic_us
            for node in list(desk.state.nodes.values()):
                _look_at(desk, node)
                _clear(desk, node)
            self._end_without_devices(desk, monotonic_us)
        waiting_for.end_doomed(desk)

    def _end_without_devices(self, desk: Desk, now_us: int) -> None:
        """A device that work holds is not there, and was not for a while: the gang can't go on, and may elsewhere. One
        look proves nothing, so a controller that has just started waits as well."""
        away = {key: self._away.get(key, now_us) for node in desk.state.nodes.values() for key in _away(node)}
        self._away = away
        for (name, slot, attempt_id), since_us in away.items():
            job = desk.state.jobs.get(attempt_id.job)
            attempt = job.attempt if job is not None else None
            if job is None or attempt is None or attempt.id != attempt_id or attempt.ending is not None:
                continue
            if now_us - since_us >= GONE_US:
                detail = f"GPU {slot} of {name} is gone"
                grace_s = desk.settings.failure_grace_s
                outcome.end_attempt(desk, job, EndCause.NODE_FAILED, detail, grace_s=grace_s)

    def next_s(self, desk: Desk) -> float:
        """Seconds until something may be due: at most until the next look at the nodes."""
        if desk.state.doomed:
            return 0.0
        wait_us = LOOK_EVERY_US
        if self._deadlines:
            wait_us = min(wait_us, max(self._deadlines[0][0] - desk.clock.now_us(), 0))
        return wait_us / SECOND


def _end_by_limit(desk: Desk, attempt_id: AttemptId) -> None:
    job = desk.state.jobs.get(attempt_id.job)
    if job is None or job.attempt is None or job.attempt.id != attempt_id or job.attempt.ending is not None:
        return
    detail = f"its time limit of {job.attempt.time_limit_s} s was reached"
    outcome.end_attempt(desk, job, EndCause.TIME_LIMIT, detail)


def _away(node: Node) -> list[tuple[str, int, AttemptId]]:
    """Devices of a node that work holds and that the node no longer has, as far as it says so."""
    if not (node.holders or node.sharers) or node.facts is None or node.contact is not Contact.OK:
        return []
    there = {device.slot for device in node.facts.devices}
    held = [(slot, attempt) for slot, attempt in node.holders.items()]
    held += [(slot, attempt) for slot, attempts in node.sharers.items() for attempt in attempts]
    return [(node.name, slot, attempt) for slot, attempt in held if slot not in there]


def _look_at(desk: Desk, node: Node) -> None:
    """ok -> suspect after one lease of silence, -> unreachable after two. None before a longer lease that an earlier
    controller gave has run out twice as well: its agent may go by that one."""
    if node.contact in (Contact.NEVER, Contact.UNREACHABLE):
        return
    silent_s = desk.beats.silent_us(node.name) // SECOND
    lease_s = desk.settings.lease_s
    if silent_s >= 2 * lease_s and desk.beats.knows_lease(node.name, desk.state.lease_before_s):
        desk.writer.node(node.name, events.NodeContact(node.name, Contact.UNREACHABLE))
        _count_gone(desk, node)
        desk.touch_jobs_on(node.name)
    elif silent_s >= lease_s and node.contact is Contact.OK:
        desk.writer.node(node.name, events.NodeContact(node.name, Contact.SUSPECT))


def _clear(desk: Desk, node: Node) -> None:
    """A drain's deadline has passed: what still runs there is dealt with by its policy. Checkpointing is the job's own
    way to stop, after which it waits again."""
    now_us = desk.clock.now_us()
    for mark in node.marks:
        if not mark.deadline_us or now_us < mark.deadline_us or mark.then is DrainThen.WAIT:
            continue
        cause = EndCause.CANCELLED if mark.then is DrainThen.CANCEL else EndCause.REQUEUED
        detail = f"node {node.name} was to be free by now: {mark.why}"
        for job in list(desk.state.jobs.values()):
            attempt = job.attempt
            part = attempt.part(node.name) if attempt is not None else None
            if attempt is None or attempt.ending is not None or part is None:
                continue
            if cause is EndCause.CANCELLED and job.cancel_why is None:
                desk.writer.job(job.id, events.JobCancelRequested(job.id, detail))
            outcome.end_attempt(desk, job, cause, detail)


def _count_gone(desk: Desk, node: Node) -> None:
    """Shares that can't be running there although the node says nothing: see `_proof`."""
    for job in list(desk.state.jobs.values()):
        attempt = job.attempt
        part = attempt.part(node.name) if attempt is not None else None
        if attempt is None or part is None or part.state is PartState.ENDED:
            continue
        proof = _proof(desk, job, attempt, part)
        if proof is not None:
            cause, error = proof
            body = events.AttemptPartEnded(
                attempt.id, node.name, part.started, cause=cause, error=error, presumed=True
            )
            desk.writer.job(job.id, body)
            outcome.part_is_gone(desk, job)


def _proof(desk: Desk, job: Job, attempt: Attempt, part: Part) -> tuple[EndCause, str] | None:
    """What proves that the share does not run: its agent was never told that it may, or must have ended it when its
    lease ran out, one lease ago."""
    lease_s = desk.settings.lease_s
    if not attempt.committed_us and not part.started:
        return EndCause.NODE_FAILED, f"no contact for {2 * lease_s} s before the gang could start"
    if job.spec.on_lost is OnLost.SELF_FENCE and part.state is not PartState.STUCK:
        return EndCause.FENCED, f"no contact for {2 * lease_s} s; its agent ends it after {lease_s} s"
    return None
