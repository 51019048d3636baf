"""What the fold remembers and what it lets go, where nothing else would notice soon."""

from __future__ import annotations

import pytest

from orchestrator.ledger import events
from orchestrator.model.attempt import EndCause, JobState, Placement
from orchestrator.model.ids import AttemptId
from tests.builders import T0, Fold, cluster, facts, job, pool

ONE, TWO = Placement("p-1", (0,), 1, 1), Placement("p-2", (0,), 1, 1)


def ready() -> Fold:
    """Two nodes of two GPUs."""
    return Fold(cluster(pool("p", nodes=2, gpus=2, cores=4)))


def test_a_scope_that_would_fall_below_nothing_is_told_at_every_level() -> None:
    """A child that has enough may hang below a parent that has not, after ceilings were made anew."""
    limits = ready().state.limits
    limits.add("research", "cluster", {})
    limits.add("alice", "research", {})
    limits.take("alice", (("gpus", 2),))
    limits.release("research", (("gpus", 1),))
    with pytest.raises(ValueError, match="limit research: gpus would fall to -1"):
        limits.release("alice", (("gpus", 2),))
    assert limits.scopes["alice"].used == {"gpus": 2}


def test_a_start_forgives_earlier_failures_to_prepare() -> None:
    fold = ready()
    fold.submit(job(tasks=1))
    fold(events.AttemptAllocated(AttemptId(1, 1), (ONE,), "127.0.0.1", 20000))
    fold(events.AttemptPrepareFailed(AttemptId(1, 1), "p-1", "no-such-dir", "no such directory"))
    fold(events.AttemptEnded(AttemptId(1, 1), EndCause.PREPARE_FAILED))
    fold(events.JobRequeued(1, "p-1 could not prepare it"))
    assert [fault.node for fault in fold.state.jobs[1].faults] == ["p-1"]
    fold(events.AttemptAllocated(AttemptId(1, 2), (TWO,), "127.0.0.1", 20000))
    fold(events.AttemptPrepared(AttemptId(1, 2), "p-2"))
    fold(events.AttemptCommitted(AttemptId(1, 2)))
    fold(events.AttemptStarted(AttemptId(1, 2), "p-2"))
    assert fold.state.jobs[1].faults == []


def test_another_outbox_counts_from_the_beginning() -> None:
    """An agent that lost its journal numbers its events anew: what it says must not be taken for old news."""
    fold = ready()
    fold.submit(job(tasks=1))
    fold(events.AttemptAllocated(AttemptId(1, 1), (ONE,), "127.0.0.1", 20000))
    fold(events.AttemptPrepared(AttemptId(1, 1), "p-1", n=7))
    node = fold.state.nodes["p-1"]
    assert node.acked == 7
    found = facts(pool("p", gpus=2, cores=4))
    fold(events.NodeJoined("p-1", found, node.outbox))
    assert node.acked == 7, "the same journal goes on"
    fold(events.NodeJoined("p-1", found, "another"))
    assert node.acked == 0


def test_a_second_restore_still_knows_from_where_jobs_may_be_forgotten() -> None:
    """Jobs between the first backup and the second restore may run on nodes: the first bound stands."""
    fold = ready()
    fold.submit(job())
    fold(events.LedgerRestored(1000, T0))
    assert (fold.state.forgotten_from, fold.state.next_job) == (2, 1000)
    fold(events.LedgerRestored(2000, T0))
    assert (fold.state.forgotten_from, fold.state.next_job) == (2, 2000)
    fold(events.LedgerRecovered())
    fold(events.LedgerRestored(3000, T0))
    assert fold.state.forgotten_from == 2000


def test_shapes_that_nobody_waits_with_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.ledger.state.SPARE_SHAPES", 4)
    fold = Fold(cluster())
    kept = fold.submit(job(cores=1))
    for cores in range(2, 40):
        fold(events.JobEnded(fold.submit(job(cores=cores)), JobState.CANCELLED))
    assert len(fold.state.shapes) <= 8
    (one,) = fold.state.classes.values()
    assert one.waiting[0].job == kept
    assert fold.state.shapes[one.key.shape] == one.shape
