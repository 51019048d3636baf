"""The agent's daemon: wires the parts together and lets the loop run.

Comes in: a config, a starter whose nursery exists. Goes out: a node that does what its controller wants. Called by:
main. Round by round: what is ready and due is handled, then sync sends what there is to say.
"""

from __future__ import annotations

import os
import signal
import socket
from random import Random
from typing import Any

from orchestrator.agent import closing, device_nodes, former, log, supervisor, worker
from orchestrator.agent.asking import read_token
from orchestrator.agent.attempts import Attempts, Wish
from orchestrator.agent.board import Board
from orchestrator.agent.channel import Channel, Endpoint, Failure
from orchestrator.agent.cloud import Metadata, Notices
from orchestrator.agent.config import Config
from orchestrator.agent.history import History
from orchestrator.agent.instance_join import InstanceJoiner, read_name
from orchestrator.agent.join import Joiner
from orchestrator.agent.journal import Journal, JournalError
from orchestrator.agent.lease import Lease
from orchestrator.agent.logs import LogServer
from orchestrator.agent.loop import READ, Loop
from orchestrator.agent.plan import Gpu, NodeContext
from orchestrator.agent.slots import Slots
from orchestrator.agent.starter import Starter
from orchestrator.agent.sync import Sent, Sync
from orchestrator.agent.trust import Trust
from orchestrator.model.clock import SystemClock
from orchestrator.model.codec import encode
from orchestrator.model.failpoints import failpoint
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import PROTOCOL, SyncAnswer
from orchestrator.telemetry import host
from orchestrator.telemetry.devices import Found, discover
from orchestrator.telemetry.facts import node_facts

LOOK_S = 5.0  # between two looks at what notices may have failed to tell
FACTS_S = 600.0
BUSY_FACTS_S = 60.0  # while work runs here
LACKING_S = 15.0  # between two looks at devices while one that was there is not
SWEEP_S = 600.0
MOST_EVENTS = 500  # in one request


