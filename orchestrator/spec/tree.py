"""YAML text to plain values, by the rules of YAML 1.2's core schema, with the place of every key and value.

Comes in: a text. Goes out: `Node`s (value, place, children) and the faults of the text itself. Called by: `load` and
`inventory`. libyaml only splits the text into events; what they mean is decided here, so that `no`, `22:30` and
`0o17` are what YAML 1.2 says and nothing can grow without bound.

Decided: anchors and aliases work for whole values, are counted each time they are used, and never hold themselves.
Merge keys (`<<`), tags and a second document are faults. A key given twice is a fault at the second one; the first
counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from orchestrator.wire.faults import Loc, Problem, described, plain, problem, shown
from orchestrator.wire.leaf import UNKNOWN

DEEPEST = 40  # levels; the deepest field of a document lies on level 7
MOST_JSON_VALUES = 20_000  # of a value that is not from a file; a job with 4,000 variables has about 8,000
MOST_VALUES = 400_000  # keys and values, aliases counted each time; 10,000 one-line hosts have about 130,000
INI_ADVICE = "this looks like an INI file: `ansible-inventory -i FILE --list --yaml` turns one into YAML"
LONGEST_NUMBER = (
    400  # characters of a number; longer ones are texts to no one, and Python's own limit is 4300
)

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = frozenset((".nan", ".NaN", ".NAN"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: line and column from 1, and how many characters of that line it takes."""

    line: int
    column: int
    length: int = 1


NOWHERE = Place(0, 0, 0)


@dataclass(slots=True)
class Node:
    """A value and its place. `items` are a list's nodes; `keys` and `values` a mapping's, by key."""

    value: Any
    place: Place
    items: list[Node] = field(default_factory=list)
    keys: dict[str, Place] = field(default_factory=dict)
    values: dict[str, Node] = field(default_factory=dict)
    size: int = 1  # values in it, itself included

    def child(self, step: str | int) -> Node | None:
        """The node one step further in, if there is one."""
        if isinstance(step, str):
            return self.values.get(step)
        return self.items[step] if 0 <= step < len(self.items) else None


@dataclass(frozen=True, slots=True)
class Misread:
    """A fault of the text itself, at its place, with the path of what it is about."""

    problem: Problem
    place: Place
    loc: Loc = ()


class TextFault(Exception):
    """The text can't be read on from here."""

    def __init__(self, misread: Misread) -> None:
        super().__init__(misread.problem.message)
        self.misread = misread


@dataclass(frozen=True, slots=True)
class Tree:
    """What a text holds. `root` is None if it holds nothing that can be used."""

    root: Node | None
    faults: tuple[Misread, ...]


def read_tree(text: str) -> Tree:
    """All values of a text with their places. Never raises for what the text says."""
    reader = _Reader()
    try:
        root = reader.read(yaml.parse(text, Loader=yaml.CSafeLoader))
    except TextFault as fault:
        return Tree(None, (*reader.faults, fault.misread))
    except yaml.YAMLError as error:
        return Tree(None, (*reader.faults, _syntax_fault(error, text)))
    except UnicodeEncodeError as error:  # half of a surrogate pair; no file has one, a caller's text may
        return Tree(None, (*reader.faults, _character_fault(error, text)))
    return Tree(root, tuple(reader.faults))


def tree_of(data: object) -> Tree:
    """The tree of a value that is not from a text, such as a request's body: a copy, without places."""
    try:
        return Tree(_copy(data, 0, [MOST_JSON_VALUES]), ())
    except TextFault as fault:
        return Tree(None, (fault.misread,))


def _copy(data: object, depth: int, left: list[int]) -> Node:
    left[0] -= 1
    if left[0] < 0:
        raise _stop("spec.too-many-values", NOWHERE, limit=MOST_JSON_VALUES)
    if depth > DEEPEST:
        raise _stop("spec.too-deep", NOWHERE, limit=DEEPEST)
    if isinstance(data, dict):
        values = {str(key): _copy(value, depth + 1, left) for key, value in data.items()}
        return Node({key: node.value for key, node in values.items()}, NOWHERE, values=values)
    if isinstance(data, (list, tuple)):
        items = [_copy(item, depth + 1, left) for item in data]
        return Node([node.value for node in items], NOWHERE, items)
    return Node(data, NOWHERE)


