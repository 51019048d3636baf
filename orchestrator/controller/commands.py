"""What can be asked of the controller: one frozen type each, with what it answers.

Comes in: values that api has read, checked and authorised (who may, is decided there). Goes out: the items of the
inbox. Called by: api (makes them), intake (turns them into facts). `by` is `user:NAME` or `node:NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.ledger.state import State
from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.capacity import CloudInstance, ErrorClass, Reserved
from orchestrator.model.change import PlanStep
from orchestrator.model.cluster import ClusterSpec, DrainThen
from orchestrator.model.host import HostFacts, PoolDesired
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.node import MarkKind, NodeFacts
from orchestrator.model.protocol import SyncRequest
from orchestrator.model.stack_facts import StackFacts


@dataclass(frozen=True, slots=True)
class Submit:
    """-> Submitted. Refused with a `never.*` code if it can never run; Conflict if `key` was used for another document.

    `digest` is that of the document, to tell a repeat from another job under the same key. `force`: in, even if no node
    or domain could ever hold it; what its queue forbids stays forbidden.
    """

    spec: JobSpec
    owner: Owner
    by: str
    key: str = ""
    digest: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job's id, or that of the first of an array's `tasks`; `repeated` if the key had made it before."""

    job: int
    repeated: bool = False
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class ThrottleArray:
    """-> None. So many of the array's tasks have an attempt at a time from now on, 0: any number. Conflict if all have
    ended, NotFound if it is no array."""

    array: int
    at_most: int
    by: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """-> None. Ends it: at once if it waits, else signal, grace, kill. `now` leaves out the grace."""

    job: int
    by: str
    why: str = ""
    now: bool = False


@dataclass(frozen=True, slots=True)
class HoldJob:
    """-> None. Conflict for a job with an attempt."""

    job: int
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """-> None. Conflict for a job that is not held."""

    job: int
    by: str


@dataclass(frozen=True, slots=True)
class RequeueJob:
    """-> None. Ends the attempt and lets the job wait again; Conflict if there is none."""

    job: int
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PrioritizeJob:
    """-> None. Another priority for a job that has not started; Conflict for one with an attempt."""

    job: int
    priority: int
    by: str


@dataclass(frozen=True, slots=True)
class Together:
    """-> a result for each: what it answers, or the GanglineError that refuses it. One commit for all of them."""

    commands: tuple[CancelJob | HoldJob | ReleaseJob | RequeueJob | PrioritizeJob, ...]


@dataclass(frozen=True, slots=True)
class ApplyCluster:
    """-> None. The wanted cluster from now on, and what its hosts are to have. Refused if it changes who may what, and
    `admin` is not set."""

    spec: ClusterSpec
    by: str
    desired: tuple[PoolDesired, ...] = ()
    commit: str = ""
    admin: bool = True
    uid: str = ""  # that of a stack which was set up before there was a controller


@dataclass(frozen=True, slots=True)
class StartApply:
    """-> the apply's id. Conflict while another holder's lease lasts; an unended one is given up first."""

    holder: str
    digest: str
    steps: tuple[PlanStep, ...]
    lease_s: int
    by: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RenewApply:
    """-> None. Conflict if it is under way no longer, here and below."""

    id: str
    lease_s: int
    by: str


@dataclass(frozen=True, slots=True)
class StartStep:
    """-> None."""

    id: str
    step: str
    by: str


@dataclass(frozen=True, slots=True)
class EndStep:
    """-> None. `hosts`: what it came to on each."""

    id: str
    step: str
    ok: bool
    hosts: tuple[HostResult, ...]
    by: str


@dataclass(frozen=True, slots=True)
class EndApply:
    """-> None."""

    id: str
    outcome: Outcome
    by: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Configured:
    """-> None. The host has all of the `Desired` with that digest; Conflict for one that nobody recorded."""

    node: str
    desired: str
    by: str
    host: HostFacts | None = None


@dataclass(frozen=True, slots=True)
class CordonNode:
    """-> None. No new work on the node. With a `deadline_s` it is drained: then `then` is done to what still runs."""

    node: str
    by: str
    why: str = ""
    kind: MarkKind = MarkKind.CORDONED
    deadline_s: int = 0
    then: DrainThen = DrainThen.WAIT


@dataclass(frozen=True, slots=True)
class UncordonNode:
    """-> None. Withdraws every mark but those that only the node itself can clear (unproved); or those of a kind."""

    node: str
    by: str
    kind: MarkKind | None = None


