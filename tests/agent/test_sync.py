"""When the agent speaks to the controller: two channels, pauses that grow, answers that are ignored."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from orchestrator.agent.channel import Done, Failure, Reply
from orchestrator.agent.loop import Loop
from orchestrator.agent.sync import Sent, Sync
from orchestrator.model.clock import SECOND, ManualClock
from orchestrator.model.codec import encode
from orchestrator.model.protocol import SyncAnswer


class PlayedChannel:
    """Keeps the last request until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.done: Done | None = None

    @property
    def busy(self) -> bool:
        return self.done is not None

    def post(self, _path: str, body: bytes, _token: str, done: Done, *, timeout_s: float) -> None:
        assert self.done is None
        self.sent.append({**json.loads(body), "timeout_s": timeout_s})
        self.done = done

    def answer(self, outcome: Reply | Failure | SyncAnswer) -> None:
        done, self.done = self.done, None
        assert done is not None
        if isinstance(outcome, SyncAnswer):
            outcome = Reply(200, json.dumps(encode(outcome)).encode())
        done(outcome)


class PlayedHost:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.contacts: list[tuple[int, int]] = []
        self.answers: list[SyncAnswer] = []
        self.news = True
        self.events = 0
        self.refused = 0
        self.longest = 1 << 20

    def make_request(self, wait_s: int, *, events: bool, facts: bool, inventory: bool) -> dict[str, Any]:
        return {"wait_s": wait_s, "events": events, "facts": facts, "inventory": inventory}

    def snapshot(self) -> Sent:
        return Sent(0, 0, self.clock.monotonic_us())

    def unsent(self) -> bool:
        return self.events > 0

    def epoch(self) -> int:
        return 5

    def answered(self, answer: SyncAnswer, _plain: dict[str, Any], _sent: Sent) -> bool:
        self.answers.append(answer)
        return self.news

    def contact(self, at_us: int, lease_s: int) -> None:
        self.contacts.append((at_us, lease_s))

    def longest_poll_s(self, _lease_s: int) -> int:
        return self.longest

    def unanswered(self, failure: Failure) -> bool:
        return failure.hung_up

    def token(self, *, refused: bool) -> str:
        self.refused += refused
        return "t"


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.poll, self.push = PlayedChannel(), PlayedChannel()
        self.host = PlayedHost(self.clock)
        self.sync = Sync(self.loop, self.poll, self.push, self.host, Random(1))  # type: ignore[arg-type]
        self.sync.turn()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.loop._fire()
        self.sync.turn()

    def settle(self) -> None:
        """The first contact, and a poll that is kept."""
        self.push.answer(SyncAnswer(5, 0, lease_s=60, poll_s=30))
        self.sync.turn()
        assert self.poll.busy


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_first_request_brings_the_facts_and_asks_for_no_wait(scene: Scene) -> None:
    assert scene.push.sent == [
        {"wait_s": 0, "events": True, "facts": True, "inventory": False, "timeout_s": 20.0}
    ]
    assert not scene.poll.busy, "polls begin with the first answer, which says how long they may be"
    scene.settle()
    assert 21 <= scene.poll.sent[0]["wait_s"] <= 30
    assert not scene.poll.sent[0]["facts"]


def test_event_goes_out_beside_the_poll(scene: Scene) -> None:
    scene.settle()
    scene.sync.hurry()
    scene.sync.turn()
    assert scene.push.busy
    assert scene.poll.busy
    scene.sync.hurry()
    scene.sync.turn()
    assert len(scene.push.sent) == 2, (
        "the next waits for this one's answer, and takes along what came meanwhile"
    )
    scene.push.answer(SyncAnswer(5, 0))
    scene.sync.turn()
    assert len(scene.push.sent) == 3


def test_poll_is_shorter_where_its_loss_ends_a_job(scene: Scene) -> None:
    scene.host.longest = 7
    scene.settle()
    assert scene.poll.sent[0]["wait_s"] <= 7


