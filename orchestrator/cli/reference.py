"""The reference pages in docs/reference, written from the code: verbs, exit codes, errors, reasons, fields.

Comes in: the command itself, the tables of faults and reasons. Goes out: Markdown files. Called by: `python -m
orchestrator.cli.reference`; a test holds the pages equal to what this would write.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from orchestrator.cli import reference_spec
from orchestrator.cli.commands import SECTIONS
from orchestrator.cli.main import EXIT_CODES, root
from orchestrator.cli.verbs import SETTINGS
from orchestrator.model import errors
from orchestrator.model.reasons import WORDS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
MADE = "<!-- Written by `python -m orchestrator.cli.reference`; change the code, not this page. -->\n"
WIDTH = 100
ERRORS_ARE = """Every error has a stable code, a sentence and, where there is something to do, a hint. With `-o json` it
is one JSON object on stderr; the HTTP API sends it as `application/problem+json`.
"""
REASONS_ARE = """Why a job waits (`wait.`), is not sure (`lost.`, `end.`) or was refused (`never.`). `gangline explain`
prints one of these with its numbers.
"""


def pages() -> dict[str, str]:
    """Each page's file name and text."""
    return {
        "cli.md": _cli(),
        "errors.md": _errors(),
        "reasons.md": _reasons(),
        "spec.md": reference_spec.page(MADE),
    }


def write(folder: Path = FOLDER) -> list[Path]:
    """Write all pages; returns those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


# --- the command ------------------------------------------------------------------------------------------------


def _cli() -> str:
    parts = ["# The command `gangline`\n", MADE, _help([], root), "## Exit codes\n", _exit_codes()]
    top = click.Context(root, info_name="gangline")
    for title, members in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in members:
            command = root.get_command(top, name)
            assert command is not None
            parts += _section([name], command)
    return "\n".join(parts)


def _section(path: list[str], command: click.Command) -> Iterator[str]:
    yield f"### gangline {' '.join(path)}\n"
    yield _help(path, command)
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from _section([*path, name], member)


def _help(path: list[str], command: click.Command) -> str:
    context = click.Context(
        command,
        info_name=" ".join(["gangline", *path]),
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=SETTINGS["help_option_names"],
    )
    return f"```\n{command.get_help(context).rstrip()}\n```\n"


def _exit_codes() -> str:
    rows = [f"| {code} | {text} |" for code, text in EXIT_CODES]
    return "\n".join(["| exit | meaning |", "|---:|---|", *rows, ""])


# --- errors -----------------------------------------------------------------------------------------------------


def _errors() -> str:
    from orchestrator.wire.faults import FAULTS

    kinds = [
        f"| {name} | {kind.exit_code} | {kind.http_status} | {_first_line(kind)} |"
        for name, kind in sorted(vars(errors).items())
        if inspect.isclass(kind) and issubclass(kind, errors.GanglineError)
    ]
    faults = [
        f"| `{code}` | {_cell(FAULTS[code].sentence)} | {_cell(FAULTS[code].hint)} |"
        for code in sorted(FAULTS)
    ]
    return "\n".join(
        [
            "# Errors\n",
            MADE,
            ERRORS_ARE,
            "## Kinds\n",
            "| kind | exit | HTTP | meaning |",
            "|---|---:|---:|---|",
            *kinds,
            "",
            "## Faults of cluster and job files\n",
            "Words in braces stand for what is in the file.\n",
            "| code | sentence | hint |",
            "|---|---|---|",
            *faults,
            "",
        ]
    )


def _first_line(kind: type) -> str:
    return _cell((inspect.getdoc(kind) or "").splitlines()[0])


def _reasons() -> str:
    rows = [
        f"| `{code}` | {wording.category} | {_cell(wording.sentence)} | {_cell(wording.action)} |"
        for code, wording in WORDS.items()
    ]
    return "\n".join(
        [
            "# Reasons\n",
            MADE,
            REASONS_ARE,
            "| code | category | sentence | what to do |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    for changed_page in write():
        sys.stdout.write(f"{changed_page}\n")
