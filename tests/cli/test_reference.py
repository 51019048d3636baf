"""The reference pages say what the code does: they are what it would write now."""

from __future__ import annotations

import pytest

from orchestrator.cli import reference
from orchestrator.cli.main import EXIT_CODES
from orchestrator.model.reasons import WORDS
from orchestrator.wire.faults import FAULTS

PAGES = reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name: str) -> None:
    path = reference.FOLDER / name

    assert path.exists(), "run python -m orchestrator.cli.reference"
    assert path.read_text(encoding="utf-8") == PAGES[name], "run python -m orchestrator.cli.reference"


def test_every_reason_fault_and_exit_code_has_its_row() -> None:
    assert [code for code in WORDS if f"| `{code}` |" not in PAGES["reasons.md"]] == []
    assert [code for code in FAULTS if f"| `{code}` |" not in PAGES["errors.md"]] == []
    assert [code for code, text in EXIT_CODES if f"| {code} | {text} |" not in PAGES["cli.md"]] == []


def test_every_verb_has_its_section() -> None:
    for path in ("demo", "server restore", "node cordon", "job show"):
        assert f"### gangline {path}\n" in PAGES["cli.md"]
        assert f"Usage: gangline {path} " in PAGES["cli.md"]


def test_write_writes_only_what_changed(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "reference"
    assert len(reference.write(folder)) == 4
    (folder / "cli.md").write_text("old")
    assert reference.write(folder) == [folder / "cli.md"]
