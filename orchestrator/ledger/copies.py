"""Copies of records that no later event changes, at a fraction of what their plain form costs.

Comes in: a record, a dataclass that the fold changes in place. Goes out: the same again, which shares with it all that
never changes (numbers, texts, frozen dataclasses) and has its own lists, dicts and records. Called by: snapshot.

What is shared follows from the types of the fields; one that is not known to be either is a TypeError.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Copier = Callable[[Any], Any]

_SCALARS = (int, str, bool, float, type(None))


def copy_of(record: T) -> T:
    """The record as it is now. TypeError for a class with a field of which nobody knows whether it can change."""
    cls: Any = type(record)
    found = _copier(cls)
    copied: T = record if found is None else found(record)
    return copied


@cache
def _copier(hint: Any) -> Copier | None:
    """What copies a value of the type; None for what never changes."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional([_copier(arg) for arg in args if arg is not types.NoneType])
    if origin is tuple:
        _require_fixed(hint, args)
        return None
    if origin is list:
        return _listed(_copier(args[0]))
    if origin is dict:
        return _mapped(_copier(args[1]))
    if isinstance(hint, type) and (hint in _SCALARS or issubclass(hint, Enum)):
        return None
    if isinstance(hint, type) and issubclass(hint, tuple):
        _require_fixed(hint, tuple(get_type_hints(hint).values()))
        return None
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint)
    raise TypeError(f"{hint}: can it change?")


def _require_fixed(hint: Any, items: tuple[Any, ...]) -> None:
    if any(_copier(item) is not None for item in items if item is not Ellipsis):
        raise TypeError(f"{hint}: a tuple of what can change")


def _optional(options: list[Copier | None]) -> Copier | None:
    inner = options[0]
    if any(option is not inner for option in options):
        raise TypeError("one of several types of which one can change")
    return None if inner is None else lambda value: None if value is None else inner(value)


def _listed(inner: Copier | None) -> Copier:
    return list if inner is None else lambda value: [inner(item) for item in value]


def _mapped(inner: Copier | None) -> Copier:
    return dict if inner is None else lambda value: {key: inner(item) for key, item in value.items()}


def _record(cls: type) -> Copier | None:
    hints = get_type_hints(cls)
    names = tuple(field.name for field in fields(cls))
    changing = tuple((name, found) for name in names if (found := _copier(hints[name])) is not None)
    if cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        if changing:
            raise TypeError(f"{cls.__name__}.{changing[0][0]} can change in a frozen record")
        return None
    values = attrgetter(*names)

    def run(record: Any) -> Any:
        copied = cls(*values(record)) if len(names) > 1 else cls(values(record))
        for name, copier in changing:
            value = getattr(copied, name)
            if value is not None:
                setattr(copied, name, copier(value))
        return copied

    return run
