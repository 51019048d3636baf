"""The parts of the benchmarks that could be wrong without anybody's noticing: percentiles, lines, options, checks.

`make test` runs these; it never runs a benchmark.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.wire.api import JobSummary
from tests.bench.common import Failed, Options, line, median, percentile
from tests.bench.link import Link, head, request
from tests.bench.server import check_jobs


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([], 50, 0.0),
        ([7.0], 1, 7.0),
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 50, 2.0),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 1001)), 99, 990),
        (list(range(1, 11)), 99, 10),
        (list(range(1, 11)), 100, 10),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], percent: float, wanted: float) -> None:
    assert percentile(values, percent) == wanted


@pytest.mark.parametrize(
    ("values", "wanted"), [([], 0.0), ([4.0], 4.0), ([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 9.0], 3.0)]
)
def test_median(values: list[float], wanted: float) -> None:
    assert median(values) == wanted


def test_a_figure_is_one_line_with_its_six_fields_in_order() -> None:
    text = line("rate", "real/agents=40/submit-to-end", 171.123456, "jobs/s", 84.0, "a machine")

    assert "\n" not in text
    assert list(json.loads(text).items()) == [
        ("bench", "rate"),
        ("case", "real/agents=40/submit-to-end"),
        ("figure", 171.1235),
        ("unit", "jobs/s"),
        ("published", 84.0),
        ("machine", "a machine"),
    ]
    assert json.loads(line("rate", "x", 1.0, "s", None, ""))["published"] is None


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_JOBS", "10")
    monkeypatch.setenv("BENCH_RATE", "2.5")
    options = Options(CASE="", JOBS=3000, RATE=100.0, CLIENTS=8)

    assert (options.count("JOBS"), options.number("RATE"), options.count("CLIENTS")) == (10, 2.5, 8)
    assert options.cases(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize(("name", "text"), [("JBOS", "10"), ("JOBS", "ten"), ("JOBS", "-1"), ("CASE", "c")])
def test_a_wrong_option_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    monkeypatch.setenv(f"BENCH_{name}", text)

    with pytest.raises(SystemExit) as ended:
        Options(CASE="", JOBS=3000).cases(["a", "b"])

    assert ended.value.code == 2
    assert name in capsys.readouterr().err


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)


ANSWER = b'HTTP/1.1 201 Created\r\ndate: x\r\nContent-Length: 8\r\nx: y\r\n\r\n{"id":7}'


@pytest.mark.parametrize("cut", range(1, len(ANSWER)))
def test_an_answer_may_come_in_pieces(cut: int) -> None:
    wire, got = Wire(), list[tuple[int, bytes]]()
    link = Link(lambda: None, lambda: None)
    link.connection_made(cast("Any", wire))
    for _ in range(2):
        link.send(request(head("/x", "token"), b"{}"), lambda status, body: got.append((status, body)))
        link.data_received(ANSWER[:cut])
        link.data_received(ANSWER[cut:])

    assert got == [(201, b'{"id":7}')] * 2
    assert wire.sent[0].endswith(b"Content-Length: 2\r\n\r\n{}")


def summary(job: int, state: str = "succeeded", attempts: int = 1, started: bool = True) -> JobSummary:
    started_at = datetime(2026, 1, 31, tzinfo=UTC) if started else None
    return cast(
        "JobSummary",
        SimpleNamespace(id=job, state=state, attempts=attempts, started_at=started_at, why=""),
    )


@pytest.mark.parametrize(
    "found",
    [
        [summary(1)],
        [summary(1), summary(2), summary(3)],
        [summary(1), summary(2), summary(2)],
        [summary(1), summary(2, state="failed")],
        [summary(1), summary(2, attempts=2)],
        [summary(1), summary(2, started=False)],
    ],
    ids=["lost", "more", "twice", "failed", "started-twice", "never-started"],
)
def test_a_ledger_that_differs_from_what_was_acknowledged_gives_no_figure(found: list[JobSummary]) -> None:
    with pytest.raises(Failed):
        check_jobs(found, [1, 2], "succeeded")


def test_a_ledger_that_has_what_was_acknowledged_passes() -> None:
    check_jobs([summary(2), summary(1)], [1, 2], "succeeded")
