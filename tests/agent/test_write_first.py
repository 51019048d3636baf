"""Nothing is done that is not written down: a journal that can't be written stops starts, not what runs. And nothing
that ends with the lease is begun on an answer that is older."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.attempts import Attempts, Wish
from orchestrator.agent.board import Board
from orchestrator.agent.history import History
from orchestrator.agent.journal import Journal, JournalError
from orchestrator.agent.lease import Lease
from orchestrator.agent.loop import Loop
from orchestrator.agent.plan import NodeContext
from orchestrator.agent.sync import Sent
from orchestrator.model.clock import SECOND, ManualClock
from orchestrator.model.codec import encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from orchestrator.model.protocol import Desired, Launch, Phase
from tests.agent.test_attempts_machine import LAUNCH, PlayedStarter

ATTEMPT = AttemptId(1, 1)
LEASE_S = 60
FENCING = replace(LAUNCH, job=replace(LAUNCH.job, on_lost=OnLost.SELF_FENCE))


class Node:
    """An agent's attempts with a nursery that is played."""

    def __init__(self, folder: Path) -> None:
        (folder / "attempts").mkdir()
        self.clock = ManualClock()
        self.journal = Journal(str(folder), History(str(folder), 10**6, 100, self.clock))
        self.starter = PlayedStarter()
        self.loop = Loop(self.clock)
        context = NodeContext("n", "n.x", str(folder), "", "process-tree", run_as_self=True)
        self.asked: list[None] = []  # one for each time that there was something to tell or to ask
        board = Board(self.journal, self.starter, self.loop, context, lambda: self.asked.append(None))  # type: ignore[arg-type]
        self.lease = Lease(str(folder), self.clock)
        self.attempts = Attempts(board, self.lease)
        self.attempts.adopt()

    def ask(self, phase: Phase, launch: Launch = LAUNCH, *, age_s: int = 0) -> bool:
        """The controller's wish, as an answer to what was sent so long ago."""
        sent = Sent(0, -1, self.clock.monotonic_us() - age_s * SECOND)
        self.lease.heard(sent.at_us, LEASE_S)
        return self.attempts.want({ATTEMPT: Wish(Desired(ATTEMPT, phase), encode(launch))}, sent)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.RUN])
def test_no_worker_without_its_start_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    node = Node(tmp_path)

    def full(_: Any) -> None:
        raise JournalError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(node.journal, "commit", full)
        assert not node.ask(phase)
    assert node.starter.asked == []
    assert ATTEMPT not in node.journal.memory.ids

    assert node.ask(phase)
    assert len(node.starter.asked) == 1
    assert ATTEMPT in node.journal.memory.ids
    node.journal.close()


@pytest.mark.parametrize("heard_again", [False, True])
def test_an_answer_as_old_as_the_lease_begins_nothing_that_ends_with_it(
    tmp_path: Path, heard_again: bool
) -> None:
    """The controller may have taken the attempt for fenced, and told nobody, since nobody held it."""
    node = Node(tmp_path)
    node.clock.advance(3 * LEASE_S)
    if heard_again:
        node.lease.heard(node.clock.monotonic_us(), LEASE_S)
    assert not node.ask(Phase.RUN, FENCING, age_s=2 * LEASE_S)
    assert (node.starter.asked, len(node.asked)) == ([], 1), "it asks what is wanted now"
    assert ATTEMPT not in node.journal.memory.ids
    assert node.ask(Phase.RUN, FENCING)
    assert len(node.starter.asked) == 1
    node.journal.close()


def test_what_does_not_end_with_the_lease_is_begun_on_any_answer(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.clock.advance(3 * LEASE_S)
    assert node.ask(Phase.RUN, age_s=2 * LEASE_S)
    node.journal.close()


def test_a_start_that_had_to_wait_for_the_disk_is_asked_for_again_when_it_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contact since then says nothing of this attempt: a controller that refuses connections counts as contact."""
    node = Node(tmp_path)

    def full(_: Any) -> None:
        raise JournalError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(node.journal, "commit", full)
        assert not node.ask(Phase.RUN, FENCING)
    node.clock.advance(2 * LEASE_S)
    node.lease.heard(node.clock.monotonic_us(), LEASE_S)
    node.loop._fire()
    assert (node.starter.asked, len(node.asked)) == ([], 1)
    node.journal.close()
