"""Elastic capacity carried out: decisions into intents, intents into calls, answers into facts, garbage away.

Comes in: decisions of autoscale, answers of clouds (by way of the inbox), time. Goes out: recorded facts, tasks for the
hands. Called by: loop (decide, due, hand_over), intake (answers).

An intent is in the ledger before anybody is asked. All that is known of calls is in memory: after a restart, or when no
answer came, the cloud is asked what exists for the intent; it is taken whole, or ended, and only where nothing exists
the call is repeated, under the same token. An instance is known by its id, and gone when the cloud says so, or has not
told of it for long, several times over: describing lags behind launching.
"""

from __future__ import annotations

import logging
import secrets
import string
from dataclasses import dataclass, field

from orchestrator.autoscale import decide
from orchestrator.autoscale.backoff import retry_us
from orchestrator.catalog import load
from orchestrator.controller import instances
from orchestrator.controller.commands import (
    EndAnswered,
    FactsRead,
    InterruptNode,
    LaunchAnswered,
    Looked,
    NameCluster,
    ResetCapacity,
)
from orchestrator.controller.desk import Desk
from orchestrator.controller.hands import Hands
from orchestrator.controller.offers import offers_of, policy_of
from orchestrator.controller.reporter import PassReporter
from orchestrator.controller.view_capacity import PoolView, pool_views
from orchestrator.ledger import events
from orchestrator.ledger.records import Fleet
from orchestrator.ledger.state import ClassKey, State
from orchestrator.model.capacity import CloudInstance, CloudState, ErrorClass, Instance, Intent, Shape
from orchestrator.model.catalog import Catalog
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import ClusterSpec, Site, SiteKind
from orchestrator.model.decisions import Buy, CapacityDecision, Cordon, Release, Uncordon
from orchestrator.model.errors import Conflict, NotFound
from orchestrator.model.failpoints import failpoint
from orchestrator.model.ids import intent_id
from orchestrator.model.node import Mark, MarkKind
from orchestrator.model.reasons import Reason
from orchestrator.planning.stack_digest import stack_digest
from orchestrator.provision.cloud import Ask, End, Launch, Look

log = logging.getLogger("gangline.capacity")

BY = "autoscale"
UID_SIGNS, UID_LENGTH = string.ascii_lowercase + string.digits, 12  # docs/decisions/0003-aws.md
PASS_EVERY_US = 2 * SECOND  # over capacity, when nothing else stirs: times of rest and of idleness pass
LOOK_BUSY_S = 10  # between looks while something comes or goes
LOOK_CALM_S = 60
FACTS_S = 60  # between readings of a stack's facts
DOUBT_S = 10  # the same, where somebody claims to be newer than they are
END_AGAIN_S = (
    60  # until an instance that still exists is told to end once more; doubled by each failure to tell
)
END_LONGEST_S = 900
GRACE_S = 90  # between launching and describing, and before a stranger is ended
MISSES = 3  # looks in a row, over GRACE_S, in which a known instance is not there
MOST_CALLS = 3  # of one intent, all under one token
MOST_AT_ONCE = 500  # instances that one call ends


@dataclass(slots=True)
class Unsure:
    """An intent of which nobody knows whether it was carried out. `looks`: how often nothing was found for it."""

    since_us: int
    calls: int
    looks: int = 0


@dataclass(slots=True)
class Ending:
    """An instance that is being ended: when to tell the cloud (again), how often that failed, and how."""

    next_us: int
    failures: int = 0
    error: str = ""
    told: bool = False


