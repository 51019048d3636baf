"""What holds whatever clouds answer: no budget or size is passed, floors stay, equal states decide alike.

Each example plays a random story through `Scene`: work comes and goes, launches succeed, fail or hang, nodes boot or
don't, time passes; after each step the promises are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.autoscale import Policy, decide, renew
from orchestrator.autoscale.backoff import RESTS_S, retry_us
from orchestrator.ledger import events
from orchestrator.ledger.apply_capacity import by_hour
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.model.attempt import JobState
from orchestrator.model.calendar import month_of
from orchestrator.model.capacity import ErrorClass, billed_s, cost
from orchestrator.model.cluster import Queue
from orchestrator.model.decisions import Buy, Cordon, Release
from orchestrator.model.job import JobSpec
from tests.autoscale.scene import DOLLAR, SECOND, Scene, Told, budget, elastic, hybrid, offer
from tests.builders import grouped, job
from tests.controller.invariants import check_state
from tests.priced import dollars_on_paper, passed

HOUR, MONTH, MOST, LEAST = 170, 900, 4, 1
AWAY = 1  # the default of `update.max_unavailable`
OFFERS = (offer("spot", dollars=20), offer("spot", "us-east-1b", dollars=20), offer("on_demand"))


def playing(seed: int, length: int, *more: Callable[[Scene, Random], None]) -> Iterator[Scene]:
    """A scene after each step of a random story, with more kinds of steps if any are named."""
    dice = Random(seed)
    scene = Scene(
        hybrid(
            elastic(most=MOST, least=LEAST, idle_s=300, boot_s=900),
            budgets=(budget(hour=HOUR, month=MONTH), budget("of-x", hour=60, queue="x")),
            queues=(Queue("default"), Queue("x")),
        ),
        OFFERS,
    )
    month_us, ends_us = month_of("Europe/Berlin", scene.now_us)
    scene.policy = Policy(month_us, ends_us)
    for _ in range(length):
        usual = (_submit, _answer, _answer, _boot, _finish, _time, _lose, _pass, _pass)
        dice.choice((*usual, *more))(scene, dice)
        yield scene


def _submit(scene: Scene, dice: Random) -> None:
    if len(scene.state.jobs) < 5:
        rest: dict[str, Any] = {
            "queue": dice.choice(("default", "default", "x")),
            "time_limit_s": dice.choice((1, 3, 9)) * 3600,
        }
        if dice.random() < 0.2:
            scene.submit(grouped(parts={"a": _gang(dice, 2), "b": _gang(dice, 2)}, **rest))
        else:
            scene.submit(_gang(dice, 4, **rest))


def _gang(dice: Random, most: int, **rest: Any) -> JobSpec:
    nodes = dice.randint(1, most) if dice.random() < 0.7 else 0
    gpus = 8 if nodes else dice.randint(1, 5)
    return job(nodes=nodes, gpus=gpus, cores=dice.randint(1, 3), **rest)


def _pass(scene: Scene, dice: Random) -> None:
    before = {name for name, node in scene.state.nodes.items() if node.instance and not node.releasing}
    coming = sum(len(fleet.intent.nodes) for fleet in scene.state.fleets.values() if fleet.asked)
    decisions = scene.look()
    released = [
        name for one in decisions if isinstance(one, Release) and not one.failed for name in one.instances
    ]
    away = AWAY if scene.policy.outdated else 0
    assert not released or len(before) + coming - len(released) >= LEAST - away, "a floor was given back"
    scene.carry_out(decisions)


def _answer(scene: Scene, dice: Random) -> None:
    asked = [fleet.intent.id for fleet in scene.state.fleets.values() if fleet.asked]
    if not asked:
        return
    chosen = dice.choice(asked)
    if dice.random() < 0.6:
        scene.launch(chosen)
    else:
        scene.refuse(chosen, dice.choice([None, *ErrorClass]), dice.choice((1, 60, 3600)))


def _boot(scene: Scene, dice: Random) -> None:
    for fleet in list(scene.state.fleets.values()):
        for one in fleet.instances:
            if not one.proved_us and not one.releasing_us and dice.random() < 0.7:
                scene.join(one.node)


def _finish(scene: Scene, dice: Random) -> None:
    running = [each.id for each in scene.state.jobs.values() if each.attempt is not None]
    if running:
        scene.end(dice.choice(running))


def _lose(scene: Scene, dice: Random) -> None:
    """Instances that are being ended are gone; now and then one that nobody has told to end."""
    for fleet in list(scene.state.fleets.values()):
        for one in list(fleet.instances):
            node = scene.state.nodes[one.node]
            if (one.releasing_us or dice.random() < 0.05) and not node.holders:
                busy = any(
                    each.attempt is not None and each.attempt.part(one.node)
                    for each in scene.state.jobs.values()
                )
                if not busy:
                    scene.gone(one.node)


def _time(scene: Scene, dice: Random) -> None:
    scene.wait(dice.choice((10, 120, 600, 7200)))


def _age(scene: Scene, dice: Random) -> None:
    """The file changes: what has been bought until now is of an older one; or it changes back."""
    scene.policy = replace(
        scene.policy, outdated=frozenset(scene.state.fleets if dice.random() < 0.7 else ())
    )


def committed(scene: Scene) -> int:
    return sum(
        fleet.intent.price * (len(fleet.instances) or len(fleet.intent.nodes))
        for fleet in scene.state.fleets.values()
    )


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(10, 80))
def test_no_budget_and_no_size_is_passed_whatever_clouds_answer(seed: int, length: int) -> None:
    for scene in playing(seed, length):
        check_state(scene.state)
        assert committed(scene) <= HOUR * DOLLAR
        assert not passed(scene.state, dollars_on_paper(scene.state))
        nodes = sum(len(fleet.instances) or len(fleet.intent.nodes) for fleet in scene.state.fleets.values())
        assert nodes <= MOST


@pytest.mark.property
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_months_budget_is_not_passed_by_what_is_billed(seed: int) -> None:
    """Each job gets nodes of its own, time limits are kept, what is told to end is gone two minutes later: no launch
    takes more than it was debited."""
    dice = Random(seed)
    scene = Scene(
        hybrid(elastic(most=MOST, idle_s=300, boot_s=900), budgets=(budget(month=MONTH),)), (offer(),)
    )
    month_us, ends_us = month_of("UTC", scene.now_us)
    scene.policy = Policy(month_us, ends_us)
    ends: dict[int, int] = {}
    for _ in range(200):
        for each in [each for each in scene.state.jobs.values() if each.attempt is not None]:
            if scene.now_us >= ends.setdefault(each.id, scene.now_us + each.spec.time_limit_s * SECOND):
                scene.end(each.id)
        scene.gone(*[node.name for node in scene.state.nodes.values() if node.releasing])
        if not scene.state.jobs and not scene.state.fleets:
            hours = dice.choice((1, 2, 4))
            scene.submit(job(nodes=dice.randint(1, 4), gpus=8, time_limit_s=hours * 3600))
        scene.join(*scene.launch(*scene.carry_out()))
        scene.wait(120)
    spent = sum(account.microusd for account in scene.state.accounts.values())
    assert spent <= MONTH * DOLLAR
    running = sum(
        cost(fleet.intent.price, billed_s(one.launched_us, scene.now_us))
        for fleet in scene.state.fleets.values()
        for one in fleet.instances
    )
    assert spent + running <= MONTH * DOLLAR


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(10, 60))
def test_equal_states_decide_alike(seed: int, length: int) -> None:
    """Also one that was read back from a snapshot: nothing hangs on how it came about."""
    *_, scene = playing(seed, length)
    again = from_plain(to_plain(scene.state))
    first, second = Told(), Told()
    waits = scene.waits
    one = decide(scene.state, scene.offers, scene.policy, scene.now_us, 1000, first, waits)
    two = decide(again, scene.offers, scene.policy, scene.now_us, 1000, second, waits)
    assert one == two
    assert first.reasons == second.reasons


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(10, 60))
def test_what_is_booked_busy_or_new_is_not_given_back(seed: int, length: int) -> None:
    for scene in playing(seed, length):
        for one in scene.look():
            if isinstance(one, Cordon):
                node = scene.state.nodes[one.node]
                assert not node.holders
                assert scene.now_us - node.idle_us >= 300 * SECOND
            if isinstance(one, Buy):
                assert not any(name in scene.state.nodes for name in one.nodes)


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(10, 80))
def test_no_more_old_nodes_are_closed_at_once_than_may_be_away(seed: int, length: int) -> None:
    for scene in playing(seed, length, _age, _pass):
        closed = [
            node
            for node in scene.state.nodes.values()
            if any(mark.why == renew.WHY for mark in node.marks) and not node.releasing
        ]
        assert len(closed) <= AWAY


# --- arithmetic -----------------------------------------------------------------------------------------------


@given(launched=st.integers(0, 10**16), seconds=st.integers(1, 10**6), price=st.integers(0, 10**9))
def test_a_bill_by_hours_adds_up(launched: int, seconds: int, price: int) -> None:
    rows = by_hour(launched, seconds, price)
    assert sum(amount for _, amount in rows) == cost(price, seconds)
    assert [hour for hour, _ in rows] == sorted({hour for hour, _ in rows})
    assert all(amount >= 0 for _, amount in rows)


@pytest.mark.parametrize(
    ("lived_us", "seconds"),
    [(0, 60), (1, 60), (60 * SECOND, 60), (60 * SECOND + 1, 61), (3600 * SECOND, 3600), (-5, 60)],
)
def test_a_minute_is_billed_at_least_and_seconds_are_whole(lived_us: int, seconds: int) -> None:
    assert billed_s(1000, 1000 + lived_us) == seconds


@pytest.mark.parametrize("fault", [fault for fault in ErrorClass if fault in RESTS_S])
def test_rests_grow_are_bounded_and_spread(fault: ErrorClass) -> None:
    first, longest = RESTS_S[fault]
    rests = [retry_us(fault, failures, "intent-7", 0) for failures in range(1, 40)]
    assert rests == sorted(rests)
    assert first * SECOND <= rests[0] < first * SECOND * 5 // 4
    assert rests[-1] <= longest * SECOND * 5 // 4
    assert len({retry_us(fault, 1, f"intent-{number}", 0) for number in range(20)}) > 10
    assert retry_us(fault, 1, "intent-7", 0) == retry_us(fault, 1, "intent-7", 0)


MONTHS = [
    # zone, now, first moment, last, in UTC
    ("UTC", "2026-11-30T23:59:59", "2026-11-01T00:00:00", "2026-12-01T00:00:00"),
    ("Asia/Shanghai", "2026-11-30T16:00:00", "2026-11-30T16:00:00", "2026-12-31T16:00:00"),
    ("America/New_York", "2026-12-01T04:59:59", "2026-11-01T04:00:00", "2026-12-01T05:00:00"),
    ("Asia/Kolkata", "2026-12-31T18:30:00", "2026-12-31T18:30:00", "2027-01-31T18:30:00"),
    ("Europe/Berlin", "2026-03-29T12:00:00", "2026-02-28T23:00:00", "2026-03-31T22:00:00"),
]


@pytest.mark.parametrize(("zone", "now", "first", "last"), MONTHS)
def test_a_month_is_the_calendars_of_the_zone(zone: str, now: str, first: str, last: str) -> None:
    assert month_of(zone, _us(now)) == (_us(first), _us(last))


def _us(text: str) -> int:
    from datetime import UTC, datetime

    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def test_a_new_month_frees_its_budget_by_time_alone() -> None:
    """What was spent last month is not counted, though nothing has happened since."""
    scene = Scene(hybrid(elastic(), budgets=(budget(month=100),)))
    month_us, ends_us = month_of("UTC", scene.now_us)
    scene.policy = Policy(month_us, ends_us)
    scene.submit(job(nodes=1, gpus=8, time_limit_s=3600))
    scene.bought()
    scene.wait(2 * 3600)
    scene(events.JobCancelRequested(1))
    scene(events.JobEnded(1, JobState.CANCELLED))
    scene.carry_out()
    scene.carry_out()
    scene.gone("burst-1")
    scene.submit(job(nodes=1, gpus=8, time_limit_s=3600))
    assert not [one for one in scene.look() if isinstance(one, Buy)]
    assert scene.reason_of(2).code == "wait.budget"
    scene.now_us = ends_us
    month_us, ends_us = month_of("UTC", scene.now_us)
    scene.policy = Policy(month_us, ends_us)
    assert [one for one in scene.look() if isinstance(one, Buy)]
