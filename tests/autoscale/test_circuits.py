"""What is tried again, and when: offerings that rest after a refusal, pools whose nodes do not boot."""

from __future__ import annotations

import pytest

from orchestrator.autoscale import Policy
from orchestrator.autoscale.backoff import retry_us
from orchestrator.ledger import events
from orchestrator.model.capacity import ErrorClass
from orchestrator.model.decisions import Buy, Release
from tests.autoscale.scene import SECOND, Scene, elastic, hybrid, kinds, offer
from tests.builders import T0, job

GANG_OF_4 = job(nodes=4, gpus=8)
B = "us-east-1b"  # the zone beside the first


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
