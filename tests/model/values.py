"""Values of every dataclass of the model, made from type hints.

Comes in: a class or a type hint. Goes out: a hypothesis strategy for its instances. Called by: property tests of model
and ledger. A kind of hint that is not known here fails the test that meets it, so no field escapes.
"""

from __future__ import annotations

import importlib
import pkgutil
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

import orchestrator.model

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: TEXT,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
}


def model_classes() -> Iterator[type]:
    """Every dataclass defined in orchestrator.model, in the order of modules and names."""
    for found in sorted(pkgutil.iter_modules(orchestrator.model.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"orchestrator.model.{found.name}")
        for name, value in sorted(vars(module).items()):
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
                yield vars(module)[name]


@cache
def of(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for instances of the hint."""
    if hint in SCALARS:
        return SCALARS[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if arg is type(None) else of(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, args))
    if origin is list:
        return st.lists(of(args[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=2)
    if isinstance(hint, type):
        return _of_class(hint)
    raise AssertionError(f"no values are known for {hint}")


def _of_class(cls: type) -> st.SearchStrategy[Any]:
    if issubclass(cls, Enum):
        return st.sampled_from(list(cls))
    hints = get_type_hints(cls)
    if is_dataclass(cls):
        parts = {field.name: of(hints[field.name]) for field in fields(cls)}
        return st.deferred(lambda: st.builds(cls, **parts))
    if issubclass(cls, tuple):
        return st.builds(cls, *map(of, hints.values()))
    raise AssertionError(f"no values are known for {cls}")
