"""Looks at the documents' own classes: which fields a place has, what it expects, and how a path is written.

Comes in: a document class and a location as pydantic gives it. Goes out: the location as it is in the file, the known
fields, the expected type, the path with names. Called by: `reading`, `load`.
"""

from __future__ import annotations

import re
import types
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from orchestrator.spec.tree import Node
from orchestrator.wire.faults import Loc, plain
from orchestrator.wire.leaf import Leaf, Strict

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TYPES = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


@cache
def fields_of(model: type[Strict]) -> dict[str, Any]:
    """The fields of a document by the name they have in a file: annotation and its markers. Not to be changed."""
    return {
        info.alias or name: Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        for name, info in model.model_fields.items()
    }


def follow(model: type[Strict], loc: Loc) -> tuple[Loc, Any]:
    """A location without the tags that pydantic puts in for a kind of site, and the annotation of what lies there.

    The annotation of an unknown field is None.
    """
    hint: Any = model
    kept: list[str | int] = []
    for step in loc:
        if tagged := _tagged(hint, step):
            hint = tagged
            continue
        kept.append(step)
        hint = inside(hint, step)
    return tuple(kept), hint


def _bare(hint: Any) -> Any:
    """An annotation without markers and without `| None`."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif get_origin(hint) in (Union, types.UnionType):
            rest = [arg for arg in get_args(hint) if arg is not type(None)]
            if len(rest) != 1:
                return hint
            hint = rest[0]
        else:
            return hint


def members(hint: Any) -> list[type[Strict]]:
    """The classes that an annotation allows; none for a leaf, a list or a table."""
    bare = _bare(hint)
    found = get_args(bare) if get_origin(bare) in (Union, types.UnionType) else (bare,)
    classes = [_bare(one) for one in found]
    return [one for one in classes if isinstance(one, type) and issubclass(one, Strict)]


def _tagged(hint: Any, step: str | int) -> type[Strict] | None:
    found = members(hint)
    if len(found) < 2:
        return None
    return next((one for one in found if get_args(fields_of(one)["kind"]) == (step,)), None)


def inside(hint: Any, step: str | int) -> Any:
    """The annotation one step further in; None for an unknown field."""
    bare = _bare(hint)
    if get_origin(bare) in (list, dict):
        return get_args(bare)[-1]
    found = members(hint)
    return fields_of(found[0]).get(str(step)) if found else None


def known_fields(hint: Any) -> list[str]:
    """The names of the fields that may stand in a place."""
    found = members(hint)
    return list(fields_of(found[0])) if found else []


def choices_of(hint: Any, field: str) -> list[str]:
    """The literal values of a field over all classes that may stand in a place: the kinds of sites."""
    return [str(value) for one in members(hint) for value in get_args(fields_of(one)[field])]


def expected(hint: Any) -> str:
    """What a place holds, in words."""
    bare = _bare(hint)
    if get_origin(bare) is list:
        return "a list"
    if get_origin(bare) is dict or members(hint):
        return "a mapping"
    leaf = _leaf(hint)
    kind = leaf.schema.get("type") if leaf else "string"
    return _TYPES.get(str(kind), "a text or a list of texts")


def _leaf(hint: Any) -> Leaf | None:
    if get_origin(hint) is Annotated:
        found = next((one for one in get_args(hint)[1:] if isinstance(one, Leaf)), None)
        return found or _leaf(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return next((leaf for arg in get_args(hint) if (leaf := _leaf(arg))), None)
    return None


def path_text(loc: Loc, root: Node | None) -> str:
    """`("pools", 0, "gpu")` -> `pools[h100].gpu`: list items by what names them, else by their number."""
    parts: list[str] = []
    node = root
    for step in loc:
        if isinstance(step, int) and node is not None and not isinstance(node.value, list):
            continue  # one text where a list of them may stand
        node = node.child(step) if node is not None else None
        if isinstance(step, int):
            parts.append(f"[{_item_name(node, step)}]")
        elif _PLAIN_KEY.fullmatch(step):
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f'["{plain(step, 60)}"]')
    return "".join(parts)


def _item_name(node: Node | None, index: int) -> str:
    """The name of a list item; shares of a queue are named by their pool or GPU model."""
    for key in ("name", "pool", "gpu_model"):
        named = node.child(key) if node is not None else None
        if named is not None and isinstance(named.value, str) and named.value:
            return plain(named.value, 60)
    return str(index)
