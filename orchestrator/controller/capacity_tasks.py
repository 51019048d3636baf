"""What the ledger wants of clouds, as tasks for the hands: launch, end, read facts, look at what exists.

Comes in: State after a commit, what is under way already. Goes out: tasks, and in `Elastic` that they are under way.
Called by: loop (`hand_over`, each cycle), capacity_answers (a call again, instances to end), admission and applies
(`doubt_facts`).

A launch is called once for each intent and token. Whether one was that nobody answered for, a look finds out.
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.controller.elastic import Ending, Unsure, past, reservations, site_of
from orchestrator.ledger.records import Fleet
from orchestrator.model.capacity import Intent
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Site, SiteKind
from orchestrator.model.failpoints import failpoint
from orchestrator.provision.cloud import Ask, End, Launch, Look, Task

LOOK_BUSY_S = 10  # between looks while something comes or goes
LOOK_CALM_S = 60
FACTS_S = 60  # between readings of a stack's facts
DOUBT_S = 10  # the same, where an instance that nobody waits for claims to be newer than they are
# Until an instance that still exists is told to end once more; doubled by each failure to tell.
END_AGAIN_S = 60
END_LONGEST_S = 900
MOST_AT_ONCE = 500  # instances that one call ends


def hand_over(desk: Desk) -> None:
    """After a commit: whatever the ledger wants of a cloud and nobody is at. Level-triggered, so that a restart or a
    lost answer needs no other way."""
    elastic = desk.elastic
    if elastic.hands is None or desk.state.cluster is None or not desk.state.uid:
        return
    now_us = desk.clock.monotonic_us()
    if elastic.fresh:
        failpoint("capacity.intent.after-commit")
    for fleet in desk.state.fleets.values():
        if fleet.asked:
            _carry_out(desk, fleet, now_us)
    _end_all(desk, now_us)
    for site in _sites_of_interest(desk):
        _read(desk, site, now_us)
    elastic.fresh = {}


def call(desk: Desk, intent: Intent, calls: int) -> None:
    """Have an intent launched, for the `calls`th time; not if its site is not in the file."""
    site, cluster = site_of(desk.state, intent.site), desk.state.cluster
    if site is None or cluster is None:
        return
    desk.elastic.unsure.pop(intent.id, None)
    desk.elastic.calls[intent.id] = calls
    _put(desk, Launch(cluster.name, desk.state.uid, site, intent))


def end(desk: Desk, name: str, ids: tuple[str, ...], now_us: int) -> None:
    """Have instances of a site ended, and told again later if they still exist."""
    site = site_of(desk.state, name)
    if site is None:
        return
    for each in ids:
        known = desk.elastic.ending.setdefault(each, Ending(now_us))
        known.next_us = now_us + min(END_AGAIN_S << min(known.failures, 8), END_LONGEST_S) * SECOND
    _put(desk, End(site, ids))


def doubt_facts(desk: Desk, older_s: int) -> None:
    """The stacks may have changed since their facts were read, if that was so many seconds ago: read them again."""
    now_us = desk.clock.monotonic_us()
    for known in desk.elastic.sites.values():
        if known.facts_us and past(now_us, known.facts_us, older_s):
            known.facts_us = 0


def _put(desk: Desk, task: Task) -> None:
    if desk.elastic.hands is not None:
        desk.elastic.hands.put(task)


def _carry_out(desk: Desk, fleet: Fleet, now_us: int) -> None:
    intent, elastic = fleet.intent, desk.elastic
    if intent.id in elastic.fresh:
        call(desk, intent, 1)
    elif intent.id not in elastic.calls and intent.id not in elastic.unsure:
        elastic.unsure[intent.id] = Unsure(now_us, 0)


def _end_all(desk: Desk, now_us: int) -> None:
    """Tell the cloud of every instance that is to end; looks tell it of strangers."""
    elastic = desk.elastic
    due: dict[str, list[str]] = {}
    wanted = {name: True for known in elastic.sites.values() for name in known.strangers}
    for fleet in desk.state.fleets.values():
        for one in fleet.instances:
            if one.releasing_us:
                wanted[one.id] = True
                if elastic.ending.setdefault(one.id, Ending(now_us)).next_us <= now_us:
                    due.setdefault(fleet.intent.site, []).append(one.id)
    elastic.ending = {name: found for name, found in elastic.ending.items() if name in wanted}
    for site, ids in due.items():
        for at in range(0, len(ids), MOST_AT_ONCE):
            end(desk, site, tuple(ids[at : at + MOST_AT_ONCE]), now_us)


def _read(desk: Desk, site: Site, now_us: int) -> None:
    """The facts of a stack, and what exists, each when it is time."""
    known, cluster = desk.elastic.site(site.name), desk.state.cluster
    if cluster is None:
        return
    stale = known.spec != desk.elastic.digest(desk.state, site.name) or bool(known.error)
    if not known.asking and (not known.facts_us or (stale and past(now_us, known.facts_us, FACTS_S))):
        known.asking, known.facts_us = True, now_us
        _put(desk, Ask(cluster.name, desk.state.uid, site))
    every_s = LOOK_BUSY_S if _moving(desk, site) else LOOK_CALM_S
    asked_of = reservations(desk.state, site.name)
    news = not known.looked_us or (
        not known.look_error and any(name not in known.reserved for name in asked_of)
    )
    if not known.looking and (news or past(now_us, known.looked_us, every_s)):
        known.looking, known.looked_us = True, now_us
        _put(desk, Look(desk.state.uid, site, now_us, tuple(asked_of)))


def _moving(desk: Desk, site: Site) -> bool:
    """Whether something comes or goes there."""
    mine = [fleet for fleet in desk.state.fleets.values() if fleet.intent.site == site.name]
    return bool(desk.elastic.site(site.name).strangers) or any(
        fleet.asked or any(one.releasing_us or not one.proved_us for one in fleet.instances) for fleet in mine
    )


def _sites_of_interest(desk: Desk) -> list[Site]:
    """Where something is bought or kept, or still exists."""
    cluster = desk.state.cluster
    if cluster is None:
        return []
    names = {fleet.intent.site: True for fleet in desk.state.fleets.values()}
    aws = [site.name for site in cluster.sites if site.kind is SiteKind.AWS]
    names.update((pool.site, True) for pool in cluster.pools if pool.site in aws)
    return [site for site in cluster.sites if site.name in names]
