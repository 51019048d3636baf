"""The pass over capacity carried out: what autoscale decides becomes facts, an intent before anybody is asked.

Comes in: State, why classes of jobs wait, what is known of clouds. Goes out: recorded intents, releases and marks, the
reasons that the pass tells. Called by: loop. What is asked of clouds for it is in capacity_tasks, what they answer in
capacity_answers, what people say of it in capacity_commands.
"""

from __future__ import annotations

from orchestrator.autoscale import decide as decide_capacity
from orchestrator.controller import instances
from orchestrator.controller.desk import Desk
from orchestrator.controller.elastic import OneSite, elastic_sites, reservations
from orchestrator.controller.offers import offers_of, outdated, policy_of, zones_of
from orchestrator.controller.reporter import CapacityPassReporter
from orchestrator.ledger import events
from orchestrator.model.capacity import Intent
from orchestrator.model.clock import SECOND
from orchestrator.model.decisions import Buy, CapacityDecision, Cordon, Reasons, Release, Uncordon
from orchestrator.model.ids import intent_id
from orchestrator.model.node import Mark, MarkKind

BY = "autoscale"
PASS_EVERY_US = 2 * SECOND  # over capacity, when nothing else stirs: times of rest and of idleness pass


def decide(desk: Desk, waits: Reasons | None) -> bool:
    """One pass, recorded; whether it decided anything. `desk.elastic.reasons` has what it tells."""
    elastic, state, now_us = desk.elastic, desk.state, desk.clock.now_us()
    elastic.passed_us = desk.clock.monotonic_us()
    elastic.reasons = {}
    if elastic.hands is None or state.cluster is None or waits is None or not _concerned(desk):
        return False
    reporter = CapacityPassReporter()
    facts = {name: site.facts for name, site in elastic.sites.items() if site.facts is not None}
    reserved = {name: known for site in elastic.sites.values() for name, known in site.reserved.items()}
    offers = offers_of(state.cluster, elastic.catalog, zones_of(facts), reserved, now_us)
    blocked = _blocked(desk)
    if blocked != elastic.told:
        elastic.told, desk.writer.touched_capacity = blocked, True
    old = outdated(state, {name: known for name, known in facts.items() if name not in blocked})
    policy = policy_of(state.cluster, elastic.catalog, blocked, old, now_us)
    budget = desk.settings.work_budget
    decisions = decide_capacity(state, offers, policy, now_us, budget, reporter, waits)
    for decision in decisions:
        _enact(desk, decision)
    elastic.reasons = reporter.reasons
    return bool(decisions)


def due(desk: Desk) -> None:
    """What time and facts of nodes bring, once per cycle."""
    instances.prove(desk)
    instances.end_blocks(desk)


def pass_due(desk: Desk) -> bool:
    """Whether time alone makes another pass worth while."""
    waited = desk.clock.monotonic_us() - desk.elastic.passed_us >= PASS_EVERY_US
    return waited and desk.elastic.hands is not None and _concerned(desk)


def _concerned(desk: Desk) -> bool:
    """Whether there is anything to decide about."""
    return bool(desk.state.fleets) or bool(elastic_sites(desk.state))


def _blocked(desk: Desk) -> dict[str, str]:
    """Sites where nothing can be launched now, and why."""
    found: dict[str, str] = {}
    for site in elastic_sites(desk.state):
        known = desk.elastic.sites.get(site.name, OneSite())
        if not desk.state.uid:
            found[site.name] = "the cluster has no uid yet"
        elif known.error:
            found[site.name] = known.error
        elif known.spec != desk.elastic.digest(desk.state, site.name):
            found[site.name] = "its stack is of another file: `gangline apply` brings it up to this one"
        elif any(name not in known.reserved for name in reservations(desk.state, site.name)):
            found[site.name] = "what is reserved there has not been looked at yet"
    return found


# --- decisions into facts -------------------------------------------------------------------------------------


def _enact(desk: Desk, decision: CapacityDecision) -> None:
    if isinstance(decision, Buy):
        _intend(desk, decision)
    elif isinstance(decision, Cordon):
        now_us, until_us = desk.clock.now_us(), decision.deadline_us
        mark = Mark(MarkKind.RELEASING, decision.why, BY, now_us, deadline_us=until_us, then=decision.then)
        desk.writer.node(decision.node, events.NodeMarked(decision.node, mark), BY)
    elif isinstance(decision, Uncordon):
        body = events.NodeUnmarked(decision.node, MarkKind.RELEASING, why=decision.why)
        desk.writer.node(decision.node, body, BY)
    else:
        _release(desk, decision)


def _intend(desk: Desk, buy: Buy) -> None:
    """In the ledger before anybody is asked: capacity_tasks carries it out when it is committed."""
    offer = buy.offer
    facts = desk.elastic.site(offer.site).facts
    name = intent_id(desk.state.seq + 1)
    intent = Intent(
        id=name,
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
        spec=desk.elastic.digest(desk.state, offer.site),
        meaning=(facts.meaning(offer.key) or "") if facts is not None else "",
        own=f"{name}-{desk.clock.now_us():x}",
    )
    desk.writer.capacity(intent.id, events.CapacityIntended(intent), BY)
    desk.elastic.fresh[intent.id] = True


def _release(desk: Desk, release: Release) -> None:
    body = events.CapacityReleasing(
        release.intent, release.instances, release.why, release.failed, release.retry_us
    )
    instances.releasing(desk, body, BY)
