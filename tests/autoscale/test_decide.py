"""What a pass over capacity decides: a table of what waits and what is on offer, then what comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.autoscale import Policy
from orchestrator.ledger import events
from orchestrator.ledger.capacity import WHOLE
from orchestrator.model.capacity import ErrorClass, Offer, Shape
from orchestrator.model.cluster import ClusterSpec, Queue, QueueLimits, Storage, StorageKind
from orchestrator.model.decisions import Buy
from orchestrator.model.job import JobSpec, Workload
from orchestrator.model.node import Contact, Mark, MarkKind
from orchestrator.scheduler import Policy as SchedulerPolicy
from tests.autoscale.scene import SECOND, Scene, budget, elastic, hybrid, kinds, offer
from tests.builders import ALICE, BOB, T0, job, pool

HOUR_S = 3600
GANG_OF_4 = job(nodes=4, gpus=8)
TWO_MARKETS = (offer("spot", dollars=20), offer("on_demand"))


@dataclass
class Case:
    """Jobs in submit order; what is bought as (market, zone, nodes, job), and the reason of jobs that go without."""

    jobs: list[JobSpec]
    want: list[tuple[str, str, int, int]]
    reasons: dict[int, str] = field(default_factory=dict)
    spec: ClusterSpec = field(default_factory=hybrid)
    offers: tuple[Offer, ...] | None = None
    before: Callable[[Scene], Any] | None = None


def tried(scene: Scene, *faults: ErrorClass | None, rest_s: int = 60) -> None:
    """As many launches as faults, each refused."""
    for fault in faults:
        (intent,) = scene.carry_out()
        scene.refuse(intent, fault, rest_s)


def blocked(why: str) -> Callable[[Scene], None]:
    def set_policy(scene: Scene) -> None:
        scene.policy = replace(scene.policy, blocked=(("use1", why),))

    return set_policy


def alone(spec: JobSpec) -> JobSpec:
    """The same on nodes that are nobody else's."""
    return replace(spec, request=replace(spec.request, exclusive=True))


def hold_gpus(scene: Scene, count: int) -> None:
    """The person has so many GPUs elsewhere."""
    scope = scene.state.scope(scene.state.jobs[1])
    scene.state.limits.take(scope, scene.state.gang_amounts(count * WHOLE, "burst"))


