"""What is wrong with a trace: each fault with its line and column, all of them at once.

Comes in: faults, as readers find them. Goes out: `TraceFault`s, and `TraceError` with all of a file. Called by: the
readers of traces (collect), cli/simulate_cmd (shows them as it shows those of a cluster file).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from orchestrator.model.errors import InputError

MOST = 1000  # faults that are told; whoever has more has one cause
SHOWN = 200  # characters of a line that a fault carries


@dataclass(frozen=True, slots=True)
class TraceFault:
    """One fault. Line and column count from 1 (0: the file as a whole); `source` is the line, `length` what is
    marked."""

    line: int
    column: int
    field: str
    code: str
    message: str
    hint: str = ""
    source: str = ""
    length: int = 1


class TraceError(InputError):
    """A trace can't be read: `faults` has everything that is wrong, the exception's own fields tell the first."""

    def __init__(self, file: str, faults: list[TraceFault]) -> None:
        first = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(first.code, f"{file}:{first.line}: {first.message}{more}", first.hint, first.field)
        self.file = file
        self.faults = tuple(faults)


class Faults:
    """Collects the faults of one file."""

    def __init__(self) -> None:
        self.found: list[TraceFault] = []
        self._more = 0

    def add(self, fault: TraceFault) -> None:
        """One more."""
        if len(self.found) < MOST:
            self.found.append(fault)
        else:
            self._more += 1

    def raise_any(self, file: str) -> None:
        """TraceError if there are any."""
        if self._more:
            self.found.append(
                TraceFault(
                    0,
                    0,
                    "",
                    "trace.more-faults",
                    f"{self._more} more faults are not listed",
                    "mend those above",
                )
            )
        if self.found:
            raise TraceError(file, self.found)


def suggestion(word: str, known: list[str]) -> str:
    """`did you mean 'gpus'?`, or what there is."""
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else "known: " + ", ".join(known)
