"""Types of arguments and options: what a person types, read into base units with a sentence where it can't be.

Comes in: words of the command line. Goes out: integers and texts. Called by: the `*_cmd` modules.
"""

from __future__ import annotations

import re
from typing import Any

import click


class JobId(click.ParamType[int]):
    """A job's number."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """`12` -> 12."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"[1-9][0-9]{0,15}", value):
            self.fail(
                f"'{value}' is no job id: a job id is a whole number, as `gangline jobs` lists them",
                param,
                ctx,
            )
        return int(value)


class Span(click.ParamType[int]):
    """A length of time as in files, `90s`, `30m`, `1h30m`, in seconds. Nothing (`0s`) is none, unless `or_none`: for a
    limit it would come out as the opposite, no limit at all."""

    name = "duration"

    def __init__(self, *, or_none: bool = False) -> None:
        self._or_none = or_none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """`1h30m` -> 5400."""
        if isinstance(value, int):
            return value
        from orchestrator.wire import quantities

        seconds = quantities.seconds(value)
        if seconds is None:
            self.fail(f"'{value}' is no length of time: write 90s, 30m, 4h, 3d or 1h30m", param, ctx)
        if seconds == 0 and not self._or_none:
            self.fail(f"'{value}' is no time at all: write 90s, 30m, 4h, 3d or 1h30m", param, ctx)
        return seconds


class Age(click.ParamType[int]):
    """A length of time in seconds, or `all`: 0, for there is no oldest."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """`8h` -> 28800."""
        return 0 if value == "all" else Span().convert(value, param, ctx)


class Variable(click.ParamType[tuple[str, str]]):
    """`NAME=value`, or `NAME` for the value that it has here."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """`A=b` -> ("A", "b")."""
        import os

        if isinstance(value, tuple):
            return value
        name, mark, text = str(value).partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            self.fail(f"'{name}' is no name of a variable", param, ctx)
        if not mark:
            if name not in os.environ:
                self.fail(f"{name} is not set here; write {name}=value", param, ctx)
            text = os.environ[name]
        return name, text


class Whole(click.ParamType[int]):
    """A whole number from `least` on, at most `most` where that is given."""

    name = "number"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """`16` -> 16."""
        if not isinstance(value, int) and not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
            self.fail(f"'{value}' is no whole number", param, ctx)
        number = int(value)
        if number < self.least or (self.most is not None and number > self.most):
            upper = f" to {self.most}" if self.most is not None else " or more"
            self.fail(f"{number} is not {self.least}{upper}", param, ctx)
        return number


JOB = JobId()
NUMBER = Whole(0)
COUNT = Whole(1)
SPAN = Span()
PATIENCE = Span(or_none=True)  # how long to wait for something: not at all is an answer
AGE = Age()
VARIABLE = Variable()
