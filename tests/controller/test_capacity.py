"""Elastic capacity carried out: what the controller asks of a cloud, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands, intake
from orchestrator.controller.hands import perform
from orchestrator.controller.inbox import Item
from orchestrator.controller.loop import MOST_AGAIN
from orchestrator.controller.offers import outdated
from orchestrator.model.attempt import AttemptState, JobState
from orchestrator.model.capacity import (
    BLOCK_LEAD_S,
    BLOCK_TAKEN_S,
    CloudInstance,
    CloudState,
    ErrorClass,
    Reserved,
)
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Market, Offering, Site, SiteKind, Update
from orchestrator.model.errors import Conflict, InputError, NotFound, Refused
from orchestrator.model.job import JobSpec, Stop
from orchestrator.model.node import MarkKind, NodeFacts
from orchestrator.provision.cloud import End, Launch
from orchestrator.store.restore import restore
from tests.autoscale.scene import elastic, hybrid
from tests.builders import ALICE, cluster, job, pool
from tests.controller.clouds import CloudWorld
from tests.controller.invariants import check_state
from tests.controller.scenes import finish, kinds, ledger
from tests.controller.world import Answered, World

GANG_OF_4 = job(nodes=4, gpus=8)
SPOT_THEN_ON_DEMAND = (
    Offering(("p5.48xlarge",), Market.SPOT, 30_000_000),
    Offering(("p5.48xlarge",), Market.ON_DEMAND),
)


def world_of(path: Path, **rest: object) -> CloudWorld:
    """A pool `burst` of at most 4, on spot first; one zone."""
    spec = hybrid(replace(elastic(**rest), offerings=SPOT_THEN_ON_DEMAND))  # type: ignore[arg-type]
    sites = tuple(replace(site, zones=site.zones[:1]) for site in spec.sites)
    return CloudWorld(path / "state", replace(spec, sites=sites))


def two_sites(path: Path) -> CloudWorld:
    """Pools `burst` on `use1` and `west` on `usw2`, in two regions; nothing is turned."""
    spec = hybrid(elastic(), elastic("west", site="usw2"))
    west = Site("usw2", SiteKind.AWS, region="us-west-2", zones=("us-west-2a",))
    return CloudWorld(path / "state", replace(spec, sites=(*spec.sites, west)))


def look_at(world: CloudWorld, site: str, *ids: str) -> None:
    """The site's cloud says that these run."""
    found = tuple(CloudInstance(name, "intent-0", CloudState.RUNNING, "", 1, "") for name in ids)
    world.do(commands.Looked(site, world.clock.monotonic_us(), found))


