"""Every fault that a cluster or job document can have: its stable code, its sentence and what to do about it.

Comes in: a code and the values of its sentence. Goes out: a `Problem` (to report) or a pydantic error (to raise
inside a document). Called by: the leaves in this room, the readers and checks of `spec`; the reference docs list
`FAULTS`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic_core import PydanticCustomError

MOST_COMPARED = 1000  # words among which a misspelt one is looked for
LONGEST_SHOWN = 60  # characters of a user's value that a message repeats

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. `sentence` and `hint` are formats over the values that a reporter gives."""

    code: str
    sentence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault that was found, before it has a place. `hint` empty: nothing better to say than the message."""

    code: str
    message: str
    hint: str = ""


_ALL = (
    # --- the file ---
    Fault("spec.file-not-found", "there is no file {file}", "check the path; it is relative to {base}"),
    Fault("spec.file-unreadable", "{file} can't be read: {reason}", "check its permissions"),
    Fault("spec.not-a-file", "{file} is {what}, not a regular file", "name a YAML file"),
    Fault(
        "spec.too-large",
        "the file is larger than {limit}",
        "split the cluster, or use patterns such as n[001-999]",
    ),
    Fault("spec.not-utf8", "byte 0x{byte:02x} is not UTF-8 text", "save the file as UTF-8"),
    Fault(
        "spec.empty", "there is no document in the file", "`gangline init` copies an example to start from"
    ),
    # --- YAML ---
    Fault("spec.yaml-syntax", "this is not YAML: {problem}", "{advice}"),
    Fault(
        "spec.yaml-version", "the file asks for YAML {version}", "Gangline reads YAML 1.2: remove the line"
    ),
    Fault("spec.yaml-tag", "tags such as {tag} are not used here", "{advice}"),
    Fault(
        "spec.yaml-alias",
        "no anchor &{name} stands above this alias",
        "define it above, or write the value out",
    ),
    Fault(
        "spec.yaml-loop", "the alias *{name} lies inside the value that it stands for", "write the value out"
    ),
    Fault(
        "spec.merge-key",
        "merge keys (<<) are not part of YAML 1.2",
        "repeat the fields; a whole value may be an alias",
    ),
    Fault("spec.several-documents", "a second document starts here", "keep one document in a file"),
    Fault(
        "spec.too-deep", "values are nested deeper than {limit} levels", "no field of Gangline lies that deep"
    ),
    Fault(
        "spec.too-many-values",
        "the file holds more than {limit} values",
        "aliases count as often as they are used",
    ),
    Fault("spec.more-faults", "{count} more faults are not listed", "mend those above first"),
    Fault("spec.duplicate-key", "'{key}' was given already in line {line}", "keep one of the two"),
    Fault("spec.key-not-text", "a key must be a text, not {got}", "put it in quotes"),
    # --- shape ---
    Fault("spec.wrong-kind", "the kind must be {expected}, not {got}", "{advice}"),
    Fault(
        "spec.wrong-version",
        "apiVersion must be {expected}, not {got}",
        "this Gangline reads {expected} only",
    ),
    Fault("spec.unknown-field", "unknown field", "{advice}"),
    Fault("spec.missing-field", "the field '{field}' is missing", "{advice}"),
    Fault("spec.wrong-type", "expected {expected}, got {got}", "{advice}"),
    Fault("spec.bad-choice", "{got} is not one of {choices}", "{advice}"),
    Fault("spec.out-of-range", "{got} is {side}", "{advice}"),
    Fault("spec.empty-value", "{what} must not be empty", "give it a value, or remove the field"),
    # --- leaves ---
    Fault("spec.bad-name", "{got} is no name", "{advice}"),
    Fault(
        "spec.bad-duration", "{got} is no duration", "write a number and a unit: 30s, 10m, 4h, 3d or 1h30m"
    ),
    Fault("spec.bad-size", "{got} is no size", "write a whole number and a unit: 512MiB, 960GiB or 80GB"),
    Fault("spec.bad-number", "{got} is not a number that can be used here", "{advice}"),
    Fault(
        "spec.bad-ports",
        "{got} is no range of ports",
        "write first-last between 1024 and 65535, as in 20000-29999",
    ),
    Fault("spec.bad-network", "{got} is no network in CIDR form", "{advice}"),
    Fault("spec.bad-days", "{got} names no days", "write mon-fri, or a list such as mon,wed,sat"),
    Fault(
        "spec.bad-time", "{got} is no time of day", "write hours and minutes, as in 17:00 (24:00 ends a day)"
    ),
    Fault(
        "spec.bad-hostlist",
        "{got} is no list of nodes: {reason}",
        "write h100-[01-32], n[1-4,7] or a list of names",
    ),
    Fault(
        "spec.bad-secret",
        "this is no reference to a secret",
        "write env:NAME, file:/path or aws-secret:name, not the secret",
    ),
    Fault("spec.bad-path", "{got} is no absolute path", "start it with / and leave out . and .. parts"),
    Fault("spec.bad-image", "{got} is no machine image", "{advice}"),
    Fault("spec.bad-backend", "{got} is no place for the record of a stack", "{advice}"),
    Fault("spec.bad-url", "{got} is no address of a controller", "{advice}"),
    Fault("spec.bad-text", "{got} holds characters that can't be used here", "{advice}"),
    # --- names and references ---
    Fault("spec.dangling-reference", "there is no {what} '{name}'", "{advice}"),
    Fault(
        "spec.duplicate-name",
        "the name '{name}' is taken by another {what}",
        "give one of the two another name",
    ),
    Fault("spec.duplicate-item", "'{name}' is listed twice", "keep one of the two"),
    Fault("spec.cycle", "{chain} is a circle", "remove one link of it"),
    Fault("spec.unknown-timezone", "{got} is no IANA time zone", "{advice}"),
    Fault("spec.unknown-gpu-model", "the catalog knows no GPU model '{name}'", "{advice}"),
    Fault(
        "spec.no-mig",
        "the catalog knows no MIG instances of GPU model '{name}'",
        "models with MIG instances: {known}",
    ),
    Fault(
        "spec.mig-not-real",
        "MIG instances are made on emulated GPUs only so far, and these may be real",
        "{advice}",
    ),
    Fault("spec.unknown-instance-type", "the catalog knows no instance type '{name}'", "{advice}"),
    # --- what contradicts ---
    Fault("spec.not-for-kind", "a {what} of kind {kind} has no '{field}'", "{advice}"),
    Fault("spec.exclusive-fields", "'{field}' and '{other}' can't be given together", "{advice}"),
    Fault("spec.needs-one-of", "one of {fields} must be given", "{advice}"),
    Fault(
        "spec.min-over-max",
        "{low_name} {low} is more than {high_name} {high}",
        "lower the one or raise the other",
    ),
    Fault(
        "spec.node-twice", "node {node}{more} belongs to {other} already", "a node stands in one {what} only"
    ),
    Fault("spec.node-unknown", "node {node}{more} is not {where}", "{advice}"),
    Fault(
        "spec.guarantee-over-capacity",
        "guarantees in {what} add up to {total} GPUs, but it has {capacity}",
        "lower them by {over} GPUs in all",
    ),
    Fault(
        "spec.guarantee-over-parent",
        "guarantees under '{parent}' add up to {total} GPUs of {what}, but it has {capacity}",
        "raise the guarantee of '{parent}' or lower those under it by {over}",
    ),
    Fault(
        "spec.guarantee-over-power",
        "power domain '{domain}' can use {limit} kW {when}, but guarantees in it draw {need} kW",
        "raise the limit or lower the guarantees: {working}",
    ),
    Fault(
        "spec.unreachable-ceiling",
        "{what} can never be reached: budget '{budget}' allows {limit}, and that would take {need}",
        "lower the one or raise the other: {working}",
    ),
    Fault(
        "spec.redundancy-feeds",
        "redundancy {redundancy} needs {need}, but the domain has {count}",
        "name the feeds in fed_by",
    ),
    Fault("spec.type-without", "instance type {type} {what}", "{advice}"),
    Fault("spec.one-of-many", "{what}, and here are several", "{advice}"),
    Fault("spec.zone-without", "zone '{zone}' {what}", "{advice}"),
    Fault("spec.arn-elsewhere", "{got} is of another service or region", "{advice}"),
    Fault("spec.no-such-size", "{what} has no {got}", "{advice}"),
    Fault(
        "spec.vpc-too-small",
        "up to {nodes} nodes stand here, but {cidr} has addresses for {room} in {where}",
        "give it a larger network, or lower the sizes of pools",
    ),
    Fault("spec.zone-elsewhere", "zone '{zone}' is not in region '{region}'", "name zones of that region"),
    Fault(
        "spec.minimum-over-budget",
        "{nodes} nodes cost at least {cost} {period}, but budget '{budget}' allows {limit}",
        "lower the minimum or raise the budget: {working}",
    ),
    Fault(
        "spec.types-differ",
        "{one} has {has} GPUs and {other} has {more}",
        "nodes of a pool are alike: make a pool for each",
    ),
    Fault(
        "spec.gpu-not-of-type",
        "instance type {type} has {has}, not {wanted}",
        "leave gpu out: the type says it",
    ),
    Fault(
        "spec.zero-window",
        "the window ends when it starts",
        "give it another end, or 00:00 to 24:00 for whole days",
    ),
    Fault(
        "spec.idle-domain",
        "the power domain limits nothing",
        "give it limit_kw, or let other domains name it as parent",
    ),
    # --- the inventory of a metal site ---
    Fault(
        "spec.bad-mac",
        "{got} is no MAC address",
        "write six pairs of hex digits: 0c:42:a1:00:00:01 (in quotes)",
    ),
    Fault("spec.bad-address", "{got} is no address or host name", "write an IP address or a host name"),
    Fault(
        "spec.duplicate-address",
        "{what} {value} belongs to host {host} already ({where})",
        "each host needs its own",
    ),
    Fault("spec.no-effect", "'{field}' has no effect here", "{advice}"),
    Fault("spec.host-conflict", "host {host} has another {field} in line {line}", "say it once"),
    # --- jobs ---
    Fault("job.not-with-form", "'{field}' does not go with {form}", "{advice}"),
    Fault(
        "job.too-many-groups",
        "a gang has at most {most} groups, and these are {count}",
        "make some of them one",
    ),
    Fault(
        "job.empty-command",
        "the command is empty",
        "write a shell line, or a list of words that is run as it is",
    ),
    Fault(
        "job.bad-placeholder", "{got} is no placeholder of an output file", "known: {known}; %% is a plain %"
    ),
    Fault(
        "job.bad-array", "{got} names no tasks of an array: {why}", "write it as in 0-99, 0-98:2 or 1,5,7-9"
    ),
    Fault(
        "job.bad-reference",
        "{got} is no job",
        "write its number, as in 1234, or array and index, as in 1234_7",
    ),
    Fault(
        "job.no-index",
        "%a is the index in an array, and this is none",
        "%r is the attempt, %j the job; `array` makes one",
    ),
    Fault(
        "job.uneven-segments",
        "{nodes} nodes can't be parted into segments of {segment}",
        "ask for a multiple of {segment} nodes, or for other segments",
    ),
    Fault("spec.needs-field", "'{field}' needs '{other}'", "{advice}"),
    Fault(
        "job.grace-over-notice",
        "the job needs {grace} to stop, but every pool it fits in is spot, with {notice} notice",
        "shorten the grace to at most {notice}, or choose a queue or GPU model with other capacity",
    ),
)

FAULTS: dict[str, Fault] = {fault.code: fault for fault in _ALL}


def problem(code: str, **values: Any) -> Problem:
    """The fault `code` told with `values`; a value that the hint needs and nobody gave leaves the hint empty."""
    fault = FAULTS[code]
    values.setdefault("advice", "")
    return Problem(code, fault.sentence.format(**values), fault.hint.format(**values))


def refuse(code: str, at: Loc = (), **values: Any) -> PydanticCustomError:
    """The same as an error to raise inside a document; `at` leads from the leaf to the item at fault."""
    return _as_error(problem(code, **values), at)


def moved(error: PydanticCustomError, at: Loc) -> PydanticCustomError:
    """The same fault, of an item that lies at `at` inside the leaf."""
    context = error.context or {}
    return _as_error(context["problem"], (*at, *context["at"]))


def _as_error(found: Problem, at: Loc) -> PydanticCustomError:
    return PydanticCustomError(
        "gangline", "{message}", {"problem": found, "message": found.message, "at": at}
    )


def shown(value: object) -> str:
    """A user's value as a message may repeat it: quoted if text, short, no characters that act on a terminal."""
    if isinstance(value, str):
        return f"'{plain(value, LONGEST_SHOWN)}'"
    return described(value)


