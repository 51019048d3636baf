"""Run programs on hosts: one `ssh` each, a bounded number at once, each with a deadline after which it is ended.

Comes in: `Access`, a host, a program, its input. Goes out: `Ran`, or `Unreached` with the reason in words. Called by:
check (as its `Run`), probe, apply. Connections are shared (ControlMaster), so that the second program on a host costs
no new login; `fresh` asks for a connection of its own.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.model.clock import Clock, SystemClock
from orchestrator.model.host import Step
from orchestrator.provision.metal.diagnosis import Unreached, broken, diagnose, seen
from orchestrator.provision.metal.ssh import JUMP_LOG, Access, private, unknown

SSH_FAILED = 255  # ssh's own exit code for a connection that did not come about or broke
# Each is a process of ssh here, and a login takes about 60 ms of a processor: more at once only delay each other.
MOST_AT_ONCE = min(64, 8 * (os.cpu_count() or 1))
DEADLINE_S = 60.0
MOST_OUTPUT = 32 << 20  # bytes that one program may say: a check of all that a host has says 1 MiB at most
DRAIN_S = 1.0  # for output that is still on its way when ssh has ended


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program left. `key` is the fingerprint that the host showed, empty over a shared connection.

    `asked_us`, `answered_us`: clock readings around the first line that it wrote after it had been given its input.
    """

    host: str
    code: int
    stdout: bytes
    stderr: bytes
    key: str = ""
    asked_us: int = 0
    answered_us: int = 0


@dataclass(frozen=True, slots=True)
class Way:
    """How to go in. `first`: record the key of a host that has none; `fresh`: share no connection that stands.

    `greeting`: what the program says first; it gets its input only then, so that times can be measured without the
    login.
    """

    first: bool = False
    fresh: bool = False
    deadline_s: float = DEADLINE_S
    greeting: bytes = b""


class Channel:
    """Ways into the hosts of one site."""

    def __init__(self, access: Access, clock: Clock | None = None, at_once: int = MOST_AT_ONCE) -> None:
        self.access = access
        self.clock = clock or SystemClock()
        self._gate = asyncio.Semaphore(at_once)

    async def __call__(self, host: str, argv: Sequence[str], stdin: bytes) -> Ran:
        """As `run`, by default ways."""
        return await self.run(host, argv, stdin)

    async def run(self, host: str, argv: Sequence[str], stdin: bytes = b"", way: Way = Way()) -> Ran:
        """Run it as the site's user. Unreached if SSH fails or the deadline passes; the code is the program's own.

        A connection that was shared and turns out to be dead (the host has rebooted) is replaced once.
        """
        if host not in self.access.addresses:
            raise unknown(self.access, host)
        async with self._gate:
            try:
                return await self._once(host, argv, stdin, way)
            except _Stale:
                return await self._once(host, argv, stdin, replace(way, fresh=True))

    async def run_on(
        self,
        hosts: Iterable[str],
        argv: Sequence[str],
        stdin: bytes = b"",
        way: Way = Way(),
    ) -> dict[str, Ran | Unreached]:
        """Run it on all of them; a host that fails delays and hides no other."""

        async def one(host: str) -> Ran | Unreached:
            try:
                return await self.run(host, argv, stdin, way)
            except Unreached as error:
                return error

        names = list(hosts)
        return dict(zip(names, await asyncio.gather(*(one(host) for host in names)), strict=True))

    async def close(self) -> None:
        """End the shared connections that stand; those of other commands to the same site too."""
        for path in private(self.access.sockets).iterdir():
            await _quietly(
                "ssh", "-F", str(self.access.config), "-o", f"ControlPath={path}", "-O", "exit", "any"
            )
            with suppress(FileNotFoundError):
                path.unlink()
        with suppress(OSError):
            self.access.sockets.rmdir()

    async def _once(self, host: str, argv: Sequence[str], stdin: bytes, way: Way) -> Ran:
        private(self.access.sockets)
        with tempfile.TemporaryDirectory(prefix="gangline-ssh-") as folder:
            log, jump_log = Path(folder, "log"), Path(folder, "jump")
            environment = {**os.environ, "LC_ALL": "C", JUMP_LOG: str(jump_log)}
            talk = await _start(self._command(host, argv, log, way), environment, way.greeting, self.clock)
            try:
                await asyncio.wait_for(talk.carry(stdin), way.deadline_s)
            except TimeoutError:
                said = talk.words + _read(jump_log)
                raise diagnose(self.access, host, _read(log), said, way.deadline_s) from None
            finally:
                await talk.end()
            return self._judge(host, talk, _read(log), _read(jump_log))

    def _judge(self, host: str, talk: _Talk, log: str, jump_log: str) -> Ran:
        code = talk.code
        far = seen(log)
        if talk.flooded:
            words = f"{self.access.place(host)} says more than {MOST_OUTPUT >> 20} MiB, and was not heard out"
            raise Unreached(
                Step.SYSTEM, host, words, "see what its shell's start-up files and its python3 are"
            )
        if code == SSH_FAILED and "mux_client" in log and not far.let_in:
            raise _Stale
        if code == SSH_FAILED and (not far.let_in or broken(log)):
            raise diagnose(self.access, host, log, talk.words + jump_log)
        return Ran(host, code, talk.stdout, talk.stderr, far.key, talk.asked_us, talk.answered_us)

    def _command(self, host: str, argv: Sequence[str], log: Path, way: Way) -> list[str]:
        config = self.access.config_first if way.first else self.access.config
        fresh = ["-o", "ControlMaster=yes"] if way.fresh else []
        # Its log goes to a file of its own, so that stderr is the program's alone and the log can be read for progress.
        return [
            "ssh",
            "-F",
            str(config),
            "-T",
            "-E",
            str(log),
            "-o",
            "LogLevel=DEBUG1",
            *fresh,
            host,
            shlex.join(argv),
        ]


