"""Faults of other schedulers around topology, shares and what can never run, as scenes of one pass or two.

Comes in: small clusters. Goes out: proof of who starts where, and with what reason the others wait.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from orchestrator.ledger import events
from orchestrator.model.attempt import EndCause
from orchestrator.model.cluster import FabricDomain, GpuSpec, Queue, Share, SiteFabric, Unit
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec, PerNode, Request, Topology
from orchestrator.model.node import Device, Mark, MarkKind, NodeFacts
from orchestrator.scheduler import refuse
from tests.builders import ALICE, BOB, GPU, Fold, cluster, job, pool, queue
from tests.scheduler.test_cycle import enact, run

MIB = 1 << 20
UNITS = SiteFabric(
    ("unit", "spine"),
    (Unit("u1", ("p-1", "p-2")), Unit("u2", ("p-3", "p-4")), Unit("u3", ("p-5", "p-6"))),
    (FabricDomain("spine", "s1", ("u1", "u2")), FabricDomain("spine", "s2", ("u3",))),
)


def near(level: str, **rest: object) -> JobSpec:
    return job(topology=Topology(required=level), **rest)  # type: ignore[arg-type]


def nodes_of(start: Start) -> list[str]:
    return [part.node for part in start.placements]


def of_bytes(size: int) -> JobSpec:
    """One task with so many bytes of a device."""
    return replace(job(), request=Request(tasks=1, per_task=PerNode(gpu_memory=size)))


def one_gpu(memory: int, devices: int = 1) -> Fold:
    """A node whose devices have so many bytes."""
    wanted = replace(pool(nodes=1, gpus=devices), gpu=GpuSpec(GPU, devices, memory=memory))
    fold = Fold(cluster(wanted), ready=False)
    found = tuple(Device(slot, GPU, memory) for slot in range(devices))
    fold(events.NodeJoined("p-1", NodeFacts("boot-1", 64, 64 << 30, found), "outbox"))
    fold(events.NodeUnmarked("p-1", MarkKind.UNPROVED))
    return fold


def test_two_queues_can_not_have_the_same_last_domain_in_one_pass() -> None:
    fabric = SiteFabric(("unit",), (Unit("u1", ("p-1", "p-2")), Unit("u2", ("p-3",))))
    fold = Fold(cluster(pool(nodes=3, gpus=4), queues=(queue("a"), queue("b")), fabric=fabric))
    first = fold.submit(near("unit", nodes=2, gpus=4, queue="a"), ALICE)
    fold.submit(near("unit", nodes=2, gpus=4, queue="b"), BOB)

    decisions, told = run(fold.state)

    assert [(one.attempt.job, nodes_of(one)) for one in decisions] == [(first, ["p-1", "p-2"])]
    (why,) = told.reasons.values()
    assert why.code in ("wait.gpus", "wait.domain")


def test_enough_is_free_in_all_and_no_domain_holds_it() -> None:
    fold = Fold(cluster(pool(nodes=6, gpus=4), fabric=UNITS))
    for _ in range(3):
        fold.submit(near("unit", nodes=2, gpus=4))
    starts, _ = run(fold.state)
    enact(fold, starts)
    for start in starts[:2]:
        fold(events.AttemptPartEnded(start.attempt, nodes_of(start)[0]))
    fold.submit(near("unit", nodes=2, gpus=4))

    decisions, told = run(fold.state)

    assert decisions == ()
    (why,) = told.reasons.values()
    assert (why.code, why.fact("fit"), why.fact("all")) == ("wait.domain", 1, 2)


def test_gangs_take_the_domains_that_hold_them() -> None:
    fold = Fold(cluster(pool(nodes=6, gpus=4), fabric=UNITS))
    for size in (4, 2, 2):
        fold.submit(near("spine", nodes=size, gpus=4))

    decisions, told = run(fold.state)

    assert [nodes_of(one) for one in decisions] == [["p-1", "p-2", "p-3", "p-4"], ["p-5", "p-6"]]
    (why,) = told.reasons.values()
    assert (why.code, why.fact("fit")) == ("wait.gpus", 0)


def test_after_a_loss_the_gang_goes_to_a_domain_that_holds_it_whole() -> None:
    fold = Fold(cluster(pool(nodes=6, gpus=4), fabric=UNITS))
    fold.submit(near("unit", nodes=2, gpus=4))
    (start,) = run(fold.state)[0]
    enact(fold, (start,))
    lost = nodes_of(start)[0]
    for name in nodes_of(start):
        fold(events.AttemptPartEnded(start.attempt, name))
    fold(events.AttemptEnded(start.attempt, EndCause.NODE_FAILED))
    fold(events.JobRequeued(start.attempt.job, "node lost"))
    fold(events.NodeMarked(lost, Mark(MarkKind.CORDONED, "", "", 0)))

    (again,) = run(fold.state)[0]

    assert lost not in nodes_of(again)
    assert any(set(nodes_of(again)) <= set(unit.nodes) for unit in UNITS.units)


def test_halves_of_devices_are_given_two_to_each_and_no_more() -> None:
    fold = Fold(cluster(pool(nodes=1, gpus=8)))
    half = replace(job(), request=Request(tasks=1, per_task=PerNode(gpu_milli=500)))
    for _ in range(17):
        fold.submit(half)

    decisions, told = run(fold.state)

    held = Counter(slot for one in decisions for part in one.placements for slot in part.slots)
    assert held == dict.fromkeys(range(8), 2)
    (why,) = told.reasons.values()
    assert (why.code, why.fact("largest")) == ("wait.share", 0)


def test_bytes_of_a_device_are_counted_to_the_last() -> None:
    fold = one_gpu(46_068 * MIB)
    for _ in range(24):
        fold.submit(of_bytes(2_000 * MIB))

    decisions, told = run(fold.state)

    assert len(decisions) == 23
    (why,) = told.reasons.values()
    assert (why.code, why.fact("memory_left")) == ("wait.device-memory", 68 * MIB)


def test_a_device_is_not_given_a_third_time_in_a_later_pass() -> None:
    fold = one_gpu(24 << 30)
    for want in (1, 1):
        fold.submit(of_bytes(12 << 30))
        decisions, _ = run(fold.state)
        assert len(decisions) == want
        enact(fold, decisions)
    fold.submit(of_bytes(12 << 30))

    decisions, told = run(fold.state)

    assert decisions == ()
    (why,) = told.reasons.values()
    assert why.code in ("wait.device-memory", "wait.share")


def test_gangs_that_can_never_run_are_refused_and_stop_nobody() -> None:
    """Ten gangs of five nodes on two, and one that can run."""
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    for _ in range(10):
        never = refuse.never(fold.state, job(nodes=5, gpus=4), "alice")
        assert never is not None
        assert "it needs 5 node(s)" in never.sentence()
        assert "the best pool has 2" in never.sentence()
        fold.submit(job(nodes=5, gpus=4))  # as if each had been queued against the refusal
    one = fold.submit(job(nodes=2, gpus=4))

    decisions, told = run(fold.state)

    assert [start.attempt.job for start in decisions] == [one]
    assert [why.code for why in told.reasons.values()] == ["wait.never"]


def test_guarantees_beyond_what_there_is_still_have_an_order() -> None:
    """Two queues are promised all of one pool: by share, and never more than there is."""
    both = tuple(Queue(name, guarantee=(Share(8, pool="p"),)) for name in ("a", "b"))
    fold = Fold(cluster(pool(nodes=2, gpus=4), queues=both))
    for name, owner in (("a", ALICE), ("b", BOB)):
        for _ in range(8):
            fold.submit(job(gpus=1, queue=name), owner)

    decisions, told = run(fold.state)

    started = Counter(fold.state.jobs[start.attempt.job].spec.queue for start in decisions)
    assert started == {"a": 4, "b": 4}
    assert {why.code for why in told.reasons.values()} == {"wait.tasks"}
