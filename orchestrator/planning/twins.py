"""One machine under two names, or two machines that take themselves for one: neither may come in.

Comes in: the roster. Goes out: refused `Change`s, at the later of two names. Called by: hosts.

A host is known by its machine id. Two names with one id are a name or an address too much, or copies of one disk image.
Both would be let in and then undo each other: one agent serves one name, and devices would be given twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.change import Change, ChangeKind, Source, UpdateClass
from orchestrator.model.host import HostFacts
from orchestrator.planning.roster import Roster

RENEW = "rm /etc/machine-id; systemd-machine-id-setup; reboot"


def twins(nodes: Roster) -> Iterator[Change]:
    """Hosts of the wanted file whose machine another name has. Those that leave count: they are there until then."""
    first: dict[str, str] = {}
    for name in (*nodes.gone(), *sorted(nodes.new, key=nodes.joined, reverse=True)):
        facts = _facts(nodes, name)
        if facts is None or not facts.machine_id:
            continue
        other = first.setdefault(facts.machine_id, name)
        if other != name:
            why, unblock = _words(nodes, name, other)
            yield Change(
                f"host[{name}].machine-id",
                ChangeKind.ADDED,
                UpdateClass.REFUSED,
                Source.DRIFT,
                "",
                facts.machine_id,
                why,
                unblock,
                pool=nodes.new[name].name,
                nodes=(name,),
            )


def _facts(nodes: Roster, name: str) -> HostFacts | None:
    """What it is as far as was seen: now, else when it was last as wanted."""
    seen = nodes.sights.get(name)
    if seen is not None and seen.facts is not None:
        return seen.facts
    return nodes.now[name].host if nodes.joined(name) else None


def _words(nodes: Roster, name: str, other: str) -> tuple[str, str]:
    """Why it is refused, and what would let it pass."""
    if name not in nodes.new or other not in nodes.new:
        return (
            f"it is the machine of {other}, which leaves",
            f"let {other} go first: apply without {name}, then add it",
        )
    boots = {name: _booted(nodes, name), other: _booted(nodes, other)}
    if boots[name] and boots[name] == boots[other]:
        return (
            f"it is the machine of {other}: both names lead to it",
            "give it one name, or correct the address of one of them",
        )
    return (
        f"it has the machine id of {other}: one is a copy of the other, or both names lead to one machine",
        f"correct an address, or make the copy another machine: {RENEW}",
    )


def _booted(nodes: Roster, name: str) -> str:
    """The boot that was seen now: an older one says nothing."""
    seen = nodes.sights.get(name)
    return seen.facts.boot_id if seen is not None and seen.facts is not None else ""