@dataclass(slots=True)
class OneSite:
    """What is known of a site's cloud. `zones` empty: the file's; `strangers`: instances that no intent knows, and
    since when they have been seen."""

    error: str = "the facts of its stack have not been read yet"
    spec: str = ""
    zones: tuple[str, ...] = ()
    facts_us: int = 0
    asking: bool = False
    looking: bool = False
    looked_us: int = 0
    look_error: str = ""
    strangers: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Elastic:
    """The core's part. `hands` None: there is no cloud, nothing is bought."""

    hands: Hands | None
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
    passed_us: int = 0
    digests_of: str = ""  # the file that `digests` (by site) are of
    digests: dict[str, str] = field(default_factory=dict)
    reasons: dict[ClassKey, Reason] = field(default_factory=dict)

    def forget(self) -> None:
        """State was read anew: what was decided since the last commit is not in it."""
        self.fresh = {}

    # --- the pass -------------------------------------------------------------------------------------------

    def decide(self, desk: Desk, waits: dict[ClassKey, Reason]) -> bool:
        """One pass, recorded; whether it decided anything. `reasons` has what it tells."""
        state, now_us = desk.state, desk.clock.now_us()
        self.passed_us = desk.clock.monotonic_us()
        self.reasons = {}
        if self.hands is None or state.cluster is None or not self.concerned(desk):
            return False
        reporter = PassReporter()
        zones = {name: site.zones for name, site in self.sites.items()}
        offers = offers_of(state.cluster, self.catalog, zones, now_us)
        blocked = self._blocked(desk)
        if blocked != self.told:
            self.told, desk.writer.touched_capacity = blocked, True
        policy = policy_of(state.cluster, self.catalog, blocked, now_us)
        decisions = decide(state, offers, policy, now_us, desk.settings.work_budget, reporter, waits)
        for decision in decisions:
            self._enact(desk, decision)
        self.reasons = reporter.reasons
        return bool(decisions)

    def due(self, desk: Desk) -> None:
        """What time and facts of nodes bring, once per cycle."""
        instances.prove(desk)
        instances.end_blocks(desk)

    def pass_due(self, desk: Desk) -> bool:
        """Whether time alone makes another pass worth while."""
        waited = desk.clock.monotonic_us() - self.passed_us >= PASS_EVERY_US
        return waited and self.hands is not None and self.concerned(desk)

    def concerned(self, desk: Desk) -> bool:
        """Whether there is anything to decide about."""
        return bool(desk.state.fleets) or bool(elastic_sites(desk))

    def views(self, state: State) -> tuple[PoolView, ...]:
        """What people see of bought pools."""
        stuck = {name: known.error for name, known in self.ending.items()}
        return pool_views(state, self.told, stuck)

    def _blocked(self, desk: Desk) -> dict[str, str]:
        """Sites where nothing can be launched now, and why."""
        found: dict[str, str] = {}
        for site in elastic_sites(desk):
            known = self.sites.get(site.name, OneSite())
            if not desk.state.uid:
                found[site.name] = "the cluster has no uid yet"
            elif known.error:
                found[site.name] = known.error
            elif known.spec != digest_for(desk, site.name):
                found[site.name] = "its stack is of another file: `gangline apply` brings it up to this one"
        return found

    def _enact(self, desk: Desk, decision: CapacityDecision) -> None:
        if isinstance(decision, Buy):
            self._intend(desk, decision)
        elif isinstance(decision, Cordon):
            mark = Mark(MarkKind.RELEASING, decision.why, BY, desk.clock.now_us())
            desk.writer.node(decision.node, events.NodeMarked(decision.node, mark), BY)
        elif isinstance(decision, Uncordon):
            body = events.NodeUnmarked(decision.node, MarkKind.RELEASING, why=decision.why)
            desk.writer.node(decision.node, body, BY)
        else:
            self._release(desk, decision)

    def _intend(self, desk: Desk, buy: Buy) -> None:
        offer = buy.offer
        intent = Intent(
            id=intent_id(desk.state.seq + 1),
            site=offer.site,
            offering=offer.key,
            nodes=buy.nodes,
            price=offer.price,
            shape=offer.shape,
            job=buy.job,
            queue=buy.queue,
            max_price=offer.max_price,
            until_us=buy.until_us,
            ends_us=offer.ends_us,
            spec=digest_for(desk, offer.site),
        )
        desk.writer.capacity(intent.id, events.CapacityIntended(intent), BY)
        self.fresh[intent.id] = True

    def _release(self, desk: Desk, release: Release) -> None:
        body = events.CapacityReleasing(
            release.intent, release.instances, release.why, release.failed, release.retry_us
        )
        instances.releasing(desk, body, BY)

    # --- tasks ----------------------------------------------------------------------------------------------

    def hand_over(self, desk: Desk) -> None:
        """After a commit: whatever the ledger wants of a cloud and nobody is at. Level-triggered, so that a restart or
        a lost answer needs no other way."""
        if self.hands is None or desk.state.cluster is None or not desk.state.uid:
            return
        now_us = desk.clock.monotonic_us()
        if self.fresh:
            failpoint("capacity.intent.after-commit")
        for fleet in desk.state.fleets.values():
            if fleet.asked:
                self._carry_out(desk, fleet, now_us)
        self._end_all(desk, now_us)
        for site in _sites_of_interest(desk):
            self._read(desk, site, now_us)
        self.fresh = {}

    def _carry_out(self, desk: Desk, fleet: Fleet, now_us: int) -> None:
        intent = fleet.intent
        if intent.id in self.fresh:
            self._call(desk, intent, 1)
        elif intent.id not in self.calls and intent.id not in self.unsure:
            self.unsure[intent.id] = Unsure(now_us, 0)

    def _call(self, desk: Desk, intent: Intent, calls: int) -> None:
        site, cluster = _site(desk, intent.site), desk.state.cluster
        if site is None or cluster is None or self.hands is None:
            return
        self.unsure.pop(intent.id, None)
        self.calls[intent.id] = calls
        self.hands.put(Launch(cluster.name, desk.state.uid, site, intent))

    def _end_all(self, desk: Desk, now_us: int) -> None:
        """Tell the cloud of every instance that is to end, and of strangers that have been seen for long."""
        due: dict[str, list[str]] = {}
        wanted: dict[str, bool] = {}
        for fleet in desk.state.fleets.values():
            for one in fleet.instances:
                if one.releasing_us:
                    wanted[one.id] = True
                    if self.ending.setdefault(one.id, Ending(now_us)).next_us <= now_us:
                        due.setdefault(fleet.intent.site, []).append(one.id)
        self.ending = {name: found for name, found in self.ending.items() if name in wanted}
        for name, ids in due.items():
            site = _site(desk, name)
            for at in range(0, len(ids) if site is not None else 0, MOST_AT_ONCE):
                self._end(site, tuple(ids[at : at + MOST_AT_ONCE]), now_us)

    def _end(self, site: Site | None, ids: tuple[str, ...], now_us: int) -> None:
        if site is None or self.hands is None:
            return
        for name in ids:
            known = self.ending.setdefault(name, Ending(now_us))
            known.next_us = now_us + min(END_AGAIN_S << min(known.failures, 8), END_LONGEST_S) * SECOND
        self.hands.put(End(site, ids))

    def _read(self, desk: Desk, site: Site, now_us: int) -> None:
        """The facts of a stack, and what exists, each when it is time."""
        known = self.sites.setdefault(site.name, OneSite())
        cluster = desk.state.cluster
        if cluster is None or self.hands is None:
            return
        stale = known.spec != digest_for(desk, site.name) or bool(known.error)
        if not known.asking and (not known.facts_us or (stale and _past(now_us, known.facts_us, FACTS_S))):
            known.asking, known.facts_us = True, now_us
            self.hands.put(Ask(cluster.name, desk.state.uid, site))
        every_s = LOOK_BUSY_S if self._moving(desk, site) else LOOK_CALM_S
        if not known.looking and (not known.looked_us or _past(now_us, known.looked_us, every_s)):
            known.looking, known.looked_us = True, now_us
            self.hands.put(Look(desk.state.uid, site, now_us))

    def _moving(self, desk: Desk, site: Site) -> bool:
        """Whether something comes or goes there."""
        mine = [fleet for fleet in desk.state.fleets.values() if fleet.intent.site == site.name]
        return bool(self.sites[site.name].strangers) or any(
            fleet.asked or any(one.releasing_us or not one.proved_us for one in fleet.instances)
            for fleet in mine
        )

    def doubt_facts(self, desk: Desk) -> None:
        """An instance has come that nobody waits for: the stacks may have made it since their facts were read."""
        now_us = desk.clock.monotonic_us()
        for known in self.sites.values():
            if known.facts_us and _past(now_us, known.facts_us, DOUBT_S):
                known.facts_us = 0

    # --- answers --------------------------------------------------------------------------------------------

    def facts_read(self, desk: Desk, command: FactsRead) -> None:
        """What a site's stack is like, from now on."""
        known = self.sites.setdefault(command.site, OneSite())
        known.error, known.spec, known.zones, known.asking = command.error, command.spec, command.zones, False
        desk.writer.stirred = True

    def launched(self, desk: Desk, command: LaunchAnswered) -> None:
        """The answer to a call: instances, a refusal, or none that anybody understands."""
        calls = self.calls.pop(command.intent, 1)
        fleet = desk.state.fleets.get(command.intent)
        if fleet is None or not fleet.asked:
            return  # it was settled by a look meanwhile; what else exists is a stranger
        if command.unanswered:
            self.unsure[command.intent] = Unsure(desk.clock.monotonic_us(), calls)
            known = self.sites.setdefault(fleet.intent.site, OneSite())
            known.looked_us = min(known.looked_us, desk.clock.monotonic_us() - LOOK_BUSY_S * SECOND // 2)
            log.warning("%s: no answer: %s", command.intent, command.words)
        elif command.instances:
            self._take(desk, fleet, command.instances)
        else:
            self._refuse(desk, fleet, command.fault, command.words)
            if command.fault is None:
                self.sites.setdefault(fleet.intent.site, OneSite()).facts_us = 0

    def _refuse(self, desk: Desk, fleet: Fleet, fault: ErrorClass | None, words: str) -> None:
        intent, again_us = fleet.intent, 0
        if fault is not None:
            circuit = desk.state.circuits.get(intent.offering)
            halt = desk.state.halts.get(intent.site)
            wide = fault in (ErrorClass.THROTTLING, ErrorClass.AUTH)
            before = (halt.failures if halt else 0) if wide else (circuit.failures if circuit else 0)
            again_us = retry_us(fault, before + 1, intent.id, desk.clock.now_us())
        if fault is ErrorClass.AUTH:
            log.error("nothing is bought on %s: %s", intent.site, words)
        body = events.CapacityRefused(intent.id, fault, words, again_us)
        desk.writer.capacity(intent.id, body)
        self.unsure.pop(intent.id, None)

    def _take(self, desk: Desk, fleet: Fleet, found: tuple[CloudInstance, ...]) -> None:
        """Instances exist for an intent: all of them are its nodes, in the order of their ids. Anything else than all
        is ended, and the offering was short of capacity."""
        intent = fleet.intent
        alive = sorted(
            (one for one in found if one.state in (CloudState.PENDING, CloudState.RUNNING)),
            key=lambda one: one.id,
        )
        fits = len(alive) == len(intent.nodes) and not any(name in desk.state.nodes for name in intent.nodes)
        if not fits:
            site = _site(desk, intent.site)
            self._end(site, tuple(one.id for one in alive), desk.clock.monotonic_us())
            words = f"{len(alive)} of {len(intent.nodes)} instances came"
            self._refuse(desk, fleet, ErrorClass.CAPACITY, words)
            return
        bought = tuple(
            Instance(one.id, node, one.address, one.launched_us)
            for one, node in zip(alive, intent.nodes, strict=True)
        )
        desk.writer.capacity(intent.id, events.CapacityLaunched(intent.id, bought))
        desk.writer.touched_nodes.update((name, True) for name in intent.nodes)
        self.unsure.pop(intent.id, None)

    def ended(self, desk: Desk, command: EndAnswered) -> None:
        """The cloud knows, or could not be told: it is told again, and people can see it."""
        for name in command.ids:
            known = self.ending.get(name)
            if known is None:
                continue
            desk.writer.touched_capacity = desk.writer.touched_capacity or known.error != command.error
            known.told, known.error = not command.error, command.error
            known.failures = known.failures + 1 if command.error else 0
        if command.error:
            log.warning("instances %s were not ended: %s", ", ".join(command.ids), command.error)

    # --- what a cloud says exists ---------------------------------------------------------------------------

    def looked(self, desk: Desk, command: Looked) -> None:
        """Compare both ways. A look that failed proves nothing."""
        known = self.sites.setdefault(command.site, OneSite())
        known.looking, known.look_error = False, command.error
        if command.error or desk.state.recovering:
            return
        there = {one.id: one for one in command.instances}
        for fleet in list(desk.state.fleets.values()):
            if fleet.intent.site != command.site:
                continue
            if fleet.asked:
                self._settle(desk, fleet, command)
            else:
                self._compare(desk, fleet, there, command.asked_us)
        self._strangers(desk, command)

    def _settle(self, desk: Desk, fleet: Fleet, command: Looked) -> None:
        """What exists of an intent that nobody answered for. A look from before the call says nothing of it."""
        intent, unsure = fleet.intent, self.unsure.get(fleet.intent.id)
        if unsure is None or command.asked_us < unsure.since_us:
            return
        mine = tuple(one for one in command.instances if one.intent == intent.id)
        if mine and (len(mine) == len(intent.nodes) or unsure.looks >= MISSES):
            self._take(desk, fleet, mine)
            return
        unsure.looks += 1
        if mine:
            return  # the others may not be told of yet
        waited = _past(command.asked_us, unsure.since_us, GRACE_S) and unsure.looks >= MISSES
        if intent.spec == digest_for(desk, intent.site) and unsure.calls < MOST_CALLS:
            self._call(desk, intent, unsure.calls + 1)
        elif waited:
            self._refuse(desk, fleet, None, "nothing exists for it, and nobody answered")

    def _compare(self, desk: Desk, fleet: Fleet, there: dict[str, CloudInstance], asked_us: int) -> None:
        """Known instances: their addresses, those that end by themselves, those that are gone."""
        addresses: list[Instance] = []
        for one in list(fleet.instances):
            found = there.get(one.id)
            if found is None:
                if self._missing(desk, one.id, asked_us) and instances.launched_for(desk, one) >= GRACE_S:
                    instances.gone(desk, fleet, one, "the cloud does not know it any more")
                continue
            self.missed.pop(one.id, None)
            if found.state is CloudState.GONE:
                instances.gone(desk, fleet, one, found.why or "the cloud says so")
            elif found.state is CloudState.ENDING and not one.releasing_us:
                why = f"the cloud ends it: {found.why or 'it does not say why'}"
                instances.releasing(desk, events.CapacityReleasing(fleet.intent.id, (one.id,), why))
            elif found.address and found.address != one.address:
                addresses.append(Instance(one.id, one.node, found.address, one.launched_us))
        if addresses:
            body = events.CapacityLaunched(fleet.intent.id, tuple(addresses))
            desk.writer.capacity(fleet.intent.id, body)
            desk.writer.touched_nodes.update((one.node, True) for one in addresses)

    def _missing(self, desk: Desk, name: str, asked_us: int) -> bool:
        """One look more without it; whether that is proof."""
        misses, since_us = self.missed.get(name, (0, asked_us))
        self.missed[name] = (misses + 1, since_us)
        return misses + 1 >= MISSES and _past(asked_us, since_us, GRACE_S)

    def _strangers(self, desk: Desk, command: Looked) -> None:
        """Instances with the site's marks that no intent knows: ended when a second look, a grace later, finds
        them. What belongs to an intent that is still open is not one."""
        known, seen = self.sites[command.site], dict[str, int]()
        ripe: list[str] = []
        for one in command.instances:
            alive = one.state in (CloudState.PENDING, CloudState.RUNNING)
            fleet = desk.state.fleets.get(one.intent)
            if not alive or one.id in desk.state.instances or (fleet is not None and fleet.asked):
                continue
            seen[one.id] = known.strangers.get(one.id, command.asked_us)
            if one.id in known.strangers and _past(command.asked_us, seen[one.id], GRACE_S):
                ripe.append(one.id)
        known.strangers = seen
        if ripe:
            log.warning("instances that no intent knows are ended: %s", ", ".join(ripe))
            self._end(_site(desk, command.site), tuple(ripe), desk.clock.monotonic_us())


# --- commands -------------------------------------------------------------------------------------------------


def facts_read(desk: Desk, command: FactsRead) -> None:
    """To whoever carries out what is bought; the same for the other answers of hands."""
    if desk.elastic is not None:
        desk.elastic.facts_read(desk, command)


def launch_answered(desk: Desk, command: LaunchAnswered) -> None:
    """See `Elastic.launched`."""
    if desk.elastic is not None:
        desk.elastic.launched(desk, command)


def end_answered(desk: Desk, command: EndAnswered) -> None:
    """See `Elastic.ended`."""
    if desk.elastic is not None:
        desk.elastic.ended(desk, command)


def looked(desk: Desk, command: Looked) -> None:
    """See `Elastic.looked`."""
    if desk.elastic is not None:
        desk.elastic.looked(desk, command)


def name_cluster(desk: Desk, command: NameCluster) -> str:
    """The cluster's uid: as it was set up, as asked for, or a new one."""
    known = desk.state.uid
    if not known:
        known = command.uid or "".join(secrets.choice(UID_SIGNS) for _ in range(UID_LENGTH))
        desk.writer.touched_capacity = True
        desk.writer.record(events.ClusterNamed(known), "cluster", command.by)
    if command.uid and command.uid != known:
        raise Conflict(
            "cluster.other-uid",
            f"what this cluster has is marked with {known}, and the stack is of {command.uid}",
            "set `gangline:uid` of the stack to the cluster's own, or use another controller",
        )
    return known


def shapes(desk: Desk) -> dict[str, Shape]:
    """What a node of each bought pool has at most, by its offerings."""
    state, found = desk.state, dict[str, Shape]()
    if desk.elastic is None or state.cluster is None:
        return found
    for offer in offers_of(state.cluster, desk.elastic.catalog, {}, desk.clock.now_us()):
        known = found.get(offer.key.pool, offer.shape)
        cores, memory = max(known.cores, offer.shape.cores), max(known.memory, offer.shape.memory)
        found[offer.key.pool] = Shape(offer.shape.gpus, cores, memory)
    return found


def check_sites(desk: Desk, spec: ClusterSpec) -> None:
    """A site stays in the file while something that was bought there may exist: nobody else could end it."""
    names = {site.name: True for site in spec.sites}
    for fleet in desk.state.fleets.values():
        if fleet.intent.site not in names:
            raise Conflict(
                "capacity.site-in-use",
                f"site {fleet.intent.site} still has instances of pool {fleet.intent.pool}",
                "take its pools out first, wait until `gangline nodes` shows none of theirs, then take the site out",
            )


def interrupt_node(desk: Desk, command: InterruptNode) -> None:
    """The cloud takes a node's instance back."""
    node = desk.state.nodes.get(command.node)
    if node is None:
        raise NotFound("node.not-found", f"there is no node {command.node}")
    instances.interrupt(desk, node, command.at_us, command.why, command.by)


def reset(desk: Desk, command: ResetCapacity) -> None:
    """Buying for a pool may be tried again."""
    pool = desk.state.pool(command.pool)
    if pool is None or pool.size is None:
        raise NotFound("pool.not-bought", f"no pool {command.pool} is bought")
    desk.writer.touched_capacity = True
    desk.writer.record(events.CapacityReset(pool.name, command.why), f"pool/{pool.name}", command.by)


# --- sites ----------------------------------------------------------------------------------------------------


def elastic_sites(desk: Desk) -> list[Site]:
    """Sites of the wanted cluster with pools that are bought."""
    cluster = desk.state.cluster
    if cluster is None:
        return []
    names = {pool.site: True for pool in cluster.pools if pool.size is not None}
    return [site for site in cluster.sites if site.kind is SiteKind.AWS and site.name in names]


def _sites_of_interest(desk: Desk) -> list[Site]:
    """Where something is bought or kept, or still exists."""
    cluster = desk.state.cluster
    if cluster is None:
        return []
    names = {fleet.intent.site: True for fleet in desk.state.fleets.values()}
    aws = [site.name for site in cluster.sites if site.kind is SiteKind.AWS]
    names.update((pool.site, True) for pool in cluster.pools if pool.site in aws)
    return [site for site in cluster.sites if site.name in names]


def digest_for(desk: Desk, site: str) -> str:
    """What the stack of a site must be of for launches to go by it; empty if there is no such site."""
    spec, elastic = desk.state.cluster, desk.elastic
    if spec is None or elastic is None or _site(desk, site) is None:
        return ""
    if elastic.digests_of != desk.state.digest:
        elastic.digests, elastic.digests_of = {}, desk.state.digest
    if site not in elastic.digests:
        elastic.digests[site] = stack_digest(spec, site)
    return elastic.digests[site]


def _site(desk: Desk, name: str) -> Site | None:
    sites = desk.state.cluster.sites if desk.state.cluster is not None else ()
    return next((site for site in sites if site.name == name), None)


def _past(now_us: int, since_us: int, seconds: int) -> bool:
    return now_us - since_us >= seconds * SECOND
