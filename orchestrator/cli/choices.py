"""What options of plans and applies name: hosts, consents.

Comes in: texts as people give them, the pools or the plan they are about. Goes out: names, or InputError with the
nearest one there is. Called by: changing, looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from orchestrator.cli.session import note
from orchestrator.cli.text import safe
from orchestrator.model.errors import InputError

if TYPE_CHECKING:
    from orchestrator.model.change import ChangeSet
    from orchestrator.model.cluster import Pool


def chosen_hosts(pools: Iterable[Pool], limit: str | None, own: str = "") -> frozenset[str]:
    """The hosts of a --limit, all where none was given; InputError for what is no list of hosts (an empty one least of
    all, as of a variable that is not set: it does not mean all), or one that no metal pool has and that is not the
    controller's `own`."""
    if limit is None:
        return frozenset()
    known = {name for pool in pools for name in pool.nodes} | ({own} if own else set())
    from orchestrator.wire.faults import suggestion

    names = hosts_in([limit], "--limit")
    strangers = [name for name in names if name not in known]
    if strangers:
        raise InputError(
            "apply.unknown-host",
            f"--limit names {', '.join(strangers[:5])}, and no metal pool has such a host",
            suggestion(strangers[0], sorted(known), "host of a metal site"),
        )
    return frozenset(names)


def hosts_in(values: Sequence[str], option: str) -> list[str]:
    """The hosts that an option names, which may be repeated: `h1`, `h1,h2`, `h[1-3]`. InputError."""
    from orchestrator.wire.hostlist import HostlistError, expand

    try:
        return list(dict.fromkeys(name for value in values for name in expand(value)))
    except HostlistError as error:
        raise InputError(
            "cli.bad-hosts", f"no list of hosts: {error}", "write h1,h2 or h100-[01-04]", option
        ) from None


def tell_needless(agreed: Sequence[str], made: ChangeSet) -> None:
    """Consents that nothing in the plan asks for: a slip, or what an apply before this one has done already."""
    from orchestrator.wire.faults import did_you_mean

    found = {change.consent for change in made.changes}
    found.update(row.consent for sight in made.stacks for row in sight.rows)
    asked = sorted(found - {""})
    for name in agreed:
        if name not in asked:
            near = did_you_mean(name, asked)
            note(f"--consent {safe(name)}: nothing in this plan asks for it" + (f"; {near}" if near else ""))