class Daemon:
    """One agent."""

    def __init__(self, config: Config, starter: Starter) -> None:
        self.config = config
        self.clock = SystemClock()
        self.loop = Loop(self.clock)
        self.starter = starter
        starter.attach(self.loop)
        exposed = closing.exposed(config)
        self.supervisor = supervisor.choose(config, closing.ADDRESSES if exposed else ())
        self.closed = closing.close(self.supervisor, config.min_uid) if exposed else closing.NOTHING
        self.trust = Trust(config)
        self.journal = self._journal()
        if former.is_anothers(self.trust, self.journal, self.supervisor.units()):
            self.journal.close()
            former.set_aside(config.state_dir, self.clock)
            self.trust, self.journal = Trust(config), self._journal()
        self.slots = Slots(config.state_dir, host.boot_id(), config.gpus.only)
        self.found = self._discover()
        self.supervisor.adopt_nursery(starter.pid)
        starter.forked = self.supervisor.adopt_nursery
        self.context = self._context()
        self.facts = self._measure()
        self.lease = Lease(config.state_dir, self.clock)
        board = Board(self.journal, starter, self.loop, self.context, self._changed)
        self.attempts = Attempts(board, self.lease)
        self._seen = ""  # the revision of the last answer that was acted on
        # A bought node first sees whether it is still the same instance.
        self._token = "" if config.join else self._stored_token()
        self._key_hidden = False
        self._instance = read_name(config.state_dir).instance
        self.renamed = False  # whether it has got a name, and has to begin again with it
        self.notices: Notices | None = None
        self._wire()

    def _wire(self) -> None:
        # Without an address nothing is sent before a join token has said it.
        endpoint = self.trust.endpoint if self.trust.url else Endpoint()
        tls = self.trust.context() if self.trust.url else None
        self.channels = tuple(Channel(name, endpoint, self.loop, tls) for name in ("poll", "push", "bulk"))
        poll, push, bulk = self.channels
        self.sync = Sync(self.loop, poll, push, self, Random())
        self.logs = LogServer(
            self.config.state_dir,
            self.loop,
            bulk,
            self.starter,
            lambda: self._token,
            lambda attempt: attempt in self.attempts.units,
        )
        self.joiner: Joiner | InstanceJoiner = Joiner(self.config, self.trust, push, self.loop)
        if self.config.join:
            metadata = Metadata(self.config.metadata, self.loop)
            self.joiner = InstanceJoiner(self.config, self.trust, push, self.loop, metadata)
            self.notices = Notices(metadata, self.loop, lambda _: self.sync.hurry())
        self.joining = False
        if self._token and self.trust.newer_line():
            self._token = ""

    def _journal(self) -> Journal:
        config = self.config
        return Journal(
            config.state_dir, History(config.state_dir, config.keep_s, config.keep_attempts, self.clock)
        )

    def _token_path(self) -> str:
        return os.path.join(self.config.state_dir, "token")

    def _context(self) -> NodeContext:
        return NodeContext(
            node=self.config.node,
            place=self.supervisor.place,
            state_dir=self.config.state_dir,
            notices=os.path.join(self.config.state_dir, "notices"),
            supervisor=self.supervisor.kind,
            box_base=self.supervisor.base,
            box_home=self.supervisor.home,
            box_suffix=self.supervisor.suffix,
            devices=self.config.devices,
            closed=self.closed.addresses,
            gpus=tuple(_gpu(each) for each in self.found),
            run_as_self=self.config.run_as_self or os.geteuid() != 0,
            min_uid=self.config.min_uid,
            stuck_s=self.config.stuck_s,
            failure_grace_s=self.config.failure_grace_s,
        )

    def _measure(self) -> NodeFacts:
        return node_facts(
            self.found,
            supervisor=self.supervisor.kind,
            unenforced=(*self.supervisor.unenforced, *self.closed.unenforced),
            run_as_self=self.context.run_as_self,
            cores=self.config.cores,
            memory=self.config.memory,
        )

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until SIGTERM or SIGINT. What runs on the node goes on."""
        self._listen()
        self.attempts.adopt()
        self._adopt_orphans()
        self.loop.after("look", LOOK_S, self._look)
        self.loop.after("facts", FACTS_S, self._facts_again)
        self.loop.after("sweep", 1.0, self._sweep)
        if self.notices is not None:
            self.notices.watch()
        adopted = f"{len(self.found)} devices, {len(self.attempts.units)} attempts adopted"
        log.info(f"{self.config.node or 'not named yet'}: {self.context.supervisor}, {adopted}")
        self.loop.run(self._round)
        self.starter.close()
        self.starter.wait()
        self.journal.close()
        self.supervisor.drop()

    def _round(self) -> None:
        if self._token:
            self.sync.turn()
        elif not self.joining:
            self.joining = True
            poll, push, _ = self.channels
            poll.close()
            push.close()
            self.joiner.join(self.facts, self._joined)

    def _joined(self, token: str | None) -> None:
        """Let in, or not: then the token that there was may be worth something again, as after a restored ledger."""
        self.joining = False
        if self.config.join and self._is_another(token):
            self.renamed = True
            self.loop.stop()
            return
        self._token = token or self._stored_token()
        if self._token:
            self._connect()
        if token:
            self.sync.start_over()

    def _is_another(self, token: str | None) -> bool:
        """Whether a bought node has got another name than this process works under, or what it had was set aside."""
        name = read_name(self.config.state_dir)
        return name.node != self.config.node if token else name.instance != self._instance

    def _connect(self, *, show_key: bool = True) -> None:
        """All connections anew: to the controller that let the node in, with the key that it knows now."""
        endpoint, context = self.trust.endpoint, self.trust.context(show_key=show_key)
        self._key_hidden = not show_key
        poll, push, bulk = self.channels
        for channel in (poll, push):
            channel.close()  # what comes back on the present ones says nothing about these
        for channel in (poll, push, bulk):
            channel.use(endpoint, context)
        self.sync.facts_changed()

    def _stored_token(self) -> str:
        """The node's own, if it is known where it is worth something."""
        return read_token(self.config.token_file or self._token_path()) if self.trust.url else ""

    def _listen(self) -> None:
        """For notices of workers, and for the signals that end the agent."""
        if not os.path.exists(self.context.notices):
            os.mkfifo(self.context.notices, 0o600)
        notices = os.open(self.context.notices, os.O_RDWR | os.O_NONBLOCK)  # RDWR: never at its end
        self.loop.watch(notices, READ, lambda _: self._read_notices(notices))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.loop.stop())
        self.loop.watch(ours.fileno(), READ, lambda _: _drain(ours))
        self._wakeup = (ours, theirs)

    def _read_notices(self, fd: int) -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        for line in data.decode(errors="replace").splitlines():
            self.attempts.reports.noticed(line[1:], hurry=line[:1] == "!")

    def _adopt_orphans(self) -> None:
        for attempt in self.supervisor.units():
            self.attempts.adopt_orphan(attempt)

    def _look(self) -> None:
        self.attempts.reports.look_at_all()
        self.attempts.keepers.watch()
        for unit in self.attempts.orphans():
            if unit.attempt not in self.supervisor.units():
                self.attempts.keepers.mop(unit)  # it ended by itself: prove it and report it
        self.starter.reap()
        self.loop.after("look", LOOK_S, self._look)

    def _discover(self) -> tuple[Found, ...]:
        return self.slots.look(lambda known: discover(self.config.gpus, known))

    def _facts_again(self) -> None:
        """Sooner while a device is not there: whether it is gone for good decides about work."""
        self.found = self._discover()
        facts = self._measure()
        if facts != self.facts:
            self.facts = facts
            self.sync.facts_changed()
        pause_s = BUSY_FACTS_S if self.attempts.units else FACTS_S
        if self.slots.lacking(self.found):
            pause_s = LACKING_S
        self.loop.after("facts", pause_s, self._facts_again)

    def _sweep(self) -> None:
        bounds = {name: getattr(self.config, name) for name in ("keep_s", "keep_attempts", "keep_bytes")}
        spare = [attempt.unit for attempt in self.attempts.units]
        folder = os.path.join(self.config.state_dir, "attempts")
        self.starter.ask("sweep", folder, lambda _pid, _start: None, bounds=bounds, spare=spare)
        self.loop.after("sweep", SWEEP_S, self._sweep)

    def _changed(self) -> None:
        self.sync.hurry()

    # --- what sync asks for ----------------------------------------------------------------------------------------

    def make_request(self, wait_s: int, *, events: bool, facts: bool, inventory: bool) -> dict[str, Any]:
        memory = self.journal.memory
        plain: dict[str, Any] = {
            "node": self.config.node,
            "outbox": memory.outbox,
            "boot_id": worker.boot_id(),
            "epoch": memory.epoch,
            "protocol": PROTOCOL,
            "held": [list(attempt) for attempt in self.attempts.held()],
            "wait_s": wait_s,
            "seen": self._seen,
        }
        if events:
            plain["events"] = list(memory.events.values())[:MOST_EVENTS]
        if facts:
            plain["facts"] = encode(self.facts)
        if inventory:
            plain["inventory"] = self._inventory()
        if self.notices is not None and self.notices.ending is not None:
            plain["ending"] = encode(self.notices.ending)
        return plain

    def _inventory(self) -> list[dict[str, Any]]:
        known = self.journal.inventory()
        orphans = [attempt for attempt in self.attempts.units if attempt not in self.journal.memory.records]
        return known + [{"attempt": list(attempt), "launch": None, "started": True} for attempt in orphans]

    def snapshot(self) -> Sent:
        return Sent(self.journal.memory.acked, self.journal.rewrites, self.clock.monotonic_us())

    def unsent(self) -> bool:
        return bool(self.journal.memory.events)

    def epoch(self) -> int:
        return self.journal.memory.epoch

    def answered(self, answer: SyncAnswer, plain: dict[str, Any], sent: Sent) -> bool:
        failpoint("agent.sync.before-ack")
        if answer.epoch > self.journal.memory.epoch:
            try:
                self.journal.commit([{"k": "epoch", "epoch": answer.epoch}])
            except JournalError as error:
                log.error(f"{error}; the answer is not acted on until it can be written")
                return False
        before = self.journal.memory.acked
        self.journal.acked(answer.acked)
        launches = [each.get("launch") for each in plain.get("desired", ())]
        wishes = {
            desired.attempt: Wish(desired, launch)
            for desired, launch in zip(answer.desired, launches, strict=True)
        }
        stepped = self.attempts.want(wishes, sent)
        self._seen = answer.revision
        asked = self.logs.take(answer.reads)
        return stepped or asked or self.journal.memory.acked > before

    def contact(self, at_us: int, lease_s: int) -> None:
        self.lease.heard(at_us, lease_s)
        if self.attempts.any_fence():
            self.lease.write()

    def longest_poll_s(self, lease_s: int) -> int:
        """Three chances within a lease where its end ends a job."""
        return max(1, lease_s // 3) if self.attempts.any_fence() else 1 << 20

    def unanswered(self, failure: Failure) -> bool:
        """Whether a controller hangs up because of the node's key is asked without the key: it says so, by 401."""
        if self.config.join_token_file and self.trust.newer_line():
            self._token = ""
            return True
        doubted = failure.hung_up and not self._key_hidden
        if doubted or self._key_hidden:
            self._connect(show_key=not doubted)
        return doubted

    def token(self, *, refused: bool) -> str:
        if refused and not self.joining:
            stored = self._stored_token()
            if stored != self._token:
                self._token = stored
            elif self.config.join or self.config.join_token_file:
                self._token = ""  # join again
        return self._token


def _gpu(found: Found) -> Gpu:
    device = found.device
    minor = -1 if device.emulated else device_nodes.minor_of(device.pci)
    return Gpu(device.slot, found.ordinal, device.uuid, device.emulated, minor)


def _drain(sock: socket.socket) -> None:
    try:
        sock.recv(4096)
    except BlockingIOError:
        pass
