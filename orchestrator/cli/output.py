"""Listings and records in every format: one list of columns serves table, wide and markdown, one record all others.

Comes in: items as the API gives them. Goes out: text on stdout. Called by: every verb that shows something.
JSON and YAML carry the API's own records inside a versioned envelope, after the same filters as the table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Generic, TypeVar

from orchestrator.cli import session as sessions
from orchestrator.cli import tables
from orchestrator.cli.tables import Cell, Head
from orchestrator.cli.text import LOUD, escape, safe

API_VERSION = "gangline/v1"
FORMATS = ("table", "wide", "json", "yaml", "name", "markdown")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: its header, what it shows of an item, and whether it is only for `-o wide`."""

    title: str
    show: Callable[[T], str | Cell]
    right: bool = False
    cut: bool = False
    wide: bool = False

    def head(self) -> Head:
        """The header for the table's layout."""
        return Head(self.title, self.right, self.cut)

    def cell(self, item: T) -> Cell:
        """What the column shows of one item."""
        found = self.show(item)
        return found if isinstance(found, Cell) else Cell(found)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A kind of list: `kind` of its envelope, `columns`, the name that `-o name` prints, words for an empty list."""

    kind: str
    columns: tuple[Column[T], ...]
    name: Callable[[T], str]
    empty: str

    def print(self, items: Sequence[T], **more: Any) -> None:
        """Print the items in the format that was asked for; `more` goes into the envelope."""
        session = sessions.current()
        text = self.text(items, session, **more)
        if text:
            sys.stdout.write(text + "\n")
        if not items and session.output in ("table", "wide", "markdown"):
            sessions.note(self.empty)

    def text(self, items: Sequence[T], session: sessions.Session, **more: Any) -> str:
        """The same as one text."""
        if session.structured:
            envelope = {
                "apiVersion": API_VERSION,
                "kind": self.kind,
                **more,
                "items": [plain(item) for item in items],
            }
            return document(envelope, session.output)
        if session.output == "name":
            return "\n".join(safe(self.name(item)) for item in items)
        if not items:
            return ""
        columns = [column for column in self.columns if session.output != "table" or not column.wide]
        if session.output == "markdown":
            return markdown(columns, items)
        return self._table(columns, items, session)

    def _table(self, columns: Sequence[Column[T]], items: Sequence[T], session: sessions.Session) -> str:
        rows = [[column.cell(item) for column in columns] for item in items]
        lines = tables.render(
            [column.head() for column in columns],
            rows,
            most=tables.room(sys.stdout),
            colors=session.colors(sys.stdout),
            glyphs=tables.takes_glyphs(sys.stdout),
            headers=session.headers,
        )
        return "\n".join(lines)


def markdown(columns: Sequence[Column[T]], items: Sequence[T]) -> str:
    """A table for issues and merge requests."""
    rule = ["---:" if column.right else "---" for column in columns]
    rows = [[_markdown_text(column.cell(item).text) for column in columns] for item in items]
    return "\n".join(f"| {' | '.join(row)} |" for row in [[column.title for column in columns], rule, *rows])


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", safe(text))


def plain(item: Any) -> Any:
    """A record of the API, or one of the command's own, as plain values."""
    dump = getattr(item, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True)
    return asdict(item) if is_dataclass(item) and not isinstance(item, type) else item


def document(value: Any, form: str) -> str:
    """One document as JSON or YAML."""
    return to_yaml(value) if form == "yaml" else to_json(value)


# What JSON and YAML may carry as it is and a terminal should not see.
_LOUD = re.compile(f"[{LOUD}]")


def to_json(value: Any) -> str:
    """Indented JSON, UTF-8, with control characters escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _LOUD.sub(lambda found: json.dumps(found.group())[1:-1], text)


_PLAIN_YAML = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_YAML_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"])


def to_yaml(value: Any) -> str:
    """YAML that reads the same under the rules of 1.1 and 1.2: every text that could be something else is quoted."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes texts, and never writes aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
        bare = _PLAIN_YAML.fullmatch(data) and data.lower() not in _YAML_WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=None if bare else '"')

    Dumper.add_representer(str, text)
    written = str(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000))
    return _LOUD.sub(escape, written).rstrip("\n")  # such a text is never bare, so that the escape is read


def record(kind: str, item: Any, human: Callable[[], str]) -> None:
    """Print one record: for programs under its kind, for people as `human` writes it."""
    session = sessions.current()
    if session.structured:
        sys.stdout.write(
            document({"apiVersion": API_VERSION, "kind": kind, **_body(item)}, session.output) + "\n"
        )
    else:
        sys.stdout.write(human() + "\n")


def _body(item: Any) -> dict[str, Any]:
    found = plain(item)
    assert isinstance(found, dict)
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}
