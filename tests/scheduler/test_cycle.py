"""What a pass decides: a table of small clusters, jobs and what should come of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import pytest

from orchestrator.ledger import events
from orchestrator.ledger.snapshot import to_plain
from orchestrator.ledger.state import ClassKey, State
from orchestrator.model.attempt import EndCause, Placement
from orchestrator.model.cluster import ClusterSpec, Queue, Share, Site, SiteKind, Storage, StorageKind
from orchestrator.model.decisions import Reasons, Start
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, LaunchKind, Workload
from orchestrator.model.node import Contact, Mark, MarkKind
from orchestrator.model.reasons import Reason
from orchestrator.scheduler import Policy, decide, refuse
from tests.builders import Fold, cluster, job, pool, queue


class Told:
    """A Reporter that keeps what it is told: the reasons of all classes that still have somebody who waits."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.waits: Reasons | None = None
        self.reasons: dict[ClassKey, Reason] = {}

    def waiting(self, reasons: Reasons) -> None:
        self.waits = reasons

    def ask(self, decisions: tuple[Start, ...]) -> None:
        started = {start.attempt.job for start in decisions}
        for key, found in self.state.classes.items():
            why = self.waits.get(key) if self.waits is not None else None
            if why is not None and any(place.job not in started for place in found.waiting):
                self.reasons[key] = why


def run(state: State, budget: int = 10_000) -> tuple[tuple[Start, ...], Told]:
    """One pass; the state must be as before."""
    before, told = copy.deepcopy(to_plain(state)), Told(state)
    free = {name: state.capacity.at(name) for name in state.capacity.names}
    decisions = decide(state, Policy(), 0, budget, told)
    assert to_plain(state) == before
    assert {name: state.capacity.at(name) for name in state.capacity.names} == free
    told.ask(decisions)
    return decisions, told


def enact(fold: Fold, decisions: tuple[Start, ...]) -> None:
    """Fold the starts."""
    for start in decisions:
        body = events.AttemptAllocated(
            start.attempt, start.placements, start.master_address, start.master_port, start.time_limit_s
        )
        fold(body, f"job/{start.attempt.job}")


@dataclass
class Case:
    """Jobs in submit order on a cluster; who starts, and the reason code of the others."""

    jobs: list[JobSpec]
    want_started: list[int]
    want_reasons: dict[int, str] = field(default_factory=dict)
    spec: ClusterSpec = field(default_factory=lambda: cluster(pool(nodes=2, gpus=4)))


