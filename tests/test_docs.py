"""The Markdown says what the repository has: links lead somewhere, and named make targets and files exist.

It reads every Markdown file that git knows or would add. `make docs` runs it alone.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from orchestrator.ledger.events import CLASS_OF
from tests.test_repository import ROOT, repository_files

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)\s]+)?\)")
ANCHOR_ONLY = re.compile(r"\[[^\]]*\]\(#([^)\s]+)\)")
# `make` where a command begins; as an argument (`apt-get install make git`) or in prose it names no target.
MAKE = re.compile(r"(?:^|[`;&|$])[ \t]*make ([a-z][a-z-]*)(?![\w-])", re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def pages() -> list[Path]:
    return [path for path in repository_files() if path.suffix == ".md"]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as code hosts derive them: lower case, hyphens, no other signs."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for target, anchor in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target
        wrong_anchor = (
            anchor and path.suffix == ".md" and path.is_file() and anchor[1:] not in anchors(path.read_text())
        )
        if not path.exists() or wrong_anchor:
            broken.append(target + anchor)
    return broken + [f"#{name}" for name in ANCHOR_ONLY.findall(text) if name not in anchors(text)]


def unknown_targets(text: str, targets: set[str]) -> list[str]:
    spoken = [name for code in CODE.findall(text) for name in MAKE.findall(code)]
    return [name for name in spoken if name not in targets]


@pytest.fixture(scope="module")
def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path, targets: set[str]) -> None:
    assert unknown_targets(page.read_text(), targets) == []


def test_checks_find_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One thing\n")
    text = "# A\n[x](b.md) [x](b.md#one-thing) [x](b.md#two) [x](c.md) [x](#a) [x](#b) [x](https://example.org)\n"

    assert broken_links(tmp_path / "a.md", text) == ["b.md#two", "c.md", "#b"]
    assert unknown_targets(
        "make sure of `make test`, `apt install make git`, `make tset A=1`:\n```\n$ make dome && make X\n```\n",
        {"test"},
    ) == [
        "tset",
        "dome",
    ]


def test_events_have_the_fields_that_the_decisions_name() -> None:
    text = (ROOT / "docs/decisions/0002-metal.md").read_text()
    named = re.findall(r"`([a-z]+\.[a-z_]+) \{([^}]*)\}`", text)

    assert len(named) >= 5
    for name, inside in named:
        assert [field.name for field in fields(CLASS_OF[name])] == re.split(r",\s+", inside), name


def test_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()

    assert [command for command in ("make demo", "make test") if command not in text] == []
