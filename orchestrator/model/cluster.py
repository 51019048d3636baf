"""What a person wants a cluster to be: sites, pools, queues, budgets and access, in base units.

Comes in: values that `spec` has read and checked. Goes out: `ClusterSpec`, which planning compares, the scheduler
places on and the controller serves. Called by: spec (builds it), planning, scheduler, autoscale, controller,
provision, api (read it).

Units: watts, bytes, seconds, micro-dollars, whole GPUs; shares are per mille (`derate_milli` 800 is 0.8). Named things
are sorted by name, since their order in the file means nothing; nodes keep the order in which they were listed, and
lists of policy (offerings, `at_limit`) keep theirs. 0 and the empty text mean "not given" unless a field says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.model.base import Word

JOB_PORTS = (
    20000,
    29999,
)  # DESIGN section 6: the ports from which MASTER_PORT is taken, unless a site says otherwise


class SiteKind(Word):
    """Where a site's nodes come from."""

    LOCAL = "local"  # this machine plays every node
    METAL = "metal"  # hosts that people own, over SSH
    AWS = "aws"


class Emulate(Word):
    """Whether the GPUs of a local pool are real."""

    AUTO = "auto"  # real ones if NVML finds any, else emulated
    ALWAYS = "always"
    NEVER = "never"


class Market(Word):
    """How an offering is paid for."""

    OWNED = "owned"
    CAPACITY_RESERVATION = "capacity_reservation"
    CAPACITY_BLOCK = "capacity_block"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


class FabricKind(Word):
    """The network between the nodes of a pool."""

    ETHERNET = "ethernet"
    ROCE = "roce"
    INFINIBAND = "infiniband"
    EFA = "efa"


class StorageKind(Word):
    """How a storage gets onto a node."""

    NFS = "nfs"
    LUSTRE = "lustre"
    LOCAL = "local"


class IdentitySource(Word):
    """Where nodes learn names and numbers of users."""

    FILES = "files"
    SSSD = "sssd"
    PUSHED = "pushed"


class OnMismatch(Word):
    """What an agent does when its own answer for a name differs from the controller's."""

    REFUSE = "refuse"


class Redundancy(Word):
    """How the feeds of a power domain share its load. `2N`: either feed can carry all; `N+1`: all but one can."""

    N = "N"
    N_PLUS_1 = "N+1"
    TWO_N = "2N"


class Reclaim(Word):
    """What a queue may take back by preemption when it is under its guarantee."""

    NEVER = "never"
    BORROWED = "borrowed"  # what other queues run beyond their own guarantees


class DrainThen(Word):
    """What happens to work that still runs when a drain's deadline has passed."""

    WAIT = "wait"
    CHECKPOINT = "checkpoint"
    REQUEUE = "requeue"
    CANCEL = "cancel"


class AtLimit(Word):
    """What is done, in the order given, when a budget is used up."""

    STOP_BUYING = "stop_buying"
    CHECKPOINT = "checkpoint"
    REQUEUE = "requeue"
    CANCEL = "cancel"


class Acceptance(Word):
    """Whether a pool's nodes must be proved before work starts on them."""

    REQUIRED = "required"
    SKIP = "skip"


class Role(Word):
    """What a grant allows; each role includes the ones before it."""

    READ = "read"
    SUBMIT = "submit"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Controller:
    """`address` empty: the machine that ran `up`. `state` empty: the place DESIGN section 7 names."""

    address: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """How users are known on nodes; jobs of uids under `min_uid` are refused."""

    source: IdentitySource = IdentitySource.FILES
    min_uid: int = 1000
    on_mismatch: OnMismatch = OnMismatch.REFUSE


@dataclass(frozen=True, slots=True)
class Storage:
    """A file system that jobs can ask for by name. `sites` empty: mounted on all."""

    name: str
    kind: StorageKind
    path: str
    source: str = ""
    sites: tuple[str, ...] = ()
    per_job: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True)
