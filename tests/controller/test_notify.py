"""What systemd is told: against a real datagram socket, as a unit's own is."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.controller.notify import NOBODY, SHARE, Notify
from orchestrator.controller.service import Controller
from orchestrator.controller.settings import Settings
from orchestrator.model.clock import SECOND, SystemClock
from tests.ledgers import open_quickly

pytestmark = pytest.mark.system
PID = 4242
PATIENCE_S = 30


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """Where a unit's words arrive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(PATIENCE_S)
        yield heard


def environment(heard: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": heard.getsockname(), **more}


def said(heard: socket.socket) -> list[str]:
    """All that has arrived."""
    heard.setblocking(False)
    words = []
    try:
        while True:
            words.append(heard.recv(4096).decode())
    except BlockingIOError:
        return words


def test_ready_and_stopping_are_told_as_systemd_wants_them(systemd: socket.socket) -> None:
    unit = Notify(environment(systemd), PID)
    unit.ready("epoch 7 answers")
    unit.stopping()
    assert said(systemd) == ["READY=1\nSTATUS=epoch 7 answers", "STOPPING=1"]


def test_signs_of_life_come_a_few_times_in_the_time_that_is_allowed(systemd: socket.socket) -> None:
    unit = Notify(environment(systemd, WATCHDOG_USEC=str(8 * SECOND), WATCHDOG_PID=str(PID)), PID)
    for now_us in range(100 * SECOND, 108 * SECOND, SECOND // 2):
        if unit.alive(now_us):
            unit.answered()
    assert said(systemd) == ["WATCHDOG=1"] * SHARE


@pytest.mark.parametrize(
    "more", [{}, {"WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}]
)
def test_a_watchdog_that_is_none_or_another_s_is_not_fed(
    systemd: socket.socket, more: dict[str, str]
) -> None:
    Notify(environment(systemd, **more), PID).alive(100 * SECOND)
    assert said(systemd) == []


def test_an_event_loop_that_hangs_silences_the_core(systemd: socket.socket) -> None:
    unit = Notify(environment(systemd, WATCHDOG_USEC="8"), PID)
    assert unit.alive(100)
    assert unit.alive(200), "it is asked again and again"
    assert unit.alive(300)
    assert said(systemd) == ["WATCHDOG=1"]
    unit.answered()
    unit.alive(400)
    assert said(systemd) == ["WATCHDOG=1"]


def test_a_name_in_the_abstract_namespace_is_one(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"\0{tmp_path}")
        Notify({"NOTIFY_SOCKET": f"@{tmp_path}"}, PID).stopping()
        assert said(heard) == ["STOPPING=1"]


def test_nothing_fails_where_nobody_listens_or_nobody_reads(systemd: socket.socket, tmp_path: Path) -> None:
    NOBODY.ready("x")
    Notify({"NOTIFY_SOCKET": str(tmp_path / "gone")}, PID).ready("x")
    Notify({"NOTIFY_SOCKET": "vsock:2:1234"}, PID).ready("x")
    full = Notify(environment(systemd, WATCHDOG_USEC="4"), PID)
    began = time.monotonic()
    for now_us in range(5000):
        full.alive(now_us)
        full.answered()
    assert time.monotonic() - began < PATIENCE_S, "a full socket is not waited for"
    assert 0 < len(said(systemd)) < 5000


class Watched(Notify):
    """Remembers who has said that the controller works."""

    def __init__(self, heard: socket.socket) -> None:
        super().__init__(environment(heard, WATCHDOG_USEC="4"), PID)
        self.threads: set[str] = set()
        self.answerers: set[str] = set()

    def alive(self, now_us: int) -> bool:
        self.threads.add(threading.current_thread().name)
        return super().alive(now_us)

    def answered(self) -> None:
        self.answerers.add(threading.current_thread().name)
        super().answered()


def test_the_core_thread_feeds_the_watchdog_while_the_event_loop_answers_it(
    systemd: socket.socket, tmp_path: Path
) -> None:
    """So where one of the two hangs nobody does, whatever the other one does."""
    unit = Watched(systemd)

    async def serve() -> list[bytes]:
        clock = SystemClock()
        served = Controller(open_quickly(tmp_path / "state", clock), clock, Settings(), unit)
        await served.start()
        loop = asyncio.get_running_loop()
        words = [await loop.run_in_executor(None, systemd.recv, 4096) for _ in range(2)]
        served.stop()
        await served.stopped()
        return words

    assert asyncio.run(asyncio.wait_for(serve(), PATIENCE_S)) == [b"WATCHDOG=1"] * 2
    assert (unit.threads, unit.answerers) == ({"core"}, {threading.main_thread().name})
