"""Puts functions of this package on moto's classes, in this process alone.

Comes in: a class of moto and functions by the name of its method. Called by: each `install`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def put(kind: type, **methods: Callable[..., Any] | property) -> None:
    """Give the class these methods, new ones or in the place of its own."""
    for name, method in methods.items():
        setattr(kind, name, method)