class Network:
    """The network that processes of jobs talk over. `jobs` is a CIDR or empty; ports are inclusive."""

    jobs: str = ""
    first_port: int = JOB_PORTS[0]
    last_port: int = JOB_PORTS[1]


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes behind the same set of leaves."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SiteFabric:
    """Topology level names from inside out, and the units that people declared."""

    levels: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerDomain:
    """A limit in IT watts over nodes or other domains; `limit_watts` 0 means none of its own.

    `parent` and `fed_by` exclude each other. `unmanaged_watts` is drawn by what Gangline does not control. What may be
    used of the limit is `limit_watts * derate_milli // 1000`.
    """

    name: str
    parent: str = ""
    limit_watts: int = 0
    unmanaged_watts: int = 0
    derate_milli: int = 1000
    nodes: tuple[str, ...] = ()
    fed_by: tuple[str, ...] = ()
    redundancy: Redundancy = Redundancy.N

    def usable_watts(self) -> int:
        """The limit after derating; 0 means no limit."""
        return self.limit_watts * self.derate_milli // 1000


@dataclass(frozen=True, slots=True)
class SitePower:
    """Price in micro-dollars per kWh, PUE per mille (for money only, never for limits), and the domains."""

    price_microusd_per_kwh: int = 0
    pue_milli: int = 1000
    domains: tuple[PowerDomain, ...] = ()


@dataclass(frozen=True, slots=True)
class Ssh:
    """How metal hosts are reached. `key` is a secret reference, `jump` a host or empty."""

    user: str = ""
    key: str = ""
    jump: str = ""
    port: int = 22


@dataclass(frozen=True, slots=True)
class Host:
    """One line of a metal inventory. `bmc` is an address; `bmc_password` a secret reference."""

    name: str
    address: str = ""
    bmc: str = ""
    bmc_user: str = ""
    bmc_password: str = ""
    mac: str = ""
    rack: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """A place with pools. `inventory`, `ssh` and `hosts` are for metal, `region` and `zones` for aws."""

    name: str
    kind: SiteKind
    network: Network = Network()
    fabric: SiteFabric = SiteFabric()
    power: SitePower = SitePower()
    inventory: str = ""
    ssh: Ssh = Ssh()
    hosts: tuple[Host, ...] = ()
    region: str = ""
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """The GPUs of every node of a pool. `memory` (bytes) and `max_watts` 0: what the catalog says of the model."""

    model: str
    count: int
    emulate: Emulate = Emulate.AUTO
    memory: int = 0
    max_watts: int = 0


@dataclass(frozen=True, slots=True)
class PoolFabric:
    """The job network's adapters; `rails` 0: not said."""

    kind: FabricKind = FabricKind.ETHERNET
    rails: int = 0


@dataclass(frozen=True, slots=True)
class Software:
    """Full version strings; empty: Gangline installs nothing of it and checks nothing."""

    driver: str = ""
    cuda: str = ""
    nccl: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """How long work may end by itself, and what happens then."""

    deadline_s: int = 86400
    then: DrainThen = DrainThen.WAIT


@dataclass(frozen=True, slots=True)
class Update:
    """How changes reach the nodes of a pool."""

    max_unavailable: int = 1
    drain: Drain = Drain()


@dataclass(frozen=True, slots=True)
class PoolSize:
    """An elastic pool's bounds in nodes; a node idle for `idle_s` goes, one not ready in `boot_deadline_s` failed."""

    min: int = 0
    max: int = 0
    idle_s: int = 600
    boot_deadline_s: int = 1500


