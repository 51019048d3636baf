"""What differs between two values of the cluster's model, place by place.

Comes in: two `ClusterSpec`s. Goes out: `Case`s: the place, the values, and the rows that they stand in. Called by:
diff. Knows nothing of classes and nodes: it walks both by the metadata of the model.

Names are identities: rows are matched by what tells them apart, whatever their order. Lists of policy are matched by
place, after what both have in front and at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.model.change import ChangeKind
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.written import (
    Covered,
    Entries,
    Form,
    Identity,
    Leaf,
    Members,
    Part,
    Rows,
    Slot,
    place,
)
from orchestrator.planning.values import flow, is_absent, label, path_key, slots_in, text_of, value_at

_ROW = re.compile(r"(\[\]|(\.\*)+)$")  # the end of a row's pattern


@dataclass(frozen=True, slots=True)
class Pair:
    """A row as it was and as it is to be; None where there is none."""

    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Case:
    """One difference. `path` names rows, `pattern` does not; `rows` are those around it, the outermost first."""

    path: str
    pattern: str
    kind: ChangeKind
    old: Any
    new: Any
    old_text: str
    new_text: str
    rows: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class _Here:
    """Where the walk is."""

    path: str = ""
    pattern: str = ""
    rows: tuple[Pair, ...] = ()

    def inside(self, key: str) -> _Here:
        return _Here(place(self.path, key), place(self.pattern, key), self.rows)

    def row(self, name: str, pair: Pair) -> _Here:
        return _Here(f"{self.path}[{name}]", f"{self.pattern}[]", (*self.rows, pair))

    def entry(self, by: tuple[str, ...], pair: Pair) -> _Here:
        """A row of a table: the file has a mapping for each part of what tells it apart, one inside the other."""
        keys = [str(getattr(pair.old or pair.new, one)) for one in by]
        path = self.path + "".join(path_key(key) for key in keys)
        return _Here(path, self.pattern + ".*" * len(keys), (*self.rows, pair))

    def case(self, old: Any, new: Any, old_text: str, new_text: str) -> Case:
        """A difference here; an empty text means that there is nothing."""
        kind = ChangeKind.CHANGED
        if not old_text or not new_text:
            kind = ChangeKind.ADDED if not old_text else ChangeKind.REMOVED
        return Case(self.path, self.pattern, kind, old, new, old_text, new_text, self.rows)


def compare(old: ClusterSpec, new: ClusterSpec) -> tuple[Case, ...]:
    """All differences, in the order of the file's sections and of names."""
    return tuple(_fields(old, new, _Here()))


def _fields(old: Any, new: Any, here: _Here) -> Iterator[Case]:
    if old is new:
        return
    for slot in slots_in(new):
        before, after = value_at(old, slot), value_at(new, slot)
        if before != after and not isinstance(slot.written, Identity):
            yield from _field(slot, before, after, here.inside(slot.key))


def _field(slot: Slot, old: Any, new: Any, here: _Here) -> Iterator[Case]:
    written = slot.written
    if isinstance(written, Leaf):
        yield from _leaf(slot, written.form, old, new, here)
    elif isinstance(written, Part):
        yield from _part(old, new, here)
    elif isinstance(written, Members):
        yield from _members(old, new, here)
    elif isinstance(written, Entries):
        yield from _entries(dict(old), dict(new), here)
    elif isinstance(written, Rows):
        yield from _ordered(old, new, here) if written.ordered else _named(written, old, new, here)
    else:
        assert isinstance(written, (Identity, Covered))


def _leaf(slot: Slot, form: Form, old: Any, new: Any, here: _Here) -> Iterator[Case]:
    if form in (Form.TEXTS, Form.NODES) and sorted(old) == sorted(new):
        return
    old_text = "" if is_absent(slot, old) else text_of(form, old)
    new_text = "" if is_absent(slot, new) else text_of(form, new)
    yield here.case(old, new, old_text, new_text)


def _part(old: Any, new: Any, here: _Here) -> Iterator[Case]:
    if old is None or new is None:
        yield here.case(old, new, "" if old is None else flow(old), "" if new is None else flow(new))
    else:
        yield from _fields(old, new, here)


def _members(old: tuple[str, ...], new: tuple[str, ...], here: _Here) -> Iterator[Case]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    for name in (*(name for name in old if name not in after), *(name for name in new if name not in before)):
        was, will = (name if name in before else ""), (name if name in after else "")
        yield _Here(f"{here.path}[{name}]", here.pattern, here.rows).case(was, will, was, will)


def _entries(old: dict[str, str], new: dict[str, str], here: _Here) -> Iterator[Case]:
    """An entry may be an empty text, which is a value: it is shown in quotes."""
    for key in sorted(old | new):
        before, after = old.get(key), new.get(key)
        if before != after:
            inner = _Here(here.path + path_key(key), f"{here.pattern}.*", here.rows)
            yield inner.case(before, after, _entry(before), _entry(after))


def _entry(value: str | None) -> str:
    return "" if value is None else value or "''"


# --- rows ------------------------------------------------------------------------------------------------------------


def _named(written: Rows, old: tuple[Any, ...], new: tuple[Any, ...], here: _Here) -> Iterator[Case]:
    before, after = _by_label(written, old), _by_label(written, new)
    for name in sorted(before | after):
        pair = Pair(before.get(name), after.get(name))
        yield from _row(pair, here.entry(written.by, pair) if written.table else here.row(name, pair))


def _by_label(written: Rows, things: tuple[Any, ...]) -> dict[str, Any]:
    """Rows by what they are called; a second one of the same name (a window given twice) gets a number."""
    found: dict[str, Any] = {}
    for thing in things:
        name = label(thing, written.by)
        number = 1
        while name in found:
            number += 1
            name = f"{label(thing, written.by)} #{number}"
        found[name] = thing
    return found


def _row(pair: Pair, here: _Here) -> Iterator[Case]:
    if pair.old is None or pair.new is None:
        yield _whole_row(pair, here)
    elif pair.old != pair.new:
        yield from _fields(pair.old, pair.new, here)


def _whole_row(pair: Pair, here: _Here) -> Case:
    old_text = "" if pair.old is None else flow(pair.old)
    new_text = "" if pair.new is None else flow(pair.new)
    outer = _ROW.sub("", here.pattern)
    return _Here(here.path, outer, here.rows).case(pair.old, pair.new, old_text, new_text)


def _ordered(old: tuple[Any, ...], new: tuple[Any, ...], here: _Here) -> Iterator[Case]:
    """A list of policy: another order alone is one change; else what lies between the common front and end differs."""
    if len(old) == len(new) and all(old.count(one) == new.count(one) for one in old):
        yield here.case(old, new, _order(old), _order(new))
        return
    front = _common(old, new)
    end = _common(old[front:][::-1], new[front:][::-1])
    was, will = old[front : len(old) - end], new[front : len(new) - end]
    for index in range(max(len(was), len(will))):
        pair = Pair(was[index] if index < len(was) else None, will[index] if index < len(will) else None)
        yield from _row(pair, here.row(str(front + index), pair))


def _common(old: tuple[Any, ...], new: tuple[Any, ...]) -> int:
    """How many rows both begin with."""
    return next(
        (index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )


def _order(rows: tuple[Any, ...]) -> str:
    return "[" + ", ".join(flow(row) for row in rows) + "]"