class _Reader:
    """Turns events into nodes, one document long."""

    def __init__(self) -> None:
        self.faults: list[Misread] = []
        self._anchors: dict[str, Node | None] = {}
        self._left = MOST_VALUES

    def read(self, events: Iterator[yaml.Event]) -> Node | None:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _stop("spec.several-documents", _place(event.start_mark, 3))
                self._check_version(event)
                root = self._node(next(events), events, ())
        if root is None:
            raise _stop("spec.empty", Place(1, 1))
        return root

    def _check_version(self, event: yaml.DocumentStartEvent) -> None:
        version = event.version
        if version and tuple(version) != (1, 2):
            self._fault(
                "spec.yaml-version", _place(event.start_mark, 5), (), version=".".join(map(str, version))
            )

    def _fault(self, code: str, place: Place, loc: Loc, **values: Any) -> None:
        self.faults.append(Misread(problem(code, **values), place, loc))

    def _node(self, event: Any, events: Iterator[yaml.Event], loc: Loc) -> Node:
        """The value that starts with `event`."""
        self._count(1, event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.anchor:
            self._anchors[event.anchor] = None  # open: an alias to it now would be a loop
        if len(loc) >= DEEPEST:
            raise _stop("spec.too-deep", _place(event.start_mark, 1), limit=DEEPEST)
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, loc)
        else:
            self._check_tag(event, loc)
            make = self._mapping if isinstance(event, yaml.MappingStartEvent) else self._sequence
            node = make(event, events, loc)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _count(self, values: int, event: Any) -> None:
        self._left -= values
        if self._left < 0:
            raise _stop("spec.too-many-values", _place(event.start_mark, 1), limit=MOST_VALUES)

    def _alias(self, event: Any) -> Node:
        place = _span(event)
        if event.anchor not in self._anchors:
            raise _stop("spec.yaml-alias", place, name=plain(event.anchor, 40))
        node = self._anchors[event.anchor]
        if node is None:
            raise _stop("spec.yaml-loop", place, name=plain(event.anchor, 40))
        self._count(node.size, event)
        return node

    def _scalar(self, event: yaml.ScalarEvent, loc: Loc) -> Node:
        if self._check_tag(event, loc):
            return Node(UNKNOWN, _span(event))
        return Node(plain_scalar(event.value) if event.implicit[0] else event.value, _span(event))

    def _check_tag(self, event: Any, loc: Loc) -> bool:
        """Whether the value has a tag, which is a fault."""
        if not event.tag:
            return False
        shown_tag = plain(event.tag.replace("tag:yaml.org,2002:", "!!"), 40)
        advice = "remove it; quotes make any value a text"
        if "vault" in shown_tag:
            advice = "vaults are not opened: write a reference, such as env:NAME or file:/PATH"
        self._fault("spec.yaml-tag", _place(event.start_mark, 1), loc, tag=shown_tag, advice=advice)
        return True

    def _sequence(self, event: yaml.SequenceStartEvent, events: Iterator[yaml.Event], loc: Loc) -> Node:
        node = Node([], _place(event.start_mark, 1))
        for inner in events:
            if isinstance(inner, yaml.SequenceEndEvent):
                break
            item = self._node(inner, events, (*loc, len(node.items)))
            node.items.append(item)
            node.value.append(item.value)
            node.size += item.size
        return node

    def _mapping(self, event: yaml.MappingStartEvent, events: Iterator[yaml.Event], loc: Loc) -> Node:
        node = Node({}, _place(event.start_mark, 1))
        merged: list[Node] = []
        for inner in events:
            if isinstance(inner, yaml.MappingEndEvent):
                break
            key = self._node(inner, events, (*loc, ""))
            text = self._key(key, node, loc)
            within = (
                key.value if isinstance(key.value, str) else ""
            )  # a key given twice names its faults as well
            item = self._node(next(events), events, (*loc, within))
            node.size += item.size + 1
            if text is not None:
                node.keys[text], node.values[text], node.value[text] = key.place, item, item.value
            elif within == "<<":
                merged.append(item)
        for item in merged:
            _merge(node, item)
        return node

    def _key(self, key: Node, node: Node, loc: Loc) -> str | None:
        """The key as text, or None if it can't be one, which is a fault."""
        text = key.value
        if text is UNKNOWN:  # it has a tag, which was told
            return None
        if not isinstance(text, str):
            self._fault("spec.key-not-text", key.place, loc, got=described(text))
            return None
        if text == "<<":
            self._fault("spec.merge-key", key.place, (*loc, text))
            return None
        if text in node.keys:
            first = node.keys[text].line
            self._fault("spec.duplicate-key", key.place, (*loc, text), key=plain(text, 60), line=first)
            return None
        return text


