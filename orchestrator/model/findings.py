"""What looks at an account found before anything is made in it.

Comes in: nothing. Goes out: `Finding`, and the names of the looks. Called by: provision.aws.live (finds), cli (shows
them, and takes the names for `--skip`).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word

# The names that `--skip` takes, and the codes that they stand for; in the order in which they are told.
LIVE_CHECKS: dict[str, str] = {
    name: f"aws.{name}"
    for name in (
        "credentials",
        "types",
        "quota",
        "addresses",
        "reservations",
        "images",
        "network",
        "launch",
    )
}


class Severity(Word):
    """What a finding means for an apply."""

    ERROR = "error"  # it can't work
    WARNING = "warning"  # it may not work, or not in full
    UNCHECKED = "unchecked"  # nobody could look


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a look says. `name` is the look's, as `--skip` takes it, `place` a path in the file."""

    name: str
    severity: Severity
    place: str
    words: str
    hint: str = ""
