"""Nodes bought for gangs of unlike groups: for all of them along one way, or none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from orchestrator.model.capacity import ErrorClass, Offer, Shape
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.decisions import Buy
from orchestrator.model.job import JobSpec
from tests.autoscale.scene import Scene, budget, elastic, hybrid, offer
from tests.builders import grouped, job, pool

PLAIN = Shape(0, 64, 1 << 40)
LOADERS = elastic("loaders")
BOTH = hybrid(elastic(), LOADERS)
OFFERS = (offer(), offer(pool="loaders", type_="m7i.16xlarge", dollars=3, shape=PLAIN))


def gang(trainers: int = 2, loaders: int = 2, memory: int = 0) -> JobSpec:
    """Trainers on whole nodes, and tasks of 32 cores that load for them."""
    load = job(tasks=loaders, gpus=0, cores=32, memory=memory)
    return grouped(parts={"trainers": job(nodes=trainers, gpus=8), "loaders": load})


def bought(scene: Scene) -> list[tuple[str, int, int]]:
    """What a pass would buy: pool, nodes, for whom."""
    return [(one.offer.key.pool, len(one.nodes), one.job) for one in scene.look() if isinstance(one, Buy)]


@dataclass
class Case:
    """Jobs in submit order, what is bought of which pool for whom, and reasons."""

    jobs: list[JobSpec]
    want: list[tuple[str, int, int]]
    reasons: dict[int, str] = field(default_factory=dict)
    spec: ClusterSpec = BOTH
    offers: tuple[Offer, ...] = OFFERS


TWO_OF_ONE_POOL = grouped(parts={"a": job(nodes=2, gpus=8), "b": job(tasks=2, gpus=1)})
CASES = {
    "each group has its own pool": Case([gang()], [("burst", 2, 1), ("loaders", 1, 1)], {1: "wait.booting"}),
    "the cheaper way is taken, whatever comes first in the file": Case(
        [grouped(parts={"a": job(tasks=1, gpus=0, cores=8), "b": job(tasks=1, gpus=0, cores=8)})],
        [("loaders", 2, 1)],
    ),
    "groups that lack nodes of one pool have one launch, and no node together": Case(
        [TWO_OF_ONE_POOL], [("burst", 3, 1)], {1: "wait.booting"}
    ),
    "what the second group can't have, the first one is not bought": Case(
        [gang(loaders=10)], [], {1: "wait.pool-full"}, hybrid(elastic(), elastic("loaders", most=4))
    ),
    "nor is it where another way would do but for the money": Case(
        [gang()], [], {1: "wait.budget"}, hybrid(elastic(), LOADERS, budgets=(budget(hour=101),))
    ),
    "a budget that pays for both pays for both": Case(
        [gang()],
        [("burst", 2, 1), ("loaders", 1, 1)],
        {},
        hybrid(elastic(), LOADERS, budgets=(budget(hour=103),)),
    ),
    "a larger gang than pools may ever hold gets nothing": Case([gang(trainers=5)], []),
    "groups are not bought on two sites": Case(
        [gang()],
        [],
        {},
        hybrid(elastic(), pool("cpus", nodes=1, gpus=0)),
        (offer(shape=Shape(8, 8, 1)),),
    ),
    "what it debits is not there for those behind": Case(
        [gang(trainers=3), job(nodes=2, gpus=8)],
        [("burst", 3, 1), ("loaders", 1, 1)],
        {2: "wait.pool-full"},
    ),
    "those behind one that gets nothing buy nothing where it lacks nodes": Case(
        [job(nodes=3, gpus=8), gang(trainers=2), job(nodes=1, gpus=8), job(gpus=0, memory=600 << 30)],
        [("burst", 3, 1), ("loaders", 1, 4)],
        {2: "wait.pool-full", 3: "wait.order"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_bought(case: Case) -> None:
    scene = Scene(case.spec, case.offers)
    for spec in case.jobs:
        scene.submit(spec)
    assert bought(scene) == case.want
    assert {job_id: scene.reason_of(job_id).code for job_id in case.reasons} == case.reasons


def test_it_starts_whole_when_the_last_node_is_ready_and_nobody_takes_the_first_ones() -> None:
    scene = Scene(BOTH, OFFERS)
    one = scene.submit(gang())
    nodes = scene.bought(ready=False)
    scene.join(*(name for name in nodes if name.startswith("burst")))
    other = scene.submit(job(nodes=2, gpus=8))
    assert [(pool, count) for pool, count, who in bought(scene) if who == other] == [("burst", 2)]
    assert scene.state.jobs[other].attempt is None, "it took nodes that were bought for the gang"
    plain(scene, *(name for name in nodes if name.startswith("loaders")))
    scene.look()
    attempt = scene.state.jobs[one].attempt
    assert attempt is not None
    assert {part.placement.node for part in attempt.parts} == set(nodes)


def test_nothing_is_bought_for_what_is_there_already() -> None:
    scene = Scene(BOTH, OFFERS)
    scene.submit(job(nodes=2, gpus=8))
    nodes = scene.bought()
    scene.look()
    scene.end(1)
    scene.submit(gang())
    assert bought(scene) == [("loaders", 1, 2)]
    assert len(nodes) == 2


def test_nodes_that_come_are_counted_on_and_not_bought_twice() -> None:
    scene = Scene(BOTH, OFFERS)
    scene.submit(gang())
    scene.carry_out()
    assert bought(scene) == []
    assert scene.reason_of(1).code == "wait.booting"


def test_a_pool_that_stands_is_waited_for_and_nothing_is_bought_meanwhile() -> None:
    stands = replace(pool("fixed", nodes=1, gpus=8, cores=96), site="use1")
    scene = Scene(hybrid(stands, LOADERS), OFFERS[1:])
    holder = scene.submit(job(nodes=1, gpus=8))
    scene.look()
    scene.submit(gang(trainers=1))
    assert bought(scene) == []
    assert scene.reason_of(2).code == "wait.few-nodes"
    scene.end(holder)
    assert bought(scene) == [("loaders", 1, 2)]


def test_what_is_refused_comes_of_another_pool_that_has_the_like() -> None:
    scene = Scene(BOTH, OFFERS)
    scene.submit(gang())
    burst, loaders = scene.carry_out()
    scene.launch(burst)
    scene.refuse(loaders, ErrorClass.CAPACITY, 60)
    assert bought(scene) == [("burst", 1, 1)]


def test_what_no_other_pool_has_is_tried_again_and_the_nodes_that_came_are_kept() -> None:
    scene = Scene(BOTH, OFFERS)
    scene.submit(gang(loaders=1, memory=600 << 30))
    burst, loaders = scene.carry_out()
    scene.launch(burst)
    scene.refuse(loaders, ErrorClass.CAPACITY, 60)
    assert bought(scene) == []
    assert scene.reason_of(1).code == "wait.capacity"
    scene.wait(61)
    assert bought(scene) == [("loaders", 1, 1)]


def plain(scene: Scene, *nodes: str) -> None:
    """These nodes joined; they have no GPUs."""
    scene.join(*nodes, gpus=0)
