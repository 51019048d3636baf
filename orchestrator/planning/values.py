"""Values of the model as the file would write them.

Comes in: a value in base units with its form, or a whole row. Goes out: a text in the units of the file. Called by:
diff.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.model import units
from orchestrator.model.written import (
    VALUE,
    Entries,
    Form,
    Identity,
    Leaf,
    Members,
    Part,
    Rows,
    Slot,
    slots_of,
)

_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+@%:-]*")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BETWEEN_TIMES = re.compile(r"(\d\d:\d\d) (\d\d:\d\d)")
_NO_TEXT = re.compile(r"[-+.0-9:]+|true|false|null|~|0[xo].*|.*:|[-+]?[0-9.]+[eE][-+]?[0-9]+")

KILO, MEGA = 1_000, 1_000_000


def text_of(form: Form, value: Any) -> str:
    """One value as it is shown in a change: no quotes around a text that stands alone."""
    return _TEXTS[form](value)


def path_key(key: str) -> str:
    """`.key`, or `["a key"]` where a plain one would be misread."""
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f'["{key}"]'


def scalar(text: str) -> str:
    """A text as it stands in YAML: in quotes where it would be read as something else."""
    return text if _PLAIN.fullmatch(text) and not _NO_TEXT.fullmatch(text) else json.dumps(text)


def _listed(values: tuple[Any, ...]) -> str:
    return "[" + ", ".join(scalar(str(value)) for value in values) + "]"


_TEXTS: dict[Form, Callable[[Any], str]] = {
    Form.TEXT: str,
    Form.WHOLE: str,
    Form.FLAG: lambda value: "true" if value else "false",
    Form.SECONDS: units.seconds_text,
    Form.BYTES: units.size_text,
    Form.KILOWATTS: lambda value: units.scaled_text(value, KILO),
    Form.DOLLARS: lambda value: units.scaled_text(value, MEGA),
    Form.SHARE: lambda value: units.scaled_text(value, KILO),
    Form.MODELS: lambda pair: " or ".join((pair[0], *pair[1])),
    Form.PORTS: lambda ports: f"{ports[0]}-{ports[1]}",
    Form.DAY_TIME: units.day_time_text,
    Form.DAYS: units.days_text,
    Form.TEXTS: lambda values: _listed(tuple(sorted(values))),
    Form.RANKED: _listed,
    Form.NODES: lambda names: units.fold(sorted(names)),
}
_BARE = (Form.WHOLE, Form.FLAG, Form.KILOWATTS, Form.DOLLARS, Form.SHARE, Form.TEXTS, Form.RANKED)


def slots_in(holder: Any) -> tuple[Slot, ...]:
    """The fields of a thing of the model."""
    cls: Any = type(holder)
    return slots_of(cls)


def value_at(holder: Any, slot: Slot) -> Any:
    """The value of a field; of two that are written as one, both."""
    value = getattr(holder, slot.name)
    also = slot.written.also if isinstance(slot.written, Leaf) else ""
    return (value, getattr(holder, also)) if also else value


def is_absent(slot: Slot, value: Any) -> bool:
    """Whether the file would say nothing for this value."""
    given = isinstance(slot.written, Leaf) and slot.written.given
    return not given and (value is None or value == slot.default)


def flow(holder: Any) -> str:
    """A row or a part on one line, as a flow mapping without defaults. What it is told apart by stands there only if
    there is nothing else."""
    found = list(_items(holder, identities=False)) or list(_items(holder, identities=True))
    alone = [text for key, text in found if key == VALUE]
    return alone[0] if alone else "{" + ", ".join(f"{key}: {text}" for key, text in found) + "}"


def _items(holder: Any, identities: bool) -> Iterator[tuple[str, str]]:
    for slot in slots_in(holder):
        value = value_at(holder, slot)
        if isinstance(slot.written, Identity) and not identities:
            continue
        if value is None or value == slot.default or (slot.inner is None and is_absent(slot, value)):
            continue
        for key, text in _item(slot, value):
            yield key.rpartition(".")[2], text


def _item(slot: Slot, value: Any) -> Iterator[tuple[str, str]]:
    written = slot.written
    if isinstance(written, Leaf):
        text = text_of(written.form, value)
        yield slot.key, text if written.form in _BARE else scalar(text)
    elif isinstance(written, Identity) and slot.inner is None:
        yield slot.key, scalar(text_of(written.form, value))
    elif isinstance(written, Members):
        yield slot.key, scalar(text_of(Form.NODES, value))
    elif isinstance(written, Entries):
        yield slot.key, "{" + ", ".join(f"{key}: {scalar(text)}" for key, text in value) + "}"
    elif isinstance(written, Rows):
        yield slot.key, _rows(written, value)
    elif isinstance(written, (Part, Identity)):
        inner = ", ".join(f"{key}: {text}" for key, text in _items(value, identities=True))
        if inner:
            yield slot.key, "{" + inner + "}"


def _table(entries: list[tuple[tuple[str, ...], str]]) -> str:
    """Texts by their keys, as mappings one inside the other."""
    inner: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for (first, *rest), text in entries:
        inner.setdefault(first, []).append((tuple(rest), text))
    found = (f"{key}: {held[0][1] if not held[0][0] else _table(held)}" for key, held in inner.items())
    return "{" + ", ".join(found) + "}"


def _rows(written: Rows, value: tuple[Any, ...]) -> str:
    if written.elsewhere:
        return f"{len(value)} hosts"
    if written.table:
        return _table([(tuple(getattr(row, one) for one in written.by), flow(row)) for row in value])
    return (
        "["
        + ", ".join(
            "{" + ", ".join(f"{key}: {text}" for key, text in _items(row, identities=True)) + "}"
            for row in value
        )
        + "]"
    )


def label(row: Any, by: tuple[str, ...]) -> str:
    """What a row is called in a path: its name, or what else tells it apart (`submit research on queue research`)."""
    slots = {slot.name: slot for slot in slots_in(row)}
    parts = [_label_part(slots[name], getattr(row, name)) for name in by]
    return _BETWEEN_TIMES.sub(r"\1-\2", " ".join(part for part in parts if part))


def _label_part(slot: Slot, value: Any) -> str:
    if slot.inner is not None:
        named = ((inner.key, getattr(value, inner.name)) for inner in slots_of(slot.inner))
        return " ".join(f"on {key} {text}" for key, text in named if text)
    form = slot.written.form if isinstance(slot.written, Identity) else Form.TEXT
    return text_of(form, value) if value not in ("", ()) else ""
