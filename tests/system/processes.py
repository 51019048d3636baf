"""Real processes of the system tests: started with a mark, killed by process id, looked for when they should be gone.

Comes in: commands, a mark (the test's own folder). Goes out: `Child`, and who still carries the mark. Called by:
controllers, agents, harness. Nothing is ever found by its name.

Whatever the agent forks (nursery, shepherds, cleaning workers) keeps the environment that the agent was started with,
and so its mark; ranks carry GANGLINE_UNIT with their agent's place, or sit in its control groups.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from orchestrator.agent import containment, procfs

T = TypeVar("T")

DEADLINE_S = 60.0  # for what takes milliseconds on an idle machine
TICK_S = 0.01
MARK = "SYSTEM_TEST"
TESTER = "SYSTEM_TEST_BY"  # pid and start of the process whose test it is


def until(ready: Callable[[], T], what: str, deadline_s: float = DEADLINE_S, tick_s: float = TICK_S) -> T:
    """The first true value of `ready`; AssertionError that says what never came."""
    end = time.monotonic() + deadline_s
    while not (found := ready()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(tick_s)
    return found


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    found = procfs.stat(pid)
    return found is not None and found.alive


def tester() -> str:
    """This very process, for those that it starts."""
    pid = os.getpid()
    return f"{pid}.{procfs.start_of(pid)}"


def sweep() -> None:
    """End what tests have left whose own process was killed before it could tidy up."""
    prefix = f"{TESTER}=".encode()
    for each in procfs.all_stats():
        for line in procfs.environment(each.pid):
            if line.startswith(prefix):
                pid, _, start = line[len(prefix) :].decode().partition(".")
                if procfs.start_of(int(pid)) != int(start):
                    with suppress(ProcessLookupError):
                        os.kill(each.pid, signal.SIGKILL)


class Child:
    """A process that this test started: its own child, or one of the fork server."""

    def __init__(self, handle: subprocess.Popen[bytes] | BaseProcess) -> None:
        assert handle.pid is not None
        self._handle = handle
        self.pid = handle.pid
        self.began = time.monotonic()

    def code(self) -> int | None:
        """Its exit code, minus the signal that killed it, or None while it runs."""
        if isinstance(self._handle, subprocess.Popen):
            return self._handle.poll()
        return self._handle.exitcode

    def send(self, number: signal.Signals) -> None:
        """A signal to it, if it has not ended."""
        if self.code() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, what: str, deadline_s: float = DEADLINE_S) -> int:
        """Its exit code once it has ended."""
        until(lambda: self.code() is not None, f"the end of process {self.pid}: {what}", deadline_s, 0.002)
        code = self.code()
        assert code is not None
        return code

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait("it was killed")

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.send(signal.SIGTERM)
        return self.wait("it was told to stop")


def cold(argv: Sequence[str], log: Path, mark: Path, more: Mapping[str, str] | None = None) -> Child:
    """Start a command as users do, with an environment of its own and its output added to `log`."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), MARK: str(mark), TESTER: tester()}
    with log.open("ab") as output:
        return Child(
            subprocess.Popen(
                argv,
                env=env | dict(more or {}),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        )


def warm(target: Callable[..., None], *args: object) -> Child:
    """Start `target` in a process forked from one that has the controller's modules loaded already.

    It is as killable as any other, and costs no second of imports: two hundred of them fit into a test.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orchestrator.api.serve"])
    process = context.Process(target=target, args=args, daemon=True)
    process.start()
    return Child(process)


# --- who is left --------------------------------------------------------------------------------------------------


def carriers(mark: Path, places: Iterable[str]) -> list[procfs.Stat]:
    """Living processes that this test's commands have started, and what they have started in turn."""
    wanted = f"{MARK}={mark}".encode()
    ends = tuple(f"@{place}".encode() for place in places)
    boxed = {pid for place in places for pid in boxed_pids(place)}
    return [
        each
        for each in procfs.all_stats()
        if each.pid in boxed or any(_is_ours(line, wanted, ends) for line in procfs.environment(each.pid))
    ]


def ranks_left(places: Iterable[str]) -> list[procfs.Stat]:
    """Living processes of units: those that jobs are made of."""
    return [each for each in carriers(Path("/nowhere"), places) if each.name not in ("gl-idle", "gl-nursery")]


def _is_ours(line: bytes, wanted: bytes, ends: tuple[bytes, ...]) -> bool:
    return line == wanted or (line.startswith(b"GANGLINE_UNIT=") and line.endswith(ends))


def boxes(place: str) -> list[Path]:
    """Control groups of one agent's units."""
    home = containment.own_group()
    base = Path(home) / containment.ROOT_GROUP / place if home else None
    return (
        sorted(path for path in base.iterdir() if path.is_dir()) if base is not None and base.is_dir() else []
    )


def boxed_pids(place: str) -> list[int]:
    """Processes in those groups."""
    return [pid for box in boxes(place) for pid in containment.CgroupBox(str(box), "").members()]


def remove_boxes(place: str) -> None:
    """Take the agent's folder of control groups away; what lives there has been killed."""
    for box in boxes(place):
        until(containment.CgroupBox(str(box), "").remove, f"{box} is empty", 10)
    home = containment.own_group()
    with suppress(OSError):
        (Path(home) / containment.ROOT_GROUP / place).rmdir()


def describe(found: Iterable[procfs.Stat]) -> str:
    """Who they are, for an assertion's message."""
    return procfs.describe([each.pid for each in found]) or "nobody"


def end_all(mark: Path, places: Sequence[str]) -> None:
    """SIGKILL to every carrier, as often as new ones appear; until none is left."""

    def none_left() -> bool:
        found = carriers(mark, places)
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        return not found

    until(none_left, f"every process of {mark} is gone", 20)
    for place in places:
        remove_boxes(place)


class Held:
    """Processes held by descriptors that outlive their numbers: tells when the last one is gone, to the millisecond."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._fds = [os.pidfd_open(pid) for pid in pids]

    def gone(self, deadline_s: float) -> float:
        """Seconds until all have ended. AssertionError if that is not within the deadline."""
        began = time.monotonic()
        poll = select.poll()
        for fd in self._fds:
            poll.register(fd, select.POLLIN)
        left = set(self._fds)
        while left:
            remaining = deadline_s - (time.monotonic() - began)
            assert remaining > 0, f"{len(left)} of {len(self._fds)} processes live on after {deadline_s:g} s"
            for fd, _ in poll.poll(remaining * 1000):
                poll.unregister(fd)
                left.discard(fd)
        return time.monotonic() - began

    def close(self) -> None:
        """Let go of them."""
        for fd in self._fds:
            os.close(fd)
