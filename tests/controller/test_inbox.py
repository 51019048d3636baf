"""The inbox: in which order commands come out, and how many at a time."""

from __future__ import annotations

import asyncio
from typing import cast

from orchestrator.controller.commands import Command, HoldJob, Submit, Sync, SyncReply
from orchestrator.controller.inbox import Inbox, Item, News, tell
from orchestrator.model.errors import NotFound
from orchestrator.model.protocol import SyncRequest
from tests.builders import ALICE, job

NOBODY = cast("asyncio.Future[object]", None)


def told(number: int) -> Command:
    """Anything but a submit."""
    return HoldJob(number, "user:alice")


def submit(number: int) -> Command:
    return Submit(job(), ALICE, "user:alice", key=str(number))


def batches(commands: list[Command], most: int, most_submits: int) -> list[list[Command]]:
    inbox = Inbox()
    for command in commands:
        inbox.put(Item(command, NOBODY))
    found = []
    while batch := inbox.take(0.0, most, most_submits):
        found.append([item.command for item in batch])
    return found


def test_what_nodes_tell_does_not_stand_behind_submits() -> None:
    submits = [submit(number) for number in range(5)]
    news = [told(number) for number in range(3)]

    assert batches([*submits, *news], 100, 2) == [[submits[0], *news], submits[1:3], submits[3:]]


def test_the_more_nodes_tell_the_fewer_submits_come_with_it() -> None:
    """A quarter of what a batch may have of them comes in any case."""
    submits = [submit(number) for number in range(20)]

    def first(others: int) -> int:
        batch = batches([*submits, *(told(number) for number in range(others))], 100, 8)[0]
        return sum(isinstance(command, Submit) for command in batch)

    assert [first(others) for others in (0, 3, 6, 50)] == [8, 5, 2, 2]


def test_of_a_crowd_of_submits_a_part_comes_in_though_it_is_more() -> None:
    """Whatever else there is; so a thousand are in after as many batches as it takes to halve them a few times."""
    crowd = [submit(number) for number in range(1000)]
    news = [told(number) for number in range(50)]

    found = batches([*crowd, *news], 2000, 8)

    counts = [sum(isinstance(command, Submit) for command in batch) for batch in found]
    assert found[0][62:] == news
    assert counts[:2] == [62, 58]
    assert counts[-1] <= 8
    assert len(found) <= 60
    assert [command for batch in found for command in batch if isinstance(command, Submit)] == crowd


def test_each_line_keeps_its_order_and_nothing_is_lost() -> None:
    mixed = [told(n) if n % 3 else submit(n) for n in range(20)]

    found = batches(mixed, 4, 2)

    assert all(len(batch) <= 4 for batch in found)
    out = [command for batch in found for command in batch]
    for kind in (HoldJob, Submit):
        assert [c for c in out if isinstance(c, kind)] == [c for c in mixed if isinstance(c, kind)]


def test_few_commands_come_out_as_they_came() -> None:
    mixed = [submit(1), told(2), submit(3), told(4)]

    assert batches(mixed, 100, 32) == [mixed]


def test_what_was_overtaken_is_first_of_the_submits() -> None:
    inbox = Inbox()
    submits = [submit(number) for number in range(4)]
    for command in submits[:3]:
        inbox.put(Item(command, NOBODY))
    first = inbox.take(0.0, 100, 2)
    inbox.put(Item(submits[3], NOBODY))

    second = inbox.take(0.0, 100, 2)

    assert [item.command for item in (*first, *second)] == submits


def test_a_node_that_hears_its_news_with_an_answer_is_not_woken_for_them() -> None:
    """Unless nobody was there to take the answer, or it was a refusal."""

    async def woken() -> list[str]:
        loop = asyncio.get_running_loop()
        found: list[str] = []
        items = [
            Item(Sync(SyncRequest(name, "o", "b")), loop.create_future(), SyncReply(1)) for name in "abc"
        ]
        items[1].reply.cancel()
        items[2].answer = NotFound("node.not-found", "no such node")
        tell(items, lambda _, nodes: found.extend(nodes), News([], ["a", "b", "c", "d"]))
        assert items[0].reply.result() == SyncReply(1)
        assert isinstance(items[2].reply.exception(), NotFound)
        return found

    assert asyncio.run(woken()) == ["b", "c", "d"]
