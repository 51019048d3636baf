"""What a pass over capacity decides: a table of what waits and what is on offer, then what comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.autoscale import Policy
from orchestrator.autoscale.backoff import retry_us
from orchestrator.ledger import events
from orchestrator.model.attempt import JobState
from orchestrator.model.capacity import NEVER_US, Circuit, ErrorClass, Halt, Offer, Shape
from orchestrator.model.cluster import ClusterSpec, Queue, QueueLimits, Storage, StorageKind, Update
from orchestrator.model.decisions import Buy, Cordon, Release, Uncordon
from orchestrator.model.job import JobSpec, Workload
from orchestrator.model.node import Contact, Mark, MarkKind
from tests.autoscale.scene import SECOND, Scene, budget, elastic, hybrid, offer
from tests.builders import T0, job, pool

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


A, B = "us-east-1a", "us-east-1b"
MOUNTED = replace(
    hybrid(elastic(), pool("metal", nodes=2)),
    storage=(
        Storage("home", StorageKind.NFS, "/home", "nas1:/home", ("here",)),
        Storage("fast", StorageKind.FSX, "/fast", size=1200 << 30),
        Storage("all", StorageKind.NFS, "/all", "nas1:/all"),
    ),
)
CASES: dict[str, Case] = {
    "nothing waits, nothing is bought": Case([], []),
    "a gang is bought whole, in one launch": Case([GANG_OF_4], [("on_demand", A, 4, 1)], {1: "wait.booting"}),
    "a gang larger than the pool may ever be gets nothing": Case([job(nodes=5, gpus=8)], []),
    "a gang whose nodes no offering has gets nothing": Case([job(nodes=1, gpus=8, cores=400)], []),
    "work that no bought pool suits buys nothing": Case([job(models=("A100",))], []),
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


def kinds(scene: Scene) -> list[str]:
    return [type(one).__name__ for one in scene.look()]


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


def test_while_a_site_is_tried_again_nothing_else_is_asked_of_it() -> None:
    """Though another pool of it could buy: what slowed it down was the site."""
    scene = Scene(
        hybrid(elastic(), elastic("other")),
        (offer(), offer(zone=B), offer(pool="other"), offer(zone=B, pool="other")),
    )
    for _ in range(2):
        scene.submit(GANG_OF_4)
    for intent in scene.carry_out():
        scene.refuse(intent, ErrorClass.THROTTLING)
    scene.wait(61)
    assert kinds(scene) == ["Buy"]
    (intent,) = scene.carry_out()
    assert kinds(scene) == []
    scene.launch(intent)
    assert kinds(scene) == ["Buy"]


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


@pytest.mark.parametrize(
    ("fault", "least_s", "most_s"),
    [
        (ErrorClass.CAPACITY, 60, 900),
        (ErrorClass.QUOTA, 3600, 6 * 3600),
        (ErrorClass.PRICE, 300, 1800),
        (ErrorClass.THROTTLING, 5, 120),
        (ErrorClass.AUTH, 300, 3600),
    ],
)
def test_each_class_rests_for_its_own_time(fault: ErrorClass, least_s: int, most_s: int) -> None:
    """Soon for lack of capacity, an hour at least for a quota; a quarter more at most, by the intent."""
    for failures, wanted_s in ((1, least_s), (40, most_s)):
        rest_us = retry_us(fault, failures, "intent-1", T0) - T0
        assert wanted_s * SECOND <= rest_us < wanted_s * SECOND * 5 // 4


def test_a_name_is_free_when_its_instance_is_gone() -> None:
    scene = Scene()
    scene.submit(job(nodes=1, gpus=8))
    (first,) = scene.bought()
    scene.look()
    scene.end(1)
    scene.wait(600)
    scene.carry_out()
    scene.carry_out()
    scene.submit(job(nodes=1, gpus=8))
    assert scene.state.nodes[first].releasing
    (intent,) = scene.carry_out()
    assert scene.state.fleets[intent].intent.nodes == ("burst-2",)
    scene.gone(first)
    scene.submit(job(nodes=1, gpus=8, cores=1))
    scene.launch(intent)
    (other,) = scene.carry_out()
    assert scene.state.fleets[other].intent.nodes == ("burst-1",)


def test_launches_of_an_offering_double_with_success_and_are_one_after_failure() -> None:
    scene = Scene(hybrid(elastic(most=20)), (offer(),))
    for cores in range(1, 12):
        scene.submit(job(nodes=1, gpus=8, cores=cores))
    made: list[int] = []
    for _ in range(3):
        asked = scene.carry_out()
        made.append(len(asked))
        scene.launch(*asked)
    assert made == [1, 2, 8]
    scene.submit(job(nodes=1, gpus=8, cores=40))
    (last,) = scene.carry_out()
    scene.refuse(last, ErrorClass.CAPACITY)
    scene.submit(job(nodes=1, gpus=8, cores=41))
    assert kinds(scene) == []
    scene.wait(61)
    assert kinds(scene) == ["Buy"], "one launch alone finds out whether it is better"


def test_another_file_lifts_what_only_a_file_can_mend() -> None:
    scene = Scene()
    scene.submit(GANG_OF_4)
    for _ in range(2):
        (intent,) = scene.carry_out()
        scene(events.CapacityRefused(intent, ErrorClass.PERMANENT, "no such image", 1 << 62))
    assert kinds(scene) == []
    assert scene.reason_of(1).fact("at") == "when the file changes"
    scene(events.ClusterApplied(hybrid(elastic(most=5)), "another"), "cluster")
    assert kinds(scene) == ["Buy"]


def test_a_pool_whose_nodes_do_not_boot_stops_buying() -> None:
    """Ten in a row, whatever offering they were of; a person or another file lets it try again."""
    scene = Scene(hybrid(elastic(boot_s=100)))
    scene.submit(GANG_OF_4)
    for _ in range(3):
        nodes = scene.bought(ready=False)
        scene.wait(100)
        scene.carry_out(tuple(one for one in scene.look() if isinstance(one, Release)))
        assert all(scene.state.nodes[name].releasing for name in nodes)
        scene.gone(*nodes)
        scene.wait(3600)
    assert scene.state.boot_failures == {"burst": 12}
    assert kinds(scene) == []
    assert "12 nodes in a row" in scene.reason_of(1).sentence()
    scene(events.CapacityReset("burst", "the image is mended"))
    assert kinds(scene) == ["Buy"]


def test_a_boot_that_is_too_slow_lets_its_offering_rest() -> None:
    scene = Scene(hybrid(elastic(boot_s=100)))
    scene.submit(job(nodes=1, gpus=8))
    (late,) = scene.bought(ready=False)
    scene.wait(99)
    assert kinds(scene) == []
    scene.wait(1)
    release, buy = scene.look()
    assert isinstance(release, Release)
    assert isinstance(buy, Buy)
    assert release.failed
    assert scene.state.nodes[late].instance in release.instances
    assert buy.offer.key.zone == B, "the same pass knows that the other one rests"


def test_what_did_not_boot_is_not_bought_again_in_the_same_pass() -> None:
    """Also where nothing else is on offer; the rest of each launch that failed is longer than the one before."""
    scene = Scene(hybrid(elastic(boot_s=100)), (offer(),))
    scene.submit(job(nodes=1, gpus=8))
    scene.bought(ready=False)
    scene.submit(job(nodes=1, gpus=8, cores=2))
    scene.bought(ready=False)
    scene.wait(100)
    first, second = scene.look()
    assert isinstance(first, Release)
    assert isinstance(second, Release)
    assert second.retry_us - scene.now_us >= 120 * SECOND > first.retry_us - scene.now_us
    assert scene.reason_of(1).code == "wait.capacity"


def test_the_breaker_opens_in_the_pass_that_sees_the_last_failure() -> None:
    scene = Scene(hybrid(elastic(most=8, boot_s=100)))
    scene.policy = Policy(most_boot_failures=4)
    scene.submit(GANG_OF_4)
    scene.bought(ready=False)
    scene.wait(100)
    assert kinds(scene) == ["Release"]
    assert "4 nodes in a row" in scene.reason_of(1).sentence()


# --- giving back ----------------------------------------------------------------------------------------------


def idle(least: int = 0, **rest: Any) -> tuple[Scene, list[str]]:
    """A pool of three nodes that have just become idle."""
    scene = Scene(hybrid(elastic(least=least, **rest)))
    scene.submit(job(nodes=3, gpus=8))
    nodes = scene.bought()
    scene.look()
    scene.end(1)
    return scene, nodes


def test_idle_nodes_go_in_two_passes() -> None:
    scene, nodes = idle()
    scene.wait(599)
    assert kinds(scene) == []
    scene.wait(1)
    assert kinds(scene) == ["Cordon"] * 3
    scene.carry_out()
    assert kinds(scene) == ["Release"] * 3
    assert all(not scene.state.nodes[name].open for name in nodes)


def test_work_that_comes_between_the_passes_keeps_its_node() -> None:
    scene, _ = idle()
    scene.wait(600)
    scene.carry_out()
    late = scene.submit(job(nodes=1, gpus=8))
    decisions = scene.look()
    assert sorted(type(one).__name__ for one in decisions) == ["Release", "Release", "Uncordon"]
    scene.carry_out(decisions)
    scene.look()
    assert scene.state.jobs[late].attempt is not None


def test_a_floor_wins_over_idleness() -> None:
    scene, _ = idle(least=2)
    scene.wait(10**6)
    scene.carry_out()
    scene.carry_out()
    assert [node.releasing for node in scene.state.nodes.values()].count(False) == 2
    assert kinds(scene) == []


def test_the_dearest_of_idle_nodes_goes_first() -> None:
    """Though it has been idle for a shorter time."""
    scene = Scene(hybrid(elastic(least=1)), (offer("spot", dollars=20), offer(dollars=50)))
    first = scene.submit(job(nodes=1, gpus=8))
    scene.bought()
    scene.look()
    second = scene.submit(job(nodes=1, gpus=8))
    (intent,) = scene.carry_out()
    scene.refuse(intent, ErrorClass.CAPACITY, 3600)
    (dear,) = scene.bought()
    scene.look()
    for each in (first, second):
        scene.end(each)
        scene.wait(100)
    scene.wait(1000)
    (cordon,) = scene.look()
    assert isinstance(cordon, Cordon)
    assert cordon.node == dear


def test_the_pools_own_idle_time_counts() -> None:
    scene, _ = idle(idle_s=7200)
    scene.wait(7199)
    assert kinds(scene) == []
    scene.wait(1)
    assert kinds(scene) == ["Cordon"] * 3


def test_what_people_have_cordoned_is_not_given_back() -> None:
    scene, nodes = idle()
    scene(events.NodeMarked(nodes[1], Mark(MarkKind.CORDONED, "debugging", "user:alice", scene.now_us)))
    scene.wait(600)
    cordons = scene.look()
    assert [one.node for one in cordons if isinstance(one, Cordon)] == [nodes[0], nodes[2]]


def test_what_an_apply_has_closed_is_given_back_once_nobody_needs_it() -> None:
    """As when the cluster ends: the apply waits for that, and would for ever."""
    scene, nodes = idle()
    for name in nodes:
        scene(
            events.NodeMarked(name, Mark(MarkKind.UPDATING, "the cluster ends", "user:alice", scene.now_us))
        )
    assert kinds(scene) == []
    scene.wait(600)
    assert kinds(scene) == ["Release"] * 3


def test_a_smaller_size_lets_only_idle_nodes_go() -> None:
    scene, nodes = idle()
    scene.submit(job(nodes=1, gpus=8))
    scene.look()
    (busy,) = [node.name for node in scene.state.nodes.values() if node.holders]
    scene(events.ClusterApplied(hybrid(elastic(most=1)), "smaller"), "cluster")
    gone = {one.node for one in scene.look() if isinstance(one, Cordon)}
    assert gone == set(nodes) - {busy}


def test_a_smaller_size_lets_no_more_go_than_are_too_many() -> None:
    """None of the three has been idle for long: one goes."""
    scene, _ = idle()
    scene(events.ClusterApplied(hybrid(elastic(most=2)), "smaller"), "cluster")
    assert kinds(scene) == ["Cordon"]


def test_a_pool_that_left_the_file_is_given_back_when_its_work_is_over() -> None:
    scene, nodes = idle()
    scene.submit(job(nodes=1, gpus=8))
    scene.look()
    (busy,) = [node.name for node in scene.state.nodes.values() if node.holders]
    scene(events.ClusterApplied(hybrid(elastic("other")), "without"), "cluster")
    released = scene.look()
    scene.carry_out(released)
    assert {name for name in nodes if scene.state.nodes[name].releasing} == set(nodes) - {busy}
    scene.end(2)
    assert kinds(scene) == ["Release"]


# --- what the file wants otherwise ----------------------------------------------------------------------------


def old_nodes(count: int = 3, **rest: Any) -> tuple[Scene, list[str]]:
    """Nodes that a file before the present one has bought for a gang, which still runs on them."""
    scene = Scene(hybrid(elastic(**rest)))
    scene.submit(job(nodes=count, gpus=8))
    nodes = scene.bought()
    scene.look()
    scene.policy = replace(scene.policy, outdated=frozenset(scene.state.fleets))
    return scene, nodes


def test_old_nodes_are_closed_few_at_a_time_and_go_when_their_work_is_over() -> None:
    scene, nodes = old_nodes(update=Update(max_unavailable=2))
    (first, second) = scene.look()
    assert isinstance(first, Cordon)
    assert first.deadline_us == scene.now_us + Update().drain.deadline_s * SECOND
    scene.carry_out((first, second))
    assert kinds(scene) == [], "the gang runs on"
    scene.end(1)
    assert kinds(scene) == ["Release", "Release"]
    scene.carry_out()
    assert kinds(scene) == [], "the third one's turn comes when they are gone"
    scene.gone(*nodes[:2])
    assert kinds(scene) == ["Cordon"]
    scene.carry_out()
    assert kinds(scene) == ["Release"]


def test_nobody_counts_on_an_old_node_that_was_closed() -> None:
    scene, _ = old_nodes(1)
    scene.carry_out()
    scene.end(1)
    scene.submit(job(nodes=1, gpus=8))
    assert kinds(scene) == ["Buy", "Release"]


def test_a_gang_that_an_old_node_has_room_for_starts_there_first() -> None:
    """It would wait for a boot otherwise; the node is closed as soon as the gang has begun."""
    scene, _ = old_nodes(1)
    scene.end(1)
    late = scene.submit(job(nodes=1, gpus=8))
    assert kinds(scene) == ["Cordon"]
    assert scene.state.jobs[late].attempt is not None


def test_a_floor_is_renewed_one_after_the_other() -> None:
    scene, _ = old_nodes(2, least=2)
    scene.end(1)
    old = dict(scene.state.fleets)
    closed: list[int] = []
    for _ in range(40):
        scene.carry_out()
        closed.append(sum(not node.open for node in scene.state.nodes.values()))
        scene.join(*scene.launch())
        scene.gone(*[node.name for node in scene.state.nodes.values() if node.releasing])
    assert max(closed) == 1
    assert not set(old) & set(scene.state.fleets)
    assert [node.open for node in scene.state.nodes.values()] == [True, True]


@pytest.mark.parametrize("trouble", ["no capacity", "does not boot"])
@pytest.mark.parametrize("wanted_for", ["a floor", "a gang", "a gang that was cancelled"])
def test_no_old_node_is_closed_while_new_ones_can_not_be_had(trouble: str, wanted_for: str) -> None:
    """Of one offering, so that nothing is under way meanwhile; two idle old nodes are better than none."""
    scene, _ = old_nodes(2, least=3 if wanted_for == "a floor" else 0)
    scene.offers = scene.offers[:1]
    scene.end(1)
    waits = scene.submit(job(nodes=3, gpus=8)) if wanted_for != "a floor" else 0
    (intent,) = scene.carry_out()
    if trouble == "no capacity":
        scene.refuse(intent, ErrorClass.CAPACITY)
    else:
        (node,) = scene.launch(intent)
        scene.wait(1500)
        scene.carry_out(tuple(one for one in scene.look() if isinstance(one, Release) and one.failed))
        scene.gone(node)
    if wanted_for == "a gang that was cancelled":
        scene(events.JobEnded(waits, JobState.CANCELLED))
    for _ in range(5):
        assert [one for one in scene.look() if "older file" in getattr(one, "why", "")] == []
        scene.wait(1)


def test_no_old_node_is_closed_while_another_one_comes() -> None:
    """From the decision until it is proved; then one is closed, also under its work."""
    scene, _ = old_nodes(2)
    scene.submit(job(nodes=1, gpus=8))
    (intent,) = scene.carry_out()
    assert kinds(scene) == [], "it was asked for"
    (node,) = scene.launch(intent)
    assert kinds(scene) == [], "it boots"
    scene.join(node)
    assert kinds(scene) == ["Cordon"]


def test_an_idle_old_node_is_closed_before_a_busy_one() -> None:
    scene = Scene()
    busy, idle = (scene.submit(job(nodes=1, gpus=8)) for _ in range(2))
    scene.bought()
    scene.bought()
    scene.look()
    (node,) = [part.placement.node for part in scene.state.jobs[idle].attempt.parts]  # type: ignore[union-attr]
    scene.wait(10)
    scene.end(idle)
    scene.policy = replace(scene.policy, outdated=frozenset(scene.state.fleets))
    (first,) = scene.look()
    assert isinstance(first, Cordon)
    assert first.node == node
    assert scene.state.jobs[busy].attempt is not None


def test_an_old_node_that_a_waiting_gang_counts_on_is_not_closed() -> None:
    scene, _ = old_nodes(1, update=Update(max_unavailable=3))
    scene.end(1)
    scene.submit(job(nodes=2, gpus=8))
    assert kinds(scene) == ["Buy"]


@pytest.mark.parametrize("trouble", ["nothing on offer", "offerings rest", "site rests"])
def test_no_old_node_is_closed_while_nothing_is_sold(trouble: str) -> None:
    """No job waits that would be told of it; each node that goes would be lost to the next one."""
    scene, _ = old_nodes(2)
    if trouble == "nothing on offer":
        scene.offers = ()
    for each in scene.offers if trouble == "offerings rest" else ():
        scene.state.circuits[each.key] = Circuit(each.key, retry_us=NEVER_US)
    if trouble == "site rests":
        scene.state.halts["use1"] = Halt("use1", ErrorClass.AUTH, "no", scene.now_us + 60 * SECOND)
    assert kinds(scene) == []


def test_closed_nodes_stay_closed_while_nobody_knows_what_the_file_wants() -> None:
    """Else each failed look at the stack's facts gave the node new work, and its drain another deadline."""
    scene, nodes = old_nodes(1)
    scene.carry_out()
    mark = scene.state.nodes[nodes[0]].marks[0]
    known = scene.policy
    scene.policy = replace(known, outdated=frozenset(), blocked=(("use1", "its facts can't be read"),))
    assert kinds(scene) == []
    scene.policy = known
    assert kinds(scene) == []
    assert scene.state.nodes[nodes[0]].marks == [mark]


def test_a_file_that_changes_back_opens_the_nodes_again() -> None:
    scene, nodes = old_nodes(1)
    scene.carry_out()
    assert not scene.state.nodes[nodes[0]].open
    scene.policy = replace(scene.policy, outdated=frozenset())
    assert kinds(scene) == ["Uncordon"]
    scene.carry_out()
    assert scene.state.nodes[nodes[0]].open


def test_nodes_that_boot_for_a_job_that_is_gone_go_too() -> None:
    scene = Scene()
    scene.submit(job(nodes=2, gpus=8))
    scene.bought(ready=False)
    scene(events.JobCancelRequested(1))
    scene(events.JobEnded(1, "cancelled"))  # type: ignore[arg-type] # a Word is its text
    scene.wait(600)
    assert kinds(scene) == ["Release"] * 2


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


def test_uncordon_is_only_for_what_an_earlier_pass_has_cordoned() -> None:
    scene, _ = idle()
    scene.submit(job(nodes=3, gpus=8))
    assert not [one for one in scene.look() if isinstance(one, Uncordon)]
