"""The agent's own log: one line an event on stderr, with time and level.

Comes in: sentences. Goes out: lines. Called by: the daemon and its parts. Not the logging package: its import costs
more than all that is needed here.
"""

from __future__ import annotations

import sys
import time

_LEVELS = ("error", "info", "debug")
_chosen = {"level": "info"}  # of this process; set once at its start


def set_level(name: str) -> None:
    """`error`, `info` or `debug`."""
    _chosen["level"] = name


def error(text: str) -> None:
    """Something is wrong that a person should know."""
    _line("error", text)


def info(text: str) -> None:
    """Something happened that people look for afterwards."""
    _line("info", text)


def debug(text: str) -> None:
    """Every step."""
    _line("debug", text)


def _line(name: str, text: str) -> None:
    if _LEVELS.index(name) > _LEVELS.index(_chosen["level"]):
        return
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        sys.stderr.write(f"{stamp} {name} {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody reads: no reason to die


class Repeated:
    """Says the same thing once until it changes, for errors that come with every attempt to do something."""

    def __init__(self) -> None:
        self._last = ""

    def error(self, text: str) -> None:
        """Log unless it was the last thing said."""
        if text != self._last:
            self._last = text
            error(text)

    def over(self, text: str) -> None:
        """The trouble is over; say so if there was any."""
        if self._last:
            self._last = ""
            info(text)
