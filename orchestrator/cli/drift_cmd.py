"""`drift`: what differs on hosts from what they are to have.

Comes in: a cluster file. Goes out: what differs, by host and value, and an exit code for CI. Called by: the command's
table. Nothing is changed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli import options
from orchestrator.cli.change_cmd import DIFFERS, PARTLY, client_or_none
from orchestrator.cli.session import current, note
from orchestrator.cli.text import fold_names, plural, safe
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.stack_sight import StackOp, short_kind

if TYPE_CHECKING:
    from orchestrator.model.host import Sight
    from orchestrator.model.stack_sight import StackSight


@verb(
    "drift",
    examples=[
        Example(
            "gangline drift cluster.yaml",
            "what differs on hosts and aws sites from what was recorded; 3 if anything does",
        ),
        Example("gangline drift cluster.yaml -o json", "by host, site and value, for a program"),
    ],
)
@click.argument("file", metavar="FILE")
@options.limit
@options.skip
@options.output("text", "json")
@options.controller
def drift(file: str, limit: str | None) -> int:
    """Compare hosts and aws sites with what they are to have; change nothing.

    Of an aws site it names what Pulumi has made and somebody has changed, not what somebody has put beside that.
    Exit code 0: none differs; 3: some do; 4: none does, but some could not be looked at. `gangline apply` puts them
    right; what is to stay goes into the file (the report says where).
    """
    from orchestrator.cli.looking import drift_of, stack_drift_of

    client = client_or_none(file)
    sights = drift_of(file, client, limit)
    stacks = stack_drift_of(file, client) if limit is None else ()
    if current().output == "json":
        _drift_json(sights, stacks)
    else:
        _drift_text(sights)
        _stacks_text(stacks)
    if any(sight.drift for sight in sights) or any(one.drift for one in stacks):
        return DIFFERS
    unseen = any(not sight.checked for sight in sights) or any(one.error for one in stacks)
    return PARTLY if unseen else 0


def _drift_json(sights: list[Sight], stacks: tuple[StackSight, ...]) -> None:
    from orchestrator.cli.output import to_json
    from orchestrator.model.codec import encode

    document = {
        "apiVersion": "gangline/v1",
        "kind": "DriftList",
        "items": [encode(sight) for sight in sights],
        "stacks": [encode(one) for one in stacks],
    }
    sys.stdout.write(to_json(document) + "\n")


def _stacks_text(stacks: tuple[StackSight, ...]) -> None:
    """One line for each resource that somebody has changed or taken away."""
    for one in stacks:
        if one.error:
            note(f"site {one.site}: not looked at: {safe('; '.join(filter(None, (one.error, one.hint))))}")
            continue
        for row in one.drift:
            what = "is gone" if row.op is StackOp.DELETE else f"differs: {', '.join(row.paths)}"
            sys.stdout.write(safe(f"site {one.site}: {short_kind(row.kind)} {row.name} {what}") + "\n")
        note(f"site {one.site} looked at, {_differing(len(one.drift))}")


def _differing(count: int) -> str:
    """How many resources, and what puts them right."""
    if not count:
        return "nothing differs"
    differ = "differs" if count == 1 else "differ"
    return f"{plural(count, 'resource')} {differ}; `gangline apply` reverts what differs"


def _drift_text(sights: list[Sight]) -> None:
    """Hosts that differ alike in one line; then what can be done about each difference."""
    from orchestrator.cli.looking import adopt_advice

    alike: dict[tuple[str, ...], list[str]] = {}
    for sight in sights:
        for each in sight.drift:
            key = (str(each.kind), each.name, each.value, each.wanted, each.found, each.role)
            alike.setdefault(key, []).append(sight.host)
    for (kind, name, value, wanted, found, role), hosts in alike.items():
        was = _brief(found) or "absent"
        line = f"{fold_names(hosts)}: {kind} {name}, {value}: {was}, wanted {_brief(wanted) or 'absent'}  [{role}]"
        sys.stdout.write(safe(line) + "\n")
        advice = adopt_advice(kind, name, value, found)
        if advice:
            sys.stdout.write("".join(f"    {line}\n" for line in advice))
    for sight in sights:
        if not sight.checked:
            note(f"{sight.host}: not looked at: {safe('; '.join(filter(None, (sight.error, sight.hint))))}")
    if not sights:
        return
    seen = sum(sight.checked for sight in sights)
    bad = sum(bool(sight.drift) for sight in sights)
    revert = "; `gangline apply` reverts what differs" if bad else ""
    note(f"{plural(seen, 'host')} looked at, {bad or 'none'} {'differ' if bad > 1 else 'differs'}{revert}")


def _brief(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= 1 and len(text) <= 60 else f"({plural(len(lines), 'line')})"