class _Stale(Exception):
    """The shared connection is dead, and the program never began: it may be started over another one."""


class _Talk(asyncio.SubprocessProtocol):
    """One ssh process and what it says.

    The connection that stays behind to be shared holds the pipes open: ssh's own end counts, not theirs.
    """

    def __init__(self, greeting: bytes, clock: Clock) -> None:
        self._greeting = greeting
        self._clock = clock
        self._greeted = asyncio.Event()
        self._exited = asyncio.Event()
        self._closed = {1: asyncio.Event(), 2: asyncio.Event()}
        self._said = {1: bytearray(), 2: bytearray()}
        self._transport: asyncio.SubprocessTransport | None = None
        self.asked_us = 0
        self.answered_us = 0
        self.flooded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.asked_us and not self.answered_us:
            self.answered_us = self._clock.now_us()
        if self.flooded:
            return
        self._said[fd] += data
        if len(self._said[1]) + len(self._said[2]) > MOST_OUTPUT and self._transport is not None:
            self.flooded = True
            with suppress(ProcessLookupError):
                self._transport.kill()
        if self._greeting in self._said[1]:
            self._greeted.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in self._closed:
            self._closed[fd].set()

    def process_exited(self) -> None:
        self._exited.set()
        self._greeted.set()  # there may never be one

    @property
    def stdout(self) -> bytes:
        return bytes(self._said[1])

    @property
    def stderr(self) -> bytes:
        return bytes(self._said[2])

    @property
    def words(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    @property
    def code(self) -> int:
        found = self._transport.get_returncode() if self._transport is not None else None
        return SSH_FAILED if found is None else found

    async def carry(self, stdin: bytes) -> None:
        """Give it its input, take its output, wait for its end and, for a moment, for what is still on its way."""
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        if self._greeting:
            await self._greeted.wait()
        self.asked_us = self._clock.now_us()
        pipe.write(stdin)
        pipe.write_eof()
        await self._exited.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(each.wait() for each in self._closed.values())), DRAIN_S)

    async def end(self) -> None:
        """Leave no process behind."""
        assert self._transport is not None
        if not self._exited.is_set():
            with suppress(ProcessLookupError):
                self._transport.kill()
            await self._exited.wait()
        self._transport.close()


async def _start(argv: Sequence[str], environment: Mapping[str, str], greeting: bytes, clock: Clock) -> _Talk:
    loop = asyncio.get_running_loop()
    _, talk = await loop.subprocess_exec(lambda: _Talk(greeting, clock), *argv, env=environment)
    return talk


def _read(log: Path) -> str:
    with suppress(FileNotFoundError):
        return log.read_text(errors="replace")
    return ""


async def _quietly(*argv: str) -> None:
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=null, stderr=null)
    await process.wait()
