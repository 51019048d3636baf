"""What one call of the command was told about how to answer: shared by all verbs, made anew for each call.

Comes in: options as click reads them. Goes out: `Session`, which is click's context object. Called by: main (makes it),
options (fill it), output and errors (obey it).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

import click


@dataclass(slots=True)
class Session:
    """`output` is the format asked for; `skip` are codes of checks that are left out; `failed`,
    `refused` replace exit codes where a job's own code is returned."""

    output: str = "table"
    color: str = "auto"
    headers: bool = True
    server: str = ""
    context: str = ""
    skip: frozenset[str] = frozenset()
    failed: int = 0
    refused: int = 0

    @property
    def structured(self) -> bool:
        """Whether stdout carries a document for programs."""
        return self.output in ("json", "yaml")

    def returns_job_code(self) -> None:
        """From here on the exit code is the job's: Gangline's own failures are 125, refusals 126 (DESIGN section 7)."""
        self.failed, self.refused = 125, 126

    def colors(self, stream: TextIO) -> bool:
        """Whether the stream gets colours: asked for, or a terminal that nobody told otherwise (no-color.org)."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def current() -> Session:
    """The session of the call that runs now."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Session) if context is not None else None
    return found if found is not None else Session()


def note(text: str) -> None:
    """Tell the person something that is not data. Words of hosts and of other people may be in it: none of them drives
    the terminal."""
    from orchestrator.cli.text import safe_lines

    sys.stdout.flush()
    sys.stderr.write(safe_lines(text) + "\n")
    sys.stderr.flush()
