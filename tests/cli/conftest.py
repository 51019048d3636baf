"""Fixtures of the command's tests: a controller that is a dict, and the command as a function.

`controller(jobs…)` puts a FakeClient in the place of the real one; `gangline(arguments…)` runs the command in this
process and returns its exit code, stdout and stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator.cli import contexts, text
from orchestrator.cli.main import main
from orchestrator.wire.api import Job
from tests.cli.fakes import NOW, FakeClient
from tests.cli.lab import Lab


class Said(NamedTuple):
    """What a call of the command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def gangline(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeClient]:
    """Everything that asks a controller asks this one; the time is NOW."""

    def make(*jobs: Job) -> FakeClient:
        client = FakeClient(*jobs)
        monkeypatch.setattr(contexts, "connect", lambda *_args, **_more: client)
        monkeypatch.setattr(contexts, "chosen", lambda: contexts.Context("lab", "unix:///nowhere"))
        monkeypatch.setattr(contexts, "own_name", lambda _context: "alice")
        monkeypatch.setattr(text, "now", lambda: NOW)
        return client

    return make


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A home with a cluster file of this machine; what a test starts in it is swept."""
    made = Lab(tmp_path / "l")
    made.write()
    try:
        yield made
    finally:
        made.sweep()
