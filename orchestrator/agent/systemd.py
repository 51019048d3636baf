"""systemd's manager, as far as units need it: make a transient scope, and know that it is there.

Comes in: a unit's name, its properties. Goes out: a unit that runs, or an OSError with systemd's own words. Called by:
scope.

A scope and not a service: processes that exist already are put into it, so an attempt needs no new interpreter. Its own
socket is preferred, as `systemctl` does: no bus daemon in between. A manager that executes itself again
(`systemctl daemon-reexec`) drops its connections for a moment, so a lost one is no answer and the call is made again.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence

from orchestrator.agent.dbus import Connection, DbusError, body_of
from orchestrator.agent.properties import Property

SERVICE = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
PRIVATE = "/run/systemd/private"
BUS = "/run/dbus/system_bus_socket"
UNIT_EXISTS = SERVICE + ".UnitExists"
PATIENCE_S = 20.0  # for a manager that does not answer
PAUSE_S = 0.05


def is_manager() -> bool:
    """Whether systemd is process 1 here (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def start_scope(
    name: str, properties: Sequence[Property], there: Callable[[], bool], patience_s: float = PATIENCE_S
) -> None:
    """Make the scope and wait until it runs. `there` says whether its processes are in it already, which tells where an
    answer was lost. OSError if systemd refuses or stays away for `patience_s`."""
    end = time.monotonic() + patience_s
    lost = False  # an answer: then a unit of that name may be ours, on its way or given up by the new manager
    while True:
        try:
            _start(name, properties, patience_s)
            return
        except DbusError as error:
            if not (lost and error.name == UNIT_EXISTS):
                raise OSError(errno.EPROTO, f"systemd refused it: {error}", name) from None
            why = str(error)
        except OSError as error:
            lost = True
            why = error.strerror or str(error) or "no answer"
        if there():
            return
        if time.monotonic() > end:
            raise OSError(errno.ETIMEDOUT, f"systemd does not answer: {why}", name)
        time.sleep(PAUSE_S)


def _start(name: str, properties: Sequence[Property], patience_s: float) -> None:
    with _connect(patience_s) as manager:
        asked = manager.send(
            SERVICE, PATH, MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", properties, []
        )
        job = ""
        for message in manager.messages():
            if message.answers == asked:
                job = str(body_of(message)[0])
            elif job and message.member == "JobRemoved" and message.body[1] == job:
                if message.body[3] != "done":
                    raise DbusError("JobFailed", f"starting it came to {message.body[3]!r}")
                return


def _connect(patience_s: float) -> Connection:
    try:
        return Connection(PRIVATE, patience_s)
    except (FileNotFoundError, PermissionError):
        pass
    bus = Connection(BUS, patience_s)
    try:
        freedesktop = "org.freedesktop.DBus"
        bus.call(freedesktop, "/org/freedesktop/DBus", freedesktop, "Hello")
        rule = f"type='signal',sender='{SERVICE}',interface='{MANAGER}',member='JobRemoved'"
        bus.call(freedesktop, "/org/freedesktop/DBus", freedesktop, "AddMatch", "s", rule)
        bus.call(SERVICE, PATH, MANAGER, "Subscribe")
    except BaseException:
        bus.close()
        raise
    return bus