def test_pauses_grow_and_events_wait_in_the_outbox(scene: Scene) -> None:
    scene.settle()
    pauses = []
    for _ in range(12):
        (scene.push if scene.push.busy else scene.poll).answer(Failure("broken"))
        waited = 0.0
        before = len(scene.push.sent)
        while len(scene.push.sent) == before:
            scene.wait(0.05)
            waited += 0.05
        pauses.append(waited)
    assert pauses[0] <= 0.15
    assert 5 <= max(pauses) <= 10.1
    assert sum(pauses[6:]) > 10 * sum(pauses[:3])


def test_absence_is_contact_and_silence_is_not(scene: Scene) -> None:
    scene.settle()
    assert scene.host.contacts == [(0, 60)]
    scene.clock.advance(10)
    scene.poll.answer(Failure("no answer in time"))
    assert len(scene.host.contacts) == 1
    scene.wait(1)
    scene.push.answer(Failure("Connection refused", refused=True))
    assert scene.host.contacts[-1] == (11 * SECOND, 60)


def test_contact_counts_from_the_sending_of_the_request(scene: Scene) -> None:
    scene.settle()
    scene.clock.advance(25)
    scene.poll.answer(SyncAnswer(5, 0, lease_s=60))
    assert scene.host.contacts[-1] == (0, 60)


def test_older_controller_is_not_obeyed(scene: Scene) -> None:
    scene.settle()
    heard = len(scene.host.answers)
    scene.poll.answer(SyncAnswer(4, 99))
    assert len(scene.host.answers) == heard


@pytest.mark.parametrize(
    "reply",
    [
        Reply(503, b'{"detail": "starting"}'),
        Reply(200, b"<html>"),
        Reply(200, b'{"epoch": "x"}'),
        Reply(500, b""),
    ],
)
def test_answer_that_is_none_means_a_pause(scene: Scene, reply: Reply) -> None:
    scene.settle()
    heard = len(scene.host.answers)
    scene.poll.answer(reply)
    scene.sync.turn()
    assert not scene.poll.busy
    assert len(scene.host.answers) == heard
    scene.wait(0.2)
    assert scene.poll.busy


def test_refused_token_is_looked_for_again(scene: Scene) -> None:
    scene.push.answer(Reply(401, b'{"detail": "no such token"}'))
    assert scene.host.refused == 1


def test_what_is_asked_for_is_sent_at_once_and_again_if_it_was_lost(scene: Scene) -> None:
    scene.settle()
    scene.poll.answer(SyncAnswer(5, 0, want_facts=True, want_inventory=True))
    scene.sync.turn()
    assert (scene.push.sent[-1]["facts"], scene.push.sent[-1]["inventory"]) == (True, True)
    scene.push.answer(Failure("broken"))
    scene.wait(1)
    assert (scene.push.sent[-1]["facts"], scene.push.sent[-1]["inventory"]) == (True, True)
    scene.push.answer(SyncAnswer(5, 0))
    scene.sync.hurry()
    scene.sync.turn()
    assert (scene.push.sent[-1]["facts"], scene.push.sent[-1]["inventory"]) == (False, False)


def test_events_that_were_not_acknowledged_go_out_again(scene: Scene) -> None:
    scene.host.events = 1
    scene.settle()
    sent = len(scene.push.sent)
    scene.wait(0.5)
    assert len(scene.push.sent) == sent
    scene.wait(0.6)
    assert len(scene.push.sent) == sent + 1


def test_controller_that_answers_polls_at_once_is_not_asked_all_the_time(scene: Scene) -> None:
    scene.settle()
    scene.host.news = False
    for _ in range(100):
        if scene.poll.busy:
            scene.poll.answer(SyncAnswer(5, 0))
        scene.wait(0.1)
    assert len(scene.poll.sent) < 30, "in 10 s"


def test_news_are_followed_by_the_next_poll_at_once(scene: Scene) -> None:
    scene.settle()
    for _ in range(100):
        scene.poll.answer(SyncAnswer(5, 0))
        scene.sync.turn()
        assert scene.poll.busy


def test_a_doubted_key_is_tried_without_a_pause_and_then_with_one(scene: Scene) -> None:
    scene.settle()
    scene.sync.hurry()
    scene.sync.turn()
    scene.push.answer(Failure("closed", hung_up=True))
    scene.sync.turn()
    assert scene.push.busy, "the host has changed something: at once"
    scene.push.answer(Failure("closed"))
    scene.sync.turn()
    assert not scene.push.busy
