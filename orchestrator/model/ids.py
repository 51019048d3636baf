"""How things are numbered: jobs, attempts, units.

Comes in: integers. Goes out: the text forms of DESIGN's ids (`1234_7`, `1234/2`, `gangline-1234-2`) and back; the form
of a cluster's uid.
Called by: every room that prints or parses an id.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

UID_SIGNS, UID_LENGTH = string.ascii_lowercase + string.digits, 12  # docs/decisions/0003-aws.md
UID_FORM = f"{UID_LENGTH} small letters and digits"


class JobRef(NamedTuple):
    """A job as people name it: `job` 1234, or the `task` with index 7 of array 1234."""

    job: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.job) if self.task is None else f"{self.job}_{self.task}"


MOST_JOB = 10**15 - 1  # so that ids fit the numbers of JSON
JOB_FORM = r"[1-9][0-9]{0,14}(?:_(?:0|[1-9][0-9]{0,8}))?"


def parse_job(text: str) -> JobRef:
    """`"1234"` or `"1234_7"`; ValueError with the text if it is neither."""
    if not re.fullmatch(JOB_FORM, text, re.ASCII):
        raise ValueError(f"not a job id: {text!r} (a job is written 1234, a task of an array 1234_7)")
    job, _, task = text.partition("_")
    return JobRef(int(job), int(task) if task else None)


class AttemptId(NamedTuple):
    """Attempt `number` (from 1) of job `job`. Its text form is `job/number`."""

    job: int
    number: int

    def __str__(self) -> str:
        return f"{self.job}/{self.number}"

    @property
    def unit(self) -> str:
        """The name of its unit on every node: the systemd unit, the control group, the directory."""
        return f"gangline-{self.job}-{self.number}"


def parse_attempt(text: str) -> AttemptId:
    """`"1234/2"` -> AttemptId(1234, 2); ValueError with the text if it is not one."""
    job, _, number = text.partition("/")
    if not (_counts(job) and _counts(number)):
        raise ValueError(f"not an attempt id: {text!r} (an attempt is written job/number, as in 1234/2)")
    return AttemptId(int(job), int(number))


def parse_unit(text: str) -> AttemptId:
    """The inverse of `AttemptId.unit`; ValueError with the text if it is not one."""
    parts = text.split("-")
    if len(parts) != 3 or parts[0] != "gangline" or not (_counts(parts[1]) and _counts(parts[2])):
        raise ValueError(f"not a unit of Gangline: {text!r}")
    return AttemptId(int(parts[1]), int(parts[2]))


def intent_id(seq: int) -> str:
    """The id of an intent, by the seq of the event that records it."""
    return f"intent-{seq}"


def is_uid(text: str) -> bool:
    """Whether it has the form of a cluster's uid."""
    return len(text) == UID_LENGTH and all(sign in UID_SIGNS for sign in text)


def _counts(text: str) -> bool:
    """Whether it is a number from 1 as `str` writes it: two texts of one id would be two folders of one attempt."""
    return text.isascii() and text.isdecimal() and not text.startswith("0")
