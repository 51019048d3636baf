"""The loop: descriptors, timers, and numbers that are given back and taken again in one round."""

from __future__ import annotations

import os

import pytest

from orchestrator.agent.loop import READ, Loop
from orchestrator.model.clock import ManualClock


@pytest.fixture
def loop() -> Loop:
    return Loop(ManualClock())


def test_number_taken_again_in_the_same_round_is_not_called_for_the_old_one(loop: Loop) -> None:
    """Two descriptors are ready; the first closes the second and opens another that gets its number."""
    called: list[str] = []
    first, first_end = os.pipe()
    second, second_end = os.pipe()
    made: list[int] = []

    def replace(_: int) -> None:
        called.append("first")
        os.read(first, 1)
        loop.forget(second)
        os.close(second)
        made.extend(os.pipe())
        loop.watch(made[0], READ, lambda _: called.append("new"))

    def old(_: int) -> None:
        called.append("old")
        os.read(second, 1)
        loop.forget(first)

    loop.watch(first, READ, replace)
    loop.watch(second, READ, old)
    os.write(first_end, b"x")
    os.write(second_end, b"x")
    loop.turn(0)
    assert called == ["first"], "epoll tells of descriptors in the order in which they became ready"
    assert made[0] == second
    loop.turn(0)
    assert called == ["first"], "nothing was written for the new one"
    os.write(made[1], b"x")
    loop.turn(0)
    assert called == ["first", "new"]
    for fd in (first, first_end, second_end, *made):
        os.close(fd)


def test_timers_fire_once_in_order_and_may_be_moved(loop: Loop) -> None:
    fired: list[str] = []
    clock = loop.clock
    assert isinstance(clock, ManualClock)
    for name, seconds in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        loop.after(name, seconds, lambda name=name: fired.append(name))  # type: ignore[misc]
    loop.after("c", 9.0, lambda: fired.append("c late"))
    loop.cancel("nothing")
    clock.advance(5)
    loop._fire()
    assert fired == ["a", "b"]
    assert loop.pending("c")
    clock.advance(5)
    loop._fire()
    loop._fire()
    assert fired == ["a", "b", "c late"]


def test_timer_that_another_cancels_in_the_same_moment(loop: Loop) -> None:
    fired: list[str] = []

    def first() -> None:
        fired.append("a")
        loop.cancel("b")

    loop.after("a", 0, first)
    loop.after("b", 0, lambda: fired.append("b"))
    loop._fire()
    assert fired == ["a"]


def test_stop_ends_the_run_after_its_round(loop: Loop) -> None:
    rounds: list[int] = []

    def each() -> None:
        rounds.append(1)
        if len(rounds) == 3:
            loop.stop()
        loop.after("go", 0, lambda: None)

    loop.run(each)
    assert len(rounds) == 3
