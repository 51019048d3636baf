"""The metadata service of the cloud that this node was bought from: who the node is, and when it will be gone.

Comes in: the loop, the service's address. Goes out: the instance's identity document with its signature, notices of an
end. Called by: instance_join, the daemon.

Version 2 of EC2's service (EC2 User Guide, "Use the Instance Metadata Service"): a token by PUT, then each question
with it. The answers go over one connection that is kept, so a look costs next to nothing.
"""

from __future__ import annotations

import calendar
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.agent import log
from orchestrator.agent.channel import Channel, Failure, Outcome, Reply, parse_url
from orchestrator.agent.loop import Loop
from orchestrator.model import instance
from orchestrator.model.clock import SECOND
from orchestrator.model.instance import Ending, EndingKind

TOKEN_TTL_S = 21_600  # the longest that the service gives
TIMEOUT_S = 5.0
NOTICE_S = 5.0  # between two looks for notices, as the EC2 User Guide asks for
MOST_TEXT = 200  # characters of an answer that is told

Answered = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Papers:
    """What an instance shows of itself: the document, exactly as it was signed, and the signature (base64)."""

    instance: str
    document: str
    signature: str


class Metadata:
    """Answers one question after the other."""

    def __init__(self, url: str, loop: Loop) -> None:
        self.url = url
        self._channel = Channel("metadata", parse_url(url), loop)
        self._waiting: deque[tuple[str, Answered]] = deque()
        self._token = ""
        self._fresh = False  # whether the token was given for this very question

    def ask(self, path: str, done: Answered) -> None:
        """`done` is called later, from the loop."""
        self._waiting.append((path, done))
        if len(self._waiting) == 1:
            self._begin()

    def _begin(self) -> None:
        if not self._token:
            fields = f"{instance.TTL_FIELD}: {TOKEN_TTL_S}\r\n"
            self._channel.put(instance.TOKEN_PATH, self._take_token, timeout_s=TIMEOUT_S, fields=fields)
            return
        fields = f"{instance.TOKEN_FIELD}: {self._token}\r\n"
        self._channel.get(self._waiting[0][0], self._answered, timeout_s=TIMEOUT_S, fields=fields)

    def _take_token(self, outcome: Outcome) -> None:
        if isinstance(outcome, Reply) and outcome.status == 200:
            self._token = _token_in(outcome.body)
        if self._token:
            self._fresh = True
            self._begin()
        else:
            self._deliver(outcome if isinstance(outcome, Failure) else Failure(_refusal(outcome)))

    def _answered(self, outcome: Outcome) -> None:
        if isinstance(outcome, Reply) and outcome.status == 401 and not self._fresh:
            self._token = ""  # its time is over
            self._begin()
            return
        self._deliver(outcome)

    def _deliver(self, outcome: Outcome) -> None:
        _, done = self._waiting.popleft()
        self._fresh = False
        if self._waiting:
            self._begin()
        done(outcome)

    def close(self) -> None:
        """Ask nothing more, and answer nobody."""
        self._waiting.clear()
        self._channel.close()

    # --- what is asked for ------------------------------------------------------------------------------------------

    def papers(self, done: Callable[[Papers | str], None]) -> None:
        """The instance's papers, or why they are not to be had."""

        def have_document(outcome: Outcome) -> None:
            document = _text(outcome)
            name = _instance_in(document)
            if not name:
                done(f"{self.url} has no identity document: {_refusal(outcome)}")
                return
            self.ask(instance.SIGNATURE_PATH, lambda outcome: have_signature(name, document, outcome))

        def have_signature(name: str, document: str, outcome: Outcome) -> None:
            signature = "".join(_text(outcome).split())
            if signature:
                done(Papers(name, document, signature))
            else:
                done(f"{self.url} has no signature of the identity document: {_refusal(outcome)}")

        self.ask(instance.DOCUMENT_PATH, have_document)


