"""Letting a node in: a join token is exchanged for the node's own, once.

Comes in: config, facts, a channel. Goes out: a token in a file of mode 0600, and a call when it is there. Called by:
the daemon, when it has no token or its token was refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from orchestrator.agent import log
from orchestrator.agent.channel import Channel, Failure, Outcome
from orchestrator.agent.loop import Loop
from orchestrator.agent.sync import problem_text
from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import JoinAnswer, JoinRequest

PATH = "/api/v1/agent/join"
TIMEOUT_S = 30.0
PAUSE_S = 2.0
LONGEST_PAUSE_S = 30.0


class Joiner:
    """Asks until it is let in."""

    def __init__(
        self, node: str, join_token_file: str, token_path: str, channel: Channel, loop: Loop
    ) -> None:
        self._node = node
        self._join_token_file = join_token_file
        self._token_path = token_path
        self._channel = channel
        self._loop = loop
        self._trouble = log.Repeated()
        self._pause_s = PAUSE_S

    def join(self, facts: NodeFacts, joined: Callable[[str], None]) -> None:
        """`joined` is called with the node's token."""
        try:
            with open(self._join_token_file, encoding="utf-8") as file:
                token = file.read().strip()
        except OSError as error:
            self._again(f"{self._join_token_file}: {error.strerror}", facts, joined)
            return
        body = json.dumps(encode(JoinRequest(self._node, facts))).encode()
        self._channel.post(
            PATH, body, token, lambda outcome: self._done(outcome, facts, joined), timeout_s=TIMEOUT_S
        )

    def _done(self, outcome: Outcome, facts: NodeFacts, joined: Callable[[str], None]) -> None:
        if isinstance(outcome, Failure):
            self._again(f"can't join: {outcome.error}", facts, joined)
            return
        if outcome.status not in (200, 201):
            self._again(f"can't join: {outcome.status}: {problem_text(outcome.body)}", facts, joined)
            return
        try:
            answer = decode(JoinAnswer, json.loads(outcome.body))
            store_token(self._token_path, answer.token)
        except (ValueError, CodecError, OSError) as error:
            self._again(f"can't join: {error}", facts, joined)
            return
        log.info(f"joined cluster {answer.cluster} as {self._node}")
        joined(answer.token)

    def _again(self, why: str, facts: NodeFacts, joined: Callable[[str], None]) -> None:
        self._trouble.error(why)
        self._loop.after("join", self._pause_s, lambda: self.join(facts, joined))
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)


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
