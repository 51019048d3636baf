"""A plain value to a document: every fault of its shape, and the sound rest for the checks.

Comes in: a plain value and a document class. Goes out: `Reading`: the document and what was found. Called by: `load`.

A faulty value must not hide the faults of its neighbours nor cause new ones. So after a first look the faulty values
are replaced by `UNKNOWN`, unknown fields are taken out, and the rest is read again: that document is what the checks
get.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from orchestrator.spec import shape
from orchestrator.spec.report import MOST_ERRORS
from orchestrator.wire.faults import Loc, Problem, described, did_you_mean, nearest, problem, shown
from orchestrator.wire.leaf import UNKNOWN, Strict

D = TypeVar("D", bound=Strict)
Mark = Literal["value", "key", "parent"]


@dataclass(frozen=True, slots=True)
class Found:
    """A fault at a location of the document. `mark` says what the caret stands under.

    `parent` is for what is missing: the location names the missing field, the caret stands under the key above it.
    """

    loc: Loc
    problem: Problem
    mark: Mark = "value"


@dataclass(frozen=True, slots=True)
class Reading(Generic[D]):
    """What came of a value. `document` is None only if nothing of it can be checked further. `more`: how many faults
    were not looked at."""

    document: D | None
    found: tuple[Found, ...]
    more: int = 0


def read_document(model: type[D], data: Any) -> Reading[D]:
    """Read `data`, which is changed if it has faults: give a copy if it is still needed."""
    try:
        return Reading(model.model_validate(data), ())
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    more = max(0, len(details) - MOST_ERRORS)  # whoever has more waits for an answer, or holds up a server
    found: list[Found] = []
    dropped: list[Loc] = []
    blotted: list[Loc] = []
    meant: list[Loc] = []
    for detail in details[:MOST_ERRORS]:
        raw = detail["loc"]
        loc, hint = shape.follow(model, raw[:-1] if detail["type"] == "gangline_key" else raw)
        one = _interpret(dict(detail), loc, hint, data)
        if detail["type"] == "extra_forbidden":
            known = shape.known_fields(shape.follow(model, raw[:-1])[1])
            one = Found(loc, _unknown_field(str(loc[-1]), known), "key")
            meant += _meant(loc, known, _at(data, loc[:-1]))
        found.append(one)
        (dropped if one.mark == "key" and one.loc == loc else blotted).append(loc)
    if more:
        return Reading(None, tuple(found), more)
    for loc in dropped:
        _drop(data, loc)
    document = without(model, data, blotted + meant)
    return Reading(document, tuple(one for one in found if one.mark != "parent" or one.loc not in meant))


# What people who come from Slurm or Kubernetes write, and what it is called here: for fields that no spelling is near.
_ELSEWHERE = {
    "partition": "queue",
    "ntasks": "tasks",
    "ntasks_per_node": "tasks_per_node",
    "replicas": "tasks",
    "time": "time_limit",
    "timelimit": "time_limit",
    "cpus": "cores",
    "cpu": "cores",
    "cpus_per_task": "cores",
    "mem": "memory",
    "gres": "gpus",
    "chdir": "workdir",
    "args": "command",
    "script": "command",
}
_SHARES = ("gpus", "cores", "memory", "gpu_model")  # of a node or a task


def _unknown_field(name: str, known: list[str]) -> Problem:
    word = _ELSEWHERE.get(name.lower().replace("-", "_"), name)
    if word in _SHARES and "per_node" in known:
        advice = f"put it into per_node or per_task, as '{word}'"
    else:
        advice = (f"did you mean '{word}'?" if word in known else did_you_mean(name, known)) or (
            "known: " + ", ".join(known)
        )
    return problem("spec.unknown-field", advice=advice)


def _meant(loc: Loc, known: list[str], holder: Any) -> list[Loc]:
    """The absent field that a misspelt one was probably meant to be: it is not missing, only unknown."""
    near = nearest(str(loc[-1]), [name for name in known if name not in holder])
    return [(*loc[:-1], near)] if near else []


def without(model: type[D], data: Any, faulty: Iterable[Loc]) -> D | None:
    """The document with `UNKNOWN` at the faulty locations; `data` is changed so."""
    for loc in faulty:
        _blot(data, loc)
    try:
        return model.model_validate(data)
    except ValidationError:
        return None  # such as a document that is no mapping at all


def _interpret(detail: dict[str, Any], loc: Loc, hint: Any, data: Any) -> Found:
    """What one of pydantic's errors means here."""
    kind, value = detail["type"], _at(data, loc)
    if kind == "gangline":
        context = detail["ctx"]
        return Found((*loc, *context["at"]), context["problem"])
    if kind == "gangline_key":
        return Found(loc, detail["ctx"]["problem"], "key")
    if kind == "missing":
        advice = f"it takes {shape.expected(hint)}"
        return Found(loc, problem("spec.missing-field", field=loc[-1], advice=advice), "parent")
    if kind.startswith("union_tag") and isinstance(value, dict):
        return _kind_fault(loc, hint, value)
    advice = "give it a value, or remove it" if value is None else ""
    wanted = shape.expected(hint)
    return Found(loc, problem("spec.wrong-type", expected=wanted, got=described(value), advice=advice))


def _kind_fault(loc: Loc, hint: Any, value: dict[str, Any]) -> Found:
    """A mapping whose `kind` does not say which class it is of."""
    place, known = (*loc, "kind"), shape.choices_of(hint, "kind")
    if "kind" not in value and (misspelt := nearest("kind", [str(key) for key in value])):
        return Found((*loc, misspelt), problem("spec.unknown-field", advice="did you mean 'kind'?"), "key")
    if "kind" not in value:
        advice = "one of " + ", ".join(known)
        return Found(place, problem("spec.missing-field", field="kind", advice=advice), "parent")
    kind = value["kind"]
    if not isinstance(kind, str):
        return Found(place, problem("spec.wrong-type", expected="a text", got=described(kind)))
    return Found(
        place,
        problem(
            "spec.bad-choice", got=shown(kind), choices=", ".join(known), advice=did_you_mean(kind, known)
        ),
    )


def _at(data: Any, loc: Loc) -> Any:
    for step in loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _drop(data: Any, loc: Loc) -> None:
    holder = _at(data, loc[:-1])
    if isinstance(holder, dict):
        holder.pop(loc[-1], None)


def _blot(data: Any, loc: Loc) -> None:
    """Put UNKNOWN at a location, or at the nearest one around it that there is."""
    for end in range(len(loc) - 1, -1, -1):
        holder, step = _at(data, loc[:end]), loc[end]
        if isinstance(holder, dict) or (isinstance(holder, list) and isinstance(step, int)):
            holder[step] = UNKNOWN  # type: ignore[index]
            return
