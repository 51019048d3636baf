"""Elastic capacity: what may be bought, what was asked for, what a cloud says, and how an offering has behaved.

Comes in: values that the controller resolved from the spec, the catalog and answers of a cloud. Goes out: `Offer`,
`Intent`, `Instance`, `CloudInstance`, `Circuit`, the classes of errors. Called by: ledger (keeps them), autoscale
(decides with them), controller (carries out), provision.aws (is the cloud), api (shows them).

Units: micro-dollars per node and hour, bytes, UTC microseconds; 0 and the empty text mean "none" unless a field says
otherwise. An instance is known by its id alone, never by its name or address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.model.base import Word

UNBOUNDED = -1  # slots of what is bought, and of a reservation that nobody may look at
NEVER_US = 1 << 62  # later than any time: an offering that is out until the file changes
# EC2 begins to end a capacity block's instances half an hour before the block's end (EC2 user guide, capacity blocks);
# ten minutes before that they are told to leave.
BLOCK_TAKEN_S = 1800
BLOCK_LEAD_S = BLOCK_TAKEN_S + 600
LEAST_BILLED_S = 60  # EC2 bills Linux instances by the second, a minute at least


class ErrorClass(Word):
    """Why a launch was refused: what follows differs (docs/decisions/0003-aws.md). Unknown errors count as capacity."""

    CAPACITY = "capacity"  # there is none now: try again soon, another offering first
    QUOTA = "quota"  # the account may have no more of the kind: it stays so for long
    PRICE = "price"  # the market asks more than the offering allows: the next market
    PERMANENT = "permanent"  # the request is wrong: no use before the file changes
    THROTTLING = "throttling"  # the API is asked too often: slower, and nothing against the offering
    AUTH = "auth"  # nothing may be done with these credentials: all of the site stops


class OfferingKey(NamedTuple):
    """What is tried, fails and recovers by itself: one type on one market in one zone, for one pool."""

    pool: str
    type: str
    market: str
    zone: str
    reservation: str = ""

    def words(self) -> str:
        """As people read it: `p5.48xlarge spot in us-east-1a`."""
        return f"{self.type} {self.market} in {self.zone}"


class Shape(NamedTuple):
    """What a node of an instance type has before it has reported itself. `memory` in bytes."""

    gpus: int
    cores: int
    memory: int


@dataclass(frozen=True, slots=True)
class Offer:
    """An offering with what a decision needs: `price` as budgets count it, `max_price` what the market may ask (0:
    any), `ends_us` when a capacity block ends (0: it does not, or nobody knows), `slots` how many instances a
    reservation has."""

    key: OfferingKey
    site: str
    price: int
    shape: Shape
    max_price: int = 0
    ends_us: int = 0
    slots: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Reserved:
    """A capacity reservation or block as a cloud describes it: `slots` for instances, 0 before it begins and once it is
    over, UNBOUNDED if nobody knows; `ends_us` 0: when its owner says; `zone` empty: nobody knows."""

    id: str
    slots: int
    ends_us: int = 0
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """A launch that was decided on, all or nothing: one node for each name, for a job (0: for the pool's floor).

    `until_us`: until then its nodes are kept for that job. `spec`: what its site's stack was of when it was decided on;
    `meaning`: what a node of the offering meant then (`StackFacts.meaning`; empty: an older stack did not say). `own`:
    what the cloud knows it by (`sign`); a ledger that was restored counts from the backup on, and gives ids again.
    """

    id: str
    site: str
    offering: OfferingKey
    nodes: tuple[str, ...]
    price: int
    shape: Shape
    job: int = 0
    queue: str = ""
    max_price: int = 0
    until_us: int = 0
    ends_us: int = 0
    spec: str = ""
    meaning: str = ""
    own: str = ""

    @property
    def sign(self) -> str:
        """What the cloud knows it by: no other intent of the cluster has it, in whichever ledger. Intents that older
        versions have recorded have their id alone."""
        return self.own or self.id

    @property
    def pool(self) -> str:
        """The pool that its nodes belong to."""
        return self.offering.pool


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance that a cloud made for an intent, and the node that it is. `launched_us`: billed from then on."""

    id: str
    node: str
    address: str = ""
    launched_us: int = 0


class CloudState(Word):
    """What a cloud says of an instance."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"  # told to end, or stopped: it does not come back by itself
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class CloudInstance:
    """An instance as a cloud describes it: whose mark it has, and since when it has been billed (0: unknown)."""

    id: str
    intent: str
    state: CloudState
    address: str = ""
    launched_us: int = 0
    zone: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Circuit:
    """How an offering has behaved. `budget`: launches that may be under way at once, 1 after a failure and doubled by
    each success; nothing is tried before `retry_us`, then one launch alone until it has succeeded."""

    key: OfferingKey
    budget: int = 1
    failures: int = 0  # in a row
    retry_us: int = 0
    fault: ErrorClass | None = None
    words: str = ""

    @property
    def at_once(self) -> int:
        """Launches that may be under way at once when it may be tried at all."""
        return 1 if self.failures else self.budget

    def failed(self, fault: ErrorClass, words: str, retry_us: int) -> Circuit:
        """After one more failure: it rests until `retry_us`."""
        return Circuit(self.key, 1, self.failures + 1, retry_us, fault, words)


@dataclass(frozen=True, slots=True)
class Halt:
    """A site whose API is not asked before `retry_us`: it throttles, or refuses the credentials."""

    site: str
    fault: ErrorClass
    words: str
    retry_us: int
    failures: int = 1


def client_token(uid: str, sign: str) -> str:
    """What makes a repeated call find the same fleet: the cluster's uid and the intent's sign."""
    return f"{uid}-{sign}"


def billed_s(launched_us: int, ended_us: int) -> int:
    """Whole seconds that an instance is billed for: at least LEAST_BILLED_S."""
    return max(LEAST_BILLED_S, -(-max(ended_us - launched_us, 0) // 1_000_000))


def cost(price: int, seconds: int) -> int:
    """Micro-dollars of a node at that price per hour for so many seconds, rounded up."""
    return -(-price * seconds // 3600)
