"""Values as the file would write them: units, quotes, rows on one line, what rows are called."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from orchestrator.model.cluster import Grant, Role, Scope, Share, Storage, StorageKind, Window
from orchestrator.model.written import Form
from orchestrator.planning.values import flow, label, path_key, scalar, text_of
from tests.planning.scene import base

TEXTS: list[tuple[Form, Any, str]] = [
    (Form.TEXT, "a b", "a b"),
    (Form.WHOLE, 8, "8"),
    (Form.FLAG, True, "true"),
    (Form.FLAG, False, "false"),
    (Form.SECONDS, 5400, "1h30m"),
    (Form.SECONDS, 0, "0s"),
    (Form.BYTES, 80 << 30, "80GiB"),
    (Form.KILOWATTS, 44_500, "44.5"),
    (Form.KILOWATTS, 10_000_000_000, "10000000"),
    (Form.DOLLARS, 180_000, "0.18"),
    (Form.DOLLARS, 1, "0.000001"),
    (Form.SHARE, 1000, "1"),
    (Form.SHARE, 875, "0.875"),
    (Form.PORTS, (20000, 29999), "20000-29999"),
    (Form.DAY_TIME, 1440, "24:00"),
    (Form.DAYS, (0, 4), "mon,fri"),
    (Form.TEXTS, ("b", "a"), "[a, b]"),
    (Form.RANKED, ("b", "a"), "[b, a]"),
    (Form.TEXTS, (), "[]"),
    (Form.NODES, ("n2", "n1", "m"), "m,n[1-2]"),
]


@pytest.mark.parametrize(("form", "value", "text"), TEXTS)
def test_a_value_is_written_in_the_units_of_the_file(form: Form, value: Any, text: str) -> None:
    assert text_of(form, value) == text


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "580.126.20",
        "13.0",
        "10",
        "true",
        "null",
        "~",
        "17:00",
        "a b",
        "",
        "- x",
        "a: b",
        "[x]",
        "1e5",
        "0x1f",
        "@",
        "n[1-2]",
        "env:KEY",
        "/home",
        "héllo",
        "a #b",
        "x:",
        "-1",
    ],
)
def test_a_text_in_a_row_reads_back_as_that_text(text: str) -> None:
    assert yaml.safe_load(f"{{key: {scalar(text)}}}") == {"key": text}


@pytest.mark.parametrize(
    ("row", "by", "name"),
    [
        (Storage("home", StorageKind.NFS, "/home"), ("name",), "home"),
        (Share(8, pool="h100"), ("pool", "gpu_model"), "h100"),
        (Share(8, gpu_model="G"), ("pool", "gpu_model"), "G"),
        (Window((0, 1), 1020, 1200, 1), ("days", "from_minute", "to_minute"), "mon,tue 17:00-20:00"),
        (Grant(Role.READ, "ops"), ("role", "to", "on"), "read ops"),
        (Grant(Role.READ, "ops", Scope(pool="p")), ("role", "to", "on"), "read ops on pool p"),
    ],
)
def test_rows_are_called_by_what_tells_them_apart(row: Any, by: tuple[str, ...], name: str) -> None:
    assert label(row, by) == name


def test_keys_that_are_no_plain_names_stand_in_quotes() -> None:
    assert [path_key(key) for key in ("row", "su-1", "vm.swappiness", "1st")] == [
        ".row",
        ".su-1",
        '["vm.swappiness"]',
        '["1st"]',
    ]


@pytest.mark.parametrize("section", ["storage", "sites", "pools", "queues", "budgets"])
def test_rows_on_one_line_are_yaml(section: str) -> None:
    for row in getattr(base(), section):
        read = yaml.safe_load(flow(row).replace(", hosts: 11 hosts", ""))
        assert isinstance(read, dict)
        assert "name" not in read
        assert read


def test_a_row_that_is_nothing_but_its_identity_says_that() -> None:
    assert flow(Grant(Role.READ, "ops", Scope(queue="q"))) == "{role: read, to: ops, on: {queue: q}}"
