"""The agent's side of `sync`: two channels, so that an idle poll never holds an event back.

Comes in: a host that makes requests and takes answers, two channels, the node's token. Goes out: requests; calls of
the host with answers that are not of an older epoch. Called by: the daemon.

One channel holds a poll that the controller keeps until there is something to say; the other pushes events at once.
Answers may overtake each other: each is the controller's wish when it was written, and what the host does with it
does not depend on order. Silence is answered by trying again, later each time, with jitter; a controller that refuses
the connection is known to be absent, which is no lost contact.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from orchestrator.agent import log
from orchestrator.agent.channel import Channel, Failure, Outcome, Reply
from orchestrator.agent.loop import Loop
from orchestrator.model.clock import SECOND
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.protocol import SyncAnswer

PATH = "/api/v1/agent/sync"
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0  # a controller that comes back has every agent again within this
ANSWER_SLACK_S = 20.0  # beyond what the controller was allowed to wait
QUICK_S = 0.05  # an answer to a poll that comes sooner and says nothing new was not worth the poll
DULL_POLLS = 3  # so many in a row are chance: the other channel may have told the same a moment before
UNACKED_PAUSE_S = 1.0  # before events that an answer did not acknowledge are sent again
DEFAULT_POLL_S = 60


@dataclass(frozen=True, slots=True)
class Sent:
    """What was true when a request went out: the events acknowledged, how often the journal had been rewritten, the
    monotonic time."""

    acked: int
    rewrites: int
    at_us: int


class Host(Protocol):
    """What sync needs of the daemon."""

    def make_request(self, wait_s: int, *, events: bool, facts: bool, inventory: bool) -> dict[str, Any]:
        """The plain form of a `SyncRequest`."""

    def snapshot(self) -> Sent:
        """See `Sent`."""

    def unsent(self) -> bool:
        """Whether there are events that were not acknowledged."""

    def epoch(self) -> int:
        """The highest epoch seen."""

    def answered(self, answer: SyncAnswer, plain: dict[str, Any], sent: Sent) -> bool:
        """Do what an answer says; whether it said anything new."""

    def contact(self, at_us: int, lease_s: int) -> None:
        """The controller was heard, or is known to be absent, as of a monotonic time."""

    def longest_poll_s(self, lease_s: int) -> int:
        """How long a poll may be kept: shorter where a job is ended when contact is lost."""

    def token(self, *, refused: bool) -> str:
        """The node's token; `refused`: the present one, or the key that goes with it, was not accepted: look for
        another."""

    def unanswered(self, failure: Failure) -> bool:
        """Nobody has answered: see whether it is about the node's key, or whether the controller is elsewhere now.
        Whether to ask again at once, since something is different."""


class Sync:
    """See the module."""

    def __init__(self, loop: Loop, poll: Channel, push: Channel, host: Host, random: Random) -> None:
        self._loop = loop
        self._poll = poll
        self._push = push
        self._host = host
        self._random = random
        self._trouble = log.Repeated()
        self._urgent = True
        self._facts_due = True
        self._inventory_due = False
        self._failures = 0
        self._dull_polls = 0
        self._first = True
        self.lease_s = 180
        self._poll_s = DEFAULT_POLL_S

    def hurry(self) -> None:
        """There is something to say now."""
        self._urgent = True

    def start_over(self) -> None:
        """The node has just been let in: nothing of what went wrong before counts."""
        self._loop.cancel("sync-pause")
        self._failures = 0

    def facts_changed(self) -> None:
        """Send the facts again."""
        self._facts_due = self._urgent = True

    def turn(self) -> None:
        """Send what is to be sent, unless it is time to wait. Called after each round of the loop."""
        if self._loop.pending("sync-pause"):
            return
        if self._urgent and not self._push.busy:
            self._urgent = False
            self._send(self._push, 0)
        if not self._first and not self._poll.busy and not self._loop.pending("sync-gap"):
            longest = min(self._poll_s, self._host.longest_poll_s(self.lease_s))
            self._send(self._poll, max(1, int(longest * self._random.uniform(0.7, 1.0))))

    def _send(self, channel: Channel, wait_s: int) -> None:
        pushing = channel is self._push
        facts, inventory = pushing and self._facts_due, pushing and self._inventory_due
        plain = self._host.make_request(wait_s, events=pushing, facts=facts, inventory=inventory)
        if pushing:
            self._facts_due = self._inventory_due = False
        sent = self._host.snapshot()

        def done(outcome: Outcome) -> None:
            if facts and not _ok(outcome):
                self._facts_due = True
            if inventory and not _ok(outcome):
                self._inventory_due = True
            self._done(outcome, sent, pushing)

        body = json.dumps(plain, separators=(",", ":")).encode()
        channel.post(PATH, body, self._host.token(refused=False), done, timeout_s=wait_s + ANSWER_SLACK_S)

    # --- what comes back -------------------------------------------------------------------------------------------

    def _done(self, outcome: Outcome, sent: Sent, pushing: bool) -> None:
        if isinstance(outcome, Failure):
            self._no_answer(outcome)
        elif outcome.status != 200:
            self._refusal(outcome)
        else:
            self._answer(outcome, sent, pushing)

    def _answer(self, reply: Reply, sent: Sent, pushing: bool) -> None:
        try:
            plain = json.loads(reply.body)
            answer = decode(SyncAnswer, plain)
        except (ValueError, CodecError) as error:
            self._pause(f"the controller's answer can't be read: {error}")
            return
        self._trouble.over("in contact with the controller again")
        self._failures, self._first = 0, False
        if answer.epoch < self._host.epoch():
            self._pause(
                f"a controller of epoch {answer.epoch} answered, older than {self._host.epoch()}: ignored"
            )
            return
        self.lease_s, self._poll_s = answer.lease_s, answer.poll_s
        self._host.contact(sent.at_us, answer.lease_s)
        if answer.want_facts:
            self.facts_changed()
        if answer.want_inventory:
            self._inventory_due = self._urgent = True
        news = self._host.answered(answer, plain, sent)
        self._after(pushing, news, self._loop.clock.monotonic_us() - sent.at_us)

    def _after(self, pushing: bool, news: bool, took_us: int) -> None:
        """Keep a controller that answers polls at once, with nothing new, from being asked all the time."""
        if pushing:
            if self._host.unsent() and not self._urgent:
                self._loop.after("sync-unacked", UNACKED_PAUSE_S, self._resend)
            return
        if news or took_us >= QUICK_S * SECOND:
            self._dull_polls = 0
            return
        self._dull_polls += 1
        if self._dull_polls > DULL_POLLS:
            self._loop.after("sync-gap", min(1.0, 0.02 * 2 ** (self._dull_polls - DULL_POLLS)), _nothing)

    def _resend(self) -> None:
        if self._host.unsent():
            self._urgent = True

    def _no_answer(self, failure: Failure) -> None:
        if failure.refused:
            self._host.contact(self._loop.clock.monotonic_us(), self.lease_s)
        if self._host.unanswered(failure):
            self._urgent = True
            return
        self._pause(f"no contact with the controller: {failure.error}")

    def _refusal(self, reply: Reply) -> None:
        if reply.status == 401:
            self._host.token(refused=True)
        self._pause(f"the controller answered {reply.status}: {problem_text(reply.body)}")

    def _pause(self, why: str) -> None:
        """Wait before the next try, twice as long each time; a random part keeps agents apart."""
        self._trouble.error(why)
        self._urgent = True
        longest = min(
            LONGEST_PAUSE_S, self.lease_s / 4
        )  # several tries within what the controller calls silence
        pause = min(longest, FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self._loop.after("sync-pause", pause * self._random.uniform(0.5, 1.0), _nothing)


def _ok(outcome: Outcome) -> bool:
    return isinstance(outcome, Reply) and outcome.status == 200


def _nothing() -> None:
    """A timer that only ends a wait: the turn after the round does the rest."""


def problem_text(body: bytes) -> str:
    """What a problem+json says and what it advises, or the start of whatever came."""
    try:
        plain = json.loads(body)
        told = [str(plain.get("detail") or plain.get("title") or plain), str(plain.get("hint") or "")]
        return "; ".join(filter(None, told))[:400]
    except (ValueError, AttributeError):
        return body[:200].decode(errors="replace")
