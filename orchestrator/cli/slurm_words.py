"""Slurm's notation for arrays and dependencies, as fields of a job document.

Comes in: the words after `--array` and `--dependency`. Goes out: plain values of `spec.array`, `spec.depends_on` and
`spec.singleton`. Called by: submit_cmd.
"""

from __future__ import annotations

import re
from typing import Any

from orchestrator.model.errors import InputError
from orchestrator.model.ids import JOB_FORM

KINDS = {"after": "start", "afterany": "end", "afterok": "ok", "afternotok": "failed"}
_KNOWN = f"{', '.join(KINDS)} and singleton"


def array_of(text: str) -> dict[str, Any]:
    """`0-99%4` as `spec.array`; what the indices are worth is for the document's own reader."""
    tasks, mark, at_most = text.partition("%")
    if not mark:
        return {"tasks": tasks}
    if not re.fullmatch("[1-9][0-9]{0,5}", at_most):
        raise InputError(
            "submit.bad-array",
            f"'{text}' has no number of tasks after its %",
            "write --array 0-99%4 for at most 4 at a time",
        )
    return {"tasks": tasks, "at_most": int(at_most)}


def dependencies_of(text: str) -> dict[str, Any]:
    """`afterok:12:13,afterany:14` as fields of `spec`; all of it must hold."""
    if "?" in text:
        raise InputError(
            "submit.bad-dependency",
            "alternatives ('?') are not there: a job starts when all of its dependencies hold",
            "write them with commas, or submit a job that waits for the alternatives itself",
        )
    spec: dict[str, Any] = {}
    for part in text.split(","):
        if part == "singleton":
            spec["singleton"] = True
        else:
            spec.setdefault("depends_on", []).extend(_jobs_of(part))
    return spec


def _jobs_of(part: str) -> list[dict[str, Any]]:
    kind, mark, names = part.partition(":")
    if kind not in KINDS:
        raise InputError("submit.bad-dependency", f"there is no dependency '{kind}'", f"known are {_KNOWN}")
    jobs = names.split(":")
    for job in jobs:
        if mark and re.fullmatch(r"[0-9_]+\+[0-9]+", job):
            raise InputError(
                "submit.bad-dependency",
                f"'{job}' asks for a delay after its start, which is not there",
                f"leave the + away, or let the command of job {job.partition('+')[0]} wait",
            )
        if not re.fullmatch(JOB_FORM, job):
            raise InputError(
                "submit.bad-dependency", f"'{part}' names no job", f"write {kind}:12, or {kind}:12:1234_7"
            )
    return [{"job": job if "_" in job else int(job), "on": KINDS[kind]} for job in jobs]
