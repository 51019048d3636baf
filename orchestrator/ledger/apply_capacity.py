"""Folding what happens to elastic capacity: intents, instances, how offerings behave, what was billed.

Comes in: a State and an event about capacity. Goes out: the State changed. Called by: apply.

Facts only: no price is looked up, no back-off is computed; they are in the events.
"""

from __future__ import annotations

from orchestrator.ledger import events
from orchestrator.ledger.apply_nodes import busy
from orchestrator.ledger.event import Event
from orchestrator.ledger.records import HOURS_KEPT, Account, Bought, Fleet, Node
from orchestrator.ledger.state import State
from orchestrator.model.capacity import NEVER_US, Circuit, ErrorClass, Halt, Intent, OfferingKey, cost
from orchestrator.model.ids import intent_id

MOST_AT_ONCE = 64  # launches of one offering under way, however well it behaves
HOUR_US = 3_600_000_000
SITE_WIDE = (ErrorClass.THROTTLING, ErrorClass.AUTH)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def named(state: State, event: Event, body: events.ClusterNamed) -> None:
    """Once and for ever: what was bought is found by it."""
    _require(not state.uid, f"the cluster's uid is {state.uid} already")
    state.uid = body.uid


def file_changed(state: State) -> None:
    """Another file is wanted: what that could mend may be tried again."""
    for key, circuit in list(state.circuits.items()):
        if circuit.fault is ErrorClass.PERMANENT or circuit.retry_us >= NEVER_US:
            state.circuits[key] = Circuit(key)
    state.halts = {site: halt for site, halt in state.halts.items() if halt.fault is not ErrorClass.AUTH}
    state.boot_failures = {}


def reset(state: State, event: Event, body: events.CapacityReset) -> None:
    """A person says that it may be tried again."""
    pool = state.pool(body.pool)
    if pool is None:
        raise ValueError(f"there is no pool {body.pool}")
    state.boot_failures.pop(pool.name, None)
    state.halts.pop(pool.site, None)
    for key in [key for key in state.circuits if key.pool == pool.name]:
        del state.circuits[key]


# --- intents --------------------------------------------------------------------------------------------------


def intended(state: State, event: Event, body: events.CapacityIntended) -> None:
    """Names and money are taken from here on, whatever the cloud will answer."""
    intent = body.intent
    _require(intent.id == intent_id(event.seq), f"{intent.id} does not name its event")
    _require(bool(intent.nodes), f"{intent.id} is for no node")
    taken = {name: True for fleet in state.fleets.values() for name in fleet.intent.nodes}
    for name in intent.nodes:
        _require(name not in state.nodes and name not in taken, f"the name {name} is not free")
        taken[name] = True
    state.fleets[intent.id] = Fleet(intent, event.t_us)
    if state.spending is not None:
        state.spending.bought(state.fleets[intent.id])


def launched(state: State, event: Event, body: events.CapacityLaunched) -> None:
    """Its nodes appear; or, of a fleet that is known, addresses do."""
    fleet = state.fleets[body.intent]
    if not fleet.asked:
        _addresses(state, fleet, body)
        return
    nodes = sorted(one.node for one in body.instances)
    _require(
        nodes == sorted(fleet.intent.nodes), f"{body.intent} was for {fleet.intent.nodes}, not for {nodes}"
    )
    pool = state.pool(fleet.intent.pool)
    for one in body.instances:
        _require(one.id not in state.instances, f"instance {one.id} is known already")
        _require(one.node not in state.nodes, f"the name {one.node} is not free")
        launched_us = one.launched_us or fleet.since_us
        fleet.instances.append(Bought(one.id, one.node, one.address, launched_us))
        node = Node(one.node, fleet.intent.pool, address=one.address or one.node, instance=one.id)
        node.wanted = pool is not None and pool.size is not None
        state.nodes[one.node] = node
        state.instances[one.id] = body.intent
        state.index_node(node)
    _succeeded(state, fleet.intent.offering, fleet.intent.site)


def _addresses(state: State, fleet: Fleet, body: events.CapacityLaunched) -> None:
    known = {one.id: one for one in fleet.instances}
    for one in body.instances:
        if one.id in known and one.address:
            known[one.id].address = one.address
            node = state.nodes.get(known[one.id].node)
            if node is not None and node.instance == one.id:
                node.address = one.address


