"""What a person wants a cluster to be: sites, pools, queues, budgets and access, in base units.

Comes in: values that `spec` has read and checked. Goes out: `ClusterSpec`, which planning compares, the scheduler
places on and the controller serves. Called by: spec (builds it), planning, scheduler, autoscale, controller,
provision, api (read it). Sections with many fields live in
`cluster_sites`, `cluster_aws`, `cluster_pools` and `cluster_queues`.

Units: watts, bytes, seconds, micro-dollars, whole GPUs; shares are per mille (`derate_milli` 800 is 0.8). Named things
are sorted by name, since their order in the file means nothing; nodes keep the order in which they were listed, and
lists of policy (offerings, `at_limit`) keep theirs. 0 and the empty text mean "not given" unless a field says
otherwise. The metadata of a field says how it is written in the file and what it takes to change it (`written`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.model.change import UpdateClass
from orchestrator.model.cluster_aws import ControllerInstance, Price, Stack, Subnet, Vpc
from orchestrator.model.cluster_pools import (
    DEFAULT_ROOT_VOLUME,
    Drain,
    GpuSpec,
    Offering,
    Pool,
    PoolFabric,
    PoolSize,
    Software,
    Update,
)
from orchestrator.model.cluster_queues import (
    Access,
    Budget,
    Grant,
    Group,
    Queue,
    QueueLimits,
    SchedulerSpec,
    Scope,
    Share,
    Window,
)
from orchestrator.model.cluster_sites import (
    NODE_LEVEL,
    UNIT_LEVEL,
    FabricDomain,
    Host,
    Network,
    PowerDomain,
    Site,
    SiteFabric,
    SitePower,
    Ssh,
    System,
    Unit,
)
from orchestrator.model.cluster_words import (
    JOB_PORTS,
    MADE_STORAGE,
    Acceptance,
    AtLimit,
    DrainThen,
    Emulate,
    FabricKind,
    FairShare,
    IdentitySource,
    Market,
    Nat,
    OnMismatch,
    PlacementGroup,
    Preset,
    Reclaim,
    Redundancy,
    Role,
    SiteKind,
    StorageKind,
)
from orchestrator.model.written import Effect, Form, identity, leaf, part, rows

__all__ = [
    "DEFAULT_ROOT_VOLUME",
    "JOB_PORTS",
    "MADE_STORAGE",
    "NODE_LEVEL",
    "UNIT_LEVEL",
    "Acceptance",
    "Access",
    "AtLimit",
    "Backup",
    "Budget",
    "ClusterSpec",
    "Controller",
    "ControllerInstance",
    "Drain",
    "DrainThen",
    "Emulate",
    "FabricDomain",
    "FabricKind",
    "FairShare",
    "GpuSpec",
    "Grant",
    "Group",
    "Host",
    "Identity",
    "IdentitySource",
    "Market",
    "Nat",
    "Network",
    "Offering",
    "OnMismatch",
    "PlacementGroup",
    "Pool",
    "PoolFabric",
    "PoolSize",
    "PosixGroup",
    "PowerDomain",
    "Preset",
    "Price",
    "Queue",
    "QueueLimits",
    "Reclaim",
    "Redundancy",
    "Role",
    "SchedulerSpec",
    "Scope",
    "Share",
    "Site",
    "SiteFabric",
    "SiteKind",
    "SitePower",
    "Software",
    "Ssh",
    "Stack",
    "Storage",
    "StorageKind",
    "Subnet",
    "System",
    "Unit",
    "Update",
    "User",
    "Vpc",
    "Window",
]

CONTROLLER, IN_PLACE = UpdateClass.CONTROLLER, UpdateClass.IN_PLACE
RECONFIGURE, REFUSED = UpdateClass.RECONFIGURE, UpdateClass.REFUSED
MOUNT = "running work may have files open there"


@dataclass(frozen=True, slots=True)
class Backup:
    """How often the ledger is copied, and how many copies are kept."""

    every_s: int = field(default=86400, metadata=leaf(CONTROLLER, key="every", form=Form.SECONDS, given=True))
    keep: int = field(
        default=7,
        metadata=leaf(CONTROLLER, "surplus copies go after the next one", form=Form.WHOLE, given=True),
    )


@dataclass(frozen=True, slots=True)
class Controller:
    """`address` and `host` empty: the machine that ran `up`. `state` empty: the place DESIGN section 7 names.

    `host` is the name of a host of a metal site's inventory, on which the controller runs as a systemd unit; `instance`
    one that is bought for it.
    """

    address: str = field(
        default="",
        metadata=leaf(
            IN_PLACE,
            "agents learn the new address from their config: the old one must answer until all have it",
        ),
    )
    state: str = field(
        default="",
        metadata=leaf(
            REFUSED,
            "the ledger lies there, and a running controller is not moved by its own file",
            unblock="`gangline server backup`, stop the controller, change the field, `gangline server restore`",
        ),
    )
    host: str = field(
        default="",
        metadata=leaf(
            REFUSED,
            "a running controller is not moved by its own file",
            unblock="`gangline server backup`, stop the controller, change the field, `gangline server restore` "
            "on the new host",
        ),
    )
    instance: ControllerInstance | None = field(default=None, metadata=part())
    backup: Backup = field(default=Backup(), metadata=part())


@dataclass(frozen=True, slots=True)
class User:
    """A user whom Gangline makes on nodes. `groups` are those besides the user's own."""

    name: str = field(metadata=identity())
    uid: int = field(
        metadata=leaf(
            REFUSED,
            "files and running work belong to the old number",
            form=Form.WHOLE,
            unblock="remove the user, apply, give the files to the new number, then add the user again",
        )
    )
    groups: tuple[str, ...] = field(
        default=(), metadata=leaf(IN_PLACE, "running work keeps the groups it started with", form=Form.TEXTS)
    )