def test_a_gang_is_bought_runs_and_is_given_back(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    gang = world.submit(GANG_OF_4)
    assert world.ready() == ["burst-1", "burst-2", "burst-3", "burst-4"]
    world.settle()
    view = world.job(gang)
    assert view is not None
    assert view.attempt is not None
    assert view.attempt.state is AttemptState.RUNNING
    finish(world, gang)
    world.pass_s(700)
    assert world.sky.alive() == []
    assert world.state.nodes == {}
    assert world.billed_s() >= world.sky.billed_s() > 0
    check_state(world.state)


def test_the_intent_is_in_the_ledger_before_anybody_is_asked(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    assert kinds(world)[-1] == "capacity.intended"
    assert world.sky.calls == []
    intent = ledger(world)[-1].body.intent
    assert (intent.max_price, intent.job, intent.nodes[-1]) == (30_000_000, 1, "burst-4"), (
        "what it may cost at most"
    )
    world.turn()
    assert world.sky.calls == [
        event.body.intent.id for event in ledger(world) if event.type == "capacity.intended"
    ]


def test_a_gang_of_four_with_capacity_for_three_leaves_nothing(tmp_path: Path) -> None:
    """The next offering is tried in the same minute; where none has four, none is left running or billed."""
    world = world_of(tmp_path)
    world.sky.stock = {"spot": 3}
    world.submit(GANG_OF_4)
    world.calm()
    assert [one.market for one in world.sky.machines.values()] == ["on_demand"] * 4

    poor = world_of(tmp_path / "poor")
    poor.sky.stock = {"spot": 3, "on_demand": 3}
    first, second = poor.submit(GANG_OF_4), poor.submit(job(nodes=1, gpus=8))
    poor.pass_s(3600)
    assert poor.sky.machines == {}, "seconds billed: 0"
    assert poor.state.nodes == {}
    for job_id, code in ((first, "wait.capacity"), (second, "wait.order")):
        view = poor.job(job_id)
        assert view is not None
        assert poor.view.reason_of(view).code == code


@pytest.mark.parametrize(
    "fault", [ErrorClass.CAPACITY, ErrorClass.QUOTA, ErrorClass.PRICE, ErrorClass.PERMANENT]
)
def test_a_refusal_leads_to_the_next_offering(tmp_path: Path, fault: ErrorClass) -> None:
    world = world_of(tmp_path)
    world.sky.script = [fault]
    world.submit(GANG_OF_4)
    world.calm()
    assert {one.market for one in world.sky.machines.values()} == {"on_demand"}
    (circuit,) = [one for one in world.state.circuits.values() if one.fault]
    assert (circuit.key.market, circuit.fault) == ("spot", fault)


def test_what_ec2_does_not_know_yet_is_tried_again_under_the_same_file(tmp_path: Path) -> None:
    """A role is known everywhere some seconds after it was made, and a template that somebody deleted by hand is made
    anew by an apply of the same file: nothing tells the controller of either."""
    world = CloudWorld(tmp_path / "state", hybrid(elastic()))
    world.sky.script = [ErrorClass.PERMANENT] * 2  # in both zones
    world.submit(GANG_OF_4)
    world.calm()
    assert len(world.sky.calls) == 2
    world.pass_s(120)
    assert len(world.known()) == 4


def test_refused_credentials_stop_everything_and_say_so(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = [ErrorClass.AUTH]
    gang = world.submit(GANG_OF_4)
    world.pass_s(120)
    assert len(world.sky.calls) == 1
    view = world.job(gang)
    assert view is not None
    assert "auth says the cloud" in world.view.reason_of(view).sentence()
    world.do(commands.ResetCapacity("burst", "user:root", "the role is mended"))
    world.calm()
    assert len(world.sky.alive()) == 4


def test_a_site_that_slows_the_controller_down_is_asked_less_and_less(tmp_path: Path) -> None:
    """After 5, 10, 20 seconds and up to a quarter more; an answer of its own kind ends that."""
    world = world_of(tmp_path)
    world.sky.script = [ErrorClass.THROTTLING] * 4
    world.submit(GANG_OF_4)
    world.pass_s(60, step=1)
    assert len(world.sky.calls) == 4
    world.pass_s(40, step=1)
    assert len(world.sky.alive()) == 4
    assert world.state.halts == {}


def test_an_answer_that_is_lost_is_found_by_its_mark(tmp_path: Path) -> None:
    """CreateFleet timed out after it had launched, and the new instances are not told of for a while."""
    world = world_of(tmp_path)
    world.sky.script, world.sky.hide_s = ["silent"], 45
    world.submit(GANG_OF_4)
    world.pass_s(120)
    assert len(world.sky.machines) == 4
    assert world.known() == world.sky.alive()


def test_instances_of_a_lost_answer_that_are_told_of_one_by_one_are_waited_for(tmp_path: Path) -> None:
    """Two of them are seen at once: no part of a gang is taken or ended, and nothing is called again."""
    world = world_of(tmp_path)
    world.sky.script = ["silent"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    for late in ("i-0002", "i-0004"):
        world.sky.machines[late].shown_us += 25 * SECOND
    world.pass_s(20)
    assert (world.known(), len(world.sky.alive()), len(world.sky.calls)) == ([], 4, 1)
    world.pass_s(40)
    assert (world.known(), len(world.sky.calls)) == (world.sky.alive(), 1)
    assert len(world.sky.machines) == 4


def test_part_of_a_gang_of_a_lost_answer_is_ended_and_so_is_what_is_told_of_late(tmp_path: Path) -> None:
    """Three of four are all that several looks find; the fourth turns up when the gang has been bought elsewhere."""
    world = world_of(tmp_path)
    world.sky.script = ["silent"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    world.sky.machines["i-0004"].shown_us += 300 * SECOND
    world.pass_s(120)
    assert {one.market for one in world.sky.machines.values() if one.id in world.known()} == {"on_demand"}
    assert [world.sky.machines[f"i-000{number}"].ended_us > 0 for number in (1, 2, 3, 4)] == [True] * 3 + [
        False
    ]
    world.pass_s(500)
    assert world.known() == world.sky.alive()
    assert len(world.known()) == 4


def test_a_look_from_before_the_call_says_nothing_of_it(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = ["lost"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    asked_us = world.clock.monotonic_us()
    world.cycle()

    def calls_after(look_us: int) -> int:
        world.do(commands.Looked("use1", look_us, ()))
        return len([task for task in world.hands.tasks if isinstance(task, Launch)])

    assert [calls_after(asked_us - 1), calls_after(asked_us - 1), calls_after(asked_us)] == [0, 0, 1]


def test_a_call_that_was_lost_is_repeated_under_its_token(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = ["lost", "lost"]
    world.submit(GANG_OF_4)
    world.pass_s(120)
    assert len(set(world.sky.calls)) == 1
    assert len(world.sky.alive()) == 4


def test_a_call_that_was_lost_is_not_repeated_for_another_file(tmp_path: Path) -> None:
    """What the stack launches by is of another file by then: the same token with another request would be refused."""
    world = world_of(tmp_path)
    world.sky.script = ["lost"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    (old,) = world.sky.calls
    pools = tuple(replace(each, image="ami-0fedcba9876543210") for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    world.pass_s(300)
    assert world.sky.calls.count(old) == 1
    assert len(world.sky.alive()) == 4
    assert world.known() == world.sky.alive()


def test_a_cloud_that_never_answers_is_given_up(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = ["lost"] * 3
    world.submit(GANG_OF_4)
    world.pass_s(40)
    assert len(world.sky.calls) == 3
    world.pass_s(200)
    assert "capacity.refused" in kinds(world)
    assert world.known() == world.sky.alive()


@pytest.mark.parametrize("done", ["nothing", "called"])
def test_a_controller_that_dies_doubles_nothing(tmp_path: Path, done: str) -> None:
    """Killed after the intent, or after the call and before its record."""
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    if done == "called":
        (launch,) = [task for task in world.hands.tasks if isinstance(task, Launch)]
        perform(launch, lambda site: world.sky, world.facts)
    world.kill_controller()
    world.start_controller()
    world.pass_s(60)
    assert len(world.sky.machines) == 4
    assert world.known() == world.sky.alive()


def drop_answers(world: CloudWorld, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All tasks are performed, in a cycle in which too much fails for their answers to be looked at; their kinds."""

    def broken(desk: Any, command: commands.ResetCapacity) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(intake.HANDLERS, commands.ResetCapacity, broken)
    tasks, world.hands.tasks = world.hands.tasks, []
    answers = [perform(task, lambda site: world.sky, world.facts) for task in tasks]
    for command in [*[commands.ResetCapacity("burst", "root")] * MOST_AGAIN, *answers]:
        world.inbox.put(Item(command, Answered()))  # type: ignore[arg-type]
    world.cycle()
    return [type(task).__name__ for task in tasks]


def test_facts_and_looks_that_a_failed_cycle_drops_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.kill_controller()
    world.start_controller()
    world.cycle()
    assert drop_answers(world, monkeypatch) == ["Ask", "Look"]
    assert [type(task).__name__ for task in world.hands.tasks] == ["Ask", "Look"]
    world.submit(GANG_OF_4)
    world.calm()
    assert len(world.sky.alive()) == 4


def test_a_launch_whose_answer_a_failed_cycle_drops_is_found_by_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    assert "Launch" in drop_answers(world, monkeypatch)
    assert world.known() == []
    world.pass_s(20)
    assert world.known() == world.sky.alive()
    assert len(world.sky.calls) == 1


def test_an_intent_of_a_restored_ledger_is_not_the_one_of_the_same_number(tmp_path: Path) -> None:
    """A restored ledger counts on from its backup, and the cloud knows by their tokens launches that it has lost."""
    world = world_of(tmp_path)
    backup = tmp_path / "old.backup"
    world.store.backup(str(backup))
    for number in range(3):  # as many events as a restore and its end take
        world.do(commands.CreateToken(f"t{number}", "0" * 64, "submit", "somebody", "test"))
    world.submit(job(nodes=2, gpus=8))
    world.ready()
    (lost,) = world.state.fleets
    before = world.sky.alive()

    world.wait(60)
    world.kill_controller()
    restore(backup, world.path, world.clock.now_us())
    world.start_controller()
    world.cycle()
    world.do(commands.Recover("test"))
    world.submit(job(nodes=2, gpus=8))
    world.calm()
    assert list(world.state.fleets) == [lost], "the number is given again"
    assert not set(before) & set(world.known())
    world.pass_s(200)
    assert world.sky.alive() == world.known(), "what the ledger does not know is ended as a stranger"


def test_instances_that_nobody_knows_are_ended_after_a_grace(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    stray = world.sky._start(next(iter(world.state.fleets.values())).intent, f"{world.state.uid}-stray")
    other = world.sky._start(next(iter(world.state.fleets.values())).intent, "another-cluster")
    world.pass_s(80)
    assert stray.id in world.sky.alive()
    world.pass_s(120)
    assert stray.id not in world.sky.alive()
    assert other.id in world.sky.alive()
    assert world.known() == [one for one in world.sky.alive() if one != other.id]


def ends_after(world: CloudWorld, state: CloudState, seconds: int = 100) -> list[tuple[str, ...]]:
    """What is told to end by two looks that find a stranger in that state, so far apart."""
    found = (CloudInstance("i-stranger", "intent-0", state, "", 1, ""),)
    world.hands.tasks = []
    for wait_s in (0, seconds):
        world.wait(wait_s)
        world.do(commands.Looked("use1", world.clock.monotonic_us(), found))
    return [task.ids for task in world.hands.tasks if isinstance(task, End)]


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        (CloudState.RUNNING, True),
        (CloudState.PENDING, True),
        (CloudState.ENDING, False),
        (CloudState.GONE, False),
    ],
)
def test_only_a_stranger_that_lives_is_ended(tmp_path: Path, state: CloudState, ended: bool) -> None:
    assert ends_after(world_of(tmp_path), state) == ([("i-stranger",)] if ended else [])


def test_what_a_backup_does_not_know_is_left_alone_until_it_is_recovered(tmp_path: Path) -> None:
    """It may be what was bought after the backup was made, with work on it."""
    world = world_of(tmp_path)
    world.core._desk.state.recovering = True
    assert ends_after(world, CloudState.RUNNING) == []
    world.core._desk.state.recovering = False
    assert ends_after(world, CloudState.RUNNING) == [("i-stranger",)]


def test_looks_at_other_sites_neither_stop_nor_speed_the_clock_of_a_stranger(tmp_path: Path) -> None:
    world = two_sites(tmp_path)
    ended = []
    for second in range(0, 100, 10):
        look_at(world, "use1", "i-stray")
        look_at(world, "usw2", *(["i-late"] if second > 60 else []))
        ended += [(second, one.site.name, one.ids) for one in world.hands.tasks if isinstance(one, End)]
        world.clock.advance(10)
    assert ended == [(90, "use1", ("i-stray",))]


def test_each_site_of_a_region_ends_its_own_strangers(tmp_path: Path) -> None:
    """Two sites in one region: what the other one is looked at for makes nobody forget what was seen here, and what it
    launched before its records were lost is not ended from here."""
    spec = hybrid(elastic(), elastic("more", site="use2"))
    (here, use1) = spec.sites
    world = CloudWorld(tmp_path / "state", replace(spec, sites=(here, use1, replace(use1, name="use2"))))
    world.submit(GANG_OF_4)
    world.ready()
    mine = next(iter(world.state.fleets.values())).intent
    stray = world.sky._start(mine, f"{world.state.uid}-stray")
    theirs = world.sky._start(replace(mine, site="use3"), f"{world.state.uid}-theirs")
    world.pass_s(200)
    assert stray.id not in world.sky.alive()
    assert theirs.id in world.sky.alive()


def test_an_instance_that_is_not_told_of_is_gone_only_after_several_looks(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    world.pass_s(100)
    world.sky.machines["i-0001"].shown_us = world.clock.now_us() + 100 * 10**6
    world.pass_s(120)
    assert "i-0001" in world.known(), "it came back before it had been away for long"
    world.sky.machines["i-0001"].shown_us = 1 << 62
    world.pass_s(400)
    assert "i-0001" not in world.known()
    assert world.core._elastic.missed == {}, "looks without it are not counted for ever"


def test_looks_that_follow_each_other_fast_prove_no_end(tmp_path: Path) -> None:
    """Three looks and a minute and a half; one that finds it begins all anew."""
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    known = world.ready() and world.known()
    world.wait(600)
    there = world.sky.describe(world.state.uid, "use1")

    def after(seconds: int, found: tuple[CloudInstance, ...] = ()) -> int:
        world.wait(seconds)
        world.do(commands.Looked("use1", world.clock.monotonic_us(), found))
        return len(world.known())

    assert [after(0), after(5), after(5), after(5)] == [4] * 4
    assert [after(60, there), after(60), after(100)] == [4] * 3
    assert after(15) == 0
    assert len(known) == 4


def test_a_member_that_dies_ends_the_gang(tmp_path: Path) -> None:
    """The cloud's word is proof: the others are told to end, and the job waits again and is bought a node."""
    world = world_of(tmp_path)
    gang = world.submit(GANG_OF_4)
    world.ready()
    world.settle()
    world.sky.end("i-0002")
    world.pass_s(120)
    assert "i-0002" not in world.known()
    world.ready()
    world.settle()
    assert world.state.jobs[gang].state is JobState.RUNNING
    assert len(world.sky.machines) == 5


def test_the_next_instance_of_a_name_is_another_machine(tmp_path: Path) -> None:
    """Its token and journal are its own: the dead one's open nothing."""
    world = world_of(tmp_path, most=1)
    world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.do(commands.CreateToken("t-old", "ab" * 32, "node", "burst-1", "user:root"))
    world.settle()
    world.sky.end("i-0001")
    world.pass_s(120)
    assert "t-old" not in world.state.tokens
    world.ready()
    assert world.state.nodes["burst-1"].instance == "i-0002"
    world.settle()
    assert world.agents["burst-1"].outbox == "outbox-i-0002"


def test_what_cannot_be_ended_is_told_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, most=1, idle_s=60)
    gone = world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.settle()
    world.do(commands.CancelJob(gone, "user:alice"))
    world.settle()
    world.sky.stubborn = True
    world.pass_s(300)
    elastic_ = world.core._elastic
    assert [known.error for known in elastic_.ending.values()] == ["not allowed to end instances"]
    assert world.known() == world.sky.alive() == ["i-0001"]
    world.sky.stubborn = False
    world.pass_s(1200)
    assert world.sky.alive() == world.known() == []


def test_a_cloud_that_tells_nothing_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And again when it says something else; neither is what can't be ended told over and over."""
    world = world_of(tmp_path, most=1)
    world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.sky.blind = True
    world.pass_s(300)
    for words in ("timeout", "refused", "refused", ""):
        world.do(commands.Looked("use1", world.clock.monotonic_us(), error=words))
    told = [
        record.getMessage().rpartition(": ")[2] for record in caplog.records if "can't be seen" in record.msg
    ]
    assert told == ["read timeout", "timeout", "refused"]


def test_what_can_not_be_ended_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(tmp_path, most=1, boot_s=60)
    world.submit(job(nodes=1, gpus=8))
    world.calm()
    stray = world.sky._start(next(iter(world.state.fleets.values())).intent, f"{world.state.uid}-stray")
    world.sky.stubborn = True
    world.pass_s(1800)
    told = [record.getMessage() for record in caplog.records if "end" in record.msg]
    assert sorted(told) == [
        "instances i-0001 were not ended: not allowed to end instances",
        "instances i-0002 were not ended: not allowed to end instances",
        "instances that no intent knows are ended: i-0002",
    ]
    world.sky.stubborn = False
    world.pass_s(900)
    assert stray.id not in world.sky.alive()


def test_no_facts_no_launch(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.facts_spec = None
    world.do(commands.ApplyCluster(replace(world.spec, timezone="Europe/Berlin"), "test"))
    gang = world.submit(GANG_OF_4)
    world.pass_s(120)
    view = world.job(gang)
    assert view is not None
    assert "facts" in world.view.reason_of(view).sentence()
    world.facts_spec = "another"
    world.pass_s(120)
    assert "another file" in world.view.reason_of(view).sentence()
    assert world.sky.calls == []
    world.facts_spec = ""
    world.pass_s(120)
    assert len(world.sky.alive()) == 4


def test_a_node_that_is_less_than_was_asked_for_is_not_proved(tmp_path: Path) -> None:
    world = world_of(tmp_path, most=1, boot_s=200)
    world.submit(job(nodes=1, gpus=8))
    world.calm()
    world.boot(facts=NodeFacts("boot-1", 4, 16 << 30))
    (mark,) = world.state.nodes["burst-1"].marks
    assert mark.kind is MarkKind.UNPROVED
    world.pass_s(300)
    assert world.sky.machines["i-0001"].ended_us
    assert world.state.boot_failures == {"burst": 1}


def test_a_node_that_joins_after_its_time_was_up_is_no_proof(tmp_path: Path) -> None:
    """It is being ended already; what the pool's boots are like, it says nothing of."""
    world = world_of(tmp_path, boot_s=100)
    world.submit(job(nodes=1, gpus=8))
    world.calm()
    world.sky.stubborn = True
    world.pass_s(120)
    (fleet,) = [
        each for each in world.state.fleets.values() if each.instances and each.instances[0].releasing_us
    ]
    (late,) = fleet.instances
    world.boot(late.node)
    world.calm()
    assert world.state.nodes[late.node].facts is not None
    assert (late.proved_us, world.state.boot_failures) == (0, {"burst": 1})


def test_a_spot_notice_ends_work_in_its_own_way_and_it_waits_again(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(job(nodes=2, gpus=8, stop=Stop("SIGUSR1", "all", 600)))
    world.ready()
    gang = next(iter(world.state.jobs))
    world.settle()
    assert world.interrupt("burst-1", 120) is None
    attempt = world.state.jobs[gang].attempt
    assert attempt is not None
    assert attempt.ending is not None
    assert (attempt.ending.order.signal, attempt.ending.order.grace_s) == ("SIGUSR1", 110)
    world.interrupt("burst-2", 60)
    assert attempt.ending.order.grace_s == 110, "it was told, and is not told anew by each of its nodes"
    world.settle()
    assert world.state.jobs[gang].state is JobState.WAITING
    assert world.state.jobs[gang].failures == {}
    assert not world.state.nodes["burst-1"].open
    assert isinstance(world.interrupt("nobody", 120), NotFound)


@pytest.mark.parametrize("done", ["nothing", "launched"])
def test_a_removed_pool_gives_back_what_was_under_way(tmp_path: Path, done: str) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    if done == "launched":
        world.turn()
    without = replace(world.spec, pools=(elastic("other", most=1),))
    world.do(commands.ApplyCluster(without, "test"))
    world.pass_s(60)
    assert world.sky.alive() == []
    assert world.state.fleets == {}


def test_a_site_stays_in_the_file_while_its_instances_exist(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    local = replace(world.spec, sites=world.spec.sites[:1], pools=(pool("p"),))
    refused = world.do(commands.ApplyCluster(local, "test"))
    assert isinstance(refused, Conflict)
    assert "use1" in refused.message


@pytest.mark.parametrize("change", [{"region": "eu-west-1"}, {"kind": SiteKind.LOCAL}])
def test_a_site_stays_where_it_is_while_its_instances_exist(tmp_path: Path, change: dict[str, Any]) -> None:
    world = world_of(tmp_path, idle_s=60)
    gang = world.submit(GANG_OF_4)
    world.cycle()
    here, use1 = world.spec.sites
    moved = replace(world.spec, sites=(here, replace(use1, **change)), pools=(pool("p"),))
    refused = world.do(commands.ApplyCluster(moved, "test"))
    assert isinstance(refused, Conflict)
    assert "site use1 still has instances of pool burst in us-east-1" in refused.message
    zones = (here, replace(use1, zones=("us-east-1b",)))
    assert world.do(commands.ApplyCluster(replace(world.spec, sites=zones), "test")) is None
    world.do(commands.CancelJob(gang, "user:alice"))
    world.pass_s(300)
    assert world.do(commands.ApplyCluster(moved, "test")) is None


@pytest.mark.parametrize("stage", ["asked", "there", "ending", "gone with work left"])
def test_a_listed_node_has_no_bought_nodes_name(tmp_path: Path, stage: str) -> None:
    """Whatever the pool is called: one that is bought becomes one that is listed only when its nodes are gone."""
    world = world_of(tmp_path, idle_s=60)
    gang = world.submit(GANG_OF_4)
    if stage == "asked":
        world.cycle()
    else:
        world.ready()
        world.settle()
    if stage == "ending":
        world.do(commands.CancelJob(gang, "user:alice"))
        world.settle()
        world.sky.stubborn = True
        world.pass_s(200)
    elif stage == "gone with work left":
        gone = CloudInstance("i-0002", "", CloudState.GONE)
        world.do(commands.Looked("use1", world.clock.monotonic_us(), (gone,)))
        assert not world.state.nodes["burst-2"].instance
    listed = replace(world.spec, pools=(replace(pool("burst"), nodes=("burst-2",)),))
    refused = world.do(commands.ApplyCluster(listed, "test"))
    assert isinstance(refused, Conflict), stage
    assert refused.code == "capacity.name-in-use"
    others = replace(world.spec, pools=(pool("p"),))
    assert world.do(commands.ApplyCluster(others, "test")) is None
    world.sky.stubborn = False
    world.do(commands.CancelJob(gang, "user:alice", now=True))
    world.pass_s(1500)
    assert world.do(commands.ApplyCluster(listed, "test")) is None
    node = world.state.nodes["burst-2"]
    assert node.wanted
    assert not node.releasing


def test_the_uid_is_minted_once(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    uid = world.do(commands.NameCluster("user:root"))
    assert len(uid) == 12
    assert world.do(commands.NameCluster("user:root", uid)) == uid
    assert isinstance(world.do(commands.NameCluster("user:root", "another00000")), Conflict)
    assert kinds(world).count("cluster.named") == 1


@pytest.mark.parametrize(
    ("uid", "code"),
    [
        ("another00000", "cluster.other-uid"),
        ("SHOUTING0000", "cluster.bad-uid"),
        ("short", "cluster.bad-uid"),
    ],
)
def test_a_file_with_a_wrong_uid_records_nothing(tmp_path: Path, uid: str, code: str) -> None:
    world = world_of(tmp_path)
    before = kinds(world)
    refused = world.do(commands.ApplyCluster(replace(world.spec, timezone="Europe/Berlin"), "test", uid=uid))
    assert refused.code == code
    assert kinds(world) == before
    assert world.state.cluster == world.spec


def test_a_wrong_uid_names_no_cluster(tmp_path: Path) -> None:
    world = World(tmp_path / "state", cluster())
    assert isinstance(world.do(commands.NameCluster("user:root", "no uid at all")), InputError)
    assert world.state.uid == ""


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (job(nodes=5, gpus=8), "never.nodes"),
        (job(nodes=1, gpus=8, cores=400), "never.nodes"),
        (job(tasks=33, gpus=1), "never.tasks"),
    ],
)
def test_a_job_that_no_pool_could_hold_is_refused_at_submit(tmp_path: Path, spec: JobSpec, code: str) -> None:
    """By the pool's largest size, and by what the types of its offerings have."""
    world = world_of(tmp_path)
    refused = world.do(commands.Submit(spec, ALICE, "user:alice"))
    assert isinstance(refused, Refused)
    assert refused.code == code


# --- what is reserved -----------------------------------------------------------------------------------------

BLOCK = Offering(("p5.48xlarge",), Market.CAPACITY_BLOCK, reservation="cr-1")


def reserved_world(path: Path, slots: int, hours: int, **rest: Any) -> CloudWorld:
    """A pool `burst` of one capacity block, and on demand after it."""
    world = world_of(path)
    world.sky.reservations["cr-1"] = Reserved("cr-1", slots, world.clock.now_us() + hours * 3600 * 10**6)
    pool = replace(elastic(**rest), offerings=(BLOCK, SPOT_THEN_ON_DEMAND[1]))
    world.do(commands.ApplyCluster(replace(world.spec, pools=(pool,)), "test"))
    world.pass_s(70)  # its stack is brought to this file, and the controller reads that
    return world


@pytest.mark.parametrize(
    ("slots", "hours", "market"),
    [(4, 6, "capacity_block"), (3, 6, "on_demand"), (0, 6, "on_demand"), (4, 2, "on_demand")],
    ids=["holds it", "too small", "not begun, or unknown", "ends before the job"],
)
def test_a_block_is_used_as_far_as_it_goes(tmp_path: Path, slots: int, hours: int, market: str) -> None:
    world = reserved_world(tmp_path, slots, hours)
    world.submit(job(nodes=4, gpus=8, time_limit_s=2 * 3600))
    world.calm()
    assert {one.market for one in world.sky.machines.values()} == {market}
    assert len(world.sky.machines) == 4


def test_what_is_reserved_is_asked_for_where_it_is(tmp_path: Path) -> None:
    world = reserved_world(tmp_path, 4, 6)
    ends_us = world.sky.reservations["cr-1"].ends_us
    world.sky.reservations["cr-1"] = Reserved("cr-1", 4, ends_us, "us-east-1z")
    world.pass_s(70)
    world.submit(job(nodes=4, gpus=8, time_limit_s=2 * 3600))
    world.calm()
    assert {(one.market, one.zone) for one in world.sky.machines.values()} == {
        ("capacity_block", "us-east-1z")
    }


def test_work_leaves_a_block_before_the_cloud_takes_it(tmp_path: Path) -> None:
    world = reserved_world(tmp_path, 1, 6, least=1, most=1)
    world.calm()
    world.ready()
    late = world.submit(job(nodes=1, gpus=8, time_limit_s=24 * 3600))
    world.settle()
    ends_us = world.sky.reservations["cr-1"].ends_us
    before_s = (ends_us - world.clock.now_us()) // 10**6 - BLOCK_LEAD_S
    world.wait(before_s - 60)
    world.settle()
    assert world.state.jobs[late].state is JobState.RUNNING
    world.wait(120)
    world.settle()
    (mark,) = [one for one in world.state.nodes["burst-1"].marks if one.kind is MarkKind.DRAINING]
    assert mark.deadline_us == ends_us - BLOCK_TAKEN_S * 10**6
    assert mark.why == "its capacity block ends"
    assert world.state.jobs[late].state is JobState.WAITING, "it waits again, and did not fail"
    assert world.state.jobs[late].failures == {}
    told = [one.body.mark.kind for one in ledger(world) if one.type == "node.marked"]
    assert told.count(MarkKind.DRAINING) == 1, "it is told once"


def test_what_exists_is_seen_also_by_whoever_may_not_look_at_reservations(tmp_path: Path) -> None:
    world = reserved_world(tmp_path, 4, 6)
    world.sky.secretive = True
    world.submit(job(nodes=4, gpus=8, time_limit_s=2 * 3600))
    assert len(world.ready()) == 4
    stray = world.sky._start(next(iter(world.state.fleets.values())).intent, f"{world.state.uid}-stray")
    world.pass_s(200)
    assert stray.id not in world.sky.alive()


# --- what the file wants otherwise ----------------------------------------------------------------------------


def test_another_image_reaches_nodes_that_run(tmp_path: Path) -> None:
    """The gang on them ends as it would have; then they are given back, and the floor is bought anew."""
    world = world_of(tmp_path, least=1, update=Update(max_unavailable=4))
    gang = world.submit(GANG_OF_4)
    world.ready()
    world.settle()
    before = world.sky.alive()
    assert len(before) == 4
    world.do(commands.ApplyCluster(replace(world.spec, timezone="Europe/Berlin"), "test"))
    world.pass_s(200)
    assert world.sky.alive() == before

    pools = tuple(replace(each, image="ami-0fedcba9876543210") for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    world.pass_s(200)
    assert world.sky.alive() == before
    drain = world.spec.pools[0].update.drain
    for node in world.state.nodes.values():
        (mark,) = node.marks
        assert (mark.kind, mark.then) == (MarkKind.RELEASING, drain.then)
        assert mark.deadline_us == mark.since_us + drain.deadline_s * SECOND
    finish(world, gang)
    world.pass_s(200)
    world.ready()
    assert not set(before) & set(world.sky.alive())
    assert len(world.sky.alive()) == 1, "the floor"
    check_state(world.state)


def test_no_node_is_closed_before_the_stack_is_as_the_file_says(tmp_path: Path) -> None:
    """Else all would be closed for what can't be bought yet."""
    world = world_of(tmp_path, least=1)
    world.ready()
    before = world.sky.alive()
    world.facts_spec = world.core._elastic.digest(world.state, "use1")
    pools = tuple(replace(each, image="ami-0fedcba9876543210") for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    world.pass_s(200)
    assert [node.open for node in world.state.nodes.values()] == [True]
    world.facts_spec = ""
    world.pass_s(200)
    world.ready()
    assert len(world.sky.alive()) == 1
    assert world.sky.alive() != before


@pytest.mark.parametrize(
    "change",
    [
        {"offerings": (Offering(("p5.48xlarge",), Market.ON_DEMAND),)},
        {"offerings": (Offering(("p5en.48xlarge",), Market.SPOT, 30_000_000),)},
        {"image": "ami-0fedcba9876543210"},
    ],
    ids=["market", "type", "image"],
)
def test_what_makes_a_bought_node_outdated(tmp_path: Path, change: dict[str, Any]) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    site = world.spec.sites[1]

    def found() -> frozenset[str]:
        facts = world.facts("test", world.state.uid, site)
        assert facts is not None
        return outdated(world.state, {site.name: facts})

    assert found() == frozenset()
    pools = tuple(replace(each, **change) for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    assert found() == frozenset(world.state.fleets)
    assert outdated(world.state, {}) == frozenset(), "of a stack of another file nothing is known"