def refused(state: State, event: Event, body: events.CapacityRefused) -> None:
    """Names and money are free again; its offering, or its site, rests."""
    fleet = state.fleets[body.intent]
    _require(fleet.asked, f"instances exist for {body.intent}")
    del state.fleets[body.intent]
    intent = fleet.intent
    if state.spending is not None:
        state.spending.refused(intent)
    if body.fault is None:
        return
    if body.fault in SITE_WIDE:
        before = state.halts.get(intent.site)
        failures = before.failures + 1 if before is not None else 1
        state.halts[intent.site] = Halt(intent.site, body.fault, body.words, body.retry_us, failures)
    else:
        state.halts.pop(intent.site, None)
        _failed(state, intent.offering, body.fault, body.words, body.retry_us)


def _succeeded(state: State, key: OfferingKey, site: str) -> None:
    budget = state.circuits[key].budget if key in state.circuits else 1
    state.circuits[key] = Circuit(key, min(2 * budget, MOST_AT_ONCE))
    state.halts.pop(site, None)


def _failed(state: State, key: OfferingKey, fault: ErrorClass, words: str, retry_us: int) -> None:
    state.circuits[key] = state.circuits.get(key, Circuit(key)).failed(fault, words, retry_us)


# --- instances ------------------------------------------------------------------------------------------------


def _bought(fleet: Fleet, instance: str) -> Bought:
    for one in fleet.instances:
        if one.id == instance:
            return one
    raise ValueError(f"{fleet.intent.id} has no instance {instance}")


def proved(state: State, event: Event, body: events.CapacityProved) -> None:
    """It is what was asked for: the pool boots well, and idleness counts from now on."""
    one = _bought(state.fleets[body.intent], body.instance)
    _require(not one.proved_us, f"{body.instance} is proved already")
    one.proved_us = event.t_us
    state.nodes[one.node].idle_us = event.t_us
    state.boot_failures.pop(state.fleets[body.intent].intent.pool, None)


def releasing(state: State, event: Event, body: events.CapacityReleasing) -> None:
    """No work any more, whoever withdraws whatever mark."""
    fleet = state.fleets[body.intent]
    for name in body.instances:
        one = _bought(fleet, name)
        _require(not one.releasing_us, f"{name} is being ended already")
        one.releasing_us, one.why = event.t_us, body.why
        node = state.nodes[one.node]
        node.releasing = True
        state.capacity.set_open(node.name, node.open)
    if body.failed:
        pool = fleet.intent.pool
        state.boot_failures[pool] = state.boot_failures.get(pool, 0) + len(body.instances)
        _failed(state, fleet.intent.offering, ErrorClass.CAPACITY, body.why, body.retry_us)


def gone(state: State, event: Event, body: events.CapacityGone) -> None:
    """Its name and its money are free. A node that an attempt still has a share on goes when that is over."""
    fleet = state.fleets[body.intent]
    one = _bought(fleet, body.instance)
    fleet.instances.remove(one)
    state.instances.pop(one.id)
    if not fleet.instances:
        del state.fleets[body.intent]
    if state.spending is not None:
        state.spending.gone(one.node)
    _bill(state, fleet.intent, one, body)
    node = state.nodes[one.node]
    node.instance, node.wanted, node.releasing = "", False, True
    for key in [key for key in state.orphans if key[1] == node.name]:
        del state.orphans[key]
    if busy(state, node.name):
        state.capacity.set_open(node.name, node.open)
    else:
        del state.nodes[node.name]
        state.rebuild()


def _bill(state: State, intent: Intent, one: Bought, body: events.CapacityGone) -> None:
    """Into the account of its pool and queue, hour by hour."""
    key = (intent.pool, intent.queue)
    account = state.accounts.get(key)
    if account is None:
        account = state.accounts[key] = Account(intent.pool, intent.site, intent.queue)
    account.instances += 1
    account.seconds += body.billed_s
    account.microusd += cost(intent.price, body.billed_s)
    hours = dict(account.hours)
    for hour, amount in by_hour(one.launched_us, body.billed_s, intent.price):
        hours[hour] = hours.get(hour, 0) + amount
    oldest = max(hours, default=0) - HOURS_KEPT
    account.hours = sorted(pair for pair in hours.items() if pair[0] > oldest)


def by_hour(launched_us: int, seconds: int, price: int) -> list[tuple[int, int]]:
    """A bill as micro-dollars by UTC hour since 1970; the sum is `cost` of all of it."""
    found: list[tuple[int, int]] = []
    end_us = launched_us + seconds * 1_000_000
    at_us, before = launched_us, 0
    while at_us < end_us:
        hour = at_us // HOUR_US
        at_us = min((hour + 1) * HOUR_US, end_us)
        so_far = cost(price, -(-(at_us - launched_us) // 1_000_000))
        found.append((hour, so_far - before))
        before = so_far
    return found
