"""Texts to values: YAML 1.2's core schema, strictly, with places, and bounded whatever the text is.

Comes in: YAML texts. Goes out: proof of values, of places, and of one fault each for what is refused.
"""

from __future__ import annotations

import math

import pytest

from orchestrator.spec.tree import DEEPEST, Tree, read_tree


def value(text: str) -> object:
    tree = read_tree(text)
    assert tree.root is not None
    assert not tree.faults
    return tree.root.value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("y", "y"),
        ("True", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("22:30", "22:30"),
        ("1:2:3", "1:2:3"),
        ("2026-11-30", "2026-11-30"),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("+12", 12),
        ("-0", 0),
        ("0x", "0x"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.5e-1", -0.05),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("1e", "1e"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("=", "="),
        ("<<", "<<"),
        ("'5'", "5"),
        ('"5"', "5"),
        ("|\n  5\n", "5\n"),
        (">-\n  5\n", "5"),
        ("''", ""),
        ("12345678901234567890123", 12345678901234567890123),
    ],
)
def test_scalars_follow_the_core_schema(text: str, wanted: object) -> None:
    read = value(f"- {text}")
    assert isinstance(read, list)
    assert read == [wanted]
    assert type(read[0]) is type(wanted)


def test_not_a_number_is_one() -> None:
    read = value("- .nan")
    assert isinstance(read, list)
    assert math.isnan(read[0])


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("", "spec.empty", 1, 1),
        ("# only a comment\n", "spec.empty", 1, 1),
        ("---\n...\n", "", 0, 0),
        ("a: 1\n---\nb: 2\n", "spec.several-documents", 2, 1),
        ("a: 1\nb: 2\na: 3\n", "spec.duplicate-key", 3, 1),
        ("a: {b: 1, c: 2, 'b': 3}\n", "spec.duplicate-key", 1, 17),
        ("a: [1,\n", "spec.yaml-syntax", 2, 1),
        ("a:\n\tb: 1\n", "spec.yaml-syntax", 2, 1),
        ("a: b: c\n", "spec.yaml-syntax", 1, 5),
        ("a: 'x\n", "spec.yaml-syntax", 2, 1),
        ("a: x\n  y: z\n", "spec.yaml-syntax", 2, 4),
        ("a: @x\n", "spec.yaml-syntax", 1, 4),
        ("a: \x00\n", "spec.yaml-syntax", 1, 4),
        ("b: 1\na: x\x1b[0m\n", "spec.yaml-syntax", 2, 5),
        ("a: \ud800\n", "spec.yaml-syntax", 1, 4),
        ("a: !!str 5\n", "spec.yaml-tag", 1, 4),
        ("a: ! 5\n", "spec.yaml-tag", 1, 4),
        ("!x a: 5\n", "spec.yaml-tag", 1, 1),
        ("a: !Ref x\n", "spec.yaml-tag", 1, 4),
        ("a: !!map {b: c}\n", "spec.yaml-tag", 1, 4),
        ("a: !!python/object/apply:os.system [x]\n", "spec.yaml-tag", 1, 4),
        ("a: *x\n", "spec.yaml-alias", 1, 4),
        ("a: &x [*x]\n", "spec.yaml-loop", 1, 8),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "spec.merge-key", 3, 3),
        ("5: x\n", "spec.key-not-text", 1, 1),
        ("[a]: x\n", "spec.key-not-text", 1, 1),
        ("~: x\n", "spec.key-not-text", 1, 1),
        ("true: x\n", "spec.key-not-text", 1, 1),
        ("%YAML 1.1\n---\na: 1\n", "spec.yaml-version", 1, 1),
        ("%YAML 2.0\n---\na: 1\n", "spec.yaml-version", 1, 1),
        ("[" * 100_000, "spec.too-deep", 1, 1001),
        ("- " * 100_000, "spec.too-deep", 1, 2 * DEEPEST + 1),
        ("{a: " * 100_000, "spec.too-deep", 1, 158),
        ("? " * 100_000, "spec.too-deep", 1, 2 * DEEPEST + 1),
    ],
)
def test_what_is_refused_has_one_fault_at_its_place(text: str, code: str, line: int, column: int) -> None:
    faults = read_tree(text).faults
    assert [(one.problem.code, one.place.line, one.place.column) for one in faults] == (
        [(code, line, column)] if code else []
    )


def test_a_tab_gets_its_own_advice() -> None:
    assert (
        read_tree("a:\n\tb: 1\n").faults[0].problem.hint == "indent with spaces: this line starts with a tab"
    )


def test_an_ini_file_gets_its_own_advice() -> None:
    assert (
        "ansible-inventory -i FILE --list --yaml"
        in read_tree("[gpu]\nnode1 ansible_host=10.0.0.1\n").faults[0].problem.hint
    )


def test_aliases_stand_for_whole_values() -> None:
    assert value("a: &x {b: [1, 2]}\nc: *x\nd: &y 5\ne: [*y, *y]\n") == {
        "a": {"b": [1, 2]},
        "c": {"b": [1, 2]},
        "d": 5,
        "e": [5, 5],
    }


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    assert [one.problem.code for one in read_tree("\n".join(lines)).faults] == ["spec.too-many-values"]


def test_a_merge_key_is_one_fault_and_hides_no_fields() -> None:
    tree = read_tree("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n")
    assert [one.problem.code for one in tree.faults] == ["spec.merge-key"]
    assert tree.root is not None
    assert tree.root.value["d"] == {"b": 1, "c": 3}


def place(tree: Tree, *path: str | int) -> tuple[int, int, int]:
    node = tree.root
    for step in path:
        assert node is not None
        node = node.child(step)
    assert node is not None
    return node.place.line, node.place.column, node.place.length


def test_places_count_characters_from_one() -> None:
    tree = read_tree("\ufeff# c\nключ: {a: 'x y', b: [10, \"é\"]}\r\nd:\r\n  - e: |\n      long\n")
    root = tree.root
    assert root is not None
    assert (root.keys["ключ"].line, root.keys["ключ"].column, root.keys["ключ"].length) == (2, 1, 4)
    assert place(tree, "ключ", "a") == (2, 11, 5)
    assert place(tree, "ключ", "b", 0) == (2, 22, 2)
    assert place(tree, "ключ", "b", 1) == (2, 26, 3)
    assert place(tree, "d", 0, "e")[:2] == (4, 8)


def test_json_is_yaml() -> None:
    assert value('{"a": [1, 2.5, true, null, "x\\u00e9\\n"]}') == {"a": [1, 2.5, True, None, "xé\n"]}
