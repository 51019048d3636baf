"""Nothing is done that is not written down: a journal that can't be written stops starts, not what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.attempts import Attempts, Wish
from orchestrator.agent.board import Board
from orchestrator.agent.history import History
from orchestrator.agent.journal import Journal, JournalError
from orchestrator.agent.loop import Loop
from orchestrator.agent.plan import NodeContext
from orchestrator.agent.sync import Sent
from orchestrator.model.clock import ManualClock
from orchestrator.model.codec import encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import Desired, Phase
from tests.agent.test_attempts_machine import LAUNCH, PlayedStarter

ATTEMPT = AttemptId(1, 1)


class Node:
    """An agent's attempts with a nursery that is played."""

    def __init__(self, folder: Path) -> None:
        (folder / "attempts").mkdir()
        self.clock = ManualClock()
        self.journal = Journal(str(folder), History(str(folder), 10**6, 100, self.clock))
        self.starter = PlayedStarter()
        self.loop = Loop(self.clock)
        context = NodeContext("n", "n.x", str(folder), "", "process-tree", run_as_self=True)
        board = Board(self.journal, self.starter, self.loop, context, lambda: None)  # type: ignore[arg-type]
        self.attempts = Attempts(board, lambda: None)
        self.attempts.adopt()

    def ask(self, phase: Phase) -> bool:
        """The controller's wish."""
        sent = Sent(0, -1, self.clock.monotonic_us())
        return self.attempts.want({ATTEMPT: Wish(Desired(ATTEMPT, phase), encode(LAUNCH))}, sent)


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
