"""Breaks a document in one place at a time, and knows what must be said about it.

Comes in: a plain document and its class. Goes out: `Mutant`s: a YAML text with exactly one fault, the line, column
and path where it is, and the codes that may name it. Called by: test_mutants, tests/wire/test_schemas.

The text is written by `Writer` here, which notes the place of every key and value itself, so that the places under
test are compared with something that the reader had no part in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from orchestrator.spec import shape
from orchestrator.wire import faults
from orchestrator.wire.leaf import Strict

Loc = tuple[str | int, ...]
DUPLICATE = "(again)"


class Map(list[list[Any]]):
    """A mapping as pairs, so that a key may stand in it twice."""


@dataclass
class Writer:
    """Block YAML with each scalar on a line of its own; `keys` and `values` are places by location."""

    lines: list[str] = field(default_factory=list)
    keys: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    values: dict[Loc, tuple[int, int]] = field(default_factory=dict)

    def text(self, tree: Any) -> str:
        self._node(tree, (), 0, "")
        return "\n".join(self.lines) + "\n"

    def _node(self, node: Any, loc: Loc, indent: int, lead: str) -> None:
        """Write `node` after `lead`, which stands at the start of a line or is a dash."""
        if isinstance(node, Map) and node:
            self._map(node, loc, indent, lead)
        elif isinstance(node, list) and not isinstance(node, Map) and node:
            self._list(node, loc, indent, lead)
        else:
            self.values[loc] = (len(self.lines) + 1, len(lead) + 1)
            self.lines.append(lead + _scalar(node))

    def _map(self, node: Map, loc: Loc, indent: int, lead: str) -> None:
        self.values[loc] = (len(self.lines) + 1, len(lead) + 1 if lead.strip() else indent + 1)
        seen: set[str] = set()
        for key, value in node:
            start = lead if lead.strip() else " " * indent
            lead = ""
            here = (*loc, key) if key not in seen else (*loc, key, DUPLICATE)
            seen.add(key)
            self.keys[here] = (len(self.lines) + 1, len(start) + 1)
            head = f"{start}{_key(key)}:"
            if isinstance(value, list) and value:
                self.lines.append(head)
                self._node(value, here, indent + 2, "")
            else:
                self.values[here] = (len(self.lines) + 1, len(head) + 2)
                self.lines.append(f"{head} {_scalar(value)}")

    def _list(self, node: list[Any], loc: Loc, indent: int, lead: str) -> None:
        self.values[loc] = (len(self.lines) + 1, len(lead) + 1 if lead.strip() else indent + 1)
        for index, value in enumerate(node):
            start = lead if lead.strip() else " " * indent
            lead = ""
            self._node(value, (*loc, index), len(start) + 2, f"{start}- ")


@cache
def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key[0].isalpha() else json.dumps(key)


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return "{}" if isinstance(value, Map) else "[]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


@cache
def _quoted(text: str) -> str:
    return json.dumps(text)


def to_tree(data: Any) -> Any:
    """The same document with `Map`s for dicts."""
    if isinstance(data, dict):
        return Map([key, to_tree(value)] for key, value in data.items())
    if isinstance(data, list):
        return [to_tree(item) for item in data]
    return data


def to_plain(tree: Any) -> Any:
    """The same document with dicts for `Map`s."""
    if isinstance(tree, Map):
        return {key: to_plain(value) for key, value in tree}
    return [to_plain(item) for item in tree] if isinstance(tree, list) else tree


def edited(tree: Any, loc: Loc, change: Any) -> Any:
    """A copy of `tree` in which the node at `loc` is what `change` makes of it."""
    if not loc:
        return change(tree)
    step, rest = loc[0], loc[1:]
    if isinstance(tree, Map):
        return Map([key, edited(value, rest, change) if key == step else value] for key, value in tree)
    return [edited(item, rest, change) if index == step else item for index, item in enumerate(tree)]


def nodes(tree: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """Every node below the root with its location."""
    pairs = [(key, value) for key, value in tree] if isinstance(tree, Map) else list(enumerate(tree))
    for step, value in pairs:
        yield (*loc, step), value
        if isinstance(value, list):
            yield from nodes(value, (*loc, step))


@dataclass(frozen=True)
class Mutant:
    """A document with one fault. It is written when it is first asked for, since nobody reads all of them.

    `place` is what the fault stands at (`mark` says which part of it), `loc` what it is about.
    """

    fault: str
    tree: Any
    place: Loc
    loc: Loc
    mark: str
    codes: frozenset[str]

    @property
    def kind(self) -> str:
        """The fault and where it is, for people."""
        return f"{self.fault} at {self.loc}"

    @property
    def text(self) -> str:
        """The document as YAML."""
        return self._written[0]

    @property
    def line(self) -> int:
        """Where the fault is, from 1."""
        return self._written[1]

    @property
    def column(self) -> int:
        """Where the fault is, from 1."""
        return self._written[2]

    @property
    def path(self) -> str:
        """The path that an error should name."""
        return _path(self.loc, self.tree)

    @property
    def value(self) -> Any:
        """The document as plain values; of a key given twice, the last."""
        return to_plain(self.tree)

    @cached_property
    def _written(self) -> tuple[str, int, int]:
        writer = Writer()
        text = writer.text(self.tree)
        key = self.mark == "key" or (self.mark == "parent" and self.place and isinstance(self.place[-1], str))
        return text, *(writer.keys if key else writer.values)[self.place]


class Breeder:
    """Makes the mutants of one document."""

    def __init__(self, model: type[Strict], data: Any) -> None:
        self.model = model
        self.tree = to_tree(data)
        self.data = data

    def all(self) -> Iterator[Mutant]:
        """Every mutant that needs no knowledge of names."""
        for loc, node in nodes(self.tree):
            yield from self._wrong_types(loc, node)
            yield self._mutant("null", loc, None, "value", {"spec.wrong-type"})
            if isinstance(loc[-1], str):
                yield self._duplicate(loc, node)
                yield from self._misspelt(loc)
                yield from self._missing(loc)
            if not isinstance(node, list):
                yield from self._siblings(loc)
                yield from self._bad_values(loc, node)

    def with_value(self, kind: str, loc: Loc, value: Any, *codes: str) -> Mutant:
        """A mutant with another value at `loc`."""
        return self._mutant(kind, loc, value, "value", set(codes))

    def _mutant(self, kind: str, loc: Loc, value: Any, mark: str, codes: set[str]) -> Mutant:
        tree = edited(self.tree, loc, lambda _: to_tree(value))
        return Mutant(kind, tree, loc, loc, mark, frozenset(codes))

    def _hint(self, loc: Loc) -> Any:
        """What the document class has at a place; the kinds of sites are put in where pydantic would."""
        steps: list[str | int] = []
        data: Any = self.data
        for step in loc:
            steps.append(step)
            data = data[step]
            if len(steps) == 2 and steps[0] == "sites":
                steps.append(data["kind"])
        return shape.follow(self.model, tuple(steps))[1]

    def _wrong_types(self, loc: Loc, node: Any) -> Iterator[Mutant]:
        for value in _others(node, shape.expected(self._hint(loc)), loc):
            codes = {"spec.wrong-type", "spec.wrong-kind"} if loc == ("kind",) else {"spec.wrong-type"}
            if (
                loc[-1] == "job"
            ):  # a number or a text: the one that it is not here is wrong only in what it says
                if isinstance(node, str) and value == 5:
                    continue
                codes = {"spec.wrong-type", "job.bad-reference"}
            if "aws-secret:" in str(self._hint(loc)):
                codes = {
                    "spec.wrong-type",
                    "spec.bad-secret",
                }  # a number that may be the secret is not repeated
            yield self._mutant("wrong type", loc, value, "value", codes)

    def _duplicate(self, loc: Loc, node: Any) -> Mutant:
        tree = edited(self.tree, loc[:-1], lambda holder: Map([*holder, [loc[-1], node]]))
        return Mutant("duplicate", tree, (*loc, DUPLICATE), loc, "key", frozenset({"spec.duplicate-key"}))

    def _siblings(self, loc: Loc) -> Iterator[Mutant]:
        """An unknown field beside a leaf; in a table, where every name is welcome, a key that is no name."""
        if not isinstance(loc[-1], str):
            return
        table = not shape.known_fields(self._hint(loc[:-1]))
        key = "-no-name-" if table else "zzqx"
        code = "spec.bad-name" if table else "spec.unknown-field"
        tree = edited(self.tree, loc[:-1], lambda holder: _after(holder, loc[-1], key, table))
        here = (*loc[:-1], key)
        yield Mutant("unknown sibling", tree, here, here, "key", frozenset({code}))

    def _misspelt(self, loc: Loc) -> Iterator[Mutant]:
        """A slip in the name of a field is one fault, though the field is then missing too."""
        key = f"{loc[-1]}{str(loc[-1])[-1]}"
        if loc[-1] not in shape.known_fields(self._hint(loc[:-1])):
            return
        tree = edited(
            self.tree, loc[:-1], lambda holder: Map([key if k == loc[-1] else k, v] for k, v in holder)
        )
        here = (*loc[:-1], key)
        yield Mutant("misspelt", tree, here, here, "key", frozenset({"spec.unknown-field"}))

    def _missing(self, loc: Loc) -> Iterator[Mutant]:
        names = shape.known_fields(self._hint(loc[:-1]))
        if loc[-1] not in names or not self._required(loc):
            return
        tree = edited(self.tree, loc[:-1], lambda holder: Map(pair for pair in holder if pair[0] != loc[-1]))
        yield Mutant("missing", tree, loc[:-1], loc, "parent", frozenset({"spec.missing-field"}))

    def _required(self, loc: Loc) -> bool:
        """A field without a default; the kind of a document can't be told if it is missing, and is tested apart."""
        return any(
            field.is_required() and (field.alias or name) == loc[-1]
            for one in shape.members(self._hint(loc[:-1]))
            for name, field in one.model_fields.items()
        ) and loc != ("kind",)

    def _bad_values(self, loc: Loc, node: Any) -> Iterator[Mutant]:
        """Values of the right type that can't be meant: a control character, no text, numbers out of bounds."""
        free = loc[0] == "spec" and bool({"env", "command"} & set(loc))
        codes = {code for code in FAULT_CODES if code not in ("spec.wrong-type", "spec.dangling-reference")}
        if isinstance(node, str) and not free:
            yield self._mutant("bad text", loc, "a\x1b[31m\u202eb", "value", codes)
            yield self._mutant("long text", loc, "x/" * 3000, "value", codes)
            if not {"labels", "packages"} & set(loc):  # an empty version is any version
                yield self._mutant("empty text", loc, "", "value", codes)
        elif isinstance(node, (int, float)) and not isinstance(node, bool):
            for value in (-(10**30), 10**30):
                yield self._mutant("out of range", loc, value, "value", {"spec.out-of-range"})


