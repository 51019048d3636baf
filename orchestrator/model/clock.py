"""Time, injected: the one place that reads the machine's clocks.

Comes in: nothing. Goes out: `Clock`, with wall time in UTC microseconds and monotonic time in microseconds.
Called by: everything outside the pure rooms; tests and the simulator pass a `ManualClock`.
"""

from __future__ import annotations

import time
from typing import Protocol

SECOND = 1_000_000  # microseconds


class Clock(Protocol):
    """Wall and monotonic time, both in microseconds."""

    def now_us(self) -> int:
        """UTC microseconds since 1970."""

    def monotonic_us(self) -> int:
        """Microseconds that never go back; counts suspended time too where the system offers it."""


class SystemClock:
    """The machine's own clocks. CLOCK_BOOTTIME counts suspended time, so leases run out while a host sleeps."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class ManualClock:
    """A clock that moves only when told to; for tests and simulation."""

    def __init__(self, now_us: int = 1_800_000_000 * SECOND) -> None:
        self._now_us = now_us
        self._monotonic_us = 0

    def now_us(self) -> int:
        return self._now_us

    def monotonic_us(self) -> int:
        return self._monotonic_us

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        step = int(seconds * SECOND)
        self._now_us += step
        self._monotonic_us += step

    def set_wall(self, now_us: int) -> None:
        """Step the wall clock alone, as NTP may."""
        self._now_us = now_us
