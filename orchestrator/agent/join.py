"""Letting a node in: a join token is exchanged for the node's own, once.

Comes in: config, facts, a channel. Goes out: a token, and over TLS a key pair with its certificate, in files of mode
0600, and a call when they are there. Called by: the daemon, when it has no token or its token was refused.

The join token goes to nobody but the controller that it names: see `trust`. Nothing is final before all is on disk: a
kill at any point is followed by the same join again, with the same key.
"""

from __future__ import annotations

import os

from orchestrator.agent import keypair, log
from orchestrator.agent.asking import TIMEOUT_S, Asker, Joined, store_token
from orchestrator.agent.channel import Channel, Failure, Outcome
from orchestrator.agent.config import Config
from orchestrator.agent.keypair import KeyPairError
from orchestrator.agent.loop import Loop
from orchestrator.agent.trust import PinError, Trust, blind
from orchestrator.model.failpoints import failpoint
from orchestrator.model.join_line import JoinLine
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import JoinAnswer, JoinRequest

PATH = "/api/v1/agent/join"
CA_PATH = "/api/v1/ca"


class Joiner:
    """Asks for the node to be let in, later each time."""

    def __init__(self, config: Config, trust: Trust, channel: Channel, loop: Loop) -> None:
        self._node = config.node
        self._state_dir = config.state_dir
        self._trust = trust
        self._channel = channel
        self._asker = Asker(channel, loop)

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
            self._asker.fail(str(error), joined)

    def _ask(self, line: JoinLine, facts: NodeFacts, joined: Joined) -> None:
        endpoint = self._trust.endpoint_of(line)
        public_key, context = "", None
        if endpoint.tls:
            context = self._trust.joining(line)
            public_key = keypair.waiting(self._state_dir, line.secret)
        self._channel.use(endpoint, context)
        message = JoinRequest(self._node, facts, public_key)
        self._asker.ask(PATH, message, line.secret, lambda answer: self._keep(line, answer), joined)

    def _ask_for_ca(self, line: JoinLine, facts: NodeFacts, joined: Joined) -> None:
        """From whoever answers: only the pinned one is taken, and nothing secret is said."""

        def done(outcome: Outcome) -> None:
            try:
                if isinstance(outcome, Failure):
                    raise PinError(f"can't join: {outcome.error}")
                self._trust.take_ca(line, outcome.body)
                self._ask(line, facts, joined)
            except (PinError, KeyPairError) as error:
                self._asker.fail(str(error), joined)

        self._channel.use(self._trust.endpoint_of(line), blind())
        self._channel.get(CA_PATH, done, timeout_s=TIMEOUT_S)

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
        log.info(f"joined cluster {answer.cluster} as {self._node}")
