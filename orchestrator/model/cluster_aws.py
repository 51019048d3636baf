"""What the cluster's model has for AWS alone: network, stack, image, prices, and the controller's own instance.

Comes in: nothing. Goes out: the parts of sites and of the controller that stand for bought capacity. Called by:
model.cluster_sites and model.cluster, through which everybody else has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.change import UpdateClass
from orchestrator.model.cluster_words import Market, Nat
from orchestrator.model.written import VALUE, Effect, Form, identity, leaf, rows

CONTROLLER, IN_PLACE = UpdateClass.CONTROLLER, UpdateClass.IN_PLACE
REFUSED, REPLACE = UpdateClass.REFUSED, UpdateClass.REPLACE
STANDS_IN = "all that was bought stands in it"
BOUGHT_ANEW = "a bought node starts with it, and is replaced to get another"
ELSEWHERE = "add a site with the other network, move the pools, then remove this one"


@dataclass(frozen=True, slots=True)
class Subnet:
    """A private subnet that people keep; `name` is its zone."""

    name: str = field(metadata=identity())
    id: str = field(metadata=leaf(REPLACE, "nodes stand in the subnet that they were started in", key=VALUE))


@dataclass(frozen=True, slots=True)
class Vpc:
    """The network of a site. `id` empty: Gangline makes one of `cidr`; else `subnets` are the private ones to use.

    `nat` and `endpoints` (short service names, as in s3) are for a network that Gangline makes.
    """

    cidr: str = field(
        default="10.64.0.0/16", metadata=leaf(REFUSED, STANDS_IN, given=True, unblock=ELSEWHERE)
    )
    id: str = field(default="", metadata=leaf(REFUSED, STANDS_IN, unblock=ELSEWHERE))
    subnets: tuple[Subnet, ...] = field(
        default=(),
        metadata=rows(
            Effect(CONTROLLER, "it counts for what is bought from now on"),
            Effect(REPLACE, "nodes in a subnet that is no longer named are replaced"),
            table=True,
        ),
    )
    nat: Nat = field(
        default=Nat.ONE,
        metadata=leaf(IN_PLACE, "nodes reach nothing outside while the way out changes", given=True),
    )
    endpoints: tuple[str, ...] = field(
        default=("s3",),
        metadata=leaf(
            IN_PLACE, "the ways to AWS's services change under running work", form=Form.TEXTS, given=True
        ),
    )


@dataclass(frozen=True, slots=True)
class Stack:
    """Where Pulumi keeps the record of what it made: `backend` a URL (empty: the state folder), `secrets` what encrypts
    secrets in it (empty: a passphrase of Gangline's own)."""

    backend: str = field(
        default="",
        metadata=leaf(
            REFUSED,
            "the record of what was made lies there",
            unblock="add a site with the other place, move the pools, then remove this one",
        ),
    )
    secrets: str = field(
        default="", metadata=leaf(CONTROLLER, "secrets are encrypted anew at the next change")
    )


@dataclass(frozen=True, slots=True)
class Price:
    """A negotiated price of one type on one market, in micro-dollars an hour."""

    type: str = field(metadata=identity())
    market: Market = field(metadata=identity())
    microusd_per_hour: int = field(metadata=leaf(CONTROLLER, key="usd_per_hour", form=Form.DOLLARS))


@dataclass(frozen=True, slots=True)
class ControllerInstance:
    """The controller on an instance of its own. `volume` in bytes: the disk that keeps its state."""

    site: str = field(
        metadata=leaf(
            REFUSED,
            "the ledger lies there, and a running controller is not moved by its own file",
            unblock="`gangline server backup`, change the field, `gangline server restore` on the new instance",
        )
    )
    type: str = field(metadata=leaf(IN_PLACE, "the controller stops while its instance changes; jobs run on"))
    volume: int = field(default=0, metadata=leaf(IN_PLACE, "a disk only grows", form=Form.BYTES))