def described(value: object) -> str:
    """What a value is, in YAML's words: `'x'`, `5`, `true`, `null`, `a list`, `a mapping`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, (int, float)):
        return f"the number {number_text(value)}"
    return f"a {type(value).__name__}"


def number_text(value: int | float) -> str:
    """A number as text, also one too long for Python's own conversion."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "of more than 77 digits"
    return str(value)


def plain(text: str, longest: int) -> str:
    """`text` with invisible and control characters written out (`\\x1b`), cut to `longest` characters."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(visible(char) for char in short)


def visible(char: str) -> str:
    """One character, or its escape if a terminal would act on it or show nothing."""
    category = unicodedata.category(char)
    if char != " " and category[0] in "CZ":
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def nearest(word: str, known: list[str]) -> str:
    """The known word that `word` was probably meant to be, or nothing."""
    folded = {name.lower().replace("-", "_"): name for name in reversed(known)}
    near = get_close_matches(word[:LONGEST_SHOWN].lower().replace("-", "_"), list(folded), n=1, cutoff=0.7)
    return folded[near[0]] if near else ""


def did_you_mean(word: str, known: list[str]) -> str:
    """`did you mean 'gpu'?` if a known word is near, else nothing."""
    near = nearest(word, known)
    return f"did you mean '{plain(near, LONGEST_SHOWN)}'?" if near else ""


def suggestion(word: str, known: list[str], what: str) -> str:
    """The nearest known word (of the first thousand: each is compared), or some of all, or that there are none."""
    if near := did_you_mean(word, known[:MOST_COMPARED]):
        return near
    if not known:
        return f"no {what} is defined"
    listed = ", ".join(plain(name, LONGEST_SHOWN) for name in known[:8]) + (", …" if len(known) > 8 else "")
    return f"known: {listed}"
