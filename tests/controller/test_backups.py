"""Copies of the ledger on a schedule: due in time, readable, few enough, and never in the controller's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.controller.backups import Backups
from orchestrator.model.clock import ManualClock
from orchestrator.model.cluster import Backup
from orchestrator.store.backup import verify
from tests.builders import job
from tests.controller.scenes import small
from tests.controller.world import World

DAY_S = 86_400


class Kept:
    """A world with a schedule."""

    def __init__(self, path: Path, every_s: int = DAY_S, keep: int = 3) -> None:
        self.world: World = small(path)
        self.clock: ManualClock = self.world.clock
        self.wanted: Backup | None = Backup(every_s, keep)
        self.backups = Backups(path / "state", lambda: self.wanted, self.clock)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_due_once_in_the_period_and_not_before_the_first_has_passed(kept: Kept) -> None:
    assert not kept.backups.due()
    kept.clock.advance(DAY_S - 1)
    assert not kept.backups.due()
    kept.clock.advance(1)
    assert kept.backups.due()
    assert kept.backups.make() is not None
    assert not kept.backups.due()
    kept.clock.advance(DAY_S)
    assert kept.backups.due()


def test_a_restart_goes_by_the_last_copy(kept: Kept, tmp_path: Path) -> None:
    kept.clock.advance(DAY_S)
    kept.backups.make()
    kept.clock.advance(DAY_S // 2)
    again = Backups(tmp_path / "state", lambda: kept.wanted, kept.clock)
    assert not again.due()
    kept.clock.advance(DAY_S // 2)
    assert again.due()


def test_a_copy_is_the_whole_ledger_and_the_controller_works_on(kept: Kept) -> None:
    submitted = kept.world.submit(job(gpus=1))
    made = kept.backups.make()
    assert made is not None
    assert verify(made).last == kept.world.state.seq
    kept.world.submit(job(gpus=1))
    assert kept.world.job(submitted) is not None
    assert made.stat().st_mode & 0o077 == 0


def test_the_oldest_go(kept: Kept) -> None:
    for _ in range(5):
        kept.clock.advance(DAY_S)
        kept.backups.make()
    foreign = kept.backups.copies()[0].with_name("mine.ledger")
    foreign.write_text("")
    copies = kept.backups.copies()
    assert len(copies) == 3
    assert foreign.exists()
    assert [path.name for path in copies] == sorted(path.name for path in copies)


def test_nothing_to_copy_is_never_due(kept: Kept) -> None:
    kept.wanted = None
    kept.clock.advance(10 * DAY_S)
    assert not kept.backups.due()


def test_a_copy_that_fails_is_told_and_tried_later(
    kept: Kept, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state" / "backups").write_text("in the way")
    kept.clock.advance(DAY_S)
    assert kept.backups.make() is None
    assert "no backup" in caplog.text
    (tmp_path / "state" / "backups").unlink()
    assert kept.backups.make() is not None
