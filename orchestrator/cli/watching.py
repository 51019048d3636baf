"""Lists that are shown again when they change: in place on a terminal, as JSON lines or new tables elsewhere.

Comes in: a question and its listing. Goes out: frames, until Ctrl-C. Called by: `jobs -w`, `nodes -w`, `gpus -w`.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.cli.output import API_VERSION, Listing, plain
from orchestrator.cli.session import current

T = TypeVar("T")

PAUSE_S = 1.0


def repeat(
    listing: Callable[[], Listing[T]], ask: Callable[[], Sequence[T]], pause_s: float = PAUSE_S
) -> None:
    """Ask and show for ever; Ctrl-C is the way out, and no error."""
    show = _Lines() if current().structured else _Frames()
    try:
        while True:
            show.show(listing(), ask())
            time.sleep(pause_s)
    except KeyboardInterrupt:
        sys.stderr.write("\n")


class _Lines:
    """One JSON document a line, when it differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, listing: Listing[T], items: Sequence[T]) -> None:
        envelope = {"apiVersion": API_VERSION, "kind": listing.kind, "items": [plain(item) for item in items]}
        text = json.dumps(envelope)
        if text != self._last:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        self._last = text


class _Frames:
    """A table that overwrites itself on a terminal; elsewhere a new one after a blank line."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._height = 0
        self._last = ""

    def show(self, listing: Listing[T], items: Sequence[T]) -> None:
        text = listing.text(items, current()) or listing.empty
        if text == self._last:
            return
        sys.stdout.write(self._redraw(text) if self._terminal else ("\n" if self._last else "") + text + "\n")
        sys.stdout.flush()
        self._last = text

    def _redraw(self, text: str) -> str:
        """Go back over the last frame and write each line over the old one, so that nothing flickers."""
        lines = self._fitting(text.split("\n"))
        up = f"\x1b[{self._height}A" if self._height else ""
        self._height = len(lines)
        return up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"

    def _fitting(self, lines: list[str]) -> list[str]:
        """At most what the terminal shows at once: what has scrolled away can't be written over."""
        rows = shutil.get_terminal_size((100, 24)).lines - 1
        if len(lines) <= rows:
            return lines
        return [*lines[: rows - 1], f"... {len(lines) - rows + 1} more lines"]
