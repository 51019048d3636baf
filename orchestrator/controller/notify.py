"""Words to systemd, which has started this process: that it is ready, that it works, that it stops.

Comes in: the environment of a unit of `Type=notify`, and the core thread's cycles. Goes out: datagrams as sd_notify(3)
and sd_watchdog_enabled(3) describe them. Called by: loop (alive), serve (ready, stopping). Without systemd nothing of
this does anything.

The core thread alone says that it works, and only while the event loop answers it: where one of the two hangs, nobody
says so, and systemd starts the controller anew.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

SHARE = 4  # signs of life in the time that systemd allows between two


class Notify:
    """One unit's socket. No message waits or fails: a systemd that does not read must not stop a controller."""

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        """`pid`: this process; a watchdog that was set for another one is not ours to feed."""
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        meant = environment.get("WATCHDOG_PID", "") in ("", str(pid))
        given = environment.get("WATCHDOG_USEC", "")
        self.every_us = int(given) // SHARE if meant and given.isdecimal() else 0
        self._next_us = 0
        self._answered = True

    def alive(self, now_us: int) -> bool:
        """The core has begun a cycle; `now_us` is monotonic. True: the event loop is to be asked for `answered`, and
        without that nothing is said the next time."""
        if not self.every_us or now_us < self._next_us:
            return False
        self._next_us = now_us + self.every_us
        if self._answered:
            self._answered = False
            self._send("WATCHDOG=1")
        return True

    def answered(self) -> None:
        """The event loop has come to what the core gave it."""
        self._answered = True

    def ready(self, words: str) -> None:
        """It answers from now on; `words` for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={words}")

    def stopping(self) -> None:
        """It ends in order."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(text.encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, self._address)


def _address(given: str) -> str:
    """`@name` is one in the abstract namespace; anything but that and a path is none of ours."""
    return "\0" + given[1:] if given.startswith("@") else given if given.startswith("/") else ""


def of_this_process() -> Notify:
    """That of the unit in which this process runs, if it is one."""
    return Notify(os.environ, os.getpid())


NOBODY = Notify({}, 0)
