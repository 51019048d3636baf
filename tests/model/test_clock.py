"""Clocks: microseconds, forward only, and a manual one that moves when told."""

from __future__ import annotations

import time

from orchestrator.model.clock import SECOND, Clock, ManualClock, SystemClock


def test_the_system_clock_counts_microseconds_of_utc() -> None:
    before = time.time_ns() // 1000
    now = SystemClock().now_us()
    assert before <= now <= time.time_ns() // 1000


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    read = [clock.monotonic_us() for _ in range(1000)]
    assert read == sorted(read)
    assert abs(read[-1] - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000) < 60 * SECOND


def test_a_manual_clock_stands_still() -> None:
    clock: Clock = ManualClock(5 * SECOND)
    assert (clock.now_us(), clock.now_us(), clock.monotonic_us()) == (5 * SECOND, 5 * SECOND, 0)


def test_advance_moves_both_and_a_step_of_the_wall_moves_one() -> None:
    clock = ManualClock(5 * SECOND)
    clock.advance(1.5)
    assert (clock.now_us(), clock.monotonic_us()) == (6_500_000, 1_500_000)
    clock.set_wall(2 * SECOND)
    assert (clock.now_us(), clock.monotonic_us()) == (2 * SECOND, 1_500_000)
    clock.advance(1)
    assert (clock.now_us(), clock.monotonic_us()) == (3 * SECOND, 2_500_000)
