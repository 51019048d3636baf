"""The closed sets of words in the cluster's model, and the one default that other rooms need.

Comes in: nothing. Goes out: enums. Called by: model.cluster, through which everybody else has them.
"""

from __future__ import annotations

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


class Nat(Word):
    """How private subnets reach what is outside."""

    ONE = "one"  # one gateway for all zones: cheaper, and traffic between zones is paid
    PER_ZONE = "per_zone"
    NONE = "none"  # only endpoints


class PlacementGroup(Word):
    """Whether bought nodes that start together are asked to stand close together."""

    AUTO = (
        "auto"  # cluster with EFA, unless the capacity is reserved: what is reserved stands where it stands
    )
    CLUSTER = "cluster"
    NONE = "none"


class StorageKind(Word):
    """How a storage gets onto a node."""

    NFS = "nfs"
    LUSTRE = "lustre"
    LOCAL = "local"
    FSX = "fsx"  # FSx for Lustre, made by Gangline or kept by people (`source`)
    EFS = "efs"


MADE_STORAGE = (StorageKind.FSX, StorageKind.EFS)  # what Gangline can make by itself, on AWS


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


class FairShare(Word):
    """What decides between queues, and between people of one queue whose jobs have the same priority."""

    OFF = "off"  # priority, then submit order, over all queues alike
    INSTANT = "instant"  # who holds the fewest GPUs for their weight
    DECAY = "decay"  # who has used the fewest GPU-hours for their weight; older ones count less


class Preset(Word):
    """How nodes are weighed against each other when several take a job."""

    STANDARD = "standard"  # for clusters where work ends: whole nodes are kept free
    FILLING = "filling"  # for clusters that fill up with work that stays