@dataclass(frozen=True, slots=True)
class PosixGroup:
    """A group that has the same number on every node."""

    name: str = field(metadata=identity())
    gid: int = field(
        metadata=leaf(
            REFUSED,
            "files and running work belong to the old number",
            form=Form.WHOLE,
            unblock="remove the group, apply, give the files to the new number, then add the group again",
        )
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """How users are known on nodes; jobs of uids under `min_uid` are refused. `users` and `groups`: with source
    `pushed` only."""

    source: IdentitySource = field(
        default=IdentitySource.FILES,
        metadata=leaf(RECONFIGURE, "names may get other numbers under running work", given=True),
    )
    min_uid: int = field(
        default=1000,
        metadata=leaf(IN_PLACE, "running work stays; the next start is judged", form=Form.WHOLE, given=True),
    )
    on_mismatch: OnMismatch = field(default=OnMismatch.REFUSE, metadata=leaf(CONTROLLER, given=True))
    users: tuple[User, ...] = field(
        default=(),
        metadata=rows(
            Effect(IN_PLACE, "the account is made"),
            Effect(IN_PLACE, "the account goes; its files and running work stay"),
        ),
    )
    groups: tuple[PosixGroup, ...] = field(
        default=(),
        metadata=rows(
            Effect(IN_PLACE, "the group is made; one that is there gets the number, and files keep theirs"),
            Effect(IN_PLACE, "the group stays as it is; its number is no longer looked after"),
        ),
    )


@dataclass(frozen=True, slots=True)
class Storage:
    """A file system that jobs can ask for by name. `sites` empty: mounted on all.

    Of kind fsx and efs: `source` empty: Gangline makes it, with `size` bytes (fsx) and `throughput` in MB/s per
    TiB (fsx) or MB/s (efs, 0: elastic).
    """

    name: str = field(metadata=identity())
    kind: StorageKind = field(metadata=leaf(RECONFIGURE, MOUNT))
    path: str = field(metadata=leaf(RECONFIGURE, MOUNT))
    source: str = field(default="", metadata=leaf(RECONFIGURE, MOUNT))
    sites: tuple[str, ...] = field(default=(), metadata=leaf(RECONFIGURE, MOUNT, form=Form.TEXTS))
    size: int = field(default=0, metadata=leaf(IN_PLACE, "it grows under running work", form=Form.BYTES))
    throughput: int = field(
        default=0, metadata=leaf(IN_PLACE, "it changes under running work", form=Form.WHOLE)
    )
    per_job: bool = field(
        default=False,
        metadata=leaf(CONTROLLER, "it counts for jobs that start from now on", form=Form.FLAG, given=True),
    )
    purge: bool = field(
        default=False,
        metadata=leaf(CONTROLLER, "it counts for jobs that end from now on", form=Form.FLAG, given=True),
    )

    @property
    def made(self) -> bool:
        """Whether Gangline makes it, and people do not keep it."""
        return self.kind in MADE_STORAGE and not self.source


N = TypeVar("N", Site, Pool, Queue)


def _named(things: Iterable[N], name: str) -> N:
    for thing in things:
        if thing.name == name:
            return thing
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One cluster as wanted. A spec without queues has one queue, `default`."""

    name: str = field(
        metadata=leaf(
            REFUSED,
            "the name is what the cluster's state and everything that it made are found by",
            key="metadata.name",
            unblock="give the old name back, or bring a new cluster up beside this one",
        )
    )
    timezone: str = field(
        default="UTC",
        metadata=leaf(
            CONTROLLER, "windows and months count in it from now on", key="metadata.timezone", given=True
        ),
    )
    controller: Controller = field(default=Controller(), metadata=part())
    identity: Identity = field(default=Identity(), metadata=part())
    storage: tuple[Storage, ...] = field(
        default=(),
        metadata=rows(Effect(IN_PLACE, "it is mounted; no work uses it yet"), Effect(RECONFIGURE, MOUNT)),
    )
    sites: tuple[Site, ...] = field(
        default=(),
        metadata=rows(
            Effect(CONTROLLER, "its pools say what happens on nodes"),
            Effect(CONTROLLER, "its pools say what happens on nodes"),
        ),
    )
    pools: tuple[Pool, ...] = field(
        default=(),
        metadata=rows(
            Effect(IN_PLACE, "its nodes are enrolled, configured and proved"),
            Effect(RECONFIGURE, "work leaves its nodes, then they are forgotten"),
        ),
    )
    queues: tuple[Queue, ...] = field(
        default=(Queue("default"),),
        metadata=rows(
            Effect(CONTROLLER, "jobs may be submitted to it"),
            Effect(CONTROLLER, "no job is in it"),
        ),
    )
    scheduler: SchedulerSpec = field(default=SchedulerSpec(), metadata=part())
    budgets: tuple[Budget, ...] = field(
        default=(),
        metadata=rows(
            Effect(CONTROLLER, "the next pass counts with it"),
            Effect(CONTROLLER, "it limits nothing any more"),
        ),
    )
    access: Access = field(default=Access(), metadata=part())

    def site(self, name: str) -> Site:
        """The site of that name; KeyError if there is none."""
        return _named(self.sites, name)

    def pool(self, name: str) -> Pool:
        """The pool of that name; KeyError if there is none."""
        return _named(self.pools, name)

    def queue(self, name: str) -> Queue:
        """The queue of that name; KeyError if there is none."""
        return _named(self.queues, name)

    def domains_of(self, site: Site) -> dict[str, dict[str, tuple[str, ...]]]:
        """Level -> domain -> its nodes, for every level of a site, from inside out.

        A level of which the file tells nothing is as the next one outwards of which it does, and else one domain of the
        site's name with all its nodes: nothing says that they stand apart. Untold, the innermost
        level is each node by itself.
        """
        told = site.fabric.nodes_by_level()
        nodes = tuple(node for pool in self.pools if pool.site == site.name for node in pool.nodes)
        outer = {site.name: nodes}
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for level in reversed(site.fabric.levels):
            alone: dict[str, tuple[str, ...]] = {node: (node,) for node in nodes if level == NODE_LEVEL}
            outer = told.get(level) or alone or outer
            found[level] = outer
        return dict(reversed(found.items()))

    def site_of(self, pool: Pool) -> Site:
        """The site on which a pool stands."""
        return _named(self.sites, pool.site)
