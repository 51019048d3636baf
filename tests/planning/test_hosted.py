"""The controller's own host in a plan."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.change import Change, ChangeKind, ChangeSet, PlanStep, Source, StepKind, UpdateClass
from orchestrator.model.cluster import ClusterSpec, Controller, Host, Site, SiteKind
from orchestrator.model.host import Drift, ItemKind, Sight, Step
from orchestrator.planning.desired_controller import ARCHIVE, COMMAND, CONTROLLER, UNIT, desired_controller
from orchestrator.planning.hosted import QUIET, RESTARTS, apart, with_controller

SPEC = ClusterSpec(
    "atlas",
    controller=Controller("https://c1:7443", host="c1"),
    sites=(Site("hall", SiteKind.METAL, hosts=(Host("c1", "10.0.0.9"),)),),
)
WANTED = desired_controller(SPEC, "ab" * 32)
RECORD = PlanStep("record", StepKind.RECORD, "the file")
QUEUE = Change("queues[q]", ChangeKind.ADDED, UpdateClass.CONTROLLER, Source.SPEC, "", "q")
PLAN = ChangeSet("atlas", "w", "r", "o", changes=(QUEUE,), steps=(RECORD,))


def drift(kind: ItemKind, name: str, value: str, found: str = "", role: str = CONTROLLER) -> Drift:
    return Drift(role, kind, name, value, "wanted", found)


def sight(*found: Drift) -> Sight:
    return Sight("c1", Step.DONE, checked=True, drift=found)


def test_nothing_that_differs_adds_nothing() -> None:
    made = with_controller(PLAN, sight(), WANTED)
    assert (made.changes, made.steps, made.unseen) == (PLAN.changes, PLAN.steps, ())


def test_what_differs_is_the_controllers_alone_and_comes_first() -> None:
    seen = sight(drift(ItemKind.ARCHIVE, ARCHIVE, "sha256", "cd"), drift(ItemKind.FILE, COMMAND, "present"))
    made = with_controller(PLAN, seen, WANTED)
    assert [(one.path, one.kind, one.why) for one in made.changes[:2]] == [
        (f"host[c1].archive[{ARCHIVE}].sha256", ChangeKind.CHANGED, RESTARTS),
        (f"host[c1].file[{COMMAND}]", ChangeKind.ADDED, QUIET),
    ]
    assert {one.cls for one in made.changes} == {UpdateClass.CONTROLLER}
    assert [(step.kind, step.nodes, step.roles) for step in made.steps] == [
        (StepKind.CONTROLLER, ("c1",), (CONTROLLER,)),
        (StepKind.RECORD, (), ()),
    ]


def test_a_unit_that_does_not_run_is_a_start() -> None:
    made = with_controller(PLAN, sight(drift(ItemKind.UNIT, UNIT, "active", "inactive")), WANTED)
    assert made.changes[0].why == RESTARTS


def test_a_saved_plan_depends_on_what_was_seen_there() -> None:
    clean = with_controller(PLAN, sight(), WANTED)
    other = with_controller(PLAN, sight(drift(ItemKind.FILE, COMMAND, "mode", "0600")), WANTED)
    assert clean.observed != other.observed
    assert with_controller(PLAN, replace(sight(), seen_us=7), WANTED).observed == clean.observed


def test_one_that_could_not_be_looked_at_is_told_once_and_nothing_is_planned_for_it() -> None:
    silent = Sight("c1", Step.TCP, "no route to host", "is it on?")
    made = with_controller(replace(PLAN, unseen=("c1: no route to host",)), silent, WANTED)
    assert (made.unseen, made.steps) == (("c1: no route to host",), PLAN.steps)


def test_one_look_at_a_host_that_is_a_node_too_is_two_sights() -> None:
    own, node = drift(ItemKind.FILE, COMMAND, "mode"), drift(ItemKind.UNIT, "x", "active", role="agent")
    parts = apart(sight(own, node))
    assert [part.drift for part in parts] == [(node,), (own,)]
