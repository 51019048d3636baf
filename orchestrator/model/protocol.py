"""The agent protocol: one level-triggered call, `sync`, and the reads that ride on it.

Comes in: what an agent has and what the controller wants. Goes out: the messages both sides encode with
`model.codec`. Called by: agent and controller.

The agent sends its numbered events and the set of attempts it holds; the answer carries the desired attempts with
their phase. Desired state, not commands: loss, repetition and reordering are harmless. Absence from the desired
set never ends anything: an attempt ends only by phase `end`. HTTP: POST /api/v1/agent/{join,sync} with these
messages as JSON; reads are answered by POST /api/v1/agent/reads/ID?size=BYTES&ended=0|1 with the raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.attempt import RankResult
from orchestrator.model.base import Word
from orchestrator.model.ids import AttemptId
from orchestrator.model.instance import Ending
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.mig import MigInstance
from orchestrator.model.node import NodeFacts

PROTOCOL = 1  # a controller answers its own number and the one before it


class Phase(Word):
    """What the controller wants of an attempt on this node."""

    PREPARE = "prepare"  # set everything up, start nothing
    RUN = "run"  # start it, unless it was ever started here
    END = "end"  # stop it and prove it gone; also for attempts never heard of


class EventKind(Word):
    """What an agent reports of an attempt; each is written to its outbox before it is sent."""

    PREPARED = "prepared"
    PREPARE_FAILED = "prepare_failed"  # nothing of it is left on the node
    STARTED = "started"  # all ranks of this node have pids
    RANK_FAILED = "rank_failed"  # the first on this node; the unit ends its others by itself
    ENDED = "ended"  # proved: no process, device and scratch free (the epilog gate)
    STUCK = "stuck"  # it can't be proved gone; `error` says why; ENDED may still follow


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Event `n` (gapless from 1 in this outbox). Which fields are set depends on `kind`.

    `started`: whether any rank ever ran here (an ENDED of an attempt never started has False). `error` and `code`
    tell what was wrong on the node in people's words and as a stable word. `tail` is the end of the failing
    rank's output. `cause` is empty, or `node_failed` (it was gone after a reboot or a loss of records) or `fenced`.
    """

    n: int
    t_us: int
    kind: EventKind
    attempt: AttemptId
    started: bool = False
    pids: tuple[int, ...] = ()
    results: tuple[RankResult, ...] = ()
    error: str = ""
    code: str = ""
    cause: str = ""
    tail: str = ""


@dataclass(frozen=True, slots=True)
class GangPart:
    """One node of the gang as every other node needs to know it."""

    node: str
    address: str
    first_rank: int
    tasks: int
    group: int = 0  # as in `Placement`


@dataclass(frozen=True, slots=True)
class Launch:
    """All that one node needs to run its part, and to tell a controller that has forgotten it."""

    job: JobSpec
    owner: Owner
    parts: tuple[GangPart, ...]
    index: int  # which of `parts` is this node
    slots: tuple[int, ...] = ()
    cores: int = 0
    memory: int = 0
    master_address: str = ""
    master_port: int = 0
    cluster: str = ""
    submitted_us: int = 0
    milli: tuple[int, ...] = ()  # as in `Placement`, here and below: empty where the slots are whole devices
    device_bytes: tuple[int, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    array: int = 0  # id of the array that the job is a task of; 0: of none
    array_index: int = 0

    @property
    def devices(self) -> int:
        """How many devices it has: GPUs, or MIG instances of them."""
        return len(self.instances) or len(self.slots)


@dataclass(frozen=True, slots=True)
class EndOrder:
    """How to end: signal `to` (`all` or `launcher`), then after `grace_s` SIGKILL to all that is left."""

    why: str
    signal: str = "SIGTERM"
    to: str = "all"
    grace_s: int = 30


@dataclass(frozen=True, slots=True)
class Desired:
    """One attempt as this node should have it. `launch` is left out where the agent said that it holds it.

    `started` means that it may have run here before: the agent must not start it again, and reports it ENDED if it
    holds nothing of it.
    """

    attempt: AttemptId
    phase: Phase
    started: bool = False
    launch: Launch | None = None
    end: EndOrder | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Bytes of a rank's output from `offset`, at most `limit`; the agent may wait `wait_s` for some to appear."""

    id: str
    attempt: AttemptId
    rank: int
    offset: int
    limit: int
    wait_s: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """An attempt as the agent's journal has it: the inventory that rebuilds a controller's memory.

    `launch` None: its records were lost and only the unit is left.
    """

    attempt: AttemptId
    launch: Launch | None
    prepared: bool = False
    started: bool = False
    started_us: int = 0
    ended: AgentEvent | None = None


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """One beat. `held` lists every attempt that may have something on the node (prepared, running, ending, stuck).

    `outbox` names the agent's journal: another one means that its records were lost. `facts` are sent when they
    changed or were asked for; `inventory` when asked for.
    """

    node: str
    outbox: str
    boot_id: str
    epoch: int = 0  # the highest that this agent has seen
    protocol: int = PROTOCOL
    events: tuple[AgentEvent, ...] = ()
    held: tuple[AttemptId, ...] = ()
    wait_s: int = 0  # how long the controller may keep the answer if there is nothing to say
    seen: str = (
        ""  # the `revision` of the last answer that was applied: there is nothing to say while it holds
    )
    facts: NodeFacts | None = None
    inventory: tuple[Holding, ...] | None = None
    ending: Ending | None = None  # what its cloud has told it of its end, in each beat from then on


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What the controller wants, as of its `epoch`; an agent ignores an answer of an epoch lower than it has seen.

    Events up to `acked` may be forgotten. `lease_s`: how long without contact until attempts count as lost. On an
    answer that old, counted from its request, an agent starts nothing whose job chose to end with the lease.
    """

    epoch: int
    acked: int
    revision: str = ""  # names what of `desired` is news to the node; an agent sends it back as `seen`
    desired: tuple[Desired, ...] = ()
    lease_s: int = 180
    poll_s: int = 90
    want_facts: bool = False
    want_inventory: bool = False
    reads: tuple[ReadRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A node asks to be let in, with a join token as bearer; the answer is its own token.

    `public_key`: of the pair that the node will show on every connection, as the base64 of its SubjectPublicKeyInfo
    (RFC 5280, 4.1.2.7); empty where the controller is not called over TLS.
    """

    node: str
    facts: NodeFacts
    public_key: str = ""


@dataclass(frozen=True, slots=True)
class InstanceJoin:
    """A bought node asks to be let in, without a token: by the identity document of its instance and the signature of
    its cloud (base64 of a PKCS #7 message). POST /api/v1/agent/join-aws; the answer is that of a join, with its
    name."""

    document: str
    signature: str
    facts: NodeFacts
    public_key: str = ""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The node's own bearer token, given once. `certificate`: for its public key, in PEM; the token is worth something
    only over a connection that shows it. Empty: the token alone will do. `node`: what the cluster calls it."""

    token: str
    cluster: str
    certificate: str = ""
    node: str = ""
