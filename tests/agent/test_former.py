"""A node that comes from another cluster: what it remembers of that one's jobs must not answer for this one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent import former
from orchestrator.agent.config import Config
from orchestrator.agent.trust import Trust
from orchestrator.model.clock import ManualClock
from orchestrator.model.ids import AttemptId
from orchestrator.model.join_line import JoinLine
from tests.agent.test_journal import ended, open_journal, started

HERE, BEFORE, NOW = "https://10.0.0.1:7443", "0" * 64, "1" * 64


def trust(folder: Path, before: str, now: str) -> Trust:
    """Of a node that was let in by the first authority and has a join token of the second."""
    config = Config("n1", str(folder), join_token_file=str(folder / "join"))
    if before:
        Trust(config).keep(JoinLine("", HERE, before))
    (folder / "join").write_text(JoinLine("hidden", HERE, now).text + "\n")
    return Trust(config)


def test_another_clusters_jobs_are_set_aside(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.commit([started(1, 40)])
    journal.commit([ended(1)])
    journal.acked(2)
    journal.close()
    (tmp_path / "attempts" / "1-1").mkdir(parents=True)
    again = open_journal(tmp_path)
    assert former.is_anothers(trust(tmp_path, BEFORE, NOW), again, ())
    again.close()
    place = Path(former.set_aside(str(tmp_path), ManualClock()))
    assert (place / "attempts" / "1-1").is_dir()
    assert list((tmp_path / "attempts").iterdir()) == []
    new = open_journal(tmp_path)
    assert new.final_event(AttemptId(1, 1)) is None
    assert AttemptId(1, 1) not in new.memory.ids
    assert not Trust(Config("n1", str(tmp_path), join_token_file=str(tmp_path / "join"))).other_controller()


@pytest.mark.parametrize(("before", "now"), [(BEFORE, BEFORE), ("", NOW), (BEFORE, "")])
def test_the_same_controller_is_no_other(tmp_path: Path, before: str, now: str) -> None:
    journal = open_journal(tmp_path)
    assert not former.is_anothers(trust(tmp_path, before, now), journal, ())


def test_what_the_other_one_does_not_know_yet_stays(tmp_path: Path) -> None:
    """It may be the same one with a new authority: a job's end must not get lost."""
    journal = open_journal(tmp_path)
    there = trust(tmp_path, BEFORE, NOW)
    assert not former.is_anothers(there, journal, (AttemptId(7, 1),)), "it runs"
    journal.commit([started(1, 40)])
    journal.acked(1)
    assert not former.is_anothers(there, journal, ()), "it has not ended"
    journal.commit([ended(1)])
    assert not former.is_anothers(there, journal, ()), "its end is not told"
    journal.acked(2)
    assert former.is_anothers(there, journal, ())


def test_the_last_acknowledgement_outlives_the_agent(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.commit([ended(1)])
    journal.acked(1)
    journal.close()
    assert open_journal(tmp_path).memory.events == {}
