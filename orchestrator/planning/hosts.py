"""What is not as it should be on hosts, beyond what the file changes.

Comes in: the roster, the recorded `Desired`s, nodes that an apply owes something. Goes out: `Change`s of source
`drift`. Called by: plan, and by whoever shows drift alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from orchestrator.model.change import Change, ChangeKind, Source, UpdateClass
from orchestrator.model.host import Desired, Drift, Item, ItemKind, PoolDesired, Sight
from orchestrator.planning.render import differing
from orchestrator.planning.roster import Roster
from orchestrator.planning.strangers import NOTHING_OF_OURS, Ours, strangers
from orchestrator.planning.twins import twins

PRESENT = "present"  # the value of a drift that says that the item is absent
CONTENT = "content"
NEW_CONTENT = "what the file gets now"

HostItems = Mapping[tuple[str, ItemKind, str], Item]


def drift(
    nodes: Roster,
    recorded: tuple[PoolDesired, ...],
    wanted: Mapping[str, Desired],
    owed: tuple[str, ...],
    ours: Ours = NOTHING_OF_OURS,
) -> tuple[Change, ...]:
    """All of it, by pool and host in their order. `wanted`: what hosts are to have after the plan, by pool, which says
    what becomes of a value that differs from what was recorded."""
    items = {one.pool: _items(one.desired) for one in recorded}
    after = {pool: _items(one) for pool, one in wanted.items()}
    late = frozenset(owed)
    found: list[Change] = []
    for name, pool in nodes.new.items():
        found += _never_came(nodes, name)
        if nodes.joined(name):
            found += _left_behind(nodes, name, name in late)
            found += _seen(nodes, name, _Aims(items.get(pool.name, {}), after.get(pool.name)))
    found += (_forgotten(nodes, name) for name in nodes.gone() if name not in nodes.old)
    found += twins(nodes)
    found += strangers(nodes, ours)
    return tuple(found)


def _items(state: Desired) -> HostItems:
    return {(role.role, item.kind, item.name): item for role in state.roles for item in role.items}


@dataclass(frozen=True, slots=True)
class _Aims:
    """What the hosts of one pool were to have and what they are to have now; None where nobody renders it."""

    before: HostItems
    after: HostItems | None

    def left(self, one: Drift) -> Drift | None:
        """What of a difference the plan still has to set right, against what is wanted now; None for nothing."""
        key = (one.role, one.kind, one.name)
        old = self.before.get(key)
        if self.after is None or old is None or not one.role:
            return one
        new = self.after.get(key)
        if new is None:
            return None
        was, will = (dict(item.values).get(one.value) for item in (old, new))
        if was == will or will is None:
            return one
        if one.value == CONTENT:  # of which a look tells one line only
            return replace(one, wanted=NEW_CONTENT)
        return replace(one, wanted=will) if one.found != will else None


def _never_came(nodes: Roster, name: str) -> Iterator[Change]:
    """A node that was recorded and has no agent: its enrolment did not end."""
    if name in nodes.old and not nodes.joined(name):
        why = "it never came in: it is enrolled, configured and proved"
        yield _change(nodes, name, "agent", UpdateClass.IN_PLACE, "", "enrolled", why)


def _left_behind(nodes: Roster, name: str, owed: bool) -> Iterator[Change]:
    """What an apply began and did not end."""
    if owed:
        why = "an apply that did not end meant to change it without work on it"
        yield _change(nodes, name, "apply", UpdateClass.RECONFIGURE, "unfinished", "finished", why)
    elif nodes.now[name].cordoned:
        why = "an apply that did not end left it cordoned"
        yield _change(nodes, name, "cordon", UpdateClass.IN_PLACE, "cordoned", "", why)


def _forgotten(nodes: Roster, name: str) -> Change:
    if nodes.joined(name):
        cls, old = UpdateClass.RECONFIGURE, name
        why = "no pool names it any more, and an apply that did not end left it: its work leaves, then it is forgotten"
    else:
        cls, old = UpdateClass.IN_PLACE, "left"
        why = "no pool names it any more, and its agent was not seen to stop: it is stopped"
    path = f"host[{name}]"
    return Change(path, ChangeKind.REMOVED, cls, Source.DRIFT, old, "", why, nodes=(name,))


def _seen(nodes: Roster, name: str, aims: _Aims) -> Iterator[Change]:
    sight = nodes.sights.get(name)
    if sight is None or name in nodes.unseen:
        return
    yield from _hardware(nodes, name, sight)
    for one in sight.drift if sight.checked else ():
        left = aims.left(one)
        if left is not None:
            yield _drifted(nodes, name, left, aims.before.get((one.role, one.kind, one.name)))


def _hardware(nodes: Roster, name: str, sight: Sight) -> Iterator[Change]:
    """Another machine, other GPUs, a reboot that something on the host asks for."""
    facts, known = sight.facts, nodes.now[name].host
    if facts is None:
        return
    if known is not None and facts.machine_id != known.machine_id:
        yield _other_machine(nodes, name, known.machine_id, facts.machine_id)
        return
    if known is not None and facts.gpus != known.gpus:
        why = "its GPUs are others than were proved: it takes no work until it is proved anew"
        old, new = _counted(known.gpus), _counted(facts.gpus)
        yield _change(nodes, name, "gpus", UpdateClass.RECONFIGURE, old, new, why)
    if facts.reboot_needed:
        why = "something installed asks for a reboot: it is made when its work has left for another reason"
        yield _change(nodes, name, "reboot", UpdateClass.RECONFIGURE, "needed", "", why, deferred=True)


def _other_machine(nodes: Roster, name: str, was: str, now: str) -> Change:
    """A token would let it run people's jobs: a person must know that it was reinstalled or exchanged."""
    why = "another system answers under its name: it is enrolled, configured and proved anew"
    change = _change(nodes, name, "machine-id", UpdateClass.REPLACE, was, now, why)
    return replace(change, consent=f"host/{name}")


def _counted(gpus: tuple[str, ...]) -> str:
    return f"{len(gpus)} ({', '.join(gpus)})" if gpus else "none"


def _drifted(nodes: Roster, name: str, one: Drift, item: Item | None) -> Change:
    heavy = one.kind is ItemKind.HOST or (item is not None and (item.disturbs or item.reboots))
    missing = one.value == PRESENT
    return Change(
        path=f"host[{name}].{one.kind}[{one.name}]" + ("" if missing else f".{one.value}"),
        kind=ChangeKind.ADDED if missing or not one.found else ChangeKind.CHANGED,
        cls=UpdateClass.RECONFIGURE if heavy else UpdateClass.IN_PLACE,
        source=Source.DRIFT,
        old="" if missing else differing(one.value, one.found),
        new=PRESENT if missing else differing(one.value, one.wanted),
        why="it was changed on the host; work must leave to set it right"
        if heavy
        else "it was changed on the host; it is set right while work runs",
        pool=nodes.new[name].name,
        nodes=(name,),
        roles=(one.role,) if one.role else (),
    )


def _change(
    nodes: Roster,
    name: str,
    what: str,
    cls: UpdateClass,
    old: str,
    new: str,
    why: str,
    deferred: bool = False,
) -> Change:
    kind = ChangeKind.CHANGED if old and new else ChangeKind.ADDED if new else ChangeKind.REMOVED
    pool = nodes.new[name].name
    return Change(
        f"host[{name}].{what}",
        kind,
        cls,
        Source.DRIFT,
        old,
        new,
        why,
        pool=pool,
        nodes=(name,),
        deferred=deferred,
    )
