"""Letting a bought node in: by the signed identity document of its instance, without any secret.

Comes in: config, facts, the metadata service, a channel. Goes out: the node's name, a token, and a key pair with its
certificate, in files of mode 0600. Called by: the daemon, where the config says `join: aws`.

The papers go to nobody whom the config does not trust: they open the cluster to whoever shows them first. An instance
comes again with its own key (`keypair.lasting`); with another one the controller refuses it. What a state folder holds
of another instance, as after an image was made of a node, is set aside.

STATE/instance.json has the instance's id and the node's name, written before the token, with which the node is in.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from orchestrator.agent import former, keypair, log
from orchestrator.agent.asking import Asker, Joined, read_token, store_token
from orchestrator.agent.channel import Channel
from orchestrator.agent.cloud import Metadata, Papers
from orchestrator.agent.config import Config, ConfigError
from orchestrator.agent.keypair import KeyPairError
from orchestrator.agent.loop import Loop
from orchestrator.agent.trust import Trust
from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.failpoints import failpoint
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import InstanceJoin, JoinAnswer

PATH = "/api/v1/agent/join-aws"


@dataclass(frozen=True, slots=True)
class Name:
    """Which instance was let in, as which node; both empty: none was."""

    instance: str = ""
    node: str = ""


class InstanceJoiner:
    """Asks for the node to be let in, later each time."""

    def __init__(
        self, config: Config, trust: Trust, channel: Channel, loop: Loop, metadata: Metadata
    ) -> None:
        self._config = config
        self._state_dir = config.state_dir
        self._trust = trust
        self._channel = channel
        self._loop = loop
        self._metadata = metadata
        self._asker = Asker(channel, loop)
        self._begun = False

    def join(self, facts: NodeFacts, joined: Joined) -> None:
        """`joined` is called with the node's token, or after a while with None: it was not let in this time."""

        def have_papers(found: Papers | str) -> None:
            if isinstance(found, str):
                self._asker.fail(f"can't join: {found}", joined)
                return
            self._recognize(found, facts, joined)

        self._metadata.papers(have_papers)

    def _recognize(self, papers: Papers, facts: NodeFacts, joined: Joined) -> None:
        """At the agent's start the token that is here will do, if this is the instance that it was given to."""
        known = read_name(self._state_dir)
        first, self._begun = not self._begun, True
        try:
            if known.instance not in ("", papers.instance):
                self._forget(known)
                joined(None)
                return
            token = read_token(os.path.join(self._state_dir, "token"))
            if first and token and known.instance:
                keypair.done(self._state_dir)
                joined(token)
            else:
                self._ask(papers, facts, joined)
        except (KeyPairError, ConfigError) as error:
            self._asker.fail(str(error), joined)
        except OSError as error:
            self._asker.fail(f"{error.filename or self._state_dir}: {error.strerror or error}", joined)

    def _forget(self, known: Name) -> None:
        """The disk is a copy of another instance's: nothing of it may be used, its key least of all."""
        log.error(f"what is in {self._state_dir} is of instance {known.instance}, and this is another one")
        former.set_aside(self._state_dir, self._loop.clock)
        for name in ("token", os.path.basename(keypair.identity_path("")), "instance.json"):
            try:  # the last one is what tells: it goes last, so that a kill in between finds the rest
                os.unlink(os.path.join(self._state_dir, name))
            except FileNotFoundError:
                continue

    def _ask(self, papers: Papers, facts: NodeFacts, joined: Joined) -> None:
        public_key = keypair.lasting(self._state_dir, papers.instance)
        self._channel.use(self._trust.endpoint, self._trust.context(show_key=False))
        message = InstanceJoin(papers.document, papers.signature, facts, public_key)
        self._asker.ask(PATH, message, "", lambda answer: self._keep(papers, answer), joined)

    def _keep(self, papers: Papers, answer: JoinAnswer) -> None:
        """The token last: with it the node is in. ValueError where the answer is not for this node."""
        failpoint("join.answer.before-keep")
        if not answer.certificate or not answer.node:
            raise ValueError(
                "the controller's answer has no name or no certificate; is it older than this agent?"
            )
        if self._config.node not in ("", answer.node):
            raise ValueError(
                f"the controller has this instance as node {answer.node}, and the config says {self._config.node}"
            )
        keypair.store(self._state_dir, papers.instance, answer.certificate)
        failpoint("join.identity.after")
        store_name(self._state_dir, Name(papers.instance, answer.node))
        failpoint("join.name.after")
        store_token(os.path.join(self._state_dir, "token"), answer.token)
        failpoint("join.token.after")
        keypair.done(self._state_dir)
        log.info(f"joined cluster {answer.cluster} as {answer.node}, which is instance {papers.instance}")


def read_name(state_dir: str) -> Name:
    """What was kept by the last join."""
    try:
        with open(os.path.join(state_dir, "instance.json"), encoding="utf-8") as file:
            return decode(Name, json.load(file))
    except (OSError, ValueError, CodecError):
        return Name()


def store_name(state_dir: str, name: Name) -> None:
    """In one step, as the token is."""
    store_token(os.path.join(state_dir, "instance.json"), json.dumps(encode(name)))
