"""The messages of the HTTP API about nodes, GPUs, queues, the cluster and tokens, by the rules of `wire.api`.

Comes in: values from the controller's view (server) or bytes from the network (client). Goes out: the same models,
their JSON and their part of OpenAPI. Called by: api, client, cli. A module of its own so that a command loads only
what it prints.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from orchestrator.model.node import Contact, MarkKind
from orchestrator.wire.api import Answer, Asked, Page, Reason, words

# --- nodes, GPUs, queues --------------------------------------------------------------------------------------------


class Mark(Answer):
    """One reason against new work on a node."""

    kind: str = words(MarkKind, "Kind of the reason.")
    why: str
    by: str
    since: datetime | None
    job: int | None = None


class Device(Answer):
    """One GPU. `emulated` ones exist on paper only."""

    slot: int
    model: str
    memory_bytes: int
    uuid: str
    pci: str
    emulated: bool
    numa: int | None = Field(None, description="NUMA node that it hangs on, where the node knows it.")
    job: int | None = Field(None, description="Who holds it; null: free.")


class Bought(Answer):
    """Why a node that was bought exists."""

    instance: str
    intent: str = Field(description="The decision that it was launched by.")
    type: str
    market: str
    zone: str
    state: Literal["booting", "ready", "releasing"]
    why: str = Field(description="Of one that is being given back: why.")
    job: int | None = Field(None, description="The job that it was bought for; null: for the pool's floor.")
    launched_at: datetime | None
    usd_per_hour: float = Field(description="As budgets count it.")


class Node(Answer):
    """A node: what it is made of and why it may not be given work."""

    name: str
    pool: str
    site: str
    contact: str = words(Contact, "Whether it answers.")
    contact_at: datetime | None = Field(description="When it was heard of last.")
    open: bool = Field(description="Whether it may be given work.")
    marks: list[Mark]
    address: str
    hostname: str
    boot_id: str
    agent_version: str
    supervisor: str = Field(description="How units are kept together: systemd, cgroup2 or process-tree.")
    run_as: str = Field(description="POSIX name of its agent.")
    can_switch_user: bool = Field(description="False: it runs jobs of `run_as` only.")
    cores: int
    free_cores: int
    memory_bytes: int
    free_memory_bytes: int
    devices: list[Device]
    jobs: list[int] = Field(description="Jobs that hold something on it.")
    bought: Bought | None = Field(None, description="Null: it was not bought.")

    @property
    def free_gpus(self) -> int:
        """Devices that nobody holds."""
        return sum(1 for device in self.devices if device.job is None)


class NodeList(Page):
    """Nodes by name."""

    kind: Literal["NodeList"] = "NodeList"
    items: list[Node]


class CordonNode(Asked):
    """Why a node gets no new work, and what becomes of the work that is there."""

    why: str = Field("", max_length=1024, examples=["fan replacement"])
    kind: Literal["cordoned", "updating"] = Field(
        "cordoned", description="`updating`: by an apply, which withdraws it."
    )
    deadline_s: int = Field(
        0,
        ge=0,
        le=366 * 86400,
        description="Seconds until `then` is done to what still runs; 0: it is left alone.",
    )
    then: Literal["wait", "checkpoint", "requeue", "cancel"] = Field(
        "wait", description="What happens to work that still runs at the deadline."
    )


class UncordonNode(Asked):
    """Which marks are withdrawn."""

    why: str = Field("", max_length=1024)
    kind: Literal["cordoned", "updating", "changed", "draining", "prepare_failed"] | None = Field(
        None, description="Only marks of this kind; absent: all."
    )


class FreeShape(Answer):
    """How many nodes have so many GPUs free."""

    gpus: int
    nodes: int


class FreeInstances(Answer):
    """How many MIG instances of a profile a job could have now, if it asks for no other."""

    profile: str
    free: int = Field(description="Places on open nodes.")


class GpuPool(Answer):
    """The GPUs of one model in one pool."""

    model: str
    pool: str
    site: str
    emulated: bool = Field(description="They exist on paper only.")
    nodes: int
    open_nodes: int = Field(description="Nodes that may be given work.")
    total: int
    free: int = Field(description="Free on open nodes.")
    allocated: int
    not_ready: int = Field(
        description="Free, but on nodes that may not be given work now; or not yet reported."
    )
    largest: int = Field(description="Most GPUs free on one open node.")
    shapes: list[FreeShape] = Field(description="Open nodes by GPUs free, most first.")
    largest_milli: int = Field(
        0,
        description="Largest free share of one GPU on an open node, in thousandths: what a job can ask of one now.",
    )
    instances: list[FreeInstances] = Field(
        [],
        description="Of GPUs in MIG mode, of which nothing else can be asked: the profiles with their free places.",
    )
    stranded: int = Field(
        0,
        description="Of the free ones, those that no waiting job could have where they are; 0 if nobody waits.",
    )


class GpuList(Page):
    """GPUs by model and pool."""

    kind: Literal["GpuList"] = "GpuList"
    items: list[GpuPool]


class WholeNodes(Answer):
    """Nodes of one pool that are open and on which no GPU is held."""

    nodes: int
    gpus: int = Field(description="GPUs of each.")
    pool: str


class PowerUse(Answer):
    """Watts at a power domain: what idle nodes draw, and each GPU that somebody holds at its power limit."""

    used_watts: int = Field(description="Committed now.")
    limit_watts: int = Field(
        description="Most that may be: after derating, less what Gangline does not control. 0: no limit of its own."
    )
    parent: str
    fed_by: list[str] = Field(description="Domains that carry it together; empty: it hangs on `parent`.")
    redundancy: str = Field(description="Of its feeds: N, N+1 or 2N.")


class TopologyDomain(Answer):
    """Nodes that stand close together: a domain of one level of a site. The site itself is the level `site`.

    Where power is limited, the nodes of each power domain are one too: those with `power`, of the level `power`.
    """

    site: str
    level: str
    domain: str = Field(description="Empty: the nodes of the site that no domain of the level holds.")
    nodes: int
    node_names: str = Field(examples=["h100-[01-32]"])
    open_nodes: int = Field(description="Nodes that may be given work.")
    gpus: int
    free_gpus: int = Field(description="Free on open nodes.")
    largest_gang: int = Field(description="Most whole free nodes of one pool, all with as many GPUs.")
    gangs: list[WholeNodes] = Field(description="Whole free nodes by pool and GPUs, most nodes first.")
    power: PowerUse | None = Field(None, description="Null: it is no power domain.")


class TopologyList(Page):
    """Domains by site, level from outside in, and name."""

    kind: Literal["TopologyList"] = "TopologyList"
    items: list[TopologyDomain]


class QueueShare(Answer):
    """GPUs counted in a pool or in a GPU model; the other is empty."""

    pool: str
    gpu_model: str
    gpus: int


class QueueLimits(Answer):
    """Limits of a queue; 0: none."""

    default_time_limit_s: int
    max_time_limit_s: int
    max_running_jobs: int
    max_waiting_jobs: int
    max_jobs_per_user: int
    max_gpus_per_user: int
    max_gpus_per_job: int
    max_gpu_hours_per_month: int = 0


class Queue(Answer):
    """A place in the quota tree, and what goes on in it (without those below it)."""

    name: str
    parent: str
    weight: int
    guarantee: list[QueueShare]
    borrow_limit: list[QueueShare]
    lending_limit: list[QueueShare] = Field(
        [], description="How much of its guarantee others may use; absent for a pool: all of it."
    )
    limits: QueueLimits
    running_jobs: int = Field(description="Jobs with an attempt.")
    used_gpus: int = Field(description="GPUs of which its jobs hold anything.")
    waiting_jobs: int
    waiting_gpus: int = Field(description="Whole GPUs that they ask for.")
    held_jobs: int
    usd_per_hour: float | None = Field(
        None,
        description="Committed by it and the queues below it: nodes that were bought for them, and parts of others "
        "that they work on. Null: no budget of the cluster is of dollars an hour.",
    )
    budget_usd_per_hour: float | None = Field(
        None, description="Most that may be; null: it has no such budget."
    )
    gpu_hours: float | None = Field(
        None,
        description="GPU-hours that it and the queues below it have used this month, and that what runs may still use. "
        "Null: no queue of the cluster has a limit of them.",
    )
    month_ends_at: datetime | None = Field(None, description="When they count anew.")
    waiting_milli: int = Field(
        0,
        description="Thousandths of GPUs that they count for in limits at least: the sum of their `gpu_milli`.",
    )
    used_milli: int = Field(0, description="Thousandths of GPUs that its jobs hold.")
    borrowed_milli: int = Field(
        0, description="Thousandths that it and the queues below it hold beyond its guarantee."
    )
    used_watts: int | None = Field(
        None,
        description="Watts that the GPUs its jobs hold may draw. Null: no power domain of the cluster has a limit.",
    )
    share_milli: int = Field(
        0,
        description="Thousandths that it and the queues below it hold now, for each unit of weight.",
    )
    reason: Reason | None = Field(None, description="Why most of its waiting jobs wait; null if none does.")
    reason_jobs: int = Field(0, description="How many of them wait for that, of the first 1000.")


class QueueList(Page):
    """Queues by name."""

    kind: Literal["QueueList"] = "QueueList"
    items: list[Queue]


# --- what would be ---------------------------------------------------------------------------------------------------


class WhatIfNode(Answer):
    """What a gang, or the gangs of an array, would get of one node."""

    node: str
    devices: list[int] = Field(description="Slots of its GPUs.")
    milli: list[int] = Field(description="Thousandths of each of them; empty: whole ones.")
    instances: list[str] = Field(
        [], description="MIG instances: slot, profile and first slice, as in 0:3g.40gb@4."
    )
    tasks: int
    cores: int
    array_tasks: int = Field(0, description="How many tasks of the array would be there; 0: it is none.")
    group: str = Field("", description="Name of its group, where the gang has groups.")


class WhatIf(Answer):
    """What would come of a job that is not submitted, at this moment."""

    starts: bool = Field(description="It would start at once; of an array some task.")
    refused: bool = Field(False, description="It would not be queued, since it can never run.")
    array_tasks: int = Field(0, description="How many tasks the array has; 0: it is none.")
    tried: int = Field(0, description="How many of these were looked at, the first ones.")
    starting: int = Field(0, description="How many of these would start at once.")
    nodes: list[WhatIfNode] = Field(
        [],
        description="Where it would start, in gang order; of an array what all of its tasks would get there.",
    )
    time_limit_s: int = Field(0, description="Time limit that it would get; 0: none.")
    reason: Reason | None = Field(
        None, description="Why it, or of an array the next task, would be refused or wait."
    )


# --- cluster --------------------------------------------------------------------------------------------------------


class NodeCounts(Answer):
    """Nodes, all in all."""

    total: int
    open: int
    silent: int = Field(description="Suspect, unreachable, or never heard of.")
    marked: int = Field(description="With a reason against new work.")


class GpuCounts(Answer):
    """GPUs, all in all."""

    total: int
    free: int
    allocated: int
    not_ready: int
    emulated: int


class JobCounts(Answer):
    """Jobs that are not over."""

    held: int
    waiting: int
    starting: int
    running: int
    ending: int
    lost: int


class LastApply(Answer):
    """The newest apply, and what is left of it."""

    id: str
    holder: str
    outcome: str | None = Field(description="Null: under way, or its holder died.")
    leased: bool = Field(description="Its holder has given a sign of life lately.")
    done: int = Field(description="Steps that are done.")
    total: int
    pending: list[str] = Field(description="Hosts that it was to change and has not.")
    detail: str


class OfferingState(Answer):
    """An offering that was tried."""

    type: str
    market: str
    zone: str
    reservation: str
    state: Literal["open", "resting", "out"] = Field(
        description="`resting`: not tried before `retry_at`; `out`: not before the file changes."
    )
    at_once: int = Field(description="Launches that may be under way at once.")
    failures: int = Field(description="In a row.")
    fault: str = Field(description="Class of the last error; empty if the last launch was well.")
    words: str
    retry_at: datetime | None


class BoughtPool(Answer):
    """A pool whose nodes are bought."""

    pool: str
    site: str
    least: int
    most: int
    asked: int = Field(description="Nodes that are being launched.")
    booting: int
    ready: int
    releasing: int
    usd_per_hour: float = Field(description="Of all that exists or is being launched, as budgets count it.")
    billed_s: int = Field(description="Seconds of instances that are gone, as they are billed.")
    billed_usd: float
    blocked: str = Field(description="Why nothing can be bought; empty if something can.")
    offerings: list[OfferingState]
    stuck: list[str] = Field(description="Instances that could not be ended, with the reason.")


class Status(Answer):
    """The cluster at a glance."""

    cluster: str = Field(description="Its name; empty before the first `gangline up`.")
    digest: str = Field(description="Of the wanted cluster.")
    version: str
    epoch: int
    seq: int = Field(description="The newest event that this answer knows.")
    updated_at: datetime | None = Field(description="Time of that event.")
    now: datetime = Field(description="The server's time.")
    recovering: bool = Field(
        description="Restored from a backup: nothing starts until nodes have told what they hold."
    )
    orphans: int
    apply: LastApply | None = Field(None, description="Null: nothing was ever applied with a plan.")
    nodes: NodeCounts
    gpus: GpuCounts
    jobs: JobCounts
    uid: str = Field("", description="What all that is bought is marked with; empty: nothing was.")
    bought: list[BoughtPool] = Field([], description="Pools whose nodes are bought.")


class Cluster(Answer):
    """The wanted cluster."""

    name: str
    digest: str
    spec: dict[str, Any] = Field(description="In base units, without what is at its default.")


class Orphan(Answer):
    """An attempt on a node that the ledger does not know."""

    attempt: str
    node: str


class OrphanList(Page):
    """Attempts that the ledger does not know."""

    kind: Literal["OrphanList"] = "OrphanList"
    items: list[Orphan]


class Recover(Asked):
    """What to leave out of a recovery."""

    without: list[str] = Field(
        [], description="Nodes that need not have told what they hold.", examples=[["n7"]]
    )


class Left(Answer):
    """An orphan that was not taken back."""

    attempt: str
    why: str


class Recovered(Answer):
    """What a recovery did."""

    recovered: list[str] = Field(description="Attempts taken back.")
    left: list[Left]
    without: list[str]


class Version(Answer):
    """What answers here."""

    version: str
    api: Literal["v1"] = "v1"
    agent_protocol: int


class Health(Answer):
    """The server answers, and its controller runs."""

    status: Literal["ok"] = "ok"


# --- tokens ---------------------------------------------------------------------------------------------------------


PRINCIPAL_NAME = "^[^ :,/\\t\\n\\r]+$"  # no POSIX name and no node's holds these


class CreateToken(Asked):
    """A token to make."""

    role: Literal["read", "submit", "operator", "admin", "join"] = Field(examples=["submit"])
    name: str = Field(
        description="POSIX name that it acts as; of a join token the node's name, or * for any.",
        min_length=1,
        max_length=253,
        json_schema_extra={"pattern": PRINCIPAL_NAME},
        examples=["alice"],
    )
    expires_s: int = Field(0, ge=0, le=10 * 366 * 86400, description="Seconds until it ends; 0: never.")


class Token(Answer):
    """A token, without its secret."""

    id: str
    role: str = Field(description="One of read, submit, operator, admin, join, node; accept others.")
    name: str
    created_at: datetime | None
    expires_at: datetime | None
    key: str = Field(
        "",
        description="SHA-256 (hex) of the public key that has to be shown with it; empty: it will do alone.",
    )


class TokenCreated(Token):
    """A new token; the secret is shown this once."""

    secret: str = Field(examples=["gln_..."])
    join_line: str = Field(
        "",
        description="Of a join token: its secret with the controller's address and the SHA-256 of the certificate that "
        "its own is trusted by, as far as they are known. What an agent's join token file holds.",
        examples=["gln_...@https://atlas.example.org:7443#sha256:..."],
    )


class TokenList(Page):
    """Tokens by time of creation."""

    kind: Literal["TokenList"] = "TokenList"
    items: list[Token]
