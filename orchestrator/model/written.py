"""How a field of the cluster's model stands in the file, and what it takes to carry a change of it out.

Comes in: nothing. Goes out: what `model.cluster` puts into the metadata of its fields, and `patterns`, which lists all
that a user can write. Called by: model.cluster (says it), planning (compares by it), wire (the schema shows it).

A user's field is one of: a leaf with one value; a part, whose fields are looked at one by one; rows, which are told
apart by what identifies them; members, each a name of its own (the nodes of a pool); entries, a table of texts; or an
identity, of which another value makes another row. Every field of the model has one of these, so that no value can
change unseen.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from orchestrator.model.base import Word
from orchestrator.model.change import UpdateClass

_KEY = "written"
VALUE = "="  # the key of a leaf that is all there is in a row of a table
MILDEST_FIRST = tuple(UpdateClass)  # the order in which `UpdateClass` lists them


class Form(Word):
    """How a value in base units is written."""

    TEXT = "text"
    WHOLE = "whole"
    FLAG = "flag"
    SECONDS = "seconds"  # 30m
    BYTES = "bytes"  # 80GiB
    KILOWATTS = "kilowatts"
    DOLLARS = "dollars"
    SHARE = "share"  # per mille -> 0.8
    PORTS = "ports"  # first-last, with the field that `also` names
    MODELS = "models"  # a GPU model, with the others that `also` names
    DAY_TIME = "day-time"
    DAYS = "days"
    TEXTS = "texts"  # [a, b]; the order means nothing
    RANKED = "ranked"  # [a, b]; the order is the policy
    NODES = "nodes"  # n[01-16]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change takes, why, and for refused ones what would let it pass."""

    cls: UpdateClass
    why: str = ""
    unblock: str = ""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value. Its default counts as absent, unless `given`: then the default is a value like others."""

    effect: Effect
    key: str = ""
    form: Form = Form.TEXT
    given: bool = False
    also: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Fields of their own, under `key`."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Things of one kind, told apart by the fields in `by`; `ordered` ones by their place, since the order is a policy.

    `table`: the file has a mapping from their names, one inside the other where `by` has several. `elsewhere`: they
    stand in another file (the inventory).
    """

    added: Effect
    removed: Effect
    key: str = ""
    by: tuple[str, ...] = ("name",)
    ordered: bool = False
    table: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """Names, each of which comes and goes by itself."""

    added: Effect
    removed: Effect
    key: str = ""


@dataclass(frozen=True, slots=True)
class Entries:
    """A table of texts, each entry a value of its own."""

    effect: Effect
    key: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """A part of what a row is told apart by."""

    key: str = ""
    form: Form = Form.TEXT


@dataclass(frozen=True, slots=True)
class Covered:
    """Written together with the field of that name."""

    by: str


Written = Leaf | Part | Rows | Members | Entries | Identity | Covered
Meta = dict[str, Any]


def leaf(
    cls: UpdateClass,
    why: str = "",
    *,
    key: str = "",
    form: Form = Form.TEXT,
    given: bool = False,
    unblock: str = "",
    also: str = "",
) -> Meta:
    """Metadata of a field with one value; `key` is its name in the file where that differs."""
    return {_KEY: Leaf(Effect(cls, why, unblock), key, form, given, also)}


def part(key: str = "") -> Meta:
    """Metadata of a field that holds fields."""
    return {_KEY: Part(key)}


def rows(
    added: Effect,
    removed: Effect,
    *,
    key: str = "",
    by: tuple[str, ...] = ("name",),
    ordered: bool = False,
    table: bool = False,
    elsewhere: bool = False,
) -> Meta:
    """Metadata of a field that holds things of one kind."""
    return {_KEY: Rows(added, removed, key, by, ordered, table, elsewhere)}


def members(added: Effect, removed: Effect, *, key: str = "") -> Meta:
    """Metadata of a field that holds names, each for itself."""
    return {_KEY: Members(added, removed, key)}


def entries(cls: UpdateClass, why: str = "", *, key: str = "") -> Meta:
    """Metadata of a table of texts."""
    return {_KEY: Entries(Effect(cls, why), key)}