class Notices:
    """Looks for what the cloud says of the node's end, all the time. `heard` is called when it says something else than
    before; an end that was told stays told."""

    def __init__(self, metadata: Metadata, loop: Loop, heard: Callable[[Ending], None]) -> None:
        self._metadata = metadata
        self._loop = loop
        self._heard = heard
        self.ending: Ending | None = None

    def watch(self) -> None:
        """From now on."""
        self._look(0)

    def _look(self, at: int) -> None:
        """At the notices from that place on, then again after a while."""
        if at == len(_NOTICES):
            self._loop.after("notices", NOTICE_S, lambda: self._look(0))
            return
        path, read = _NOTICES[at]

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Failure):  # nobody is there: the other questions can wait as well
                self._look(len(_NOTICES))
                return
            found = read(_text(outcome), self._loop.clock.now_us())
            if found is not None:
                self._take(found)
            self._look(len(_NOTICES) if found is not None else at + 1)

        self._metadata.ask(path, done)

    def _take(self, found: Ending) -> None:
        known = self.ending
        if known is not None and (known.kind, known.ends_us, known.action) == (
            found.kind,
            found.ends_us,
            found.action,
        ):
            return
        self.ending = found
        log.info(f"the cloud says that this node ends: {found.kind}, {_when(found.ends_us)}")
        self._heard(found)


def _interruption(text: str, now_us: int) -> Ending | None:
    """`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`; hibernation comes at once and has the time of now."""
    plain = _object(text)
    ends_us = _time_us(str(plain.get("time", "")))
    action = str(plain.get("action", ""))[:16]
    return Ending(EndingKind.INTERRUPTION, ends_us, now_us, action) if ends_us else None


def _termination(text: str, now_us: int) -> Ending | None:
    """The older form: the time alone."""
    ends_us = _time_us(text.strip())
    return Ending(EndingKind.INTERRUPTION, ends_us, now_us, "terminate") if ends_us else None


def _rebalance(text: str, now_us: int) -> Ending | None:
    """`{"noticeTime": "2020-10-26T15:55:55Z"}`: the risk is higher, and nothing is decided."""
    return Ending(EndingKind.REBALANCE, 0, now_us) if "noticeTime" in _object(text) else None


# What is certain first: where it is told, the rest does not matter.
_NOTICES: tuple[tuple[str, Callable[[str, int], Ending | None]], ...] = (
    (instance.INTERRUPTION_PATH, _interruption),
    (instance.TERMINATION_PATH, _termination),
    (instance.REBALANCE_PATH, _rebalance),
)


# --- answers ---------------------------------------------------------------------------------------------------------


def _text(outcome: Outcome) -> str:
    """What was asked for; empty if it is not there."""
    if isinstance(outcome, Failure) or outcome.status != 200:
        return ""
    return outcome.body.decode("utf-8", errors="replace")


def _token_in(body: bytes) -> str:
    """A token as a line of a head can carry it; empty for anything else."""
    text = body.decode("ascii", errors="replace").strip()
    return text if text.isascii() and text.isprintable() and " " not in text else ""


def _refusal(outcome: Outcome) -> str:
    if isinstance(outcome, Failure):
        return outcome.error
    return f"it answered {outcome.status}: {outcome.body[:MOST_TEXT].decode('utf-8', errors='replace')!r}"


def _object(text: str) -> dict[str, object]:
    try:
        plain = json.loads(text)
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}


def _instance_in(document: str) -> str:
    name = _object(document).get("instanceId", "")
    return name if isinstance(name, str) else ""


def _time_us(text: str) -> int:
    """UTC microseconds; 0 for what is no time."""
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) * SECOND
    except (ValueError, OverflowError):
        return 0


def _when(ends_us: int) -> str:
    return (
        time.strftime("at %Y-%m-%dT%H:%M:%SZ", time.gmtime(ends_us // SECOND))
        if ends_us
        else "at no known time"
    )
