"""Following output of all ranks at once: complete, in order, through attempts, and no faster than it is taken."""

from __future__ import annotations

import importlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client, Output, follow
from orchestrator.controller.reads import LogChunk
from orchestrator.model.errors import NotFound, Unavailable
from orchestrator.model.ids import AttemptId
from tests.api.served import Served, document, two_nodes, until
from tests.client.bridge import client_of

MODULE = importlib.import_module("orchestrator.client.follow")  # its name in the package is the function


class Outputs:
    """What ranks have printed, in place of the agents' files."""

    def __init__(self) -> None:
        self.data: dict[tuple[int, int], bytes] = defaultdict(bytes)
        self.ended: set[int] = set()  # attempts
        self.broken: dict[int, Exception] = {}
        self.reads = 0

    async def read(
        self, node: str, attempt: AttemptId, rank: int, offset: int, limit: int, wait_s: int
    ) -> LogChunk:
        self.reads += 1
        if rank in self.broken:
            raise self.broken[rank]
        data = self.data[attempt.number, rank]
        return LogChunk(data[offset : offset + limit], len(data), attempt.number in self.ended)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, two_nodes())
    yield served
    served.close()


@pytest.fixture
def outputs(served: Served, monkeypatch: pytest.MonkeyPatch) -> Outputs:
    outputs = Outputs()
    monkeypatch.setattr(served.controller, "read_log", outputs.read)
    return outputs


@pytest.fixture
def client(served: Served) -> Client:
    return client_of(served)


def run(served: Served, ranks: int = 4, **spec: Any) -> int:
    """A job that runs, with so many ranks on two nodes."""
    job = served.submit(document(nodes=2, tasks_per_node=ranks // 2, per_node={"gpus": 1}, **spec))
    served.beat()
    return job


def joined(pieces: list[Output]) -> dict[tuple[int, int], bytes]:
    """All bytes by attempt and rank, in the order in which they came."""
    found: dict[tuple[int, int], bytes] = defaultdict(bytes)
    for piece in pieces:
        assert piece.error is None
        found[piece.attempt, piece.rank] += piece.data
    return dict(found)


def test_all_ranks_are_complete_and_in_order(served: Served, client: Client, outputs: Outputs) -> None:
    job = run(served, ranks=4)
    wanted = {(1, rank): b"".join(b"%d:%d\n" % (rank, line) for line in range(50_000)) for rank in range(4)}
    outputs.data.update(wanted)
    outputs.ended.add(1)
    served.finish(job)

    assert joined(list(follow(client, job))) == wanted


def test_what_is_written_meanwhile_comes_too(served: Served, client: Client, outputs: Outputs) -> None:
    job = run(served)
    outputs.data[1, 2] = b"first "
    pieces = []
    for piece in follow(client, job, [2]):
        pieces.append(piece)
        if piece.data == b"first ":
            outputs.data[1, 2] += b"second"
            outputs.ended.add(1)
            served.finish(job)

    assert joined(pieces) == {(1, 2): b"first second"}


def test_more_ranks_than_readers(
    served: Served, client: Client, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "MOST_READERS", 2)
    job = run(served, ranks=10)
    outputs.data.update({(1, rank): b"%d" % rank for rank in range(10)})
    outputs.ended.add(1)
    served.finish(job)

    assert joined(list(follow(client, job))) == {(1, rank): b"%d" % rank for rank in range(10)}


def test_next_attempt_is_followed_too(served: Served, client: Client, outputs: Outputs) -> None:
    job = run(served)
    outputs.data.update({(1, 0): b"one", (2, 0): b"two"})
    pieces = []
    for piece in follow(client, job, [0]):
        pieces.append(piece)
        if piece.attempt == 1:
            client.requeue(job)
            served.beat(8)
            outputs.ended |= {1, 2}
        else:
            served.finish(job)

    assert joined(pieces) == {(1, 0): b"one", (2, 0): b"two"}


def test_one_attempt_alone(served: Served, client: Client, outputs: Outputs) -> None:
    job = run(served)
    client.requeue(job)
    served.beat(8)
    outputs.data.update({(1, 0): b"one", (2, 0): b"two"})
    outputs.ended.add(1)

    assert joined(list(follow(client, job, [0], attempt=1))) == {(1, 0): b"one"}


def test_only_what_is_new(served: Served, client: Client, outputs: Outputs) -> None:
    job = run(served)
    outputs.data[1, 0] = b"old "
    following = follow(client, job, [0], from_start=False)
    got: list[Output] = []
    taking = threading.Thread(target=lambda: got.extend(following))
    taking.start()
    until(lambda: outputs.reads >= 2)
    outputs.data[1, 0] += b"new"
    outputs.ended.add(1)
    served.finish(job)
    taking.join(20)

    assert joined(got) == {(1, 0): b"new"}


def test_job_that_ends_without_a_start_has_no_output(
    served: Served, client: Client, outputs: Outputs
) -> None:
    job = served.submit(document(hold=True))
    client.cancel(job)

    assert list(follow(client, job)) == []


def test_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound):
        next(follow(client, 99))


def test_rank_that_can_not_be_read_does_not_hide_the_others(
    served: Served, client: Client, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(served)
    outputs.data.update({(1, rank): b"x" for rank in range(4)})
    outputs.broken[1] = Unavailable("logs.no-answer", "node p-1 did not answer")
    outputs.ended.add(1)
    served.finish(job)
    monkeypatch.setattr(MODULE, "OUTAGE_S", 0)
    client._transport._patience_s = 0

    pieces = list(follow(client, job))

    assert {piece.rank for piece in pieces if piece.data} == {0, 2, 3}
    (error,) = [piece.error for piece in pieces if piece.error is not None]
    assert error.code == "logs.no-answer"


def test_outage_in_the_middle_loses_nothing(
    served: Served, client: Client, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "RETRY_S", 0.01)
    client._transport._patience_s = 0
    job = run(served)
    outputs.data[1, 0] = b"before "
    pieces = []
    for piece in follow(client, job, [0]):
        pieces.append(piece)
        if piece.data == b"before ":
            outputs.broken[0] = Unavailable("controller.stopping", "the controller is stopping")
            outputs.reads = 0
            until(lambda: outputs.reads >= 3)
            del outputs.broken[0]
            outputs.data[1, 0] += b"after"
            outputs.ended.add(1)
            served.finish(job)

    assert joined(pieces) == {(1, 0): b"before after"}


def test_reading_is_no_further_ahead_than_allowed(
    served: Served, client: Client, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "PIECES_AHEAD", 4)
    job = run(served)
    outputs.data[1, 0] = b"x" * 262_144 * 50

    following = follow(client, job, [0])
    next(following)
    reads = -1
    while reads != outputs.reads:
        reads = outputs.reads
        threading.Event().wait(0.3)

    assert reads <= 7
    following.close()  # type: ignore[attr-defined]


def test_threads_end_with_the_follower(served: Served, client: Client, outputs: Outputs) -> None:
    job = run(served)
    outputs.data[1, 0] = b"x"
    following = follow(client, job)
    next(following)

    following.close()  # type: ignore[attr-defined]

    for thread in threading.enumerate():
        if thread.name.startswith("logs-"):
            thread.join(20)
            assert not thread.is_alive()
