"""Dataclasses to plain JSON values and back: the one codec of ledger events, snapshots and the agent protocol.

Comes in: a dataclass instance, or a class and a plain value. Goes out: dicts, lists, strings, integers, booleans
and None; or the instance. Called by: ledger (events, snapshots), controller and agent (sync).

Rules: a field at its default is left out, so an added field with a default changes no stored event; an unknown
key is ignored, so that an older reader accepts a newer writer (promise 13); a wrong type is a `CodecError` that
names its path. Supported: dataclasses, NamedTuples of scalars, Word enums, int, str, bool, float, None, Optional,
tuple[X, ...], list[X], fixed tuples, dict[str, X] and dict[int, X]. Coders are built once per class.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import repeat
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Coder = Callable[[Any], Any]


class CodecError(ValueError):
    """A plain value does not have the shape of the class: `path` says where, `problem` what."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def inside(self, key: str) -> CodecError:
        """The same error seen from one level further out."""
        return CodecError(f"{key}.{self.path}" if self.path else key, self.problem)


def encode(value: Any) -> Any:
    """The plain form of an instance; scalars pass through."""
    cls: Any = type(value)
    coder: Coder = _encoder(cls)
    return coder(value)


def decode(cls: type[T], plain: Any) -> T:
    """The instance of `cls` that `plain` describes; CodecError if it does not."""
    hint: Any = cls
    result: T = _decoder(hint)(plain)
    return result


# --- encoding --------------------------------------------------------------------------------------------------


@cache
def _encoder(cls: type) -> Coder:
    if issubclass(cls, Enum):
        return lambda value: value.value
    if is_dataclass(cls):
        return _dataclass_encoder(cls)
    if issubclass(cls, (tuple, list)):
        return lambda value: [item if type(item) in _SCALARS else encode(item) for item in value]
    if issubclass(cls, dict):
        return lambda value: {str(key): encode(item) for key, item in value.items()}
    return lambda value: value


_SCALARS = frozenset({int, str, bool, float, type(None)})


def _dataclass_encoder(cls: type) -> Coder:
    rows = tuple((f.name, _default(f)) for f in fields(cls))

    def run(value: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for name, default in rows:
            item = getattr(value, name)
            if item is default or (default is not MISSING and item == default):
                continue
            plain[name] = item if type(item) in _SCALARS else encode(item)
        return plain

    return run


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    return MISSING


# --- decoding --------------------------------------------------------------------------------------------------


@cache
def _decoder(hint: Any) -> Coder:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional_decoder(get_args(hint))
    if origin is tuple:
        return _tuple_decoder(get_args(hint))
    if origin is list:
        return _items_decoder(get_args(hint)[0], list)
    if origin is dict:
        return _dict_decoder(*get_args(hint))
    if hint in (int, str, bool, float):
        return _scalar_decoder(hint)
    if isinstance(hint, type):
        return _class_decoder(hint)
    return lambda value: value  # Any


def _class_decoder(cls: type) -> Coder:
    if issubclass(cls, Enum):
        return _enum_decoder(cls)
    if is_dataclass(cls):
        return _dataclass_decoder(cls)
    if issubclass(cls, tuple):
        return _named_tuple_decoder(cls)
    return lambda value: value


def _scalar_decoder(cls: type) -> Coder:
    def run(value: Any) -> Any:
        if type(value) is cls or (cls is float and type(value) is int):
            return value
        raise CodecError("", f"expected {cls.__name__}, got {_kind(value)}")

    return run


def _enum_decoder(cls: type[Enum]) -> Coder:
    members = {member.value: member for member in cls}

    def run(value: Any) -> Enum:
        if isinstance(value, str) and value in members:
            return members[value]
        raise CodecError("", f"expected one of {', '.join(map(str, members))}, got {value!r}")

    return run


def _optional_decoder(options: tuple[Any, ...]) -> Coder:
    inner = [_decoder(option) for option in options if option is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"only X | None is supported, not {options}")
    coder = inner[0]
    return lambda value: None if value is None else coder(value)


def _tuple_decoder(args: tuple[Any, ...]) -> Coder:
    if len(args) == 2 and args[1] is Ellipsis:
        return _items_decoder(args[0], tuple)
    coders = tuple(_decoder(arg) for arg in args)

    def run(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise CodecError("", f"expected {len(coders)} items, got {_kind(value)}")
        if len(value) != len(coders):
            raise CodecError("", f"expected {len(coders)} items, got {len(value)}")
        return _each(coders, value)

    return run


def _each(coders: Iterable[Coder], value: Sequence[Any]) -> tuple[Any, ...]:
    """Items, each by its own coder. An error's place is made when there is one, not for each of millions of items."""
    found: list[Any] = []
    try:
        for coder, item in zip(coders, value, strict=False):
            found.append(coder(item))
    except CodecError as error:
        raise error.inside(f"[{len(found)}]") from None
    return tuple(found)


def _items_decoder(item_hint: Any, make: Callable[[Any], Any]) -> Coder:
    coder = _decoder(item_hint)

    def run(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise CodecError("", f"expected a list, got {_kind(value)}")
        found = _each(repeat(coder), value)
        return found if make is tuple else make(found)

    return run


def _dict_decoder(key_hint: Any, item_hint: Any) -> Coder:
    coder = _decoder(item_hint)
    key = int if key_hint is int else str

    def run(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise CodecError("", f"expected an object, got {_kind(value)}")
        try:
            return {key(name): _inside(coder, item, str(name)) for name, item in value.items()}
        except CodecError:
            raise
        except ValueError:
            raise CodecError("", "expected integer keys") from None

    return run


def _named_tuple_decoder(cls: type) -> Coder:
    hints = tuple(get_type_hints(cls).values())
    inner = _tuple_decoder(hints)
    make: Coder = cls._make  # type: ignore[attr-defined]

    def run(value: Any) -> Any:
        # What is right needs no coder for each item. Ids are most of what an agent tells.
        if type(value) is list and tuple(map(type, value)) == hints:
            return make(value)
        return cls(*inner(value))

    return run


def _dataclass_decoder(cls: type) -> Coder:
    hints = get_type_hints(cls)
    required = tuple(f.name for f in fields(cls) if _default(f) is MISSING)
    coders: dict[str, Coder] = {}

    def run(value: Any) -> Any:
        if not isinstance(value, dict):
            raise CodecError("", f"expected an object, got {_kind(value)}")
        if not coders:  # built at first use: a class may hold a tuple of itself
            coders.update({f.name: _decoder(hints[f.name]) for f in fields(cls)})
        for name in required:
            if name not in value:
                raise CodecError(name, "missing")
        return cls(**_decode_fields(coders, value))

    return run


def _decode_fields(coders: dict[str, Coder], value: dict[str, Any]) -> dict[str, Any]:
    """Of the fields that this reader knows: others are a newer writer's."""
    found: dict[str, Any] = {}
    name = ""
    try:
        for name, item in value.items():
            coder = coders.get(name)
            if coder is not None:
                found[name] = coder(item)
    except CodecError as error:
        raise error.inside(name) from None
    return found


def _inside(coder: Coder, item: Any, key: str) -> Any:
    try:
        return coder(item)
    except CodecError as error:
        raise error.inside(key) from None


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
