"""Carrying a plan out: order, journal, drains, the brake, and what a later run finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.apply import Outcome
from orchestrator.model.change import Change, ChangeKind, ChangeSet, PlanStep, Source, StepKind, UpdateClass
from orchestrator.model.cluster import DrainThen
from orchestrator.model.errors import Conflict, Unavailable
from orchestrator.provision.applying import Applier, Report, Sites
from tests.provision.applied import OUTAGE, Paper, paper, plan

BATCHES = (("p1", "p2"), ("p3", "p4"), ("p5", "p6"))


def carry_out(world: Paper, wanted: ChangeSet) -> Report:
    applier = Applier(world.spec, world, Sites(world), world.told.append, world.clock, world.pause)
    return applier.run(wanted)


def test_every_step_is_journalled_before_and_after() -> None:
    world = paper()
    report = carry_out(world, plan(("p1", "p2")))
    kinds = ("cordon", "drain", "configure", "accept", "uncordon")
    steps = ["record", *(f"p.1.{kind}" for kind in kinds)]
    expected = ["start", *(entry for step in steps for entry in (f"+{step}", f"-{step}")), "end done"]
    assert world.journal == expected
    assert world.done == ["record", "configure p1,p2", "configured p1", "configured p2"]
    assert (report.outcome, report.failed) == (Outcome.DONE, {})
    assert all(node.open for node in world.nodes_by_name.values())


HOSTED = PlanStep("controller.host", StepKind.CONTROLLER, "it differs", "", ("c1",), ("controller",))


def test_the_controllers_own_host_is_a_step_of_the_journal_and_counts_for_no_node() -> None:
    world = paper()
    batches = plan(("p1", "p2"))
    report = carry_out(world, replace(batches, steps=(HOSTED, *batches.steps)))
    assert world.journal[1:3] == ["+controller.host", "-controller.host"]
    assert world.done[:2] == ["controller", "record"]
    assert (report.outcome, report.failed) == (Outcome.DONE, {})
    assert "configured c1" not in world.done


def test_a_controllers_host_that_stays_wrong_leaves_the_apply_unfinished_and_brakes_no_pool() -> None:
    world = paper()
    world.controller_fails = True
    batches = plan(("p1", "p2"))
    report = carry_out(world, replace(batches, steps=(HOSTED, *batches.steps)))
    assert (report.outcome, report.failed) == (Outcome.PARTIAL, {"c1": "no room"})
    assert report.skipped == ["controller.host"]
    assert all(world.nodes_by_name[name].clean for name in ("p1", "p2"))


def test_why_a_controller_did_not_come_back_is_told_though_nobody_takes_the_journal() -> None:
    world = paper()
    world.controller_fails = True

    def gone(entry: str) -> None:
        if entry == "!controller.host":
            raise Unavailable("client.unreachable", "no controller answers")

    world.before = gone
    with pytest.raises(Unavailable):
        carry_out(world, replace(plan(("p1", "p2")), steps=(HOSTED,)))
    assert world.told == ["c1: controller failed: no room"]


def test_never_fewer_are_open_than_promised() -> None:
    world = paper(most_away=2)
    for number, node in enumerate(world.nodes_by_name.values()):
        node.jobs = {number: 50.0}
    assert carry_out(world, plan(*BATCHES)).outcome is Outcome.DONE
    assert world.least_open == {"p": 4}


def test_a_gang_over_two_batches_is_waited_for_once() -> None:
    world = paper()
    world.nodes_by_name["p2"].jobs = {7: 100.0}
    world.nodes_by_name["p3"].jobs = {7: 100.0}
    report = carry_out(world, plan(*BATCHES))
    assert (report.outcome, report.failed) == (Outcome.DONE, {})
    assert any("draining p2" in line for line in world.told)
    assert not any("draining p3" in line for line in world.told)


def test_work_that_may_not_be_stopped_stops_the_change() -> None:
    world = paper(deadline_s=60)
    world.nodes_by_name["p1"].jobs = {7: 0.0}
    report = carry_out(world, plan(*BATCHES))
    assert (report.outcome, list(report.failed)) == (Outcome.PARTIAL, ["p1"])
    assert "job(s) 7 outlived" in report.failed["p1"]
    assert world.nodes_by_name["p1"].jobs == {7: 0.0}
    assert world.nodes_by_name["p1"].open, "nothing was changed on it: it serves on"
    assert not any("p1" in entry for entry in world.done)
    assert "configure p2" in world.done
    kinds = ("cordon", "drain", "configure", "accept", "uncordon")
    assert report.skipped == [f"p.{batch}.{kind}" for batch in (2, 3) for kind in kinds]
    assert not any("p3" in entry for entry in world.done)


@pytest.mark.parametrize("then", [DrainThen.REQUEUE, DrainThen.CHECKPOINT, DrainThen.CANCEL])
def test_what_the_policy_ends_at_the_deadline_is_waited_for(then: DrainThen) -> None:
    world = paper(deadline_s=60, then=then)
    world.nodes_by_name["p1"].jobs = {7: 0.0}
    report = carry_out(world, plan(*BATCHES))
    assert (report.outcome, report.failed) == (Outcome.DONE, {})
    assert world.clock.monotonic_us() > 60 * 1_000_000


def test_the_first_failing_batch_is_the_last_of_its_pool() -> None:
    world = paper()
    world.nodes_by_name["p3"].broken = True
    report = carry_out(world, plan(*BATCHES))
    assert (report.outcome, report.failed) == (Outcome.PARTIAL, {"p3": OUTAGE})
    assert [entry for entry in world.done if entry.startswith("configure ")] == [
        "configure p1,p2",
        "configure p3,p4",
    ]
    assert not world.nodes_by_name["p3"].open
    assert world.nodes_by_name["p5"].open
    assert report.skipped


def test_the_good_half_of_a_failing_batch_serves_again() -> None:
    world = paper()
    world.nodes_by_name["p1"].broken = True
    carry_out(world, plan(*BATCHES))
    assert world.nodes_by_name["p2"].open


def test_what_ansible_calls_done_is_looked_at() -> None:
    world = paper()
    world.nodes_by_name["p1"].deaf = True
    report = carry_out(world, plan(("p1", "p2")))
    assert "still differs" in report.failed["p1"]
    assert "configured p1" not in world.done
    assert "configured p2" in world.done


def test_a_host_that_never_joins_fails_with_its_reason() -> None:
    world = paper(nodes=2)
    for node in world.nodes_by_name.values():
        node.joined = False
    world.nodes_by_name["p2"].never_joins = True
    kinds = (StepKind.ENROL, StepKind.CONFIGURE, StepKind.ACCEPT)
    report = carry_out(world, plan(("p1", "p2"), kinds=kinds))
    assert (report.outcome, list(report.failed)) == (Outcome.PARTIAL, ["p2"])
    assert report.failed["p2"] == "never heard of, 180 s after it was set up; it may still come"
    assert world.done[:2] == ["record", "enrol p1,p2"]


def test_enough_good_hosts_make_a_pool_good() -> None:
    world = paper(nodes=4, enough_milli=750)
    world.nodes_by_name["p4"].broken = True
    report = carry_out(world, plan(("p1", "p2", "p3", "p4"), kinds=(StepKind.CONFIGURE,)))
    assert (report.outcome, list(report.failed), report.short) == (Outcome.DONE, ["p4"], [])
    world = paper(nodes=4, enough_milli=800)
    world.nodes_by_name["p4"].broken = True
    report = carry_out(world, plan(("p1", "p2", "p3", "p4"), kinds=(StepKind.CONFIGURE,)))
    assert (report.outcome, report.short) == (Outcome.PARTIAL, ["p"])


def test_nodes_that_are_away_already_count() -> None:
    world = paper(most_away=2)
    world.nodes_by_name["p6"].marks["cordoned"] = "a fan"
    report = carry_out(world, plan(("p1", "p2")))
    assert "1 node(s) of pool p are away already: p6 (cordoned); max_unavailable is 2" in report.failed["p1"]
    assert world.least_open == {"p": 5}
    assert not any("p1" in entry for entry in world.done)


def test_a_node_that_is_away_may_itself_be_repaired() -> None:
    world = paper(most_away=1)
    world.nodes_by_name["p6"].marks["unproved"] = "1 of 8 GPUs"
    report = carry_out(world, plan(("p6",), kinds=(StepKind.CORDON, StepKind.DRAIN, StepKind.CONFIGURE)))
    assert report.failed == {}


def test_nothing_is_rebooted_while_work_may_run_on_it() -> None:
    world = paper()
    world.nodes_by_name["p1"].jobs = {7: 0.0}
    world.nodes_by_name["p1"].marks["updating"] = "an apply"
    world.nodes_by_name["p2"].marks["updating"] = "an apply"
    world.nodes_by_name["p2"].clean = True
    report = carry_out(world, plan(("p1", "p2", "p3"), kinds=(StepKind.REBOOT,)))
    assert world.done == ["record", "reboot p2", "configured p2"]
    assert sorted(report.failed) == ["p1", "p3"]


def test_a_host_that_comes_back_otherwise_than_it_went_fails() -> None:
    world = paper(nodes=2)
    world.nodes_by_name["p1"].marks["updating"] = "an apply"
    report = carry_out(world, plan(("p1",), kinds=(StepKind.REBOOT, StepKind.UNCORDON)))
    assert "still differs" in report.failed["p1"]
    assert not world.nodes_by_name["p1"].open


@pytest.mark.parametrize(("ending", "outcome"), [(60.0, Outcome.DONE), (1e6, Outcome.PARTIAL)])
def test_what_is_being_ended_at_the_deadline_has_its_grace(ending: float, outcome: Outcome) -> None:
    """A checkpoint takes its time; what does not end at all stops the change."""
    world = paper(nodes=2, deadline_s=60, then=DrainThen.CHECKPOINT)
    world.nodes_by_name["p1"].jobs = {7: 0.0}
    world.nodes_by_name["p1"].ending = ending
    report = carry_out(world, plan(("p1",)))
    assert report.outcome is outcome
    assert ("configure p1" in world.done) is (outcome is Outcome.DONE)


def test_an_agent_that_has_only_answered_before_the_reboot_is_no_proof() -> None:
    world = paper(nodes=2)
    world.nodes_by_name["p1"].marks["updating"] = "an apply"
    world.nodes_by_name["p1"].clean = True
    seen: list[int] = []
    world.before = lambda entry: (
        seen.append(world.nodes_by_name["p1"].called) if entry == "-p.1.accept" else None
    )
    report = carry_out(world, plan(("p1",), kinds=(StepKind.REBOOT, StepKind.ACCEPT)))
    assert (report.failed, seen) == ({}, [2])


@pytest.mark.parametrize("lasts", [30.0, 1e9])
def test_what_only_the_host_knows_of_is_waited_for_and_then_left_alone(lasts: float) -> None:
    world = paper(nodes=2, deadline_s=60)
    world.nodes_by_name["p1"].stranger = lasts
    report = carry_out(world, plan(("p1",)))
    assert any("draining p1: waiting for gangline-9-1 on p1" in line for line in world.told)
    assert world.asked <= 60 / 3 + 2, "the host is not asked all the time"
    if lasts == 30.0:
        assert report.failed == {}
        return
    assert report.failed == {"p1": "gangline-9-1 outlived the drain's deadline"}
    assert world.done == ["record"]
    assert world.nodes_by_name["p1"].open


def test_who_loses_the_lease_touches_nothing_more() -> None:
    world = paper()
    world.lost_after = 4  # start, +record, -record, +cordon
    with pytest.raises(Conflict, match="bob@laptop"):
        carry_out(world, plan(*BATCHES))
    assert not any(entry.startswith("configure") for entry in world.done)


def test_what_a_killed_run_had_closed_is_opened_when_it_is_well() -> None:
    world = paper()
    for name, clean in (("p1", True), ("p2", False)):
        world.nodes_by_name[name].marks["updating"] = "apply-0"
        world.nodes_by_name[name].clean = clean
    carry_out(world, ChangeSet("test", "w", "r", "o", steps=(PlanStep("record", StepKind.RECORD, ""),)))
    assert world.nodes_by_name["p1"].open
    assert not world.nodes_by_name["p2"].open


def test_an_idle_host_that_leaves_is_forgotten_before_it_is_let_go() -> None:
    """The controller drops an idle node as soon as the file without it is recorded."""
    world = paper(nodes=2)
    del world.nodes_by_name["p2"]
    report = carry_out(world, plan(("p2",), kinds=(StepKind.CORDON, StepKind.DRAIN, StepKind.RETIRE)))
    assert (report.outcome, report.failed) == (Outcome.DONE, {})
    assert world.done == ["record", "retire p2"]


def test_a_pool_that_leaves_is_drained_by_its_own_policy() -> None:
    world = paper(nodes=2)
    before, wanted = world.spec, replace(world.spec, pools=())
    world.nodes_by_name["p1"].jobs = {7: 30.0}
    applier = Applier(wanted, world, Sites(world), world.told.append, world.clock, world.pause, before=before)
    report = applier.run(plan(("p1", "p2"), kinds=(StepKind.CORDON, StepKind.DRAIN, StepKind.RETIRE)))
    assert (report.outcome, report.failed) == (Outcome.DONE, {})
    assert world.done == ["record", "retire p1,p2"]


def test_retired_hosts_are_let_go() -> None:
    world = paper()
    carry_out(world, plan(("p6",), kinds=(StepKind.CORDON, StepKind.DRAIN, StepKind.RETIRE)))
    assert world.done == ["record", "retire p6"]


def leaving(*batches: tuple[str, ...]) -> ChangeSet:
    steps = [
        PlanStep(f"retire.p.{number}.{kind}", kind, "it leaves", "p", nodes, (), number)
        for number, nodes in enumerate(batches, 1)
        for kind in (StepKind.CORDON, StepKind.DRAIN, StepKind.RETIRE)
    ]
    return ChangeSet("test", "wanted", "recorded", "observed", steps=tuple(steps))


def test_a_host_that_was_not_seen_to_go_leaves_the_apply_unfinished_and_keeps_no_other() -> None:
    world = paper(nodes=4)
    world.nodes_by_name["p1"].broken = True
    spec = replace(world.spec, pools=(replace(world.spec.pools[0], nodes=("p4",)),))
    applier = Applier(
        spec, world, Sites(world), world.told.append, world.clock, world.pause, before=world.spec
    )
    report = applier.run(leaving(("p1", "p2"), ("p3",)))
    assert (report.outcome, report.failed) == (Outcome.PARTIAL, {"p1": OUTAGE})
    assert (report.short, report.skipped) == ([], [])
    assert "retire p3" in world.done, "a silent host stops nobody else from going"
    assert world.journal[-1] == "end partial"


def test_work_on_one_host_that_goes_keeps_an_idle_one_no_longer() -> None:
    world = paper(nodes=3, deadline_s=600)
    world.nodes_by_name["p2"].jobs = {7: 300.0}
    spec = replace(world.spec, pools=())
    applier = Applier(
        spec, world, Sites(world), world.told.append, world.clock, world.pause, before=world.spec
    )
    world.before = lambda entry: world.done.append(f"{entry} at {world.clock.monotonic_us() // 1_000_000} s")
    assert applier.run(leaving(("p1", "p3"), ("p2",))).outcome is Outcome.DONE
    first = world.done.index("-retire.p.1.retire at 0 s")
    assert world.done[first - 1] == "retire p1,p3"
    assert any(line.startswith("-retire.p.2.retire at 30") for line in world.done)


def test_what_a_plan_does_to_hosts_is_done_to_those_alone_that_were_meant() -> None:
    world = paper()
    applier = Applier(
        world.spec, world, Sites(world), world.told.append, world.clock, world.pause, only=frozenset({"p3"})
    )
    report = applier.run(plan(*BATCHES))
    assert world.done == ["record", "configure p3", "configured p3"]
    assert report.outcome is Outcome.PARTIAL, "the others wait"
    assert [name for name, node in world.nodes_by_name.items() if node.clean] == ["p3"]


def test_another_machine_that_was_agreed_to_has_work_again() -> None:
    """And one that shows itself only while the plan is carried out has not."""
    world = paper()
    for name in ("p1", "p2"):
        world.nodes_by_name[name].marks["changed"] = "another machine"
    other = Change(
        "host[p1].machine-id",
        ChangeKind.CHANGED,
        UpdateClass.REPLACE,
        Source.DRIFT,
        "a",
        "b",
        "",
        nodes=("p1",),
        consent="host/p1",
    )
    report = carry_out(world, replace(plan(("p1", "p2")), changes=(other,)))
    assert report.failed.keys() <= {"p2"}
    assert not world.nodes_by_name["p1"].marks
    assert "changed" in world.nodes_by_name["p2"].marks
