"""After a commit: the view, what each node should have, and who must be told.

Comes in: the writer's State and what the commits touched. Goes out: new entries in the view, desired attempts in beats,
the jobs and nodes whose waiters are to be woken. Called by: loop.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.controller.beats import Beats
from orchestrator.controller.elastic import Elastic
from orchestrator.controller.reporter import Told
from orchestrator.controller.view import View, apply_view, job_view, node_view, power_view
from orchestrator.controller.writer import Writer
from orchestrator.ledger.records import Attempt, Job, Part
from orchestrator.ledger.scopes import queue_scope
from orchestrator.ledger.state import State
from orchestrator.model.attempt import PartState
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import Desired, GangPart, Launch, Phase


class Publisher:
    """Keeps what it has published, to publish only what has changed."""

    def __init__(self, view: View, beats: Beats, elastic: Elastic) -> None:
        self._view = view
        self._beats = beats
        self._elastic = elastic
        self._desired: dict[str, dict[AttemptId, Desired]] = {}
        self._nodes_of: dict[int, tuple[str, ...]] = {}  # job -> nodes that should have something of it
        self._launches: dict[
            int, tuple[AttemptId, tuple[Launch, ...]]
        ] = {}  # job -> launches of its attempt, by part
        self._revision = 0

    def publish(self, writer: Writer, reasons: Told | None) -> tuple[list[int], list[str]]:
        """Renew the view; returns the jobs that changed and the nodes that should be told something new."""
        state, view = writer.state, self._view
        if writer.everything_touched:
            self._start_over(writer)
        jobs = list(writer.touched_jobs)
        changed: dict[str, bool] = {}
        for job_id in jobs:
            self._publish_job(state, job_id, changed)
        for name in writer.touched_nodes:
            self._publish_node(state, name)
        self._publish_desired(writer.epoch, changed)
        view.seq, view.t_us, view.epoch = state.seq, state.t_us, writer.epoch
        view.recovering, view.cluster, view.digest = state.recovering, state.cluster, state.digest
        view.dollars = state.spending.by_queue() if state.spending is not None else {}
        hours = state.hours
        view.hours = (
            {name: hours.used(queue_scope(name)) for name in state.queues} if hours is not None else {}
        )
        view.month_ends_us = state.month.ends_us if state.month is not None else 0
        if writer.touched_tokens or writer.everything_touched:
            view.tokens = {token.sha256: token for token in state.tokens.values()}
        if writer.touched_applies or writer.everything_touched:
            view.applies = tuple(apply_view(apply) for apply in state.applies)
            view.commit = state.commit
            view.desired, view.recorded = dict(state.desired), dict(state.recorded)
        if writer.touched_capacity or writer.everything_touched:
            view.uid, view.bought = state.uid, self._elastic.views(state)
        if jobs or writer.touched_nodes or writer.everything_touched:
            view.power = power_view(state)
        view.orphans = tuple((str(orphan.attempt), orphan.node) for orphan in state.orphans.values())
        if reasons is not None:
            view.reasons = reasons
        view.version += 1
        writer.published()
        return jobs, [node for node, news in changed.items() if news]

    def _start_over(self, writer: Writer) -> None:
        """At start, after a reload or an apply: everything may have changed, and some of it gone."""
        state, view = writer.state, self._view
        self._launches.clear()  # the job network may have other addresses now
        for job_id in [*view.jobs, *state.jobs]:
            writer.touched_jobs[job_id] = state.jobs.get(job_id)
        for name in [*view.nodes, *state.nodes]:
            writer.touched_nodes[name] = True

    def _publish_job(self, state: State, job_id: int, changed: dict[str, bool]) -> None:
        job = state.jobs.get(job_id)
        if job is None:
            self._view.jobs.pop(job_id, None)
        else:
            self._view.jobs[job_id] = job_view(state, job)
        self._want(state, job_id, job, changed)

    def _publish_node(self, state: State, name: str) -> None:
        node = state.nodes.get(name)
        if node is None:
            self._view.nodes.pop(name, None)
        else:
            self._view.nodes[name] = node_view(state, node)
            self._beats.set_contact(name, node.contact)

    # --- desired --------------------------------------------------------------------------------------------

    def _want(self, state: State, job_id: int, job: Job | None, changed: dict[str, bool]) -> None:
        """Renew what the nodes of this job's attempt should have; note the nodes where that changed, and whether it is
        news to them."""
        attempt = job.attempt if job is not None else None
        wanted: dict[str, Desired] = {}
        if job is not None and attempt is not None:
            for index, part in enumerate(attempt.parts):
                if part.state is not PartState.ENDED:
                    wanted[part.placement.node] = self._wish(state, job, attempt, index)
        for node in dict.fromkeys((*self._nodes_of.get(job_id, ()), *wanted)):
            self._want_on(node, job_id, wanted.get(node), changed)
        if wanted:
            self._nodes_of[job_id] = tuple(wanted)
        else:
            self._nodes_of.pop(job_id, None)
            self._launches.pop(job_id, None)

    def _wish(self, state: State, job: Job, attempt: Attempt, index: int) -> Desired:
        """One attempt as one node of its gang should have it. Its launch never changes, and is made once: a gang's
        every report would else make as many gang parts as the square of its nodes."""
        part = attempt.parts[index]
        if attempt.ending is not None:
            return Desired(attempt.id, Phase.END, part.started, end=attempt.ending.order)
        known = self._launches.get(job.id)
        if known is None or known[0] != attempt.id:
            known = self._launches[job.id] = (attempt.id, launches(state, job, attempt))
        phase = Phase.RUN if attempt.committed_us else Phase.PREPARE
        return Desired(attempt.id, phase, part.started, launch=known[1][index])

    def _want_on(self, node: str, job_id: int, entry: Desired | None, changed: dict[str, bool]) -> None:
        """What a node has told itself (it has started it, or nothing is left of it) is no news to it: to answer its
        poll for that would make half of all answers."""
        table = self._desired.setdefault(node, {})
        known = table.get(entry.attempt) if entry is not None else None
        if entry is not None and known == entry:
            return
        for attempt in [attempt for attempt in table if attempt.job == job_id]:
            del table[attempt]
        if entry is not None:
            table[entry.attempt] = entry
        told = entry is None or (known is not None and replace(known, started=entry.started) == entry)
        changed[node] = changed.get(node, False) or not told

    def _publish_desired(self, epoch: int, changed: dict[str, bool]) -> None:
        self._revision += 1
        revision = f"{epoch}.{self._revision}"
        for node, news in changed.items():
            self._beats.set_desired(node, revision if news else "", dict(self._desired[node]))


def launches(state: State, job: Job, attempt: Attempt) -> tuple[Launch, ...]:
    """What each part of an attempt needs to run."""
    gang = _gang(state, attempt)
    return tuple(_launch(state, job, attempt, index, part, gang) for index, part in enumerate(attempt.parts))


def _launch(
    state: State, job: Job, attempt: Attempt, index: int, part: Part, gang: tuple[GangPart, ...]
) -> Launch:
    mine = part.placement.usable
    return Launch(
        job=job.spec,
        owner=job.owner,
        parts=gang,
        index=index,
        slots=mine.slots,
        cores=mine.cores,
        memory=mine.memory,
        master_address=attempt.master_address,
        master_port=attempt.master_port,
        cluster=state.cluster.name if state.cluster else "",
        submitted_us=job.submitted_us,
        milli=mine.milli,
        device_bytes=mine.device_bytes,
        instances=mine.instances,
        array=job.array,
        array_index=job.index,
    )


def _gang(state: State, attempt: Attempt) -> tuple[GangPart, ...]:
    parts: list[GangPart] = []
    first_rank = 0
    for part in attempt.parts:
        node, tasks = part.placement.node, part.placement.tasks
        parts.append(GangPart(node, state.nodes[node].address, first_rank, tasks, part.placement.group))
        first_rank += tasks
    return tuple(parts)