def _merge(node: Node, other: Node) -> None:
    """Do what a merge key was meant to do, though it is a fault: its absence must not look like missing fields."""
    for one in [*other.items, other]:
        for key, item in one.values.items():
            if key not in node.values:
                node.keys[key], node.values[key], node.value[key] = one.keys[key], item, item.value


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar by YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "+-.0123456789" or len(text) > LONGEST_NUMBER:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if found := _INF.fullmatch(text):
        return float(found.group(1) + "inf")
    return float("nan") if text in _NAN else text


def _place(mark: Any, length: int) -> Place:
    return Place(mark.line + 1, mark.column + 1, length)


def _span(event: Any) -> Place:
    """The place of a scalar: to its end if it stands on one line, else its first character; of nothing, length 0."""
    start, end = event.start_mark, event.end_mark
    one_line = start.line == end.line
    return _place(start, end.column - start.column if one_line else 1)


def _stop(code: str, place: Place, **values: Any) -> TextFault:
    return TextFault(Misread(problem(code, **values), place))


def _syntax_fault(error: yaml.YAMLError, text: str) -> Misread:
    """What libyaml says, at the place where it says it."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:  # the reader's errors (characters that YAML does not allow) have an offset only
        return _character_fault(error, text)
    place = _place(mark, 1)
    said = plain(str(getattr(error, "problem", None) or "it can't be parsed"), 200)
    if "nesting depth" in said:
        return Misread(problem("spec.too-deep", limit=DEEPEST), place)
    if "incompatible YAML" in said:
        return Misread(problem("spec.yaml-version", version="of another version"), place)
    if context := getattr(error, "context", None):
        said += f" ({plain(str(context), 100)})"
    lines = text.split("\n", mark.line + 1)
    line = lines[mark.line] if mark.line < len(lines) else ""
    return Misread(problem("spec.yaml-syntax", problem=said, advice=_syntax_advice(said, line, text)), place)


def _syntax_advice(said: str, line: str, text: str) -> str:
    if line.lstrip(" ").startswith("\t"):
        return "indent with spaces: this line starts with a tab"
    if text.lstrip().startswith("[") and "]" in text.split("\n", 1)[0]:
        return INI_ADVICE
    if "mapping values" in said:
        return "put a value that contains ': ' in quotes, and check the indentation"
    return "check brackets, quotes and indentation here and in the line above"


_BAD = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _character_fault(error: Exception, text: str) -> Misread:
    found = _BAD.search(text)
    if found is None:
        said = plain(str(error).split("\n", 1)[0], 200)
        return Misread(problem("spec.yaml-syntax", problem=said, advice="check the file"), Place(1, 1))
    before = text[: found.start()]
    place = Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    said = f"the character {shown(found.group())} is not allowed"
    return Misread(problem("spec.yaml-syntax", problem=said, advice="remove it"), place)
