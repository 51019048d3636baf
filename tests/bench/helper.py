"""Helper processes: load generators that are asked by lines of JSON, so that their processor time is their own.

Comes in: (in the benchmark) the name of a module with a function `serve`; (in the helper) requests on stdin. Goes out:
one answer a request on stdout. Called by: rate, agents, cli; emulated, submitters (the other end). A helper ends when
its stdin does, and so with the benchmark that started it, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from tests.bench.common import ROOT, Failed, cpu_s

Plain = dict[str, Any]
Handler = Callable[[Plain], Awaitable[Plain]]
END_S = 10.0


class Helper:
    """A process that runs `serve` of a module of tests.bench; a context manager that ends it."""

    def __init__(self, module: str) -> None:
        code = f"from tests.bench.{module} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is the benchmark's, which closes stdin
        )
        self._module = module

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tell(self, do: str, **what: Any) -> None:
        """Send a request; `hear` takes its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Plain:
        """The answer of the oldest request that has none. Failed if the helper failed or died."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            raise Failed(f"the helper {self._module} has ended")
        answer: Plain = json.loads(text)
        if "error" in answer:
            raise Failed(f"{self._module}: {answer['error']}")
        return answer

    def ask(self, do: str, **what: Any) -> Plain:
        """A request and its answer."""
        self.tell(do, **what)
        return self.hear()

    def cpu_s(self) -> float:
        """Processor seconds so far."""
        return cpu_s(self._process.pid)


def serve(handlers: dict[str, Handler]) -> None:
    """Answer requests until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(_serve(handlers))


async def _serve(handlers: dict[str, Handler]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb"))
    while text := await reader.readline():
        plain = json.loads(text)
        try:
            answer = await handlers[plain.pop("do")](plain)
        except Exception as error:  # noqa: BLE001 - told to the benchmark, which fails with it
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def now_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds: the same clock in every process of this machine."""
    return time.monotonic_ns()
