"""Asking the controller to let a node in, later each time, and the file of the token that it gives.

Comes in: a message, and what keeps the answer. Goes out: the node's token, or None after a pause. Called by: join,
instance_join; the daemon reads the token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from orchestrator.agent import log
from orchestrator.agent.channel import Channel, Failure, Outcome
from orchestrator.agent.loop import Loop
from orchestrator.agent.sync import problem_text
from orchestrator.agent.trust import PinError
from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.protocol import InstanceJoin, JoinAnswer, JoinRequest

TIMEOUT_S = 30.0
PAUSE_S = 2.0
LONGEST_PAUSE_S = 30.0

Joined = Callable[["str | None"], None]
Keep = Callable[[JoinAnswer], None]  # may raise ValueError, OSError or PinError: then the node is not in


class Asker:
    """Of one way to join."""

    def __init__(self, channel: Channel, loop: Loop) -> None:
        self._channel = channel
        self._loop = loop
        self._trouble = log.Repeated()
        self._pause_s = PAUSE_S

    def ask(
        self, path: str, message: JoinRequest | InstanceJoin, secret: str, keep: Keep, joined: Joined
    ) -> None:
        """`joined` is called when `keep` has put all on disk, or as by `fail`."""
        body = json.dumps(encode(message)).encode()
        self._channel.post(
            path, body, secret, lambda outcome: self._done(outcome, keep, joined), timeout_s=TIMEOUT_S
        )

    def fail(self, why: str, joined: Joined) -> None:
        """It was not let in this time: `joined` gets None, later each time."""
        self._trouble.error(why)
        self._loop.after("join", self._pause_s, lambda: joined(None))
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)

    def _done(self, outcome: Outcome, keep: Keep, joined: Joined) -> None:
        if isinstance(outcome, Failure):
            self.fail(f"can't join: {outcome.error}", joined)
            return
        if outcome.status not in (200, 201):
            self.fail(f"can't join: {outcome.status}: {problem_text(outcome.body)}", joined)
            return
        try:
            answer = decode(JoinAnswer, json.loads(outcome.body))
            keep(answer)
        except (ValueError, CodecError, OSError, PinError) as error:
            self.fail(f"can't join: {error}", joined)
            return
        self._pause_s = PAUSE_S
        joined(answer.token)


def store_token(path: str, token: str) -> None:
    """Readable by the agent's user alone, and on disk before it is used."""
    draft = path + ".new"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, token.encode() + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(draft, path)


def read_token(path: str) -> str:
    """The stored token, or empty."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