A, B = "us-east-1a", "us-east-1b"
MOUNTED = replace(
    hybrid(elastic(), pool("metal", nodes=2)),
    storage=(
        Storage("home", StorageKind.NFS, "/home", "nas1:/home", ("here",)),
        Storage("fast", StorageKind.FSX, "/fast", size=1200 << 30),
        Storage("all", StorageKind.NFS, "/all", "nas1:/all"),
    ),
)
KEPT_CORES = hybrid(replace(pool("metal", nodes=1, gpus=8, cores=16), keep_cores_per_gpu=1), elastic())
CASES: dict[str, Case] = {
    "nothing waits, nothing is bought": Case([], []),
    "a gang is bought whole, in one launch": Case([GANG_OF_4], [("on_demand", A, 4, 1)], {1: "wait.booting"}),
    "a gang larger than the pool may ever be gets nothing": Case([job(nodes=5, gpus=8)], []),
    "a gang whose nodes no offering has gets nothing": Case([job(nodes=1, gpus=8, cores=400)], []),
    "work that no bought pool suits buys nothing": Case([job(models=("A100",))], []),
    "work without GPUs that the cores kept for those stop": Case(
        [job(gpus=0, cores=8), job(gpus=0, cores=4)],
        [("on_demand", A, 1, 2)],
        {2: "wait.booting"},
        KEPT_CORES,
    ),
    "each buy is debited from the pool's size in the same pass": Case(
        [job(nodes=3, gpus=8), job(nodes=3, gpus=8, cores=2)],
        [("on_demand", A, 3, 1)],
        {2: "wait.pool-full"},
        offers=(offer(), offer(zone=B)),
    ),
    "those behind a gang that does not fit buy nothing in its pool": Case(
        [job(nodes=3, gpus=8), job(nodes=2, gpus=8), job(nodes=1, gpus=8)],
        [("on_demand", A, 3, 1)],
        {2: "wait.pool-full", 3: "wait.order"},
    ),
    "one launch of an untried offering at a time": Case(
        [job(nodes=1, gpus=8), job(nodes=2, gpus=8)], [("on_demand", A, 1, 1)], {2: "wait.booting"}
    ),
    "small jobs share what is bought": Case(
        [job(gpus=2), job(gpus=2), job(gpus=4)],
        [("on_demand", A, 1, 1)],
        dict.fromkeys((1, 3), "wait.booting"),
    ),
    "tasks take as many nodes as they need": Case([job(tasks=20, gpus=1)], [("on_demand", A, 3, 1)]),
    "priority buys first": Case(
        [job(nodes=3, gpus=8), job(nodes=2, gpus=8, priority=5)],
        [("on_demand", A, 2, 2)],
        {1: "wait.pool-full"},
    ),
    "an hour's budget is debited in the pass": Case(
        [job(nodes=2, gpus=8), job(nodes=1, gpus=8)],
        [("on_demand", A, 2, 1)],
        {2: "wait.budget"},
        hybrid(elastic(), budgets=(budget(hour=149),)),
        (offer(), offer(type_="p5en.48xlarge")),
    ),
    "a budget that takes the last node takes it": Case(
        [job(nodes=2, gpus=8)], [("on_demand", A, 2, 1)], {}, hybrid(elastic(), budgets=(budget(hour=100),))
    ),
    "a cheaper offering fits where a dearer one does not": Case(
        [job(nodes=2, gpus=8)],
        [("spot", A, 2, 1)],
        {},
        hybrid(elastic(), budgets=(budget(hour=60),)),
        (offer("on_demand"), offer("spot", dollars=20)),
    ),
    "a month's budget takes what the job may cost until its time limit": Case(
        [job(nodes=1, gpus=8, time_limit_s=10 * HOUR_S)],
        [],
        {1: "wait.budget"},
        hybrid(elastic(), budgets=(budget(month=500),)),
    ),
    "a job that is over a second too late for the month": Case(
        [job(nodes=1, gpus=8, time_limit_s=10 * HOUR_S - 2400 + 1)],
        [],
        {1: "wait.budget"},
        hybrid(elastic(), budgets=(budget(month=500),)),
    ),
    "a shorter job fits into the month": Case(
        [job(nodes=1, gpus=8, time_limit_s=10 * HOUR_S - 2400)],  # 40 minutes to boot, to idle and to leave
        [("on_demand", A, 1, 1)],
        {},
        hybrid(elastic(), budgets=(budget(month=500),)),
    ),
    "a budget of another pool, site or queue is none of this one's": Case(
        [job(nodes=1, gpus=8)],
        [("on_demand", A, 1, 1)],
        {},
        hybrid(
            elastic(),
            elastic("other"),
            budgets=(
                budget("a", hour=1, pool="other"),
                budget("b", hour=1, site="here"),
                budget("c", 1, queue="x"),
            ),
        ),
    ),
    "what stands all the time is in the budget too": Case(
        [job(nodes=1, gpus=8)],
        [],
        {1: "wait.budget"},
        hybrid(elastic(), pool("fixed", nodes=1, gpus=0), budgets=(budget(hour=100),)),
        before=lambda scene: setattr(scene, "policy", Policy(standing=(("fixed", 60_000_000),))),
    ),
    "the first market that is not resting is taken": Case(
        [GANG_OF_4],
        [("on_demand", A, 4, 1)],
        {},
        offers=TWO_MARKETS,
        before=lambda scene: tried(scene, ErrorClass.CAPACITY),
    ),
    "a price above the bound leads to the next market": Case(
        [GANG_OF_4],
        [("on_demand", A, 4, 1)],
        {},
        offers=TWO_MARKETS,
        before=lambda scene: tried(scene, ErrorClass.PRICE),
    ),
    "capacity is short in one zone only": Case(
        [GANG_OF_4], [("on_demand", B, 4, 1)], {}, before=lambda scene: tried(scene, ErrorClass.CAPACITY)
    ),
    "a quota holds in every zone": Case(
        [GANG_OF_4],
        [("on_demand", A, 4, 1)],
        {},
        offers=(offer("spot"), offer("spot", B), offer("on_demand")),
        before=lambda scene: tried(scene, ErrorClass.QUOTA),
    ),
    "everything was tried: the reason says what and when": Case(
        [GANG_OF_4],
        [],
        {1: "wait.capacity"},
        offers=TWO_MARKETS,
        before=lambda scene: tried(scene, ErrorClass.CAPACITY, ErrorClass.QUOTA),
    ),
    "throttling is no fault of the offering, and slows the site": Case(
        [GANG_OF_4], [], {1: "wait.cloud"}, before=lambda scene: tried(scene, ErrorClass.THROTTLING)
    ),
    "refused credentials stop the site": Case(
        [GANG_OF_4], [], {1: "wait.cloud"}, before=lambda scene: tried(scene, ErrorClass.AUTH)
    ),
    "a withdrawn intent changes nothing": Case(
        [GANG_OF_4], [("on_demand", A, 4, 1)], {}, before=lambda scene: tried(scene, None)
    ),
    "a site without facts": Case([GANG_OF_4], [], {1: "wait.cloud"}, before=blocked("no facts yet")),
    "a reservation has so many instances": Case(
        [job(nodes=2, gpus=8)],
        [("on_demand", A, 2, 1)],
        {},
        offers=(offer("capacity_reservation", reservation="cr-1", slots=1), offer()),
    ),
    "a reservation is debited in the pass": Case(
        [job(nodes=1, gpus=8)] * 2,
        [("capacity_reservation", A, 1, 1), ("on_demand", A, 1, 2)],
        {},
        offers=(offer("capacity_reservation", reservation="cr-1", slots=1), offer()),
    ),
    "money is the reason where what is cheap enough rests": Case(
        [job(nodes=2, gpus=8)],
        [],
        {1: "wait.budget"},
        hybrid(elastic(), budgets=(budget(hour=60),)),
        TWO_MARKETS,
        before=lambda scene: tried(scene, ErrorClass.CAPACITY),
    ),
    "a capacity block that ends before the job is no use": Case(
        [job(nodes=1, gpus=8, time_limit_s=2 * HOUR_S)],
        [("on_demand", A, 1, 1)],
        {},
        offers=(
            offer("capacity_block", reservation="cr-1", ends_us=1_800_000_000_000_000 + HOUR_S * SECOND),
            offer(),
        ),
    ),
    "a capacity block is left half an hour before its end": Case(
        [job(nodes=1, gpus=8, time_limit_s=2 * HOUR_S)],
        [],
        {1: "wait.capacity"},
        offers=(offer("capacity_block", reservation="cr-1", ends_us=T0 + 3 * HOUR_S * SECOND),),
    ),
    "a capacity block that lasts is used": Case(
        [job(nodes=1, gpus=8, time_limit_s=2 * HOUR_S)],
        [("capacity_block", A, 1, 1)],
        {},
        offers=(offer("capacity_block", reservation="cr-1", ends_us=T0 + 4 * HOUR_S * SECOND), offer()),
    ),
    "a floor stands in a block as long as a node is of use there": Case(
        [],
        [("capacity_block", A, 1, 0)],
        {},
        hybrid(elastic(least=1)),
        offers=(offer("capacity_block", reservation="cr-1", ends_us=T0 + 2 * HOUR_S * SECOND), offer()),
    ),
    "a floor does not stand in a block that is nearly over": Case(
        [],
        [("on_demand", A, 1, 0)],
        {},
        hybrid(elastic(least=1)),
        offers=(offer("capacity_block", reservation="cr-1", ends_us=T0 + HOUR_S * SECOND), offer()),
    ),
    "a person's limit stops the buying for them": Case(
        [job(nodes=1, gpus=8)],
        [],
        {1: "wait.limit"},
        hybrid(elastic(), queues=(Queue("default", limits=QueueLimits(max_gpus_per_user=4)),)),
    ),
    "limits count whole nodes of who wants nodes alone": Case(
        [alone(job(nodes=1, gpus=1))],
        [],
        {1: "wait.limit"},
        hybrid(elastic(), queues=(Queue("default", limits=QueueLimits(max_gpus_per_user=12)),)),
        before=lambda scene: hold_gpus(scene, 5),
    ),
    "a limit that whole nodes keep stops nothing": Case(
        [alone(job(nodes=1, gpus=1))],
        [("on_demand", A, 1, 1)],
        {1: "wait.booting"},
        hybrid(elastic(), queues=(Queue("default", limits=QueueLimits(max_gpus_per_user=12)),)),
        before=lambda scene: hold_gpus(scene, 4),
    ),
    "limits are debited for those behind": Case(
        [job(nodes=1, gpus=8), job(nodes=2, gpus=8)],
        [("on_demand", A, 1, 1)],
        {2: "wait.limit"},
        hybrid(elastic(), queues=(Queue("default", limits=QueueLimits(max_gpus_per_user=16)),)),
    ),
    "what fits on metal is not bought": Case(
        [job(nodes=2, gpus=8)], [], {}, hybrid(elastic(), pool("metal", nodes=2))
    ),
    "what does not fit on metal is bought whole": Case(
        [job(nodes=3, gpus=8)], [("on_demand", A, 3, 1)], {}, hybrid(elastic(), pool("metal", nodes=2))
    ),
    "work that needs what is mounted in the cloud alone is bought, though metal is free": Case(
        [job(nodes=1, gpus=8, needs=("fast",))], [("on_demand", A, 1, 1)], {}, MOUNTED
    ),
    "work that needs what is mounted on metal alone waits for it": Case(
        [job(nodes=2, gpus=8), job(nodes=2, gpus=8, needs=("home",)), job(nodes=2, gpus=8, needs=("all",))],
        [("on_demand", A, 2, 3)],
        {2: "wait.gpus"},
        MOUNTED,
    ),
    "a floor is bought node by node": Case([], [("on_demand", A, 1, 0)], {}, hybrid(elastic(least=2))),
    "work goes before floors": Case(
        [job(nodes=2, gpus=8)], [("on_demand", A, 2, 1)], {}, hybrid(elastic(least=3))
    ),
    "a floor is in the budget": Case([], [], {}, hybrid(elastic(least=1), budgets=(budget(hour=49),))),
    "endless work counts to the month's end": Case(
        [job(nodes=1, gpus=8, workload=Workload.SERVING)],
        [],
        {1: "wait.budget"},
        hybrid(elastic(), budgets=(budget(month=36_000),)),
        before=lambda scene: setattr(
            scene, "policy", Policy(scene.now_us, scene.now_us + 30 * 24 * HOUR_S * SECOND + SECOND)
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_pass_buys(name: str) -> None:
    case = CASES[name]
    scene = Scene(case.spec, case.offers)
    for spec in case.jobs:
        scene.submit(spec)
    if case.before is not None:
        case.before(scene)
    bought = [one for one in scene.look() if isinstance(one, Buy)]
    assert [
        (one.offer.key.market, one.offer.key.zone, len(one.nodes), one.job) for one in bought
    ] == case.want
    for job_id, code in case.reasons.items():
        why = scene.reason_of(job_id)
        assert (why.code, bool(why.sentence()), bool(why.action())) == (code, True, True)


# --- what is coming -------------------------------------------------------------------------------------------


def test_what_comes_covers_the_gang_until_it_is_there() -> None:
    """Asked for, launched, joined without its devices: at no step is it bought again."""
    scene = Scene()
    scene.submit(GANG_OF_4)
    (intent,) = scene.carry_out()
    assert kinds(scene) == []
    nodes = scene.launch(intent)
    assert kinds(scene) == []
    scene.join(*nodes[:3])
    assert kinds(scene) == []
    scene(events.NodeContact(nodes[0], Contact.SUSPECT))
    assert [type(one) for one in scene.look()] == []


def test_who_wants_a_node_alone_gets_one_bought_where_others_are_busy() -> None:
    scene = Scene()
    scene.submit(job(nodes=1, gpus=1))
    scene.bought()
    assert kinds(scene) == []
    scene.submit(alone(job(nodes=1, gpus=1)))
    assert [type(one) for one in scene.look()] == [Buy]


def test_nodes_of_a_gang_that_still_waits_are_not_idle() -> None:
    """The first nodes are ready, the last one boots for longer than they may idle."""
    scene = Scene(hybrid(elastic(idle_s=60)))
    scene.submit(GANG_OF_4)
    nodes = scene.bought(ready=False)
    scene.join(*nodes[:3])
    scene.wait(1000)
    assert kinds(scene) == []
    scene.join(nodes[3])
    scene.look()
    assert {node.name for node in scene.state.nodes.values() if node.holders} == set(nodes)


def test_coming_nodes_are_kept_for_their_job() -> None:
    """A job behind the gang does not get the first of its nodes."""
    scene = Scene()
    scene.submit(job(nodes=2, gpus=8))
    nodes = scene.bought(ready=False)
    second = scene.submit(job(gpus=1))
    scene.join(nodes[0])
    scene.look()
    assert scene.state.jobs[second].attempt is None
    scene.wait(1500 + 60)
    scene.look()
    assert scene.state.jobs[second].attempt is not None, (
        "an intent's time is over: nobody waits behind it for ever"
    )


@pytest.mark.parametrize("kept", [0, 8])
def test_each_of_two_equal_gangs_has_its_own_nodes_kept(kept: int) -> None:
    """Of two people: that the first of them does not fit yet does not open the other's nodes to those behind."""
    scene = Scene(hybrid(elastic(most=8)))
    scene.scheduling = SchedulerPolicy(kept=kept)
    for owner in (ALICE, BOB):
        scene.submit(job(nodes=3, gpus=8), owner)
    nodes = [*scene.bought(ready=False), *scene.bought(ready=False)]
    small = [scene.submit(job(gpus=1)) for _ in range(3)]
    scene.join(*(intent.instances[0].node for intent in scene.state.fleets.values()))
    scene.look()
    assert len(nodes) == 6
    assert [scene.state.jobs[one].attempt for one in small] == [None] * 3


def test_a_gang_with_a_node_lacking_is_bought_that_one_alone() -> None:
    scene = Scene()
    scene.submit(job(nodes=3, gpus=8))
    nodes = scene.bought()
    scene.look()
    scene(events.NodeMarked(nodes[0], Mark(MarkKind.CORDONED, "fan", "user:root", scene.now_us)))
    scene.end(1)
    scene.submit(job(nodes=3, gpus=8))
    (buy,) = scene.look()
    assert isinstance(buy, Buy)
    assert buy.nodes == ("burst-4",)


# --- what stands is paid for --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [(20, 1), (1, 20), (10, 20, 1)])
def test_a_shared_node_is_committed_until_its_last_job_must_be_over(hours: tuple[int, ...]) -> None:
    """Whichever of them was submitted last: 20 hours of one node leave the month no room for 2 more of another."""
    scene = Scene(hybrid(elastic(), budgets=(budget(month=1125),)), (offer(),))
    for each in hours:
        scene.submit(job(gpus=2, time_limit_s=each * HOUR_S))
    scene.join(*scene.launch(*scene.carry_out()))
    scene.look()
    assert len([one for one in scene.state.jobs.values() if one.attempt is not None]) == len(hours)
    scene.submit(job(nodes=1, gpus=8, time_limit_s=2 * HOUR_S))
    assert scene.look() == ()
    assert scene.reason_of(len(hours) + 1).code == "wait.budget"


# --- names, circuits ------------------------------------------------------------------------------------------


def test_a_floor_is_committed_to_the_end_of_the_month() -> None:
    """500 of the month's 550 dollars, though it is idle now: an hour on a second node has no room beside it."""
    scene = Scene(hybrid(elastic(least=1), budgets=(budget(month=550),)), (offer(),))
    scene.policy = Policy(scene.now_us, scene.now_us + 10 * HOUR_S * SECOND)
    scene.bought()
    gang = scene.submit(job(nodes=2, gpus=8, time_limit_s=HOUR_S))
    assert kinds(scene) == []
    assert scene.reason_of(gang).code == "wait.budget"


def test_a_proved_node_that_is_silent_is_not_waited_for() -> None:
    scene = Scene()
    first = scene.submit(job(nodes=1, gpus=8))
    (node,) = scene.bought()
    scene.look()
    scene.end(first)
    scene(events.NodeContact(node, Contact.UNREACHABLE))
    scene.submit(job(nodes=1, gpus=8))
    assert kinds(scene) == ["Buy"]


def test_a_node_that_is_being_ended_is_no_part_of_a_floor() -> None:
    """The next one is bought before it is gone, as far as the largest size lets."""
    scene = Scene(hybrid(elastic(least=1, boot_s=100)))
    scene.bought(ready=False)
    scene.wait(100)
    assert kinds(scene) == ["Release", "Buy"]


# --- properties of one pass -----------------------------------------------------------------------------------


def test_a_pass_is_bounded_by_its_work_budget() -> None:
    scene = Scene(hybrid(elastic(most=64)), tuple(offer(type_=f"t{number}") for number in range(64)))
    for cores in range(1, 40):
        scene.submit(job(nodes=1, gpus=8, cores=cores))
    looked = [one for one in scene.look(budget=10_000) if isinstance(one, Buy)]
    assert len(looked) == 1, "an offering whose launches are all under way is waited for"


def test_many_jobs_that_get_nothing_do_not_keep_others_from_being_looked_at() -> None:
    """A class that is blocked costs one probe, however many jobs it has."""
    scene = Scene()
    for _ in range(50):
        scene.submit(job(nodes=5, gpus=8))
    for _ in range(50):
        scene.submit(job(nodes=6, gpus=8))
    last = scene.submit(job(nodes=1, gpus=8))
    (buy,) = scene.look(budget=3)
    assert isinstance(buy, Buy)
    assert buy.job == last


def test_jobs_are_looked_at_by_priority_and_age_over_all_classes() -> None:
    scene = Scene(hybrid(elastic(most=3)))
    for cores, priority in ((1, 0), (2, 5), (1, 5), (2, 0)):
        scene.submit(job(nodes=1, gpus=8, cores=cores, priority=priority))
    scene.launch(*scene.carry_out())
    scene.carry_out()
    assert [fleet.intent.job for fleet in scene.state.fleets.values()] == [2, 3, 1]


def test_a_node_of_two_sizes_holds_what_it_holds() -> None:
    """Tasks count by what each offering's node takes."""
    half = Shape(4, 48, 256 << 30)
    scene = Scene(hybrid(elastic(most=10)), (offer(type_="half", shape=half),))
    scene.submit(job(tasks=10, gpus=2))
    (buy,) = scene.look()
    assert isinstance(buy, Buy)
    assert len(buy.nodes) == 5