FAULT_CODES: set[str] = set()


def _after(holder: Map, sibling: Any, key: str, same: bool) -> Map:
    pairs = Map()
    for pair in holder:
        pairs.append(pair)
        if pair[0] == sibling:
            pairs.append([key, pair[1] if same else 1])
    return pairs


def _others(node: Any, expected: str, loc: Loc) -> list[Any]:
    """Values of other types than a place takes."""
    text, number, mapping, items = "some text", 5, {"a": 1}, [1]
    if isinstance(node, Map):
        return [text, number, True, items]
    if isinstance(node, list):
        lists_or_text = "a text" in expected
        return [number, True, mapping] + ([] if lists_or_text else [text])
    if isinstance(node, bool):
        return [text, number, mapping, items]
    if isinstance(node, str):
        return [number, 2.5, True, mapping] + ([] if "list" in expected else [items])
    whole = expected == "a whole number"
    return [text, True, mapping, items] + ([2.5] if whole else [])


def _path(loc: Loc, tree: Any) -> str:
    """The path as DESIGN writes it, made from the tree under test."""
    words: list[str] = []
    node = tree
    for step in loc:
        node = _child(node, step)
        if isinstance(step, int):
            words.append(f"[{_name_of(node) or step}]")
        else:
            plain = step.replace("_", "").replace("-", "").isalnum() and not step.startswith("-")
            words.append((f".{step}" if words else step) if plain else f'["{step}"]')
    return "".join(words)


def _child(node: Any, step: str | int) -> Any:
    if isinstance(node, Map):
        return next((value for key, value in node if key == step), None)
    if isinstance(node, list) and isinstance(step, int) and step < len(node):
        return node[step]
    return None


def _name_of(node: Any) -> str:
    for key in ("name", "pool", "gpu_model"):
        value = _child(node, key) if isinstance(node, Map) else None
        if isinstance(value, str) and value:
            return faults.plain(value, 60)
    return ""
