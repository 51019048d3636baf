"""Says in the log that somebody was refused, and how often, without letting strangers fill it.

Comes in: a stable word and a sentence. Goes out: at most one line a minute for each word. Called by: archive,
instances.
"""

from __future__ import annotations

import logging

from orchestrator.model.clock import SECOND, Clock

PAUSE_S = 60  # between two lines about the same
MOST_WORDS = 64

log = logging.getLogger("gangline.api")


class Sparing:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[str, int] = {}  # by word, when it was said last
        self._held: dict[str, int] = {}  # how many since then were not

    def warn(self, word: str, text: str) -> None:
        """Say it now, or count it for the next time."""
        now_us = self._clock.monotonic_us()
        said = self._said.get(word)
        if said is not None and now_us < said + PAUSE_S * SECOND:
            self._held[word] = self._held.get(word, 0) + 1
            return
        if said is None and len(self._said) >= MOST_WORDS:
            return
        held = self._held.pop(word, 0)
        self._said[word] = now_us
        log.warning("%s%s", text, f" (and {held} more since the last such line)" if held else "")
