"""Which update class each field of the cluster document has: the model's word, found by the place in the file.

Comes in: the document classes and the metadata of the model. Goes out: the places of a document, and the class by
document and field. Called by: schemas (`x-gangline-update`), the reference pages.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.written import Pattern, patterns
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.leaf import Strict

FIXED = ("apiVersion", "kind")  # they have one value only


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a document where it stands in the file; `leaf`: it holds no fields of its own."""

    path: str
    owner: type[Strict]
    field: FieldInfo
    leaf: bool


def places(document: type[Strict], path: str = "") -> Iterator[Place]:
    """All places of a document in its order; a place that several kinds of rows have comes once for each."""
    for name, info in document.model_fields.items():
        key = info.alias or name
        here = f"{path}.{key}" if path else key
        inner, inside = _inside(info.annotation, here)
        yield Place(inside if inside.endswith(".*") and not inner else here, document, info, not inner)
        for one in inner:
            yield from places(one, inside)


def without_keys(path: str) -> str:
    """The path of the field that holds a table, or tables in a table: `labels.*` -> `labels`."""
    while path.endswith(".*"):
        path = path.removesuffix(".*")
    return path


def _inside(hint: Any, path: str) -> tuple[tuple[type[Strict], ...], str]:
    """The documents in an annotation, and the path of what lies in them."""
    bare, origin = hint, get_origin(hint)
    while origin is Annotated:
        bare = get_args(bare)[0]
        origin = get_origin(bare)
    if origin in (Union, types.UnionType):
        found = tuple(one for arg in get_args(bare) for one in _inside(arg, path)[0])
        return found, path
    if origin in (list, dict):
        inner, rest = _inside(get_args(bare)[-1], "")
        tail = ".*" if origin is dict else "[]"
        return inner, path + (tail + rest if inner or origin is dict else "")
    return ((bare,) if isinstance(bare, type) and issubclass(bare, Strict) else ()), path


@cache
def by_path() -> dict[str, Pattern]:
    """What the model says of each place."""
    return {one.path: one for one in patterns(ClusterSpec)}


def update_of(pattern: Pattern) -> str | dict[str, str]:
    """As the schema shows it: a class, or one each for coming and going where they differ."""
    if pattern.added.cls is pattern.removed.cls:
        return str(pattern.added.cls)
    return {"added": str(pattern.added.cls), "removed": str(pattern.removed.cls)}


@cache
def by_field() -> dict[tuple[str, str], str | dict[str, str]]:
    """The class by name of document and of field, for those that the model knows.

    A document that stands in several places has the same class in all of them, or none here.
    """
    found: dict[tuple[str, str], str | dict[str, str]] = {}
    for one in places(ClusterDocument):
        pattern = by_path().get(one.path) or by_path().get(without_keys(one.path))
        if pattern is None:
            continue
        key = (one.owner.__name__, without_keys(one.path).rpartition(".")[2])
        update = update_of(pattern)
        if found.setdefault(key, update) != update:
            raise ValueError(f"{key[0]}.{key[1]} stands in places of different classes")
    return found
