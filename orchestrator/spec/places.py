"""Puts faults into the file: from a location in the document to line, column and the words of its path.

Comes in: `Found` and `Misread` faults. Goes out: `SpecError`s. Called by: `load`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.spec.reading import Found
from orchestrator.spec.report import MOST_ERRORS, SpecError
from orchestrator.spec.shape import path_text
from orchestrator.spec.tree import Misread, Node, Place, Tree
from orchestrator.wire.faults import Loc, Problem, problem

AROUND = 200  # characters of a line that an error carries on either side of its place


# What a line says after such a key is not repeated: logs of CI outlive the mistake. References may be read by all.
_SECRET = re.compile(
    r"""((?:password|passwd|passphrase|_pass|secret|token)["']?\s*:\s*)"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}\]#"'][^,}\]#]*)""",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"""["']?(env|file|aws-secret):""")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what libyaml counts as the end of a line
_NOWHERE = Place(0, 0)


class Page:
    """One text with its tree: whatever is wrong in it gets its place here."""

    def __init__(self, file: str, text: str, tree: Tree) -> None:
        self.file = file
        self.tree = tree
        self._text = text
        self._lines: list[str] | None = None

    def error(self, found: Found) -> SpecError:
        """The record of a fault of the document."""
        root = self.tree.root
        place = _place(root, found) if root is not None else _NOWHERE
        return self._record(found.problem, place, found.loc)

    def of_text(self, misread: Misread) -> SpecError:
        """The record of a fault of the text."""
        return self._record(misread.problem, misread.place, misread.loc)

    def _record(self, found: Problem, place: Place, loc: Loc) -> SpecError:
        line = _masked(self._line(place.line), place if found.code == "spec.bad-secret" else None)
        cut = max(0, place.column - 1 - AROUND)
        return SpecError(
            file=self.file,
            line=place.line,
            column=place.column,
            path=path_text(loc, self.tree.root),
            code=found.code,
            message=found.message,
            hint=found.hint,
            length=place.length,
            source=line[cut : place.column + AROUND],
            cut=cut,
        )

    def _line(self, number: int) -> str:
        if self._lines is None:
            self._lines = _BREAK.split(self._text)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""


def _masked(line: str, place: Place | None) -> str:
    """The line without what looks like a secret in it, and without what stands at `place`; as long as it was."""
    if place is not None and place.column:
        start, end = place.column - 1, place.column - 1 + place.length
        line = line[:start] + "*" * len(line[start:end]) + line[end:]
    return _SECRET.sub(_starred, line)


def _starred(found: re.Match[str]) -> str:
    return found[0] if _REFERENCE.match(found[2]) else found[1] + "*" * len(found[2])


def _place(root: Node, found: Found) -> Place:
    """Where the caret stands. What is not in the file is shown at the nearest thing around it that is."""
    loc = found.loc[:-1] if found.mark == "parent" else found.loc
    node, key = root, None
    for step in loc:
        inner = node.child(step)
        if inner is None:
            return key if key is not None and isinstance(step, str) else node.place
        key = node.keys.get(step) if isinstance(step, str) else None
        node = inner
    if found.mark == "value":
        return node.place if node.place.length or key is None else key
    return key or node.place


def unplaced(file: str, found: Problem, line: int = 0, column: int = 0) -> SpecError:
    """The record of a file that could not be read."""
    return SpecError(file, line, column, "", found.code, found.message, found.hint)


def sorted_errors(errors: Iterable[SpecError], first: str, more: int = 0) -> tuple[SpecError, ...]:
    """Errors by place, those of the file `first` before those of others; one that aliases repeat is told once. `more`
    were found and not made into errors."""
    kept: dict[tuple[str, int, int, str, str], SpecError] = {}
    for number, error in enumerate(errors):
        same = (error.file, error.line, error.column, error.code, error.message)
        kept.setdefault(same if error.line else ("", number, 0, "", ""), error)
    done = sorted(
        kept.values(), key=lambda one: (one.file != first, one.file, one.line, one.column, one.path)
    )
    left = max(0, len(done) - MOST_ERRORS) + more
    if left:
        done[MOST_ERRORS:] = [unplaced(first, problem("spec.more-faults", count=left))]
    return tuple(done)
