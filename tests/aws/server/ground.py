"""What a test sets and reads of the server: faults, capacity, quotas, prices, the time, and what was asked of it.

Comes in: JSON of the hooks (front.py). Goes out: one `Ground`, which every other module here asks. Called by: all of
tests.aws.server, under its lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

# Dollars an hour, us-east-1, on demand, Linux, as EC2's price list had them on 2026-07-20.
PRICES = {
    "g5.xlarge": 1.006, "g5.12xlarge": 5.672, "g5.48xlarge": 16.288, "g6.xlarge": 0.8048, "g6e.48xlarge": 30.13118,
    "p4d.24xlarge": 21.957642, "p4de.24xlarge": 27.44705, "p5.4xlarge": 6.88, "p5.48xlarge": 55.04,
    "p5en.48xlarge": 63.296, "p6-b200.48xlarge": 113.9328, "p6-b300.48xlarge": 142.416, "m7i.large": 0.1008,
}  # fmt: skip
MARKETS = ("on_demand", "spot", "capacity_reservation", "capacity_block")


@dataclass
class Offering:
    """What is launched, as faults and capacity name it: an empty word matches every one."""

    type: str = ""
    zone: str = ""
    market: str = ""

    def covers(self, other: Offering) -> bool:
        """Whether every word that this one has is the other's."""
        pairs = ((self.type, other.type), (self.zone, other.zone), (self.market, other.market))
        return all(not mine or mine == theirs for mine, theirs in pairs)


@dataclass
class Fault:
    """A failure that waits for a request.

    `operation`: the call that fails; empty: launches of `offering`, in RunInstances as an error of the call, in
    CreateFleet as one about that offering in an answer of status 200, as EC2 does. `code` and `message`: the error.
    `times`: how often, None for ever. `silence`: `before` cuts the connection instead of acting, `after` acts and then
    cuts it.
    """

    operation: str = ""
    offering: Offering = field(default_factory=Offering)
    code: str = ""
    message: str = ""
    times: int | None = 1
    silence: str = ""


@dataclass
class Room:
    """How many instances of an offering can still be launched; what ends gives its place back."""

    offering: Offering
    left: int


@dataclass
class Bill:
    """One instance that was ever launched; seconds of the ground's clock."""

    instance: str
    type: str
    market: str
    zone: str
    began: float
    ended: float | None = None


@dataclass
class Ground:
    """All of it. Everybody holds `lock` while reading or changing it."""

    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    faults: list[Fault] = field(default_factory=list)
    rooms: list[Room] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)  # requests that botocore's models don't allow
    bills: dict[str, Bill] = field(default_factory=dict)
    hide_new_for: int = 0  # Describe calls that don't see a new instance
    hidden: dict[str, int] = field(default_factory=dict)
    ending_for: int = 0  # Describe calls that see an ended instance as shutting-down
    ending: dict[str, int] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=lambda: dict(PRICES))
    spot: list[tuple[Offering, float]] = field(default_factory=list)
    quotas: dict[str, float] = field(default_factory=dict)
    tokens: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)
    fleets: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    partial: list[int] = field(
        default_factory=list
    )  # fleets to come end with so many instances, whatever was asked
    minted: int = 0
    ahead_s: float = 0.0

    def reset(self) -> None:
        """As it was at the start."""
        fresh = Ground()
        for name in vars(fresh):
            if name != "lock":
                setattr(self, name, getattr(fresh, name))

    def now(self) -> datetime:
        """The account's time, UTC: the machine's, moved by `ahead_s`."""
        return datetime.fromtimestamp(time.time() + self.ahead_s, UTC)

    def mint(self, prefix: str) -> str:
        """A new id of EC2's form."""
        self.minted += 1
        return f"{prefix}-{0xA0000000000000000 + self.minted:017x}"

    def call_fault(self, operation: str) -> Fault | None:
        """The first fault that waits for a call of that name. The use is counted."""
        return self._take(lambda fault: fault.operation == operation)

    def launch_fault(self, offering: Offering) -> Fault | None:
        """The first fault that waits for a launch of that offering. The use is counted."""
        return self._take(lambda fault: not fault.operation and fault.offering.covers(offering))

    def _take(self, fits: Callable[[Fault], bool]) -> Fault | None:
        found = next((fault for fault in self.faults if fault.times != 0 and fits(fault)), None)
        if found and found.times is not None:
            found.times -= 1
        return found

    def room(self, offering: Offering) -> int | None:
        """How many more of it can be launched; None where nothing limits it."""
        found = [room.left for room in self.rooms if room.offering.covers(offering)]
        return min(found) if found else None

    def spot_price(self, type_: str, zone: str) -> float:
        """Dollars an hour: what a test set, else three tenths of the price on demand."""
        for offering, price in reversed(self.spot):
            if offering.covers(Offering(type_, zone)):
                return price
        return round(self.prices.get(type_, 1.0) * 0.3, 4)

    def launched(self, instance: str, offering: Offering) -> None:
        """Note that an instance is billed from now on, and takes its place."""
        began = self.now().timestamp()
        self.bills[instance] = Bill(instance, offering.type, offering.market, offering.zone, began)
        self._give(offering, -1)
        if self.hide_new_for:
            self.hidden[instance] = self.hide_new_for

    def ended(self, instance: str) -> None:
        """Note that an instance is billed no longer, and gives its place back."""
        bill = self.bills.get(instance)
        if bill is None or bill.ended is not None:
            return
        bill.ended = self.now().timestamp()
        self._give(Offering(bill.type, bill.zone, bill.market), 1)
        if self.ending_for:
            self.ending[instance] = self.ending_for

    def _give(self, offering: Offering, by: int) -> None:
        for room in self.rooms:
            if room.offering.covers(offering):
                room.left += by


GROUND = Ground()
