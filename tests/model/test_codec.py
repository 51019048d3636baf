"""The codec: whatever the model can say survives the way through JSON, and what is wrong is named by its place."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import events, records
from orchestrator.model.attempt import Placement
from orchestrator.model.base import Word
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec
from orchestrator.model.protocol import SyncAnswer, SyncRequest
from orchestrator.model.reasons import Reason
from tests.model import values

# Reasons alone are never stored or sent by the codec: their facts are text or number, which it refuses on purpose.
MODEL = [cls for cls in values.model_classes() if cls is not Reason]
EVENTS = list(events.TYPE_OF)
RECORDS = [records.Job, records.Node, records.Token, records.Orphan]
ALL = [*MODEL, *EVENTS, *RECORDS]


def through_json(plain: Any) -> Any:
    """As a database or a wire hands it on."""
    return json.loads(json.dumps(plain, ensure_ascii=False, allow_nan=False))


def test_there_are_classes_to_try() -> None:
    assert len(MODEL) > 50
    assert len(EVENTS) >= 28


@pytest.mark.property
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_class_comes_back_equal(cls: type, data: st.DataObject) -> None:
    value = data.draw(values.of(cls))
    plain = through_json(encode(value))
    again: Any = decode(cls, plain)
    assert again == value
    assert type(again) is cls
    assert through_json(encode(again)) == plain, "the second encoding is the first"


@pytest.mark.property
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
@settings(max_examples=8)
@given(data=st.data())
def test_defaults_are_left_out_and_unknown_keys_are_ignored(cls: type, data: st.DataObject) -> None:
    value = data.draw(values.of(cls))
    plain = encode(value)
    assert not set(plain) & {each.name for each in fields(cls) if _at_default(value, each)}
    assert decode(cls, {**plain, "from a newer writer": {"x": 1}}) == value


def _at_default(value: Any, each: Any) -> bool:
    default = each.default
    if default is MISSING and each.default_factory is not MISSING:
        default = each.default_factory()
    return default is not MISSING and bool(getattr(value, each.name) == default)


# --- old readers, new writers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OldShape:
    name: str
    count: int = 1


@dataclass(frozen=True)
class NewShape:
    name: str
    count: int = 1
    colour: str = "grey"
    inner: tuple[OldShape, ...] = ()


def test_an_older_reader_takes_what_a_newer_writer_wrote() -> None:
    assert decode(OldShape, encode(NewShape("a", 2, "red", (OldShape("b"),)))) == OldShape("a", 2)


def test_a_newer_reader_takes_what_an_older_writer_wrote() -> None:
    assert decode(NewShape, encode(OldShape("a", 2))) == NewShape("a", 2)


def test_an_added_field_with_a_default_changes_no_stored_form() -> None:
    assert encode(NewShape("a")) == encode(OldShape("a")) == {"name": "a"}


# --- what is wrong, and where -----------------------------------------------------------------------------------


class Colour(Word):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: str


ORIGIN = Pair(0, "")


@dataclass(frozen=True)
class Leaf:
    number: int
    colour: Colour = Colour.RED


@dataclass
class Tree:
    leaf: Leaf
    leaves: tuple[Leaf, ...] = ()
    by_name: dict[str, Leaf] = field(default_factory=dict)
    by_number: dict[int, int] = field(default_factory=dict)
    pair: Pair = ORIGIN
    fixed: tuple[int, str] = (0, "")
    maybe: Leaf | None = None
    flag: bool = False
    share: float = 0.0
    names: list[str] = field(default_factory=list)


GOOD: dict[str, Any] = {"leaf": {"number": 1}}
WRONG: list[tuple[Any, str, str]] = [
    ([], "", "expected an object, got list"),
    (None, "", "expected an object, got null"),
    ({}, "leaf", "missing"),
    ({"leaf": {}}, "leaf.number", "missing"),
    ({"leaf": {"number": "1"}}, "leaf.number", "expected int, got str"),
    ({"leaf": {"number": True}}, "leaf.number", "expected int, got bool"),
    ({"leaf": {"number": 1.0}}, "leaf.number", "expected int, got float"),
    ({"leaf": {"number": None}}, "leaf.number", "expected int, got null"),
    ({"leaf": {"number": 1, "colour": "green"}}, "leaf.colour", "expected one of red, blue, got 'green'"),
    ({"leaf": {"number": 1, "colour": 3}}, "leaf.colour", "expected one of red, blue, got 3"),
    ({**GOOD, "leaves": {}}, "leaves", "expected a list, got dict"),
    ({**GOOD, "leaves": [{"number": 1}, {"number": "x"}]}, "leaves.[1].number", "expected int, got str"),
    ({**GOOD, "by_name": {"b": {"number": "x"}}}, "by_name.b.number", "expected int, got str"),
    ({**GOOD, "by_name": []}, "by_name", "expected an object, got list"),
    ({**GOOD, "by_number": {"one": 1}}, "by_number", "expected integer keys"),
    ({**GOOD, "by_number": {"1": "x"}}, "by_number.1", "expected int, got str"),
    ({**GOOD, "pair": [1]}, "pair", "expected 2 items, got 1"),
    ({**GOOD, "pair": 1}, "pair", "expected 2 items, got int"),
    ({**GOOD, "pair": [1, 2]}, "pair.[1]", "expected str, got int"),
    ({**GOOD, "fixed": ["x", "y"]}, "fixed.[0]", "expected int, got str"),
    ({**GOOD, "maybe": {"number": "x"}}, "maybe.number", "expected int, got str"),
    ({**GOOD, "flag": 1}, "flag", "expected bool, got int"),
    ({**GOOD, "share": "1"}, "share", "expected float, got str"),
    ({**GOOD, "names": ["a", 1]}, "names.[1]", "expected str, got int"),
]


@pytest.mark.parametrize(("plain", "path", "problem"), WRONG, ids=lambda case: repr(case)[:40])
def test_a_wrong_value_is_named_by_its_place(plain: Any, path: str, problem: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(Tree, plain)
    assert (caught.value.path, caught.value.problem) == (path, problem)
    assert str(caught.value) == (f"{path}: {problem}" if path else problem)


def test_what_is_allowed_beyond_the_letter() -> None:
    plain = {**GOOD, "share": 1, "maybe": None, "by_number": {"7": 8}, "fixed": [1, "x"], "pair": [2, "y"]}
    tree = decode(Tree, plain)
    assert (tree.share, tree.maybe, tree.by_number) == (1, None, {7: 8})
    assert (tree.fixed, tree.pair) == ((1, "x"), Pair(2, "y"))
    assert type(tree.pair) is Pair


def test_defaults_of_two_instances_are_not_shared() -> None:
    one, other = decode(Tree, GOOD), decode(Tree, GOOD)
    one.names.append("x")
    assert (other.names, encode(other)) == ([], GOOD)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("cls", [SyncRequest, SyncAnswer, ClusterSpec, JobSpec])
@pytest.mark.property
@settings(max_examples=60)
@given(junk=JUNK, data=st.data())
def test_junk_raises_a_codec_error_and_nothing_else(cls: type, junk: Any, data: st.DataObject) -> None:
    """What comes from a wire may be anything."""
    names = [each.name for each in fields(cls)]
    plain = {data.draw(st.sampled_from(names)): junk} if data.draw(st.booleans()) else junk
    try:
        decode(cls, plain)
    except CodecError:
        pass


def test_words_encode_as_their_text_in_every_place() -> None:
    assert encode({"a": (Colour.RED, [Colour.BLUE])}) == {"a": ["red", ["blue"]]}
    assert type(encode(Leaf(1, Colour.BLUE))["colour"]) is str
    assert issubclass(Colour, Enum)


def test_an_attempt_id_is_a_pair_on_the_wire() -> None:
    assert encode(AttemptId(3, 2)) == [3, 2]
    assert decode(AttemptId, [3, 2]) == AttemptId(3, 2)
    assert encode(Placement("n", (1, 2))) == {"node": "n", "slots": [1, 2]}
