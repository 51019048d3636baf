"""What hosts are to have after a plan: the wanted file as this version renders it, less what is put off.

Comes in: recorded `Desired`s, both specs, what was resolved. Goes out: the changes that this version of Gangline brings
by itself, the `Desired` of each pool afterwards, and the roles that differ. Called by: plan.

Three states are held against each other, item by item: as recorded, as this version renders the recorded file, as it
renders the wanted one. Where the first two differ and the last two do not, the change is Gangline's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.model.change import Change, ChangeKind, Source, UpdateClass
from orchestrator.model.cluster import ClusterSpec, Pool, SiteKind
from orchestrator.model.host import Desired, Item, ItemKind, PoolDesired, RoleState
from orchestrator.planning.desired import Resolved, desired
from orchestrator.planning.digest import digest_of

Key = tuple[str, ItemKind, str]  # role, kind, name


@dataclass(frozen=True, slots=True)
class Rendering:
    """One pool: what it is to have, the roles whose items change (whatever the source), and Gangline's own changes."""

    desired: Desired
    roles: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    reboots: bool = False  # an item changes that is in force only after a reboot


def render(
    pool: Pool,
    recorded: PoolDesired | None,
    before: ClusterSpec | None,
    after: ClusterSpec,
    resolved: Resolved,
    drained: bool,
    defer: bool,
) -> Rendering:
    """`drained`: its nodes are drained anyway, so nothing needs to be put off. `defer`: put all of Gangline's off."""
    wanted = desired(after, pool, resolved)
    old = _pool_before(pool, before)
    if recorded is None or before is None or old is None:
        return Rendering(wanted, tuple(role.role for role in wanted.roles), _unrecorded(pool, old))
    same = desired(before, old, resolved)
    states = _States(_items(recorded.desired), _items(same), _items(wanted))
    put_off = {key for key in states.own() if defer or (not drained and states.heavy(key))}
    final = _without(wanted, states, put_off)
    changes = tuple(
        change for key in states.own() for change in states.changes(key, pool, put_off=key in put_off)
    )
    differing = _differing(recorded.desired, final)
    roles = tuple(role.role for role in final.roles if role.role in {item.role for item in differing})
    return Rendering(final, roles, changes, any(item.reboots for item in differing))


def _pool_before(pool: Pool, before: ClusterSpec | None) -> Pool | None:
    if before is None:
        return None
    return next((one for one in before.pools if one.name == pool.name), None)


def _unrecorded(pool: Pool, old: Pool | None) -> tuple[Change, ...]:
    """A pool of the recorded file whose hosts this cluster never configured; a new pool is the file's own change."""
    if old is None:
        return ()
    why = "what its hosts have was never recorded: they are configured once, while work runs"
    return (
        Change(
            f"pool[{pool.name}]",
            ChangeKind.ADDED,
            UpdateClass.IN_PLACE,
            Source.GANGLINE,
            "",
            "configured",
            why,
            pool=pool.name,
            nodes=pool.nodes,
            roles=(),
        ),
    )


def _items(state: Desired) -> dict[Key, Item]:
    return {(role.role, item.kind, item.name): item for role in state.roles for item in role.items}


@dataclass(frozen=True, slots=True)
class _States:
    recorded: Mapping[Key, Item]
    same: Mapping[Key, Item]  # the recorded file, as this version renders it
    wanted: Mapping[Key, Item]

    def own(self) -> Iterator[Key]:
        """Items that this version changes although the file does not."""
        for key in sorted(dict(self.recorded) | dict(self.same) | dict(self.wanted)):
            before, now = self.recorded.get(key), self.same.get(key)
            if before != now and now == self.wanted.get(key):
                yield key

    def heavy(self, key: Key) -> bool:
        """Whether work would notice, or the host has to boot again."""
        found = (self.recorded.get(key), self.wanted.get(key))
        return any(item.disturbs or item.reboots for item in found if item is not None)

    def changes(self, key: Key, pool: Pool, put_off: bool) -> Iterator[Change]:
        """One for each value."""
        role, kind, name = key
        old, new = _values(self.recorded.get(key)), _values(self.wanted.get(key))
        for value in sorted(old | new):
            if old.get(value) != new.get(value):
                yield Change(
                    path=f"pool[{pool.name}].{kind}[{name}].{value}",
                    kind=_kind(value in old, value in new),
                    cls=UpdateClass.IN_PLACE,
                    source=Source.GANGLINE,
                    old=shown(value, old[value]) if value in old else "",
                    new=shown(value, new[value]) if value in new else "",
                    why=_why(put_off, self.heavy(key)),
                    pool=pool.name,
                    nodes=pool.nodes,
                    roles=(role,),
                    deferred=put_off,
                )


def _kind(was: bool, will: bool) -> ChangeKind:
    if was and will:
        return ChangeKind.CHANGED
    return ChangeKind.ADDED if will else ChangeKind.REMOVED


def _why(put_off: bool, heavy: bool) -> str:
    if not put_off:
        return "this version of Gangline wants it so; work runs on"
    if heavy:
        return (
            "this version of Gangline wants it so; running work would notice, so it waits for the next drain"
        )
    return "this version of Gangline wants it so; put off as asked"


def _values(item: Item | None) -> dict[str, str]:
    return dict(item.values) if item is not None else {}


def shown(value: str, text: str) -> str:
    """A value in a change. Digests are begun; of what a file holds, which is too long, lines and digest are told."""
    if value == "sha256":
        return text[:12]
    if value == "version":
        return text or "any"
    if value != "content" or not text:
        return text
    lines = text.count("\n")
    return f"{lines} {'line' if lines == 1 else 'lines'}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def differing(value: str, text: str) -> str:
    """The same for what a look at a host tells: of what a file holds, the first line that differs."""
    return text if value == "content" and "\n" not in text else shown(value, text)


def _without(wanted: Desired, states: _States, put_off: set[Key]) -> Desired:
    """The wanted state with items that are put off as they were, each in its place, so that it stays the same when
    planned again."""
    if not put_off:
        return wanted
    kept = {key: item for key, item in states.wanted.items() if key not in put_off}
    back = {key: states.recorded[key] for key in states.recorded if key in put_off}
    merged = {key: kept.get(key) or back.get(key) for key in (*states.wanted, *back)}
    names = dict.fromkeys(key[0] for key in (*states.wanted, *back))
    roles = (
        RoleState(name, tuple(item for key, item in merged.items() if key[0] == name and item is not None))
        for name in names
    )
    return Desired(tuple(role for role in roles if role.items))


@dataclass(frozen=True, slots=True)
class _Differing:
    role: str
    reboots: bool


def _differing(before: Desired, after: Desired) -> tuple[_Differing, ...]:
    """Each item that changes, comes or goes."""
    old, new = _items(before), _items(after)
    return tuple(
        _Differing(key[0], any(item.reboots for item in (old.get(key), new.get(key)) if item is not None))
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    )


def recorded_as(pool: str, state: Desired) -> PoolDesired:
    """A `Desired` with its digest, as it is recorded."""
    return PoolDesired(pool, digest_of(state), state)


def is_configured(spec: ClusterSpec, pool: Pool) -> bool:
    """Whether Gangline configures the hosts of a pool over SSH."""
    return spec.site_of(pool).kind is SiteKind.METAL
