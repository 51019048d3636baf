"""The metadata service as the agent asks it: tokens, papers, notices of an end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.agent import cloud
from orchestrator.agent.channel import Failure, Outcome, Reply
from orchestrator.agent.cloud import Metadata, Notices, Papers
from orchestrator.agent.loop import Loop
from orchestrator.model import instance
from orchestrator.model.clock import SECOND, SystemClock
from orchestrator.model.instance import Ending, EndingKind
from tests.provision.aws.papers import INSTANCE, document
from tests.testbed.metadata import Emulated

DEADLINE_S = 20.0
AT_US = 1_505_722_920 * SECOND  # 2017-09-18T08:22:00Z
ACTION = json.dumps({"action": "terminate", "time": "2017-09-18T08:22:00Z"})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Emulated]:
    with Emulated(tmp_path / "m") as made:
        yield made


@pytest.fixture
def loop() -> Loop:
    return Loop(SystemClock())


@pytest.fixture
def metadata(loop: Loop, service: Emulated) -> Iterator[Metadata]:
    made = Metadata(service.url, loop)
    yield made
    made.close()


def until(loop: Loop, ready: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    loop._running = True
    loop.after("deadline", DEADLINE_S, loop.stop)

    def look() -> None:
        if ready():
            loop.stop()
            loop.after("now", 0, lambda: None)

    loop.run(look)
    assert ready(), f"not within {DEADLINE_S:g} s"


def answers(loop: Loop, metadata: Metadata, *paths: str) -> list[Outcome]:
    found: list[Outcome] = []
    for path in paths:
        metadata.ask(path, found.append)
    until(loop, lambda: len(found) == len(paths))
    return found


def test_questions_are_asked_with_a_token_one_after_the_other(loop: Loop, metadata: Metadata) -> None:
    found = answers(loop, metadata, "/latest/meta-data/instance-id", "/latest/nothing")
    assert [(one.status, one.body) for one in found if isinstance(one, Reply)] == [
        (200, INSTANCE.encode()),
        (404, b"not found"),
    ]


def test_a_token_that_is_over_is_replaced_once(loop: Loop, service: Emulated, metadata: Metadata) -> None:
    answers(loop, metadata, "/latest/meta-data/instance-id")
    service.forget_tokens()
    (found,) = answers(loop, metadata, "/latest/meta-data/instance-id")
    assert isinstance(found, Reply)
    assert found.status == 200
    assert len(service.asked) == 3


def test_nobody_there_is_said(loop: Loop, tmp_path: Path) -> None:
    found: list[Papers | str] = []
    Metadata(f"unix:{tmp_path}/none", loop).papers(found.append)
    until(loop, lambda: bool(found))
    assert str(found[0]).startswith(f"unix:{tmp_path}/none has no identity document: ")


def test_papers_are_exactly_what_was_signed(loop: Loop, metadata: Metadata) -> None:
    found: list[Papers | str] = []
    metadata.papers(found.append)
    until(loop, lambda: bool(found))
    papers = found[0]
    assert isinstance(papers, Papers)
    assert (papers.instance, papers.document) == (INSTANCE, document())
    assert "\n" not in papers.signature


@pytest.mark.parametrize("missing", [instance.DOCUMENT_PATH, instance.SIGNATURE_PATH])
def test_missing_papers_are_said(loop: Loop, service: Emulated, metadata: Metadata, missing: str) -> None:
    (service.answers / missing.lstrip("/")).unlink()
    found: list[Papers | str] = []
    metadata.papers(found.append)
    until(loop, lambda: bool(found))
    assert "it answered 404: 'not found'" in str(found[0])


# --- notices ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def heard(loop: Loop, metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    """What a watch has told so far."""
    monkeypatch.setattr(cloud, "NOTICE_S", 0.02)
    told: list[Ending] = []
    Notices(metadata, loop, told.append).watch()
    return told


def plain(found: list[Ending]) -> list[tuple[EndingKind, int, str]]:
    return [(one.kind, one.ends_us, one.action) for one in found]


def asked_again(service: Emulated) -> Callable[[], bool]:
    """Whether a whole look has begun and ended after now."""
    before = len(service.asked)
    return lambda: len(service.asked) >= before + 8


def test_nothing_is_told_while_nothing_is_said(loop: Loop, service: Emulated, heard: list[Ending]) -> None:
    until(loop, asked_again(service))
    assert heard == []


def test_an_interruption_is_told_once(loop: Loop, service: Emulated, heard: list[Ending]) -> None:
    service.say(instance.INTERRUPTION_PATH, ACTION)
    until(loop, lambda: bool(heard))
    until(loop, asked_again(service))
    assert plain(heard) == [(EndingKind.INTERRUPTION, AT_US, "terminate")]
    assert heard[0].told_us > AT_US


def test_a_risk_is_told_and_then_the_end(loop: Loop, service: Emulated, heard: list[Ending]) -> None:
    service.say(instance.REBALANCE_PATH, json.dumps({"noticeTime": "2020-10-26T15:55:55Z"}))
    until(loop, lambda: bool(heard))
    service.say(instance.TERMINATION_PATH, "2017-09-18T08:22:00Z\n")
    until(loop, lambda: len(heard) > 1)
    assert plain(heard) == [(EndingKind.REBALANCE, 0, ""), (EndingKind.INTERRUPTION, AT_US, "terminate")]


@pytest.mark.parametrize("text", ["", "{}", "null", "[]", '{"action": "terminate"}', '{"time": "soon"}', "{"])
def test_what_is_no_notice_is_passed_over(
    loop: Loop, service: Emulated, heard: list[Ending], text: str
) -> None:
    for path in (instance.INTERRUPTION_PATH, instance.TERMINATION_PATH, instance.REBALANCE_PATH):
        service.say(path, text)
    until(loop, asked_again(service))
    assert heard == []


def test_a_service_that_is_away_is_asked_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "NOTICE_S", 0.02)
    told: list[Ending] = []
    folder = tmp_path / "m"
    metadata = Metadata(f"unix:{folder}/s", loop)
    Notices(metadata, loop, told.append).watch()
    failed: list[Outcome] = []
    metadata.ask("/x", failed.append)
    until(loop, lambda: bool(failed))
    assert isinstance(failed[0], Failure)
    with Emulated(folder) as service:
        service.say(instance.INTERRUPTION_PATH, ACTION)
        until(loop, lambda: bool(told))
    metadata.close()
