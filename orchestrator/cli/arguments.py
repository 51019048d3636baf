"""Types of arguments and options: what a person types, read into base units with a sentence where it can't be.

Comes in: words of the command line. Goes out: integers and texts. Called by: the `*_cmd` modules.
"""

from __future__ import annotations

import re
from typing import Any

import click

from orchestrator.model.ids import JOB_FORM


class JobId(click.ParamType["int | str"]):
    """A job's number, or `1234_7` for a task of an array."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """`12` -> 12, `12_7` as it is."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(JOB_FORM, value):
            self.fail(
                f"'{value}' is no job id: a job id is a whole number, as `gangline jobs` lists them, and a task of an "
                "array is 1234_7",
                param,
                ctx,
            )
        return value if "_" in value else int(value)


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


class Label(click.ParamType[tuple[str, str]]):
    """`KEY=value`."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """`network=fast` -> ("network", "fast")."""
        if isinstance(value, tuple):
            return value
        name, mark, text = str(value).partition("=")
        if not mark or not name:
            self.fail(f"'{value}' is no label: write KEY=value", param, ctx)
        return name, text


class Segment(click.ParamType[tuple[int, str]]):
    """`NODES:LEVEL`."""

    name = "nodes:level"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str]:
        """`4:unit` -> (4, "unit")."""
        if isinstance(value, tuple):
            return value
        nodes, mark, level = str(value).partition(":")
        if not mark or not level or not re.fullmatch("[1-9][0-9]{0,5}", nodes):
            self.fail(f"'{value}' is no segment: write NODES:LEVEL, as in 4:unit", param, ctx)
        return int(nodes), level


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
PRIORITY = Whole(-1_000_000, 1_000_000)  # model.job.HIGHEST_PRIORITY, without the 30 ms of its import
SPAN = Span()
PATIENCE = Span(or_none=True)  # how long to wait for something: not at all is an answer
AGE = Age()
VARIABLE = Variable()
LABEL = Label()
SEGMENT = Segment()
