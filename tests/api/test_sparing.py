"""Refusals in the log: the first of a kind at once, the rest counted."""

from __future__ import annotations

import pytest

from orchestrator.api.sparing import MOST_WORDS, PAUSE_S, Sparing
from orchestrator.model.clock import ManualClock


def test_what_was_said_lately_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    sparing = Sparing(clock)
    for _ in range(5):
        sparing.warn("join.x", "no")
    sparing.warn("join.y", "never")
    clock.advance(PAUSE_S)
    sparing.warn("join.x", "no")
    clock.advance(PAUSE_S)
    sparing.warn("join.x", "no")
    assert caplog.messages == ["no", "never", "no (and 4 more since the last such line)", "no"]


def test_words_without_end_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    sparing = Sparing(ManualClock())
    for number in range(MOST_WORDS + 50):
        sparing.warn(f"w{number}", "no")
    assert len(caplog.messages) == MOST_WORDS
