"""The tree of errors: its drawing is the code, and each error has what every renderer needs."""

from __future__ import annotations

import inspect
import re

import pytest

from orchestrator.model import errors
from orchestrator.model.errors import GanglineError

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, GanglineError)
]


def drawing() -> dict[str, tuple[str, int]]:
    """Name -> (parent, exit code), as the docstring draws it."""
    stack: list[tuple[int, str]] = []
    drawn: dict[str, tuple[str, int]] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^[ |]*(?:\|- )?(?P<name>[A-Z]\w+) +(?P<code>\d+)  \S", line)
        if not found:
            continue
        depth = found.start("name")
        stack = [row for row in stack if row[0] < depth]
        drawn[found["name"]] = (stack[-1][1] if stack else "Exception", int(found["code"]))
        stack.append((depth, found["name"]))
    return drawn


def test_the_drawing_is_the_code() -> None:
    assert drawing() == {cls.__name__: (cls.__mro__[1].__name__, cls.exit_code) for cls in CLASSES}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_has_what_renderers_need(cls: type[GanglineError]) -> None:
    error = cls("some.code", "it is so", "do that", "a.b")
    assert (error.code, error.message, error.hint, error.path) == ("some.code", "it is so", "do that", "a.b")
    assert str(error) == "it is so"
    assert cls.exit_code in {1, 2, 5, 6}
    assert 400 <= cls.http_status < 600
    assert cls("some.code", "it is so").hint == cls("some.code", "it is so").path == ""


def test_statuses_tell_the_classes_apart() -> None:
    """A client picks the class by the status, so that two classes with one status must be one to it."""
    by_status: dict[int, list[str]] = {}
    for cls in CLASSES:
        by_status.setdefault(cls.http_status, []).append(cls.__name__)
    assert [names for names in by_status.values() if len(names) > 1] == [["Unavailable", "Fenced"]]
