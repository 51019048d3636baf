"""Letting a node in: a join token is exchanged for the node's own, once.

Comes in: config, facts, a channel. Goes out: a token, and over TLS a key pair with its certificate, in files of mode
0600, and a call when they are there. Called by: the daemon, when it has no token or its token was refused.

The join token goes to nobody but the controller that it names: see `trust`. Nothing is final before all is on disk: a
kill at any point is followed by the same join again, with the same key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from orchestrator.agent import keypair, log
from orchestrator.agent.channel import Channel, Failure, Outcome
from orchestrator.agent.config import Config
from orchestrator.agent.keypair import KeyPairError
from orchestrator.agent.loop import Loop
from orchestrator.agent.sync import problem_text
from orchestrator.agent.trust import PinError, Trust, blind
from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.failpoints import failpoint
from orchestrator.model.join_line import JoinLine
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import JoinAnswer, JoinRequest

PATH = "/api/v1/agent/join"
CA_PATH = "/api/v1/ca"
TIMEOUT_S = 30.0
PAUSE_S = 2.0
LONGEST_PAUSE_S = 30.0

Joined = Callable[["str | None"], None]


class Joiner:
    """Asks for the node to be let in, later each time."""

    def __init__(self, config: Config, trust: Trust, channel: Channel, loop: Loop) -> None:
        self._node = config.node
        self._state_dir = config.state_dir
        self._trust = trust
        self._channel = channel
        self._loop = loop
        self._trouble = log.Repeated()
        self._pause_s = PAUSE_S

    def join(self, facts: NodeFacts, joined: Joined) -> None:
        """`joined` is called with the node's token, or after a while with None: it was not let in this time."""
        try:
            line = self._trust.read_line()
            self._trust.agree(line)
            if self._trust.has_ca(line):
                self._ask(line, facts, joined)
            else:
                self._ask_for_ca(line, facts, joined)
        except (PinError, KeyPairError) as error:
            self._fail(str(error), joined)

    def _ask(self, line: JoinLine, facts: NodeFacts, joined: Joined) -> None:
        endpoint = self._trust.endpoint_of(line)
        public_key, context = "", None
        if endpoint.tls:
            context = self._trust.joining(line)
            public_key = keypair.waiting(self._state_dir, line.secret)
        self._channel.use(endpoint, context)
        body = json.dumps(encode(JoinRequest(self._node, facts, public_key))).encode()
        self._channel.post(
            PATH,
            body,
            line.secret,
            lambda outcome: self._done(outcome, line, joined),
            timeout_s=TIMEOUT_S,
        )

    def _ask_for_ca(self, line: JoinLine, facts: NodeFacts, joined: Joined) -> None:
        """From whoever answers: only the pinned one is taken, and nothing secret is said."""

        def done(outcome: Outcome) -> None:
            try:
                if isinstance(outcome, Failure):
                    raise PinError(f"can't join: {outcome.error}")
                self._trust.take_ca(line, outcome.body)
                self._ask(line, facts, joined)
            except (PinError, KeyPairError) as error:
                self._fail(str(error), joined)

        self._channel.use(self._trust.endpoint_of(line), blind())
        self._channel.get(CA_PATH, done, timeout_s=TIMEOUT_S)

    def _done(self, outcome: Outcome, line: JoinLine, joined: Joined) -> None:
        if isinstance(outcome, Failure):
            self._fail(f"can't join: {outcome.error}", joined)
            return
        if outcome.status not in (200, 201):
            self._fail(f"can't join: {outcome.status}: {problem_text(outcome.body)}", joined)
            return
        try:
            answer = decode(JoinAnswer, json.loads(outcome.body))
            self._keep(line, answer)
        except (ValueError, CodecError, OSError, PinError) as error:
            self._fail(f"can't join: {error}", joined)
            return
        self._pause_s = PAUSE_S
        log.info(f"joined cluster {answer.cluster} as {self._node}")
        joined(answer.token)

    def _keep(self, line: JoinLine, answer: JoinAnswer) -> None:
        """The token last: with it the node is in."""
        failpoint("join.answer.before-keep")
        self._trust.keep(line)
        if answer.certificate:
            keypair.store(self._state_dir, line.secret, answer.certificate)
        else:
            keypair.drop(self._state_dir)
        failpoint("join.identity.after")
        store_token(os.path.join(self._state_dir, "token"), answer.token)
        failpoint("join.token.after")
        keypair.done(self._state_dir)

    def _fail(self, why: str, joined: Joined) -> None:
        self._trouble.error(why)
        self._loop.after("join", self._pause_s, lambda: joined(None))
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
