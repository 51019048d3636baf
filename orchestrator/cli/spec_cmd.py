"""`validate` and `init`: what can be done with files alone, without a server, credentials or a network.

Comes in: paths. Goes out: every fault with its place; or a copied example. Called by: the command's table.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli import options
from orchestrator.cli.known import known_catalog
from orchestrator.cli.session import current, note
from orchestrator.cli.text import plural
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import Conflict, InputError, NotFound

if TYPE_CHECKING:
    from orchestrator.model.catalog import Catalog
    from orchestrator.spec import SpecError

INVALID = 2


@verb(
    "validate",
    examples=[
        Example("gangline validate cluster.yaml", "check one file"),
        Example("gangline validate cluster.yaml jobs/*.yaml -o json", "check several, for a program"),
        Example("gangline validate cluster.yaml -o github", "annotate a pull request in CI"),
        Example("gangline validate cluster.yaml --skip guarantee-over-power", "without one check"),
    ],
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.skip
@options.output("text", "json", "github")
def validate(files: tuple[str, ...]) -> int:
    """Check cluster, job, price and policy files; needs no server and no network.

    All faults of all files come out together, each with its file, line and column. `-` reads standard input.
    Exit code 0: all are valid; 2: at least one is not. With -o json there is one ValidationResult for all files.
    """
    from orchestrator.spec import ValidationResult

    known = known_catalog()
    errors = [error for file in files for error in _check(file, known)]
    form = current().output
    if form == "json":
        sys.stdout.write(
            json.dumps(ValidationResult(tuple(errors)).to_json(), indent=2, ensure_ascii=True) + "\n"
        )
    elif form == "github":
        sys.stdout.writelines(_annotation(error) + "\n" for error in errors)
    else:
        _tell(files, errors)
    return INVALID if errors else 0


def _check(file: str, known: Catalog) -> list[SpecError]:
    from orchestrator.spec import validate_file, validate_text

    skip = current().skip
    if file != "-":
        return list(validate_file(file, skip=skip, known=known).errors)
    from orchestrator.spec.places import unplaced
    from orchestrator.spec.source import Unreadable, text_of_bytes

    try:
        text = text_of_bytes(sys.stdin.buffer.read())
        return list(validate_text(text, "<stdin>", skip=skip, known=known).errors)
    except Unreadable as error:
        return [unplaced("<stdin>", error.problem, error.line, error.column)]


def _tell(files: tuple[str, ...], errors: list[SpecError]) -> None:
    from orchestrator.spec import render

    if errors:
        sys.stdout.write(render(errors) + "\n")
        note(f"{plural(len(errors), 'error')} in {plural(len(files), 'file')}")
    else:
        sys.stdout.writelines(f"{file}: valid\n" for file in files)
    if current().skip:
        note(f"not checked: {', '.join(sorted(code.partition('.')[2] for code in current().skip))}")


def _annotation(error: SpecError) -> str:
    """One workflow command of GitHub Actions; what would end a property or the line is written as its %-escape."""
    text = error.message + (f". {error.hint}" if error.hint else "")
    path = f"{error.path}: " if error.path else ""
    place = f"file={_property(error.file)},line={max(1, error.line)},col={max(1, error.column)}"
    return f"::error {place},title={_property(error.code)}::{_data(path + text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# --- init -------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@verb(
    "init",
    examples=[
        Example("gangline init lab", "a cluster on this machine, in ./lab"),
        Example("gangline init hall --example atlas", "bare metal and AWS, to change to one's own"),
        Example("gangline init --list", "what examples there are"),
    ],
)
@click.argument("name", required=False)
@click.option(
    "--example", default="local-demo", show_default=True, metavar="EXAMPLE", help="Which example to copy."
)
@click.option("--list", "listed", is_flag=True, help="List the examples and copy nothing.")
def init(name: str | None, example: str, listed: bool) -> None:
    """Copy an example cluster into a folder of your own.

    The folder is NAME (default: the example's name) below the current one; it must not exist yet. Its cluster is
    called NAME too. What was written is printed, one path a line.
    """
    from orchestrator import bundled

    if listed:
        sys.stdout.writelines(f"{entry}\n" for entry in _examples(bundled.find("inventories")))
        return
    target = Path(name or example)
    cluster = target.name
    if not _NAME.fullmatch(cluster):
        raise InputError(
            "init.bad-name",
            f"'{cluster}' can't name a cluster",
            "use lower-case letters, digits and '-', at most 63, with a letter or digit at both ends",
        )
    source = _example(example)
    if target.exists():
        raise Conflict(
            "init.exists",
            "it is there already, and nothing is overwritten",
            "choose another name",
            str(target),
        )
    sys.stdout.writelines(f"{path}\n" for path in _copy(source, target, example, cluster))
    note(f"next: gangline validate {target}/cluster.yaml")


def _examples(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if (entry / "cluster.yaml").is_file())


def _example(name: str) -> Path:
    from orchestrator import bundled

    try:
        return bundled.find("inventories", name)
    except NotFound as error:
        raise InputError("init.no-example", f"there is no example '{name}'", error.hint) from None


def _copy(source: Path, target: Path, example: str, cluster: str) -> list[Path]:
    """Copy a folder's files; the cluster's own name is the only thing that changes. Returns what was written."""
    done: list[Path] = []
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        copy.write_text(
            renamed(text, example, cluster) if path.name == "cluster.yaml" else text, encoding="utf-8"
        )
        done.append(copy)
    return done


def renamed(text: str, old: str, new: str) -> str:
    """The cluster file with another name under `metadata`, and without what only holds in the repository."""
    text = re.sub(r"^# yaml-language-server:[^\n]*\n", "", text)
    named = re.compile(rf"^(metadata:\s*(?:\{{\s*)?name:\s*){re.escape(old)}(?=[\s,}}])", re.MULTILINE)
    return named.sub(rf"\g<1>{new}", text, count=1)