@dataclass(frozen=True, slots=True)
class Offering:
    """What a pool may buy, in order of preference. `max_microusd_per_hour` 0: any price; `reservation`: an AWS id."""

    types: tuple[str, ...]
    market: Market
    max_microusd_per_hour: int = 0
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Like nodes of one site: listed ones (`nodes`), or bought ones (`size` and `offerings`).

    `cores` and `memory` (bytes) of a node: 0 means that nobody said, and the node's own report counts.
    """

    name: str
    site: str
    nodes: tuple[str, ...] = ()
    gpu: GpuSpec | None = None
    cores: int = 0
    memory: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    fabric: PoolFabric = PoolFabric()
    software: Software = Software()
    update: Update = Update()
    size: PoolSize | None = None
    offerings: tuple[Offering, ...] = ()
    acceptance: Acceptance = Acceptance.REQUIRED

    def most_nodes(self) -> int:
        """The largest number of nodes that the pool can have."""
        return self.size.max if self.size is not None else len(self.nodes)


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs counted in a pool or in a GPU model; exactly one of `pool` and `gpu_model` is given."""

    gpus: int
    pool: str = ""
    gpu_model: str = ""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a queue; 0 means no limit (for `default_time_limit_s`: the default of the job's workload)."""

    default_time_limit_s: int = 0
    max_time_limit_s: int = 0
    max_running_jobs: int = 0
    max_waiting_jobs: int = 0
    max_jobs_per_user: int = 0
    max_gpus_per_user: int = 0
    max_gpus_per_job: int = 0


@dataclass(frozen=True, slots=True)
class Queue:
    """A place in the quota tree. `borrow_limit` counts beyond the guarantee; without one for a pool, none is set."""

    name: str
    parent: str = ""
    guarantee: tuple[Share, ...] = ()
    borrow_limit: tuple[Share, ...] = ()
    weight: int = 1
    reclaim: Reclaim = Reclaim.NEVER
    limits: QueueLimits = QueueLimits()


@dataclass(frozen=True, slots=True)
class Window:
    """A weekly period in the cluster's time zone. Days count from Monday = 0; minutes from midnight.

    `to_minute` is exclusive, at most 1440; one at or before `from_minute` means the next day.
    """

    days: tuple[int, ...]
    from_minute: int
    to_minute: int
    limit_watts: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What a budget or a grant is about; all empty: the whole cluster. At most one is given."""

    site: str = ""
    pool: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on power (`domain`, `windows`) or on money (`scope`, micro-dollars per hour and calendar month)."""

    name: str
    domain: str = ""
    windows: tuple[Window, ...] = ()
    scope: Scope = Scope()
    microusd_per_hour: int = 0
    microusd_per_month: int = 0
    at_limit: tuple[AtLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """People, named by an OIDC claim, a POSIX group or user names."""

    name: str
    oidc: str = ""
    posix: str = ""
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for a group, on one queue, pool or site, or on the whole cluster."""

    role: Role
    to: str
    on: Scope = Scope()


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what. No grants at all: only the controller's own admin token and its host's users."""

    groups: tuple[Group, ...] = ()
    grants: tuple[Grant, ...] = ()


N = TypeVar("N", Site, Pool, Queue)


def _named(things: Iterable[N], name: str) -> N:
    for thing in things:
        if thing.name == name:
            return thing
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One cluster as wanted. A spec without queues has one queue, `default`."""

    name: str
    timezone: str = "UTC"
    controller: Controller = Controller()
    identity: Identity = Identity()
    storage: tuple[Storage, ...] = ()
    sites: tuple[Site, ...] = ()
    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = (Queue("default"),)
    budgets: tuple[Budget, ...] = ()
    access: Access = Access()

    def site(self, name: str) -> Site:
        """The site of that name; KeyError if there is none."""
        return _named(self.sites, name)

    def pool(self, name: str) -> Pool:
        """The pool of that name; KeyError if there is none."""
        return _named(self.pools, name)

    def queue(self, name: str) -> Queue:
        """The queue of that name; KeyError if there is none."""
        return _named(self.queues, name)

    def site_of(self, pool: Pool) -> Site:
        """The site on which a pool stands."""
        return _named(self.sites, pool.site)
