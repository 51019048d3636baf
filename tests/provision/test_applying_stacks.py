"""Carrying out what a plan has for aws sites: fixed nodes are drained first, few at a time; the rest is not held up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.change import ChangeSet, PlanStep, StepKind
from orchestrator.model.cluster import ClusterSpec, Drain, Pool, Site, SiteKind, Update
from orchestrator.provision.applying import Applier, Report, Sites
from tests.provision.applied import Paper, PaperNode

CORDON, DRAIN, STACK = StepKind.CORDON, StepKind.DRAIN, StepKind.STACK
ACCEPT, UNCORDON = StepKind.ACCEPT, StepKind.UNCORDON


class PaperStacks:
    """What was asked of sites, in the world's own record; `fails` says why a site can't be brought anywhere."""

    def __init__(self, world: Paper) -> None:
        self.world = world
        self.fails = ""
        self.then: Callable[[], None] = lambda: None

    def bring(self, site: str, held: frozenset[str]) -> HostResult:
        self.world.done.append(f"stack {site} holding {','.join(sorted(held)) or 'nothing'}")
        self.then()
        return HostResult(site, ok=not self.fails, error=self.fails, changed=1)


def world_of(*nodes: str) -> tuple[Paper, PaperStacks]:
    update = Update(
        max_unavailable=1, drain=Drain(deadline_s=3600)
    )  # a day of looks each second takes long on paper too
    pool = Pool("train", "use1", nodes=nodes, update=update)
    world = Paper(ClusterSpec("c", sites=(Site("use1", SiteKind.AWS, region="us-east-1"),), pools=(pool,)))
    return world, PaperStacks(world)


def batch(number: int, *names: str) -> list[PlanStep]:
    place = f"stack.use1.train.{number}"
    kinds = (CORDON, DRAIN, STACK, ACCEPT, UNCORDON)
    return [
        PlanStep(
            f"{place}.{kind}", kind, "replaced", "train", names, batch=number, site="use1" * (kind is STACK)
        )
        for kind in kinds
    ]


def run(world: Paper, stacks: PaperStacks, *steps: PlanStep) -> Report:
    first = (
        PlanStep("record", StepKind.RECORD, "x"),
        PlanStep("stack.use1", STACK, "1 to create", site="use1"),
    )
    made = ChangeSet("c", "wanted", "recorded", "observed", steps=(*first, *steps))
    sites = Sites(world, stacks)
    return Applier(world.spec, world, sites, world.told.append, world.clock, world.pause).run(made)


def test_nodes_whose_turn_comes_later_are_held() -> None:
    world, stacks = world_of("t1", "t2")
    report = run(world, stacks, *batch(1, "t1"), *batch(2, "t2"))
    assert report.outcome is Outcome.DONE
    assert world.done == [
        "record",
        "stack use1 holding t1,t2",
        "stack use1 holding t2",
        "stack use1 holding nothing",
    ]
    assert world.least_open == {"train": 1}
    assert world.asked == 0, "nobody reaches bought nodes over SSH"


def test_nodes_that_no_file_names_are_not_reached_over_ssh_either() -> None:
    """As when a cluster ends whose controller has bought some."""
    world, stacks = world_of()
    world.nodes_by_name["train-1"] = PaperNode("train-1")
    report = run(world, stacks, *batch(1, "train-1")[:3])
    assert report.outcome is Outcome.DONE
    assert world.done[-1] == "stack use1 holding nothing"
    assert world.asked == 0


def test_a_node_with_work_waits_for_it() -> None:
    world, stacks = world_of("t1", "t2")
    world.nodes_by_name["t1"].jobs[7] = 60.0
    seen: list[tuple[int, ...]] = []
    stacks.then = lambda: seen.append(tuple(world.nodes_by_name["t1"].jobs))
    assert run(world, stacks, *batch(1, "t1")).outcome is Outcome.DONE
    assert seen == [(7,), ()], "everything else of the site came first, the node when its job was over"


def test_a_node_that_is_never_free_is_held_and_stops_its_pool() -> None:
    world, stacks = world_of("t1", "t2")
    world.nodes_by_name["t1"].jobs[7] = 0
    report = run(world, stacks, *batch(1, "t1"), *batch(2, "t2"))
    assert report.outcome is Outcome.PARTIAL
    assert "job(s) 7" in report.failed["t1"]
    assert world.done == ["record", "stack use1 holding t1,t2"]
    assert [step for step in report.skipped if step.endswith("stack")] == [
        "stack.use1.train.1.stack",
        "stack.use1.train.2.stack",
    ]


def test_a_site_that_fails_is_told_and_goes_on_with_nothing_of_its_own() -> None:
    world, stacks = world_of("t1")
    stacks.fails = "no route to the region"
    report = run(world, stacks, *batch(1, "t1"))
    assert report.outcome is Outcome.PARTIAL
    assert report.failed == {"use1": "no route to the region"}
    assert world.done == ["record", "stack use1 holding t1"]
    assert world.nodes_by_name["t1"].open
    assert report.skipped[0] == "stack.use1"


def test_a_node_that_a_killed_apply_had_closed_is_open_again() -> None:
    world, stacks = world_of("t1")
    world.nodes_by_name["t1"].marks["updating"] = "apply-0: replaced"
    assert run(world, stacks).outcome is Outcome.DONE
    assert world.nodes_by_name["t1"].open


@pytest.mark.parametrize(("joins", "outcome"), [(True, Outcome.DONE), (False, Outcome.PARTIAL)])
def test_a_new_node_may_take_as_long_as_large_instances_do(joins: bool, outcome: Outcome) -> None:
    world, stacks = world_of("t1")
    node = world.nodes_by_name["t1"]
    node.joined = False
    boots = iter(range(10**9))

    def pause(seconds: float) -> None:
        world.clock.advance(seconds)
        node.joined = joins and next(boots) * seconds > 1200

    applier = Applier(world.spec, world, Sites(world, stacks), world.told.append, world.clock, pause)
    steps = (
        PlanStep("stack.use1", STACK, "1 to create", site="use1", nodes=("t1",)),
        PlanStep("stack.use1.train.accept", ACCEPT, "it comes in", "train", ("t1",)),
    )
    report = applier.run(ChangeSet("c", "w", "r", "o", steps=steps))
    assert report.outcome is outcome
    assert joins or "never heard of, 1500 s after it was set up" in report.failed["t1"]
    assert "waiting for t1 to boot and join, 25 minutes at most" in world.told
