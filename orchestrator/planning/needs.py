"""What each node needs, from all changes together.

Comes in: the changes, the roster, the renderings. Goes out: `Needs` by pool. Called by: plan; steps makes batches of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.model.change import Change, UpdateClass
from orchestrator.model.cluster import Pool
from orchestrator.model.host import ItemKind, Sight
from orchestrator.planning.render import Rendering
from orchestrator.planning.roster import Roster

# What takes a node out of work. Data is lost in place or with a drain: with nodes named, with a drain.
HEAVY = frozenset((UpdateClass.RECONFIGURE, UpdateClass.REPLACE, UpdateClass.DESTROYS))

Why = dict[str, None]  # paths of changes, in order, each once


@dataclass(slots=True)
class Needs:
    """Nodes of one pool by what happens to them, each with the paths that say why; a node is in one of them only."""

    pool: Pool
    enrol: dict[str, Why] = field(default_factory=dict)
    rolling: dict[str, Why] = field(default_factory=dict)
    in_place: dict[str, Why] = field(default_factory=dict)
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of nodes changed in place
    give_back: dict[str, Why] = field(default_factory=dict)  # cordoned by an apply that did not end
    retire: dict[str, Why] = field(default_factory=dict)
    reboot: frozenset[str] = frozenset()


def needs_of(
    pools: Iterable[Pool], changes: tuple[Change, ...], nodes: Roster, renderings: Mapping[str, Rendering]
) -> tuple[Needs, ...]:
    """One for each pool on metal, in order.

    Nodes that could not be looked at are left out, unless work must leave them: then their step fails, and the next
    plan knows that they are owed it."""
    heavy, light = _by_node(changes, heavy=True), _by_node(changes, heavy=False)
    return tuple(
        _of_pool(pool, heavy, light, nodes, renderings[pool.name])
        for pool in pools
        if pool.name in renderings
    )


def retirements(changes: tuple[Change, ...], nodes: Roster) -> tuple[Needs, ...]:
    """Nodes that no pool names any more, by the pool that they were in; its policy says how work leaves them."""
    why = _by_node(changes, heavy=False) | _by_node(changes, heavy=True)
    found: dict[str, Needs] = {}
    for name in nodes.gone():
        pool = nodes.was(name)
        if pool is not None:
            found.setdefault(pool.name, Needs(pool)).retire[name] = why.get(name, {})
    return tuple(found.values())


def limited(all_of: Iterable[Needs], only: frozenset[str]) -> tuple[Needs, ...]:
    """The same for these hosts alone, all if empty. What is not done to the others leaves them as they are, so a node
    that is away stays away."""
    if not only:
        return tuple(all_of)

    def kept(why: dict[str, Why]) -> dict[str, Why]:
        return {name: paths for name, paths in why.items() if name in only}

    return tuple(
        replace(
            needs,
            enrol=kept(needs.enrol),
            rolling=kept(needs.rolling),
            in_place=kept(needs.in_place),
            give_back=kept(needs.give_back),
            retire=kept(needs.retire),
        )
        for needs in all_of
    )


def _by_node(changes: tuple[Change, ...], heavy: bool) -> dict[str, Why]:
    """The changes that do something on each node; those that are put off do nothing."""
    found: dict[str, Why] = {}
    for change in changes:
        if not change.deferred and (change.cls in HEAVY) is heavy:
            for name in change.nodes:
                found.setdefault(name, {})[change.path] = None
    return found


def _of_pool(
    pool: Pool, heavy: dict[str, Why], light: dict[str, Why], nodes: Roster, rendering: Rendering
) -> Needs:
    needs = Needs(pool)
    for name in pool.nodes:
        seen, joined = name not in nodes.unseen, nodes.joined(name)
        if joined and name in heavy and not _other_machine(name, heavy):
            needs.rolling[name] = heavy[name]
        elif seen and (not joined or name in heavy):
            needs.enrol[name] = {**heavy.get(name, {}), **light.get(name, {})}
        elif seen:
            _light(needs, name, light.get(name, {}), nodes, rendering)
    needs.reboot = _reboots(needs, nodes, rendering)
    return needs


def _other_machine(name: str, heavy: dict[str, Why]) -> bool:
    return f"host[{name}].machine-id" in heavy.get(name, {})


def _light(needs: Needs, name: str, why: Why, nodes: Roster, rendering: Rendering) -> None:
    """In place, if a role has something to do there; back to work, if an apply left it cordoned."""
    sight = nodes.sights.get(name)
    drifted = [one.role for one in sight.drift if one.role] if sight is not None and sight.checked else []
    wanted = dict.fromkeys((*rendering.roles, *drifted))
    roles = tuple(role.role for role in rendering.desired.roles if role.role in wanted)
    if roles and why:
        needs.in_place[name] = why
        needs.roles[name] = roles
    if nodes.now[name].cordoned:
        needs.give_back[name] = why


def _reboots(needs: Needs, nodes: Roster, rendering: Rendering) -> frozenset[str]:
    """Of those whose work leaves: where the host asks for a reboot, or where what is set right needs one."""
    heavy = {
        (role.role, item.kind, item.name)
        for role in rendering.desired.roles
        for item in role.items
        if item.reboots
    }
    return frozenset(
        name for name in needs.rolling if rendering.reboots or _asks(nodes.sights.get(name), heavy)
    )


def _asks(sight: Sight | None, heavy: set[tuple[str, ItemKind, str]]) -> bool:
    if sight is None:
        return False
    asked = sight.facts is not None and sight.facts.reboot_needed
    return asked or any((one.role, one.kind, one.name) in heavy for one in sight.drift)
