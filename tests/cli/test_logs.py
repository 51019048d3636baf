"""Output of ranks: every byte, whole lines, labels, tails; what could not be read is told and fails."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import client as api_client
from orchestrator.cli import contexts
from orchestrator.cli.logs_cmd import LONGEST_HELD, Printer, Tail, last
from orchestrator.model.errors import Unavailable
from tests.cli.conftest import Said
from tests.cli.fakes import FakeClient, ended, first_failed, job, reason

Run = Callable[..., Said]
Make = Callable[..., FakeClient]


def printed(ranks: int, pieces: list[tuple[int, bytes]], *, label: bool = False) -> bytes:
    sink = io.BytesIO()
    printer = Printer(ranks, label=label, sink=sink)
    for rank, data in pieces:
        printer.write(rank, data)
    printer.finish()
    return sink.getvalue()


def test_one_rank_is_passed_on_as_it_comes() -> None:
    sink = io.BytesIO()
    printer = Printer(1, label=False, sink=sink)
    printer.write(0, b"10%\r20%")

    assert sink.getvalue() == b"10%\r20%"


def test_lines_of_ranks_do_not_mix() -> None:
    assert printed(2, [(0, b"a"), (1, b"b\nc"), (0, b"A\n"), (1, b"C\n")]) == b"b\naA\ncC\n"


def test_labels() -> None:
    assert printed(12, [(3, b"x\ny"), (11, b"z\n")], label=True) == b"[ 3] x\n[11] z\n[ 3] y\n"


def test_a_line_without_end_is_not_held_for_ever() -> None:
    sink = io.BytesIO()
    Printer(2, label=False, sink=sink).write(0, b"x" * LONGEST_HELD)

    assert sink.getvalue() == b"x" * LONGEST_HELD + b"\n"


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=12)), max_size=20))
def test_no_byte_is_lost_or_reordered_within_a_rank(pieces: list[tuple[int, bytes]]) -> None:
    """Each rank's own text comes out whole; a missing last line end is added."""
    out = printed(3, [(rank, data.replace(b"[", b"")) for rank, data in pieces], label=True)

    for rank in range(3):
        wanted = b"".join(data.replace(b"[", b"") for number, data in pieces if number == rank)
        lines = [line[4:] for line in out.split(b"\n") if line.startswith(b"[%d] " % rank)]
        assert b"\n".join(lines) == wanted.removesuffix(b"\n")


@pytest.mark.parametrize(
    ("data", "count", "wanted"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\n", 5, b"a\n"),
        (b"a\nb\n", 0, b""),
        (b"", 3, b""),
    ],
)
def test_last(data: bytes, count: int, wanted: bytes) -> None:
    assert last(data, count) == wanted


@given(st.binary(), st.binary(), st.lists(st.integers(1, 7), min_size=1))
def test_tail_lets_the_end_of_the_old_and_all_of_the_new_through(
    old: bytes, new: bytes, sizes: list[int]
) -> None:
    tail = Tail({0: len(old)}, 2)
    out, data, at = b"", old + new, 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        out += tail.pass_on(0, data[at : at + size])
        at += size

    assert out == last(old, 2) + new


@pytest.fixture
def client(controller: Make) -> FakeClient:
    made = controller(
        ended(1, "failed", 1, ranks=2, past=[first_failed()]), job(2, "waiting", reason=reason())
    )
    made.known[1].past[0].placements[0].__dict__["tasks"] = 2
    made.output = {(1, 0): b"zero\none\n", (1, 1): b"un\n"}
    return made


def test_all_ranks_one_after_the_other(client: FakeClient, gangline: Run) -> None:
    assert gangline("logs", "1") == (0, "zero\none\nun\n", "")


def test_one_rank(client: FakeClient, gangline: Run) -> None:
    assert gangline("logs", "1", "--rank", "1").out == "un\n"


def test_tail_and_label(client: FakeClient, gangline: Run) -> None:
    assert gangline("logs", "1", "--tail", "1", "--label").out == "[0] one\n[1] un\n"


def test_follow(client: FakeClient, gangline: Run) -> None:
    assert sorted(gangline("logs", "1", "-f").out.splitlines()) == ["one", "un", "zero"]


def test_a_job_that_has_not_started_says_why(client: FakeClient, gangline: Run) -> None:
    said = gangline("logs", "2")

    assert (said.code, said.out) == (0, "")
    assert (
        said.err
        == "job 2 has not started yet: it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 have them\n"
    )


def test_following_a_job_that_waits_says_why_nothing_comes(
    client: FakeClient, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "follow", lambda *_args, **_more: iter(()))

    assert gangline("logs", "2", "-f").err.startswith("job 2 has not started yet: it needs 4 node(s)")


def test_logs_say_soon_that_nobody_answers(
    controller: Make, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = controller(job(1))
    asked: list[float] = []

    def connect(*_args: object, patience_s: float = contexts.PATIENCE_S, **_more: object) -> FakeClient:
        asked.append(patience_s)
        return client

    monkeypatch.setattr(contexts, "connect", connect)
    gangline("logs", "1")

    assert asked[0] == contexts.PATIENCE_S


def test_a_rank_that_can_not_be_read_fails_and_the_others_are_there(
    client: FakeClient, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = client.logs

    def logs(number: int, rank: int = 0, **more: object) -> object:
        if rank == 0:
            raise Unavailable("logs.no-answer", "node n1 did not answer")
        return real(number, rank, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "logs", logs)

    assert gangline("logs", "1") == (1, "un\n", "rank 0: node n1 did not answer [logs.no-answer]\n")


@pytest.mark.parametrize("rank", ["x", "1-", "-1", "1,,2"])
def test_bad_ranks(client: FakeClient, gangline: Run, rank: str) -> None:
    assert gangline("logs", "1", f"--rank={rank}").code in (0, 2)