CASES: dict[str, Case] = {
    "what fits starts in submit order": Case([job(), job(gpus=2), job(nodes=1, gpus=4)], [1, 2, 3]),
    "priority goes first": Case(
        [job(nodes=2, gpus=4), job(nodes=2, gpus=4, priority=5)], [2], {1: "wait.gpus"}
    ),
    "two gangs at once: one runs, the other holds nothing": Case(
        [job(nodes=2, gpus=3), job(nodes=2, gpus=3)], [1], {2: "wait.gpus"}
    ),
    "a blocked gang keeps its pool from those behind it": Case(
        [job(gpus=1), job(nodes=2, gpus=4), job(gpus=2)], [1], {2: "wait.gpus", 3: "wait.order"}
    ),
    "it keeps only the pools that it could use": Case(
        [job(gpus=1, models=("A",)), job(nodes=2, gpus=4, models=("A",)), job(gpus=1, models=("B",))],
        [1, 3],
        {2: "wait.gpus"},
        cluster(pool("a", 2, 4, model="A"), pool("b", 1, 4, model="B")),
    ),
    "tasks pack on few nodes": Case([job(tasks=8)], [1]),
    "tasks that do not fit together": Case([job(tasks=3), job(tasks=6)], [1], {2: "wait.tasks"}),
    "cores bind": Case(
        [job(gpus=1, cores=40), job(nodes=2, gpus=1, cores=40, priority=-1)], [1], {2: "wait.cores"}
    ),
    "a limit stops one class and nobody behind it": Case(
        [job(queue="small"), job(queue="small"), job()],
        [1, 3],
        {2: "wait.limit"},
        cluster(pool(nodes=2, gpus=4), queues=(queue("small", max_running_jobs=1), queue())),
    ),
    "a borrowing limit counts beyond the guarantee": Case(
        [job(gpus=3), job(gpus=3)],
        [1],
        {2: "wait.limit"},
        cluster(
            pool(nodes=2, gpus=4),
            queues=(Queue("default", guarantee=(Share(2, "p"),), borrow_limit=(Share(2, "p"),)),),
        ),
    ),
    "a person's limit": Case(
        [job(gpus=2), job(gpus=2)],
        [1],
        {2: "wait.limit"},
        cluster(pool(nodes=2, gpus=4), queues=(queue(max_gpus_per_user=3),)),
    ),
    "work without GPUs goes where no GPUs are": Case(
        [job(gpus=0, cores=2)], [1], {}, cluster(pool("g", 1, 4), pool("c", 1, 0, cores=4))
    ),
    "ports run out": Case(
        [job(tasks=2), job(tasks=2)],
        [1],
        {2: "wait.ports"},
        cluster(pool(nodes=2, gpus=4), ports=(20000, 20000)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pass(name: str) -> None:
    case = CASES[name]
    fold = Fold(case.spec)
    for spec in case.jobs:
        fold.submit(spec)
    decisions, told = run(fold.state)
    assert sorted(start.attempt.job for start in decisions) == case.want_started
    reasons = {
        place.job: told.reasons[key].code
        for key, found in fold.state.classes.items()
        for place in found.waiting
        if place.job not in case.want_started
    }
    assert reasons == case.want_reasons
    for reason in told.reasons.values():
        assert "{" not in reason.sentence() + reason.action()


@dataclass
class Fit:
    """One job, devices taken before, and where it should go."""

    taken: dict[str, int]  # node -> devices taken, lowest first
    ask: JobSpec
    want: list[tuple[str, tuple[int, ...], int]]  # node, slots, tasks


FITS: dict[str, Fit] = {
    "the fullest node that suffices": Fit({"p-2": 2}, job(gpus=2), [("p-2", (2, 3), 1)]),
    "an untouched node only if it must": Fit({"p-2": 3}, job(gpus=1), [("p-2", (3,), 1)]),
    "ties by node order": Fit({}, job(gpus=1), [("p-1", (0,), 1)]),
    "one node if the tasks fit on one": Fit({"p-1": 1}, job(tasks=4), [("p-2", (0, 1, 2, 3), 4)]),
    "the rest on the fullest node": Fit(
        {"p-1": 2}, job(tasks=6), [("p-1", (2, 3), 2), ("p-2", (0, 1, 2, 3), 4)]
    ),
    "a task is never split": Fit(
        {"p-1": 1, "p-2": 1}, job(tasks=2, gpus=2), [("p-1", (1, 2), 1), ("p-2", (1, 2), 1)]
    ),
    "nodes in the order of the spec": Fit(
        {"p-2": 1}, job(nodes=2, gpus=2), [("p-1", (0, 1), 1), ("p-2", (1, 2), 1)]
    ),
    "ranks per node": Fit(
        {},
        JobSpec("j", job(nodes=1, gpus=4).request, ("t",), launch=LaunchKind.LAUNCHER),
        [("p-1", (0, 1, 2, 3), 1)],
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_placement(name: str) -> None:
    case = FITS[name]
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    for node, count in case.taken.items():
        first = fold.submit(job(gpus=count))
        fold(events.AttemptAllocated(AttemptId(first, 1), (Placement(node, tuple(range(count))),)))
    fold.submit(case.ask)
    decisions, _ = run(fold.state)
    assert [(part.node, part.slots, part.tasks) for part in decisions[0].placements] == case.want


def test_recovering_stops_every_start() -> None:
    fold = Fold(cluster(pool()))
    fold.submit(job())
    fold(events.LedgerRestored(100, 0))
    decisions, told = run(fold.state)
    assert decisions == ()
    assert [reason.code for reason in told.reasons.values()] == ["wait.recovering"]
    fold(events.LedgerRecovered())
    assert len(run(fold.state)[0]) == 1


def test_closed_nodes_are_the_reason_and_keep_nobody_out() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    fold(events.NodeMarked("p-1", Mark(MarkKind.CORDONED, "disk", "user:root", 0)))
    wide = fold.submit(job(nodes=2, gpus=1))
    small = fold.submit(job())
    decisions, told = run(fold.state)
    assert [start.attempt.job for start in decisions] == [small]
    (reason,) = told.reasons.values()
    assert reason.code == "wait.nodes-closed"
    assert "1 of 2" in reason.sentence()
    assert "1 cordoned" in reason.sentence()
    fold(events.NodeUnmarked("p-1", MarkKind.CORDONED))
    assert {start.attempt.job for start in run(fold.state)[0]} == {wide, small}


def test_unreachable_nodes_get_nothing() -> None:
    fold = Fold(cluster(pool(nodes=1)))
    fold.submit(job())
    fold(events.NodeContact("p-1", Contact.UNREACHABLE))
    _, told = run(fold.state)
    assert "1 unreachable" in next(iter(told.reasons.values())).sentence()


def test_budget_bounds_a_pass_and_the_next_goes_on() -> None:
    fold = Fold(cluster(pool(nodes=2)))
    for number in range(6):
        fold.submit(job(priority=number))
    decisions, told = run(fold.state, budget=4)
    assert len(decisions) == 4
    assert {reason.code for reason in told.reasons.values()} == {"wait.next-pass"}
    enact(fold, decisions)
    assert len(run(fold.state, budget=4)[0]) == 2


def test_two_gangs_for_a_hundred_nodes_in_one_pass() -> None:
    """Whichever comes first takes all of them; the other has nothing, and gets all when the first is over."""
    fold = Fold(cluster(pool(nodes=100, gpus=4)))
    first, second = (fold.submit(job(nodes=100, gpus=4)) for _ in range(2))
    decisions, told = run(fold.state)
    assert [(start.attempt.job, len(start.placements)) for start in decisions] == [(first, 100)]
    assert len(told.reasons) == 1
    enact(fold, decisions)
    assert not fold.state.capacity.whole.any()
    assert run(fold.state)[0] == ()
    for number in range(1, 101):
        fold(events.AttemptPartEnded(AttemptId(first, 1), f"p-{number}"))
    fold(events.AttemptEnded(AttemptId(first, 1), EndCause.COMPLETED))
    assert {start.attempt.job for start in run(fold.state)[0]} == {second}


def test_thousands_of_equal_jobs_cost_a_probe_each() -> None:
    fold = Fold(cluster(pool(nodes=500)))
    for _ in range(4_100):
        fold.submit(job())
    decisions, _ = run(fold.state, budget=4_001)
    assert len(decisions) == 4_000
    assert {len(start.placements) for start in decisions} == {1}


@pytest.mark.parametrize(
    ("workload", "own", "queues", "want"),
    [
        (Workload.BATCH, 0, queue(), 4 * 3600),
        (Workload.TRAINING, 0, queue(), 24 * 3600),
        (Workload.SERVING, 0, queue(), 0),
        (Workload.BATCH, 0, queue(default_time_limit_s=60), 60),
        (Workload.BATCH, 30, queue(default_time_limit_s=60), 30),
        (Workload.BATCH, 0, queue(max_time_limit_s=3600), 3600),
        (Workload.SERVING, 0, queue(max_time_limit_s=3600), 3600),
        (Workload.BATCH, 0, queue(max_time_limit_s=8 * 3600), 4 * 3600),
    ],
)
def test_time_limit(workload: Workload, own: int, queues: Queue, want: int) -> None:
    fold = Fold(cluster(pool(), queues=(queues,)))
    fold.submit(job(workload=workload, time_limit_s=own))
    assert run(fold.state)[0][0].time_limit_s == want


NEVER: dict[str, tuple[JobSpec, str]] = {
    "unknown queue": (job(queue="nope"), "never.queue"),
    "unknown model": (job(models=("B200",)), "never.model"),
    "more GPUs than a node has": (job(gpus=9), "never.tasks"),
    "more nodes than there are": (job(nodes=3), "never.nodes"),
    "more cores than a node has": (job(nodes=1, cores=65), "never.nodes"),
    "more than its person may have": (job(tasks=5, queue="small"), "never.limit"),
    "longer than its queue allows": (job(queue="small", time_limit_s=7200), "never.time-limit"),
}


def stored(*storage: Storage) -> ClusterSpec:
    """A hall, and a region with the same kind of nodes."""
    sites = (Site("here", SiteKind.LOCAL), Site("use1", SiteKind.AWS, region="us-east-1"))
    pools = (pool("metal", 2), replace(pool("cloud", 2), site="use1"))
    return ClusterSpec("test", sites=sites, pools=pools, queues=(queue(),), storage=storage)


@pytest.mark.parametrize(
    ("storage", "pools"),
    [
        (Storage("data", StorageKind.NFS, "/data", "nas1:/data", ("here",)), {"metal"}),
        (Storage("data", StorageKind.NFS, "/data", "nas1:/data", ("use1",)), {"cloud"}),
        (Storage("data", StorageKind.NFS, "/data", "nas1:/data", ("use1", "here")), {"metal", "cloud"}),
        (Storage("data", StorageKind.LOCAL, "/data"), {"metal", "cloud"}),
        (Storage("data", StorageKind.EFS, "/data", "fs-1"), {"metal", "cloud"}),
        (Storage("data", StorageKind.EFS, "/data"), {"cloud"}),
        (Storage("data", StorageKind.FSX, "/data"), {"cloud"}),
    ],
)
def test_work_goes_where_its_storage_is_mounted(storage: Storage, pools: set[str]) -> None:
    """Filled up to the last node, and no further, though the others are free; those behind are not kept waiting."""
    fold = Fold(stored(storage))
    wanting = [fold.submit(job(nodes=1, gpus=8, needs=("data",))) for _ in range(4)]
    plain = fold.submit(job(nodes=1, gpus=8, needs=()))
    decisions, _ = run(fold.state)
    started = {start.attempt.job: start.placements[0].node.partition("-")[0] for start in decisions}
    assert [started[one] in pools for one in wanting if one in started] == [True] * len(pools) * 2
    assert (plain in started) == (len(pools) == 1)


@pytest.mark.parametrize(
    ("needs", "lacking"), [(("data", "home"), "data"), (("home", "gone"), "gone"), (("data",), None)]
)
def test_storage_that_is_nowhere_together_is_refused(needs: tuple[str, ...], lacking: str | None) -> None:
    home = Storage("home", StorageKind.NFS, "/home", "nas1:/home", ("here",))
    data = Storage("data", StorageKind.NFS, "/data", "nas1:/data", ("use1",))
    found = refuse.never(Fold(stored(home, data)).state, job(needs=needs), "alice")
    assert (found.code if found else None) == (lacking and "never.storage")
    assert found is None or (f"lacks {lacking}" in found.sentence() and "{" not in found.action())


@pytest.mark.parametrize("name", NEVER)
def test_never(name: str) -> None:
    spec, code = NEVER[name]
    small = queue("small", max_gpus_per_user=4, max_time_limit_s=3600)
    fold = Fold(cluster(pool(nodes=2, gpus=4), queues=(queue(), small)))
    found = refuse.never(fold.state, spec, "alice")
    assert found is not None
    assert found.code == code
    assert "{" not in found.sentence() + found.action()


def test_what_may_run_later_is_not_refused() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)), ready=False)
    assert refuse.never(fold.state, job(nodes=2, gpus=4), "alice") is None


def test_a_port_in_use_is_passed_over_for_the_next_one() -> None:
    """Jobs 1 and 4 begin their search at the same of three ports."""
    fold = Fold(cluster(pool(nodes=1, gpus=4), ports=(20000, 20002)))
    kinds = (LaunchKind.LAUNCHER, LaunchKind.RANKS, LaunchKind.RANKS, LaunchKind.LAUNCHER)
    for kind in kinds:
        fold.submit(job(launch=kind))
    decisions, _ = run(fold.state)
    assert [(start.attempt.job, start.master_port) for start in decisions] == [
        (1, 20001),
        (2, 0),
        (3, 0),
        (4, 20002),
    ]


def test_whoever_waits_behind_is_told_the_first_that_keeps_the_pool() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    fold.submit(job(nodes=1, gpus=2))
    enact(fold, run(fold.state)[0])
    for gpus in (4, 3):
        fold.submit(job(nodes=2, gpus=gpus))
    fold.submit(job(gpus=1))
    decisions, told = run(fold.state)
    assert decisions == ()
    assert [(each.code, dict(each.facts).get("ahead")) for each in told.reasons.values()] == [
        ("wait.gpus", None),
        ("wait.gpus", None),
        ("wait.order", 2),
    ]


@pytest.mark.parametrize(("models", "pool_name"), [(("A", "B"), "a"), (("B", "A"), "b")])
def test_models_are_in_order_of_preference_if_the_policy_says_so(
    models: tuple[str, ...], pool_name: str
) -> None:
    fold = Fold(cluster(pool("a", 1, 1, model="A"), pool("b", 1, 8, model="B")))
    fold.submit(job(models=models))
    (start,) = decide(fold.state, Policy(models_ranked=True), 0, 100, Told(fold.state))
    assert start.placements[0].node == f"{pool_name}-1"


def test_whoever_comes_behind_a_blocked_job_of_the_same_kind_makes_no_pass() -> None:
    """Who is first of each class has been tried; one more behind it changes nothing until something starts."""
    fold = Fold(cluster(pool(nodes=1, gpus=8)))
    fold.submit(job(gpus=6))
    enact(fold, run(fold.state)[0])
    fold.submit(job(gpus=4))
    assert run(fold.state)[0] == ()

    fold.submit(job(gpus=4))
    decisions, told = run(fold.state)
    assert (decisions, told.waits) == ((), None)

    fold.submit(job(gpus=3))
    decisions, told = run(fold.state)
    assert decisions == ()
    assert told.waits is not None, "a class that no pass has seen"
