"""Folding what happens to the wanted cluster and to nodes.

Comes in: a State and an event of a node or the cluster. Goes out: the State changed. Called by: apply.
"""

from __future__ import annotations

from orchestrator.ledger import events
from orchestrator.ledger.events import Event
from orchestrator.ledger.hours import counts_hours
from orchestrator.ledger.records import Node, Token
from orchestrator.ledger.state import State
from orchestrator.ledger.usage import Used
from orchestrator.model.cluster import ClusterSpec, Pool, SiteKind
from orchestrator.model.node import Contact, Hardware, Mark, MarkKind, hardware_of


def cluster_applied(state: State, event: Event, body: events.ClusterApplied) -> None:
    """Nodes of the spec appear; those taken out of it go when nothing of theirs runs, and get no more work."""
    state.cluster, state.digest, state.commit = body.spec, body.digest, body.commit
    state.watts, state.prices = body.watts, body.prices
    state.desired.update((one.digest, one) for one in body.desired)
    state.recorded = {one.pool: one.digest for one in body.desired}
    wanted: dict[str, Pool] = {name: pool for pool in body.spec.pools for name in pool.nodes}
    elastic = {pool.name: True for pool in body.spec.pools if pool.size is not None}
    for node in list(state.nodes.values()):
        bought = node.instance != "" and node.pool in elastic
        node.wanted, node.moves_to = node.name in wanted or bought, ""
        if not node.wanted and not node.instance and not busy(state, node.name):
            del state.nodes[node.name]
    let_in = {token.name: token for token in state.tokens.values() if token.role == "node" and token.instance}
    for name, pool in wanted.items():
        node = state.nodes.get(name) or _appear(state, Node(name, pool.name), let_in.get(name))
        if not busy(state, name):
            node.pool = pool.name
        elif node.pool != pool.name:
            node.moves_to = pool.name
        if not (node.admitted and node.address):
            node.address = address_of(body.spec, pool, name)
    forget_desired(state)
    if not counts_hours(body.spec):
        state.month, state.spent = None, {}
    state.rebuild()
    _share_anew(state, event.t_us)


def _share_anew(state: State, t_us: int) -> None:
    """What was used counts from the file on that asks for it, and is forgotten with the one that does not. Scopes that
    nobody has left go."""
    if not state.half_life_s:
        state.used = {}
        return
    state.used = {name: one for name, one in state.used.items() if name in state.limits.scopes}
    for scope in state.limits.scopes.values():
        if scope.used.get("gpus") and scope.name not in state.used:
            state.used[scope.name] = Used(t_us, 0, scope.used["gpus"])


def _appear(state: State, node: Node, token: Token | None) -> Node:
    """A node that was in the cluster before, and still has the token of the instance that it was, is that one and where
    it was; any other has to be let in first."""
    if token is not None:
        node.admitted, node.address = token.instance, token.address
    state.nodes[node.name] = node
    return node


def forget_desired(state: State) -> None:
    """Keep what the cluster wants and what some host still has."""
    kept = {*state.recorded.values(), *(node.configured for node in state.nodes.values())}
    state.desired = {digest: one for digest, one in state.desired.items() if digest in kept}


def settle(state: State, name: str) -> None:
    """After work on it is over: a node that was taken out of the cluster goes, one that was moved arrives."""
    node = state.nodes.get(name)
    if node is None or (node.wanted and not node.moves_to) or node.instance or busy(state, name):
        return
    if node.wanted:
        node.pool, node.moves_to = node.moves_to, ""
    else:
        del state.nodes[name]
    state.rebuild()


def address_of(spec: ClusterSpec, pool: Pool, node: str) -> str:
    """The address on the job network at which the gang's other nodes reach this one."""
    site = spec.site_of(pool)
    if site.kind is SiteKind.LOCAL:
        return "127.0.0.1"
    return next((host.address for host in site.hosts if host.name == node and host.address), node)


def busy(state: State, node: str) -> bool:
    """Whether an attempt that is not over has a share there."""
    return any(job.attempt is not None and job.attempt.part(node) is not None for job in state.jobs.values())


def admitted(state: State, body: events.TokenCreated) -> None:
    """A bought instance is let in as a node: another one than before is another machine by intent."""
    node = state.nodes.get(body.name)
    if node is None:
        return
    if node.admitted != body.instance:
        node.admitted, node.hardware = body.instance, Hardware()
    node.address = body.address or node.address


def joined(state: State, event: Event, body: events.NodeJoined) -> None:
    """New facts: unproved until acceptance withdraws the mark. A new outbox: its records of what ran are lost."""
    node = state.nodes[body.node]
    if node.outbox and node.outbox != body.outbox:
        _forgotten_by_agent(state, node.name)
    if node.outbox != body.outbox:
        node.outbox, node.acked = body.outbox, 0
    node.facts = body.facts
    if node.hardware == Hardware():
        node.hardware = hardware_of(body.facts)
    node.contact, node.contact_us = Contact.OK, event.t_us
    node.marks = [mark for mark in node.marks if mark.kind is not MarkKind.UNPROVED]
    node.marks.append(Mark(MarkKind.UNPROVED, "not yet accepted", "controller", event.t_us))
    state.index_node(node)


def _forgotten_by_agent(state: State, name: str) -> None:
    """Whatever of an attempt is on this node may have run: it is never started there again."""
    for job in state.jobs.values():
        part = job.attempt.part(name) if job.attempt is not None else None
        if part is not None:
            part.started = True


def contact(state: State, event: Event, body: events.NodeContact) -> None:
    """It began or ceased to answer; silence takes nothing from it."""
    node = state.nodes[body.node]
    node.contact, node.contact_us = body.contact, event.t_us
    state.capacity.set_open(node.name, node.open)


def marked(state: State, event: Event, body: events.NodeMarked) -> None:
    """A reason against new work; the same one (kind and job) is replaced, not doubled."""
    node = state.nodes[body.node]
    node.marks = [mark for mark in node.marks if (mark.kind, mark.job) != (body.mark.kind, body.mark.job)]
    node.marks.append(body.mark)
    state.capacity.set_open(node.name, node.open)


def unmarked(state: State, event: Event, body: events.NodeUnmarked) -> None:
    """Marks of the kind go: all, or those of one job. Other hardware is agreed to by that."""
    node = state.nodes[body.node]
    if body.kind is MarkKind.CHANGED and node.facts is not None:
        node.hardware = hardware_of(node.facts)
    node.marks = [
        mark for mark in node.marks if mark.kind is not body.kind or (body.job and mark.job != body.job)
    ]
    state.capacity.set_open(node.name, node.open)
