"""Types of arguments and options: what a person types, read into base units with a sentence where it can't be.

Comes in: words of the command line. Goes out: integers and texts. Called by: the `*_cmd` modules.
"""

from __future__ import annotations

import re
from typing import Any

import click

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


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
    """A length of time, `90s`, `30m`, `4h`, `3d`, `1h30m`, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """`1h30m` -> 5400."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"([0-9]{1,9}[smhd])+", value):
            self.fail(f"'{value}' is no length of time: write 90s, 30m, 4h, 3d or 1h30m", param, ctx)
        return sum(int(count) * SECONDS[unit] for count, unit in re.findall(r"([0-9]+)([smhd])", value))


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
VARIABLE = Variable()
