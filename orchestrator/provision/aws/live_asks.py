"""What the live checks share: the question, and an account in which each thing is asked once.

Comes in: boto3 clients. Goes out: answers as plain values; errors of AWS in words. Called by: live and its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec, Offering, Pool, Site
from orchestrator.model.findings import Finding, Severity
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.aws.lookups import zones_of
from orchestrator.provision.aws.marks import SITE, UID

Client = Any
Clients = Callable[[str, str], Client]  # service and region -> a boto3 client
T = TypeVar("T")
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthFailure")
PRESENT = ["pending", "running", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class Bought:
    """One type that a pool may buy, with the place of its offering."""

    pool: Pool
    offering: Offering
    type: str
    place: str


class Account:
    """An account in one region. Answers that several checks need are asked for once, by whoever comes first."""

    def __init__(self, clients: Clients, region: str) -> None:
        self.region = region
        self._clients = clients
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}
        self._made: dict[str, Any] = {}

    def client(self, service: str) -> Client:
        """The client of a service in the region."""
        return self.once(f"client {service}", lambda: self._clients(service, self.region))

    def once(self, key: str, ask: Callable[[], T]) -> T:
        """What `ask` gives, asked once; an error is raised to everybody who asks, each time anew."""
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            if key not in self._made:
                self._made[key] = ask()
            found: T = self._made[key]
            return found

    def subnets(self, ids: tuple[str, ...]) -> list[dict[str, Any]]:
        """What EC2 says of these subnets; those that do not exist are not among them."""
        return self.once(f"subnets {ids}", lambda: self._subnets(ids))

    def _subnets(self, ids: tuple[str, ...]) -> list[dict[str, Any]]:
        ec2 = self.client("ec2")
        found = pages(
            ec2, "describe_subnets", "Subnets", Filters=[{"Name": "subnet-id", "Values": list(ids)}]
        )
        return list(found)

    def zones(self) -> tuple[str, ...]:
        """The zones of the region that the account may use, local ones that it opted into among them."""
        return self.once("zones", self._zones)

    def _zones(self) -> tuple[str, ...]:
        answer = self.client("ec2").describe_availability_zones()
        usable = [one for one in answer["AvailabilityZones"] if one.get("State", "available") == "available"]
        return tuple(sorted(one["ZoneName"] for one in usable))

    def instances(self) -> list[dict[str, Any]]:
        """All instances of the account in the region that are not ended."""
        return self.once("instances", self._instances)

    def _instances(self) -> list[dict[str, Any]]:
        ec2, states = self.client("ec2"), [{"Name": "instance-state-name", "Values": PRESENT}]
        reservations = pages(ec2, "describe_instances", "Reservations", Filters=states)
        return [one for row in reservations for one in row["Instances"]]


def pages(client: Client, operation: str, key: str, **request: Any) -> Iterator[dict[str, Any]]:
    """The rows of all pages of an answer."""
    for page in client.get_paginator(operation).paginate(**request):
        yield from page.get(key, [])


@dataclass(frozen=True, slots=True)
class Question:
    """What a check looks at. `now_us` is UTC microseconds."""

    spec: ClusterSpec
    site: Site
    facts: StackFacts | None
    catalog: Catalog
    account: Account
    now_us: int

    @property
    def place(self) -> str:
        """The site's own place in the file."""
        return f"sites[{self.site.name}]"

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of the site."""
        return tuple(pool for pool in self.spec.pools if pool.site == self.site.name)

    def bought(self) -> Iterator[Bought]:
        """All types of all offerings of all pools."""
        for pool in self.pools:
            for number, offering in enumerate(pool.offerings):
                for name in offering.types:
                    yield Bought(pool, offering, name, f"pools[{pool.name}].offerings[{number}]")

    def subnet_ids(self) -> dict[str, str]:
        """The private subnets by zone: those of the file, or that an earlier apply made; none before the first."""
        if self.site.vpc.subnets:
            return {one.name: one.id for one in self.site.vpc.subnets}
        return {one.zone: one.id for one in self.facts.subnets} if self.facts is not None else {}

    def usable_zones(self) -> tuple[str, ...]:
        """The zones in which nodes may stand: those that the stack's program gets."""
        return self.account.once("usable zones", self._usable_zones)

    def _usable_zones(self) -> tuple[str, ...]:
        return zones_of(self.site, self.facts, self.account.client("ec2"))

    def is_ours(self, instance: dict[str, Any]) -> bool:
        """Whether an instance is a node of this site, which the wanted sizes count already."""
        if self.facts is None:
            return False
        tags = {one["Key"]: one["Value"] for one in instance.get("Tags", [])}
        return (tags.get(UID), tags.get(SITE)) == (self.facts.uid, self.site.name)

    def unchecked(self, check: str, words: str) -> Finding:
        """The finding of a check that could not look."""
        hint = f"`--skip {check}` leaves it out"
        return Finding(check, Severity.UNCHECKED, self.place, f"{check} was not checked: {words}", hint)


def bounds(pool: Pool) -> tuple[int, int]:
    """The least and the most nodes of a pool."""
    return (pool.size.min, pool.size.max) if pool.size is not None else (len(pool.nodes), len(pool.nodes))


def least_place(pool: Pool) -> str:
    """Where the file says the least number of nodes."""
    return f"pools[{pool.name}].{'size.min' if pool.size is not None else 'nodes'}"


def most_place(pool: Pool) -> str:
    """Where the file says the most."""
    return f"pools[{pool.name}].{'size.max' if pool.size is not None else 'nodes'}"


# --- errors of AWS ---------------------------------------------------------------------------------------------------


def code_of(error: Exception) -> str:
    """The code of an error that a service answered; empty for others."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def message_of(error: Exception) -> str:
    """Its message, on one line."""
    response = getattr(error, "response", None)
    said = response.get("Error", {}).get("Message", "") if isinstance(response, dict) else str(error)
    return " ".join(str(said).split())[:300].rstrip(".")


def unanswered(error: Exception) -> str | None:
    """Why a service gave no answer, in words; None for errors that are none of AWS's."""
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ClientError):
        if code_of(error) in DENIED:
            return f"these credentials may not call {error.operation_name}"
        return f"{error.operation_name}: {code_of(error)}: {message_of(error)}"
    if isinstance(error, BotoCoreError):
        return message_of(error)
    if isinstance(error, (KeyError, TypeError, ValueError)):
        return "AWS's answer is none that Gangline reads"
    return None
