"""What clouds answer, into facts: instances that came or were refused, what exists, what is gone, strangers.

Comes in: the answers of hands, as commands. Goes out: recorded facts, tasks that follow from them, and in `Elastic`
that they are not waited for any more. Called by: intake's table.

An intent that nobody answered for is settled by looks: what exists for it is taken whole, or ended, and only where
nothing exists the call is repeated, under the same token. An instance is known by its id, and gone when the cloud says
so, or has not told of it for long, several times over: describing lags behind launching.
"""

from __future__ import annotations

import logging

from orchestrator.autoscale.backoff import retry_us
from orchestrator.controller import capacity_tasks, instances
from orchestrator.controller.commands import EndAnswered, FactsRead, LaunchAnswered, Looked
from orchestrator.controller.desk import Desk
from orchestrator.controller.elastic import OneSite, Unsure, past
from orchestrator.ledger import events
from orchestrator.ledger.records import Fleet
from orchestrator.model.capacity import CloudInstance, CloudState, ErrorClass, Instance
from orchestrator.model.clock import SECOND

log = logging.getLogger("gangline.capacity")

ALIVE = (CloudState.PENDING, CloudState.RUNNING)
GRACE_S = 90  # between launching and describing, and before a stranger is ended
MISSES = 3  # looks in a row, over GRACE_S, in which a known instance is not there
MOST_CALLS = 3  # of one intent, all under one token


def facts_read(desk: Desk, command: FactsRead) -> None:
    """What a site's stack is like, from now on."""
    known = desk.elastic.site(command.site)
    known.error, known.facts, known.asking = command.error, command.facts, False
    desk.writer.stirred = True


