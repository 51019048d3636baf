"""What leaves a connection: the parts of an answer go out together, in order, and nothing after the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from orchestrator.api.protocol import Joined


class Wire:
    """A transport that remembers its calls."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def on_wire(test: Callable[[Joined, Wire], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def play() -> None:
        wire = Wire()
        await test(Joined(cast("asyncio.Transport", wire), asyncio.get_running_loop()), wire)

    def run() -> None:
        asyncio.run(play())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_wire
async def test_head_and_body_are_one_write(joined: Joined, wire: Wire) -> None:
    joined.write(b"head ")
    joined.write(b"body")
    assert wire.sent == []

    await asyncio.sleep(0)

    assert wire.sent == [b"head body"]


@on_wire
async def test_parts_of_a_long_answer_go_out_turn_by_turn(joined: Joined, wire: Wire) -> None:
    for part in (b"one", b"two"):
        joined.write(part)
        await asyncio.sleep(0)

    assert wire.sent == [b"one", b"two"]


@on_wire
async def test_what_was_written_is_out_before_the_end(joined: Joined, wire: Wire) -> None:
    joined.write(b"last words")

    joined.close()

    assert (wire.sent, joined.is_closing()) == ([b"last words"], True)
    await asyncio.sleep(0)
    assert wire.sent == [b"last words"]


@on_wire
async def test_nothing_is_written_to_who_has_gone(joined: Joined, wire: Wire) -> None:
    joined.write(b"too late")
    wire.close()

    await asyncio.sleep(0)

    assert wire.sent == []