@dataclass(frozen=True, slots=True)
class CreateToken:
    """-> None. The secret stays with the caller; the ledger gets its SHA-256 (hex)."""

    id: str
    sha256: str
    role: str
    name: str
    by: str
    expires_us: int = 0


@dataclass(frozen=True, slots=True)
class RevokeToken:
    """-> None. NotFound for an unknown id."""

    id: str
    by: str


@dataclass(frozen=True, slots=True)
class JoinNode:
    """-> None. A node of the wanted cluster gets its own token and, if `used` names one, its join token is spent.

    `key`: the SHA-256 of the public key that the node has to show with its token; empty for none.
    """

    node: str
    facts: NodeFacts
    token_id: str
    sha256: str
    used: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class AdmitInstance:
    """-> Admitted. The node that a proved instance is to be gets its own token, bound to the key; Refused unless the
    instance is waited for, or if it came with another key before.

    `fixed`: the node that the facts of its stack say it is, with its `address`; empty: a launch has to wait for it.
    """

    instance: str
    fixed: str
    token_id: str
    sha256: str
    key: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The node's name."""

    node: str


@dataclass(frozen=True, slots=True)
class Sync:
    """-> SyncReply. One beat of a node that has something to say."""

    request: SyncRequest


@dataclass(frozen=True, slots=True)
class SyncReply:
    """What the answer needs beside the view: events up to here are in the ledger, and what is asked for."""

    acked: int
    want_facts: bool = False
    want_inventory: bool = False
    over: tuple[
        AttemptId, ...
    ] = ()  # held by the node, and known here to have ended: fenced, or given up unstarted


@dataclass(frozen=True, slots=True)
class Recover:
    """-> RecoverResult. Takes orphans back and lets starts go on. `without`: nodes that need not have told."""

    by: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoverResult:
    """Attempts taken back, attempts left as orphans with the reason, nodes that were not waited for."""

    recovered: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameCluster:
    """-> the cluster's uid: 12 letters and digits, made for whoever asks first, and the same for ever. InputError if
    what is asked for is none, Conflict if another one is recorded."""

    by: str
    uid: str = ""  # one that was chosen elsewhere, where a stack was set up before there was a controller


@dataclass(frozen=True, slots=True)
class InterruptNode:
    """-> None. The cloud takes the node's instance back at `at_us`: its work is told to end in its own way and waits
    again. NotFound for a node that there is not."""

    node: str
    at_us: int
    why: str
    by: str


@dataclass(frozen=True, slots=True)
class ResetCapacity:
    """-> None. Buying for the pool may be tried again at once. NotFound for a pool that is not bought."""

    pool: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class FactsRead:
    """-> None. What the stack of a site has written: its facts, or the `error` that says why there are none."""

    site: str
    error: str
    facts: StackFacts | None = None


@dataclass(frozen=True, slots=True)
class LaunchAnswered:
    """-> None. All instances of an intent; or what refused it (`fault` None: nothing was called); or nobody knows
    (`unanswered`)."""

    intent: str
    instances: tuple[CloudInstance, ...] = ()
    fault: ErrorClass | None = None
    words: str = ""
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class EndAnswered:
    """-> None. The cloud was told to end these instances, or why it was not."""

    site: str
    ids: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """-> None. What a cloud says exists, asked at `asked_us`; with an `error` nothing is known. `reserved`: all that
    was asked for, without a bound where nobody may look."""

    site: str
    asked_us: int
    instances: tuple[CloudInstance, ...] = ()
    error: str = ""
    reserved: tuple[Reserved, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """-> Outlook: what would come of the job or array if it were submitted now. Nothing is."""

    spec: JobSpec
    owner: Owner


@dataclass(frozen=True, slots=True)
class Query:
    """-> whatever the function returns: a look at State between two cycles. It must change nothing and be quick."""

    look: Callable[[State], Any]


Command = (
    Submit
    | CancelJob
    | HoldJob
    | ReleaseJob
    | RequeueJob
    | PrioritizeJob
    | ThrottleArray
    | Together
    | ApplyCluster
    | StartApply
    | RenewApply
    | StartStep
    | EndStep
    | EndApply
    | Configured
    | CordonNode
    | UncordonNode
    | CreateToken
    | RevokeToken
    | JoinNode
    | AdmitInstance
    | Sync
    | Recover
    | NameCluster
    | InterruptNode
    | ResetCapacity
    | FactsRead
    | LaunchAnswered
    | EndAnswered
    | Looked
    | WhatIf
    | Query
)
