"""The kinds of values that documents are made of: names, durations, sizes, power, money, node patterns, secrets.

Comes in: plain values of a document. Goes out: values in base units, each with its JSON Schema. Called by: the
documents of `wire`. A type here is a normal Python type annotated with a `Leaf`, so the documents read like their
meaning.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import WrapValidator
from pydantic_core import PydanticCustomError

from orchestrator.model.base import Word
from orchestrator.wire import quantities as q
from orchestrator.wire.faults import FAULTS, Loc, described, did_you_mean, moved, plain, refuse, shown
from orchestrator.wire.hostlist import MOST_NODES, TOO_MANY, HostlistError, expand, fold
from orchestrator.wire.leaf import QUOTE_IT, Leaf, key_leaf, read_present, text_of, wrong_type

MOST_COUNT = 1_000_000  # of nodes, GPUs, jobs: keeps every product of two counts and a price inside 64 bits
MOST_DOLLARS = 1_000_000_000
MOST_KW = 10_000_000

NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
HOST_PATTERN = r"^[A-Za-z0-9:]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9:])?$"
REFERENCE_PATTERN = (
    r"^(env:[A-Za-z_][A-Za-z0-9_]{0,127}"
    r"|file:/[^\x00-\x1f\x7f\ud800-\udfff]{1,1000}"
    r"|aws-secret:[A-Za-z0-9/_+=.@:-]{1,512})$"
)
NAME_ADVICE = "use letters, digits, '.', '-' and '_', at most 63, with a letter or digit at both ends"


def pattern_leaf(
    pattern: str, code: str, expected: str, advice: str = "", example: str = "", secret: bool = False
) -> Leaf:
    """A text that matches `pattern` as a whole. `secret`: what stands there instead is not repeated, whatever it is."""
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        if secret and isinstance(value, (bool, int, float)):
            raise refuse(code)
        text = text_of(value, expected)
        # `$` also matches before a last line feed
        if not compiled.match(text) or text.endswith("\n"):
            raise refuse(code, got=shown(text), advice=advice)
        return text

    schema: dict[str, Any] = {"type": "string", "pattern": pattern}
    return Leaf(read, schema | ({"examples": [example]} if example else {}))


def free_text_leaf(expected: str, longest: int, empty: bool = False) -> Leaf:
    """Any printable text of at most `longest` characters."""

    def read(value: Any) -> str:
        text = text_of(value, expected)
        if not text and not empty:
            raise refuse("spec.empty-value", what=expected)
        if len(text) > longest:
            raise refuse("spec.bad-text", got=shown(text), advice=f"use at most {longest} characters")
        if plain(text, longest) != text:
            raise refuse("spec.bad-text", got=shown(text), advice="use printable characters only")
        return text

    return Leaf(read, {"type": "string", "minLength": 0 if empty else 1, "maxLength": longest})


def _whole(value: Any, expected: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _no_number(value, expected)


def _number(value: Any, expected: str) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise _no_number(value, expected)


def _no_number(value: Any, expected: str) -> PydanticCustomError:
    text = value if isinstance(value, str) else ""
    quoted = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text)
    advice = "remove the quotes" if quoted else "write the number alone" if re.search("[0-9]", text) else ""
    return refuse("spec.wrong-type", expected=expected, got=described(value), advice=advice)


def within(value: float, got: Any, low: float, high: float) -> None:
    """A fault for a number outside these bounds; `got` is how it is shown."""
    if value < low:
        raise refuse("spec.out-of-range", got=got, side="too small", advice=f"the least is {low}")
    if value > high:
        raise refuse("spec.out-of-range", got=got, side="too large", advice=f"the most is {high}")


def whole_leaf(low: int, high: int = MOST_COUNT) -> Leaf:
    """A whole number from `low` to `high`."""

    def read(value: Any) -> int:
        number = _whole(value, "a whole number")
        within(number, shown(number), low, high)
        return number

    return Leaf(read, {"type": "integer", "minimum": low, "maximum": high})


def scaled_leaf(scale: int, high: float, smallest: str, low: float = 0) -> Leaf:
    """A number that is kept as `scale` times itself, in integers; `low` and `high` are as written."""

    def read(value: Any) -> int:
        number = _number(value, "a number")
        whole = q.scaled(number, scale)
        if whole is None:
            raise refuse("spec.bad-number", got=shown(number), advice=f"the smallest step is {smallest}")
        within(number, shown(number), low, high)
        return whole

    return Leaf(
        read, {"type": "number", "minimum": low, "maximum": high}, lambda whole: q.unscaled(whole, scale)
    )


def quantity_leaf(
    parse: Callable[[str], Any], write: Callable[[Any], str], code: str, expected: str, schema: dict[str, Any]
) -> Leaf:
    """A text that `parse` turns into a quantity, or into None if it is none."""

    def read(value: Any) -> Any:
        text = text_of(value, expected, FAULTS[code].hint)
        parsed = parse(text)
        if parsed is None:
            raise refuse(code, got=shown(text))
        return parsed

    return Leaf(read, {"type": "string"} | schema, write)


def at_least_one(leaf: Leaf, least: str) -> Leaf:
    """The same leaf without its zero, which would be read as "no limit": the opposite of what was written."""

    def read(value: Any) -> Any:
        found = leaf.read(value)
        if not found:
            raise refuse(
                "spec.out-of-range", got=shown(value), side="too small", advice=f"the least is {least}"
            )
        return found

    return Leaf(read, leaf.schema, leaf.write)


def choice_leaf(words: type[Word]) -> Leaf:
    """One of a closed set of words."""
    known = [str(word) for word in words]

    def read(value: Any) -> Word:
        text = text_of(value, "a text: " + " or ".join(known), "")
        if text not in known:
            raise refuse(
                "spec.bad-choice", got=shown(text), choices=", ".join(known), advice=did_you_mean(text, known)
            )
        return words(text)

    return Leaf(read, {"type": "string", "enum": known}, str)


def flag_leaf() -> Leaf:
    """true or false; `yes` and `no` are texts in YAML 1.2."""

    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise refuse("spec.wrong-type", expected="true or false", got=shown(value), advice="")

    return Leaf(read, {"type": "boolean"})


def _read_ports(value: Any) -> tuple[int, int]:
    text = text_of(value, "a text: first-last", FAULTS["spec.bad-ports"].hint)
    found = re.fullmatch(r"([0-9]{4,5})-([0-9]{4,5})", text)
    first, last = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise refuse("spec.bad-ports", got=shown(text))
    return first, last


def _read_network(value: Any) -> str:
    text = text_of(value, "a text: a network in CIDR form", "write it as in 10.20.0.0/16")
    try:
        if "/" not in text or "%" in text:
            raise ValueError
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise refuse("spec.bad-network", got=shown(text), advice=_network_advice(text)) from None


def _network_advice(text: str) -> str:
    """The usual slip is an address with host bits set."""
    try:
        return f"did you mean {ipaddress.ip_network(text, strict=False)}?"
    except ValueError:
        return "write it as in 10.20.0.0/16"


def _read_hosts(value: Any) -> tuple[str, ...]:
    """A pattern, or a list of patterns; the nodes in order."""
    if isinstance(value, str):
        return tuple(_expanded(value, ()))
    if not isinstance(value, list):
        raise wrong_type(value, "a text or a list of texts with node names")
    if not value:
        raise refuse("spec.empty-value", what="a list of nodes")
    names: dict[str, None] = {}
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise wrong_type(item, "a text with node names", (index,), QUOTE_IT)
        for name in _expanded(item, (index,)):
            if name in names:
                raise refuse(
                    "spec.bad-hostlist", (index,), got=shown(item), reason=f"{name} is in the list twice"
                )
            names[name] = None
        if len(names) > MOST_NODES:
            raise refuse("spec.bad-hostlist", (index,), got=shown(item), reason=TOO_MANY)
    return tuple(names)


def _expanded(text: str, at: Loc) -> list[str]:
    try:
        return expand(text)
    except HostlistError as error:
        raise refuse("spec.bad-hostlist", at, got=shown(text), reason=str(error)) from None


def texts_leaf(one: Leaf, what: str) -> Leaf:
    """One text, or a list of them; always read as a tuple."""

    def read(value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return (one.read(value),)
        if not isinstance(value, list):
            raise wrong_type(value, f"{what}: a text or a list of texts")
        if not value:
            raise refuse("spec.empty-value", what=what)
        return tuple(_item(one, item, index) for index, item in enumerate(value))

    schema = {"oneOf": [one.schema, {"type": "array", "items": one.schema, "minItems": 1}]}
    return Leaf(read, schema, list)


def _item(one: Leaf, item: Any, index: int) -> str:
    try:
        return str(one.read(item))
    except PydanticCustomError as error:
        raise moved(error, (index,)) from None


T = TypeVar("T")
_NAME = pattern_leaf(NAME_PATTERN, "spec.bad-name", "a text: a name", NAME_ADVICE)

Rows = list[Annotated[T, WrapValidator(read_present)]]
Table = dict[Annotated[str, key_leaf(_NAME)], Annotated[T, WrapValidator(read_present)]]

Name = Annotated[str, _NAME]
Reference = Annotated[str, free_text_leaf("a text: a name", 253)]
Text = Annotated[str, free_text_leaf("a text", 1024)]
Flag = Annotated[bool, flag_leaf()]
Count = Annotated[int, whole_leaf(0)]
Positive = Annotated[int, whole_leaf(1)]
Weight = Annotated[int, whole_leaf(1, 10_000)]
GpuHours = Annotated[int, whole_leaf(1, 1_000_000_000)]  # a million GPUs have 744 million in a month
Port = Annotated[int, whole_leaf(1, 65535)]
Watts = Annotated[int, whole_leaf(1, 10_000)]
Percent = Annotated[int, whole_leaf(1, 100)]

Kilowatts = Annotated[int, scaled_leaf(1000, MOST_KW, "0.001 (a watt)", 0.001)]
KilowattsOrNone = Annotated[int, scaled_leaf(1000, MOST_KW, "0.001 (a watt)")]
Dollars = Annotated[int, scaled_leaf(1_000_000, MOST_DOLLARS, "0.000001", 0.000001)]
DollarsOrNone = Annotated[int, scaled_leaf(1_000_000, MOST_DOLLARS, "0.000001")]
Share = Annotated[int, scaled_leaf(1000, 1, "0.001", 0.001)]
Pue = Annotated[int, scaled_leaf(1000, 10, "0.001", 1)]

Duration = Annotated[
    int,
    quantity_leaf(
        q.seconds,
        q.seconds_text,
        "spec.bad-duration",
        "a text: a duration such as 30s, 10m, 4h or 3d",
        {"pattern": q.DURATION_PATTERN, "examples": ["10m", "1h30m"]},
    ),
]
Span = Annotated[
    int,
    at_least_one(
        quantity_leaf(
            q.seconds,
            q.seconds_text,
            "spec.bad-duration",
            "a text: a duration such as 30s, 10m, 4h or 3d",
            {"pattern": q.SPAN_PATTERN, "examples": ["10m", "1h30m"]},
        ),
        "1s",
    ),
]
Size = Annotated[
    int,
    quantity_leaf(
        q.size_bytes,
        q.size_text,
        "spec.bad-size",
        "a text: a size such as 960GiB",
        {"pattern": q.SIZE_PATTERN, "examples": ["960GiB", "80GB"]},
    ),
]
DayTime = Annotated[
    int,
    quantity_leaf(
        q.minutes_of_day,
        q.day_time_text,
        "spec.bad-time",
        "a text: a time of day such as 17:00",
        {"pattern": q.TIME_PATTERN, "examples": ["17:00"]},
    ),
]
Days = Annotated[
    tuple[int, ...],
    quantity_leaf(
        q.days_of_week,
        q.days_text,
        "spec.bad-days",
        "a text: days such as mon-fri",
        {"pattern": q.DAYS_PATTERN, "examples": ["mon-fri", "sat,sun"]},
    ),
]
Ports = Annotated[
    tuple[int, int],
    Leaf(
        _read_ports,
        {"type": "string", "pattern": "^[0-9]{4,5}-[0-9]{4,5}$", "examples": ["20000-29999"]},
        lambda ports: f"{ports[0]}-{ports[1]}",
    ),
]
NetworkCidr = Annotated[
    str,
    Leaf(
        _read_network, {"type": "string", "pattern": "^[0-9A-Fa-f.:]+/[0-9]+$", "examples": ["10.20.0.0/16"]}
    ),
]
Hosts = Annotated[
    tuple[str, ...],
    Leaf(
        _read_hosts,
        {
            "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ],
            "examples": ["h100-[01-32]", ["n[1-4,7]", "head"]],
        },
        lambda names: fold(list(names)),
    ),
]

AbsolutePath = Annotated[
    str,
    pattern_leaf(
        r"^/(?!.*(^|/)\.{1,2}(/|$))[^\x00-\x1f\x7f\ud800-\udfff]{0,4000}$",
        "spec.bad-path",
        "a text: an absolute path",
        "",
        "/home/alice",
    ),
]
Secret = Annotated[
    str,
    pattern_leaf(
        REFERENCE_PATTERN,
        "spec.bad-secret",
        "a text: a reference to a secret",
        "",
        "env:BMC_PASSWORD",
        secret=True,
    ),
]
HostName = Annotated[
    str,
    pattern_leaf(
        HOST_PATTERN,
        "spec.bad-address",
        "a text: an address or host name",
    ),
]
UserName = Annotated[
    str,
    pattern_leaf(
        r"^[A-Za-z_][A-Za-z0-9_.-]{0,30}[A-Za-z0-9_$]?$",
        "spec.bad-name",
        "a text: a user name",
        "write a POSIX user name",
    ),
]
