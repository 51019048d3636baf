"""Log reads that ride on sync: asked here, answered by the agent that holds the bytes.

Comes in: requests from api, answers posted by agents. Goes out: `LogChunk`s. Called by: service, on the event loop
only. A read that no agent answers in time is Unavailable, with the node's name.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.model.errors import NotFound, Unavailable
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import ReadRequest

ANSWER_S = 15  # seconds beyond a read's own wait in which its agent must answer


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a rank's output from the offset asked for. `size` is what there is now; `ended`: no more will come."""

    data: bytes
    size: int
    ended: bool


class Reads:
    """Open reads by node and id."""

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._open: dict[str, dict[str, tuple[ReadRequest, asyncio.Future[LogChunk]]]] = {}

    def of(self, node: str) -> tuple[ReadRequest, ...]:
        """What the node is asked to read; repeated until it answers."""
        return tuple(request for request, _ in self._open.get(node, {}).values())

    async def read(
        self, node: str, attempt: AttemptId, rank: int, offset: int, limit: int, wait_s: int
    ) -> LogChunk:
        """Ask the node; NotFound if it has nothing of that attempt, Unavailable if it does not answer."""
        request = ReadRequest(secrets.token_hex(8), attempt, rank, offset, limit, wait_s)
        answer: asyncio.Future[LogChunk] = asyncio.get_running_loop().create_future()
        mine = self._open.setdefault(node, {})
        mine[request.id] = (request, answer)
        self._wake(node)
        try:
            chunk = await asyncio.wait_for(answer, wait_s + ANSWER_S)
        except TimeoutError:
            raise Unavailable(
                "logs.no-answer",
                f"node {node} did not answer a read of {attempt}'s output within {wait_s + ANSWER_S} s",
                f"`gangline nodes` shows whether {node} is reachable; the output stays on the node",
            ) from None
        finally:
            mine.pop(request.id, None)
        if chunk.size < 0:
            raise NotFound("logs.gone", f"node {node} keeps no output of {attempt} any more")
        return chunk

    def arrived(self, node: str, read_id: str, chunk: LogChunk) -> bool:
        """An agent's answer; False if nobody waits for it."""
        found = self._open.get(node, {}).get(read_id)
        if found is None or found[1].done():
            return False
        found[1].set_result(chunk)
        return True