def identity(key: str = "", form: Form = Form.TEXT) -> Meta:
    """Metadata of a field that its row is told apart by."""
    return {_KEY: Identity(key, form)}


def covered(by: str) -> Meta:
    """Metadata of a field that is written together with another one."""
    return {_KEY: Covered(by)}


class Unclassed(TypeError):
    """A field of the model says nothing about how it is written or changed."""


class Slot(NamedTuple):
    """One field of a class of the model, found by looking at it. `inner` is the class of its part or of its rows."""

    name: str
    key: str
    written: Written
    default: Any
    inner: type | None = None


@cache
def slots_of(cls: type) -> tuple[Slot, ...]:
    """The fields of a class that a user can write; Unclassed if one of them says nothing."""
    hints = get_type_hints(cls)
    return tuple(_slot(cls, one, hints[one.name]) for one in fields(cls) if not _is_covered(one))


def _is_covered(one: Field[Any]) -> bool:
    return isinstance(one.metadata.get(_KEY), Covered)


def _slot(cls: type, one: Field[Any], hint: Any) -> Slot:
    written = one.metadata.get(_KEY)
    if written is None:
        raise Unclassed(
            f"{cls.__name__}.{one.name} has no update class: add metadata from model.written to the field"
        )
    return Slot(one.name, written.key or one.name, written, one.default, _inner_class(hint))


def _inner_class(hint: Any) -> type | None:
    """The dataclass in `X`, `X | None` or `tuple[X, ...]`."""
    if get_origin(hint) in (Union, types.UnionType, tuple):
        found = (_inner_class(one) for one in get_args(hint))
        return next((one for one in found if one is not None), None)
    return hint if isinstance(hint, type) and is_dataclass(hint) else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A place in the file for all things of its kind: `pools[].gpu.count`, `pools[].labels.*`.

    `added` and `removed` are for what comes and goes as a whole; for a leaf both are what its change takes.
    """

    path: str
    added: Effect
    removed: Effect
    leaf: bool
    elsewhere: bool = False

    @property
    def cls(self) -> UpdateClass:
        """The class of a change of the value; for identities the heavier one of coming and going."""
        return max(self.added.cls, self.removed.cls, key=MILDEST_FIRST.index)


def patterns(cls: type, path: str = "") -> Iterator[Pattern]:
    """All places that `cls` has in the file, containers before what is in them."""
    return _patterns(cls, path, None, False)


def _patterns(cls: type, path: str, row: Rows | None, elsewhere: bool) -> Iterator[Pattern]:
    for slot in slots_of(cls):
        here, written = place(path, slot.key), slot.written
        if isinstance(written, Part):
            yield from _patterns(_inner(slot), here, row, elsewhere)
        elif isinstance(written, Rows):
            far = elsewhere or written.elsewhere
            yield Pattern(here, written.added, written.removed, leaf=False, elsewhere=far)
            inside = ".*" * len(written.by) if written.table else "[]"
            yield from _patterns(_inner(slot), here + inside, written, far)
        elif isinstance(written, Members):
            yield Pattern(here, written.added, written.removed, leaf=True, elsewhere=elsewhere)
        elif isinstance(written, Entries):
            yield Pattern(f"{here}.*", written.effect, written.effect, leaf=True, elsewhere=elsewhere)
        elif isinstance(written, Leaf):
            yield Pattern(here, written.effect, written.effect, leaf=True, elsewhere=elsewhere)
        elif isinstance(written, Identity) and row is not None and not row.table:
            yield from _identities(slot, here, row, elsewhere)


def _identities(slot: Slot, path: str, row: Rows, elsewhere: bool) -> Iterator[Pattern]:
    """Another value makes another row, so it takes what the row's coming and going take."""
    paths = (
        [path] if slot.inner is None else [one.path for one in _patterns(slot.inner, path, row, elsewhere)]
    )
    for one in paths:
        yield Pattern(one, row.added, row.removed, leaf=True, elsewhere=elsewhere)


def place(path: str, key: str) -> str:
    """The path of a field inside `path`."""
    if key == VALUE:
        return path
    return f"{path}.{key}" if path else key


def _inner(slot: Slot) -> type:
    if slot.inner is None:
        raise Unclassed(f"{slot.name} holds no fields")
    return slot.inner
