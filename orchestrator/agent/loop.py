"""One thread, one epoll, named timers: what the daemon waits for.

Comes in: file descriptors with a function each, timers with a name each. Goes out: calls, one at a time. Called by:
the daemon and its parts (channels, the starter, the log server).
"""

from __future__ import annotations

import select
from collections.abc import Callable

from orchestrator.model.clock import SECOND, Clock

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
Ready = Callable[[int], None]  # gets the epoll event mask
LONGEST_WAIT_S = 60.0


class Loop:
    """Runs until `stop`. A timer that is set again moves; times are monotonic microseconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._epoll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._since: dict[int, int] = {}  # the round in which a descriptor was first watched
        self._round = 0
        self._timers: dict[str, tuple[int, Callable[[], None]]] = {}
        self._running = True

    def watch(self, fd: int, events: int, ready: Ready) -> None:
        """Call `ready` when `fd` has one of `events`; watching again changes both."""
        if fd in self._ready:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._since[fd] = self._round
        self._ready[fd] = ready

    def forget(self, fd: int) -> None:
        """Stop watching, before the descriptor is closed."""
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def after(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once after `seconds`; the timer of that name is replaced."""
        self._timers[name] = (self.clock.monotonic_us() + int(seconds * SECOND), call)

    def cancel(self, name: str) -> None:
        """Forget a timer, if it is set."""
        self._timers.pop(name, None)

    def pending(self, name: str) -> bool:
        """Whether that timer is set."""
        return name in self._timers

    def stop(self) -> None:
        """Leave `run` after the present round."""
        self._running = False

    def run(self, each_round: Callable[[], None]) -> None:
        """Until `stop`: `each_round`, then wait and call what is ready and due."""
        while self._running:
            each_round()
            self.turn(self._pause())
            self._fire()

    def turn(self, pause_s: float) -> None:
        """Wait once and call what is ready.

        A number that was given back and taken again in this very round is not called: what is ready belongs to the
        descriptor that had it before. If the new one is ready too, the next round says so.
        """
        found = self._epoll.poll(pause_s)
        self._round += 1
        for fd, events in found:
            ready = self._ready.get(fd)
            if ready is not None and self._since[fd] != self._round:
                ready(events)

    def _pause(self) -> float:
        due = min((at for at, _ in self._timers.values()), default=None)
        if due is None:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, (due - self.clock.monotonic_us()) / SECOND))

    def _fire(self) -> None:
        now = self.clock.monotonic_us()
        due = sorted((at, name) for name, (at, _) in self._timers.items() if at <= now)
        for _, name in due:
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer[1]()

    def fds(self) -> list[int]:
        """What a forked child must not keep."""
        return [self._epoll.fileno(), *self._ready]
