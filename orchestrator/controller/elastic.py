"""What is known of clouds beside the ledger: who talks to them, what is under way, what they said last.

Comes in: what the controller asks of clouds and is answered. Goes out: `Elastic`, whose tables capacity, capacity_tasks
and capacity_answers keep. Called by: service (makes it), desk (has it), those three, publish (views).

All of it is in memory. After a restart each cloud is asked what exists, and the ledger says what ought to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.catalog import load
from orchestrator.controller.hands import Hands
from orchestrator.controller.view_capacity import PoolView, pool_views
from orchestrator.ledger.state import ClassKey, State
from orchestrator.model.capacity import Reserved
from orchestrator.model.catalog import Catalog
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Site, SiteKind
from orchestrator.model.reasons import Reason
from orchestrator.model.stack_facts import StackFacts
from orchestrator.planning.stack_digest import stack_digest


@dataclass(slots=True)
class Unsure:
    """An intent of which nobody knows whether it was carried out. `looks`: how often nothing was found for it."""

    since_us: int
    calls: int
    looks: int = 0


@dataclass(slots=True)
class Ending:
    """An instance that is being ended: when to tell the cloud (again), how often in a row that failed, and how last."""

    next_us: int
    failures: int = 0
    error: str = ""


@dataclass(slots=True)
class OneSite:
    """What is known of a site's cloud. `facts` None: `error` says why there are none; `strangers`: instances that no
    intent knows, and since when its looks have found them."""

    error: str = "the facts of its stack have not been read yet"
    facts: StackFacts | None = None
    facts_us: int = 0
    asking: bool = False
    looking: bool = False
    looked_us: int = 0
    look_error: str = ""
    strangers: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, Reserved] = field(default_factory=dict)  # by id, as the last look found them

    @property
    def spec(self) -> str:
        """The digest of the file that its stack is of; empty if nobody knows."""
        return self.facts.spec if self.facts is not None else ""


@dataclass(slots=True)
class Elastic:
    """The core's memory of clouds; times are monotonic microseconds. `hands` None: there is no cloud, nothing is
    bought."""

    hands: Hands | None = None
    catalog: Catalog = field(default_factory=load)
    sites: dict[str, OneSite] = field(default_factory=dict)
    fresh: dict[str, bool] = field(
        default_factory=dict
    )  # intents of this cycle: to be carried out once committed
    calls: dict[str, int] = field(
        default_factory=dict
    )  # intents that somebody carries out now, and their calls so far
    unsure: dict[str, Unsure] = field(default_factory=dict)
    ending: dict[str, Ending] = field(default_factory=dict)
    missed: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # instance -> looks without it, since when
    told: dict[str, str] = field(
        default_factory=dict
    )  # site -> why nothing can be bought there, as last decided
    passed_us: int = 0  # when the last pass was
    reasons: dict[ClassKey, Reason] = field(default_factory=dict)  # as the last pass had them
    _digests_of: str = ""  # the file that `_digests` (by site) are of
    _digests: dict[str, str] = field(default_factory=dict)

    def site(self, name: str) -> OneSite:
        """What is known of a site's cloud from now on, if nothing was."""
        return self.sites.setdefault(name, OneSite())

    def forget(self, now_us: int) -> None:
        """State was read anew: what was decided since the last commit is not in it, nor what was answered. So all that
        is being asked is asked again; for a launch that is a look first, from `now_us` (monotonic) on."""
        self.fresh = {}
        self.unsure.update((intent, Unsure(now_us, calls)) for intent, calls in self.calls.items())
        self.calls = {}
        for known in self.sites.values():
            known.facts_us = 0 if known.asking else known.facts_us
            known.looked_us = 0 if known.looking else known.looked_us
            known.asking = known.looking = False

    def digest(self, state: State, site: str) -> str:
        """What the stack of a site must be of for launches to go by it; empty if there is no such site."""
        if state.cluster is None or site_of(state, site) is None:
            return ""
        if self._digests_of != state.digest:
            self._digests, self._digests_of = {}, state.digest
        if site not in self._digests:
            self._digests[site] = stack_digest(state.cluster, site)
        return self._digests[site]

    def views(self, state: State) -> tuple[PoolView, ...]:
        """What people see of bought pools."""
        stuck = {name: known.error for name, known in self.ending.items()}
        return pool_views(state, self.told, stuck)


def elastic_sites(state: State) -> list[Site]:
    """Sites of the wanted cluster with pools that are bought."""
    if state.cluster is None:
        return []
    names = {pool.site: True for pool in state.cluster.pools if pool.size is not None}
    return [site for site in state.cluster.sites if site.kind is SiteKind.AWS and site.name in names]


def reservations(state: State, site: str) -> dict[str, bool]:
    """Those that the offerings of a site's pools name, by id."""
    return {
        one.reservation: True
        for pool in (state.cluster.pools if state.cluster is not None else ())
        for one in pool.offerings
        if pool.site == site and one.reservation
    }


def site_of(state: State, name: str) -> Site | None:
    """The site of the wanted cluster with that name, or None."""
    sites = state.cluster.sites if state.cluster is not None else ()
    return next((site for site in sites if site.name == name), None)


def past(now_us: int, since_us: int, seconds: int) -> bool:
    """Whether so many seconds have gone by."""
    return now_us - since_us >= seconds * SECOND