def launch_answered(desk: Desk, command: LaunchAnswered) -> None:
    """The answer to a call: instances, a refusal, or none that anybody understands."""
    calls = desk.elastic.calls.pop(command.intent, 1)
    fleet = desk.state.fleets.get(command.intent)
    if fleet is None or not fleet.asked:
        return  # it was settled by a look meanwhile; what else exists is a stranger
    if command.unanswered:
        now_us = desk.clock.monotonic_us()
        desk.elastic.unsure[command.intent] = Unsure(now_us, calls)
        known = desk.elastic.site(fleet.intent.site)
        known.looked_us = min(known.looked_us, now_us - capacity_tasks.LOOK_BUSY_S * SECOND // 2)
        log.warning("%s: no answer: %s", command.intent, command.words)
    elif command.instances:
        _take(desk, fleet, command.instances)
    else:
        _refuse(desk, fleet, command.fault, command.words)
        if command.fault is None:
            desk.elastic.site(fleet.intent.site).facts_us = 0


def end_answered(desk: Desk, command: EndAnswered) -> None:
    """The cloud knows, or could not be told: it is told again, and people can see it."""
    news: list[str] = []
    for name in command.ids:
        known = desk.elastic.ending.get(name)
        if (known.error if known is not None else "") != command.error:
            news.append(name)
        if known is not None:
            known.error = command.error
            known.failures = known.failures + 1 if command.error else 0
    desk.writer.touched_capacity = desk.writer.touched_capacity or bool(news)
    if command.error and news:
        log.warning("instances %s were not ended: %s", ", ".join(news), command.error)


def looked(desk: Desk, command: Looked) -> None:
    """Compare both ways what a cloud says exists. A look that failed proves nothing."""
    elastic = desk.elastic
    known = elastic.site(command.site)
    known.looking = False
    _tell_change(command.site, known.look_error, command.error)
    known.look_error = command.error
    if command.error or desk.state.recovering:
        return
    known.reserved = {one.id: one for one in command.reserved}
    there = {one.id: one for one in command.instances}
    for fleet in list(desk.state.fleets.values()):
        if fleet.intent.site != command.site:
            continue
        if fleet.asked:
            _settle(desk, fleet, command)
        else:
            _compare(desk, fleet, there, command.asked_us)
    elastic.missed = {name: found for name, found in elastic.missed.items() if name in desk.state.instances}
    _end_strangers(desk, known, command)


def _tell_change(site: str, before: str, error: str) -> None:
    """The log says once that nobody can see what exists on a site, and once that it is seen again."""
    if error and error != before:
        log.warning("what exists on %s can't be seen, and is taken for as it was: %s", site, error)
    elif before and not error:
        log.info("what exists on %s is seen again", site)


# --- intents --------------------------------------------------------------------------------------------------


def _settle(desk: Desk, fleet: Fleet, command: Looked) -> None:
    """What exists of an intent that nobody answered for. A look from before the call says nothing of it."""
    intent, unsure = fleet.intent, desk.elastic.unsure.get(fleet.intent.id)
    if unsure is None or command.asked_us < unsure.since_us:
        return
    mine = tuple(one for one in command.instances if one.intent == intent.sign)
    if mine and (len(mine) == len(intent.nodes) or unsure.looks >= MISSES):
        _take(desk, fleet, mine)
        return
    unsure.looks += 1
    if mine:
        return  # the others may not be told of yet
    waited = past(command.asked_us, unsure.since_us, GRACE_S) and unsure.looks >= MISSES
    if intent.spec == desk.elastic.digest(desk.state, intent.site) and unsure.calls < MOST_CALLS:
        capacity_tasks.call(desk, intent, unsure.calls + 1)
    elif waited:
        _refuse(desk, fleet, None, "nothing exists for it, and nobody answered")


def _take(desk: Desk, fleet: Fleet, found: tuple[CloudInstance, ...]) -> None:
    """Instances exist for an intent: all of them are its nodes, in the order of their ids. Anything else than all is
    ended, and the offering was short of capacity."""
    intent = fleet.intent
    alive = sorted((one for one in found if one.state in ALIVE), key=lambda one: one.id)
    if len(alive) != len(intent.nodes) or any(name in desk.state.nodes for name in intent.nodes):
        capacity_tasks.end(desk, intent.site, tuple(one.id for one in alive), desk.clock.monotonic_us())
        words = f"{len(alive)} of {len(intent.nodes)} instances came"
        _refuse(desk, fleet, ErrorClass.CAPACITY, words)
        return
    bought = tuple(
        Instance(one.id, node, one.address, one.launched_us)
        for one, node in zip(alive, intent.nodes, strict=True)
    )
    desk.writer.capacity(intent.id, events.CapacityLaunched(intent.id, bought))
    desk.writer.touched_nodes.update((name, True) for name in intent.nodes)
    desk.elastic.unsure.pop(intent.id, None)


def _refuse(desk: Desk, fleet: Fleet, fault: ErrorClass | None, words: str) -> None:
    """Nothing exists for it: its offering, or for a fault of the whole site that, rests for longer each time."""
    intent, again_us = fleet.intent, 0
    if fault is not None:
        circuit = desk.state.circuits.get(intent.offering)
        halt = desk.state.halts.get(intent.site)
        wide = fault in (ErrorClass.THROTTLING, ErrorClass.AUTH)
        before = (halt.failures if halt else 0) if wide else (circuit.failures if circuit else 0)
        again_us = retry_us(fault, before + 1, intent.id, desk.clock.now_us())
    if fault is ErrorClass.AUTH:
        log.error("nothing is bought on %s: %s", intent.site, words)
    desk.writer.capacity(intent.id, events.CapacityRefused(intent.id, fault, words, again_us))
    desk.elastic.unsure.pop(intent.id, None)


# --- instances ------------------------------------------------------------------------------------------------


def _compare(desk: Desk, fleet: Fleet, there: dict[str, CloudInstance], asked_us: int) -> None:
    """Known instances: their addresses, those that end by themselves, those that are gone."""
    addresses: list[Instance] = []
    for one in list(fleet.instances):
        found = there.get(one.id)
        if found is None:
            if _missing(desk, one.id, asked_us) and instances.launched_for(desk, one) >= GRACE_S:
                instances.gone(desk, fleet, one, "the cloud does not know it any more")
            continue
        desk.elastic.missed.pop(one.id, None)
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


def _missing(desk: Desk, name: str, asked_us: int) -> bool:
    """One look more without it; whether that is proof."""
    misses, since_us = desk.elastic.missed.get(name, (0, asked_us))
    desk.elastic.missed[name] = (misses + 1, since_us)
    return misses + 1 >= MISSES and past(asked_us, since_us, GRACE_S)


def _end_strangers(desk: Desk, known: OneSite, command: Looked) -> None:
    """Instances with this cluster's marks that no intent knows: ended when a second look at their site, a grace later,
    finds them."""
    ending, now_us = desk.elastic.ending, desk.clock.monotonic_us()
    open_ones = {fleet.intent.sign for fleet in desk.state.fleets.values() if fleet.asked}
    found = [one.id for one in command.instances if one.intent not in open_ones and _strange(desk, one)]
    since_us = {name: known.strangers.get(name, command.asked_us) for name in found}
    ripe = [
        name
        for name in found
        if name in known.strangers and past(command.asked_us, since_us[name], GRACE_S)
        if name not in ending or ending[name].next_us <= now_us
    ]
    known.strangers = since_us
    news = [name for name in ripe if name not in ending]
    if news:
        log.warning("instances that no intent knows are ended: %s", ", ".join(news))
    if ripe:
        capacity_tasks.end(desk, command.site, tuple(ripe), now_us)


def _strange(desk: Desk, one: CloudInstance) -> bool:
    """Whether it exists and the ledger does not have it."""
    return one.state in ALIVE and one.id not in desk.state.instances
