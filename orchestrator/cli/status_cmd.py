"""`status`: the cluster at a glance.

Comes in: nothing. Goes out: a few lines, or the API's record. Called by: the command's table; `up` and `demo` end
with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.text import fold_names
from orchestrator.cli.verbs import Example, verb

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.wire.api_cluster import BoughtPool, OfferingState, Status


@verb(
    "status",
    examples=[
        Example("gangline status", "nodes, GPUs and jobs in five lines"),
        Example("gangline status -o json | jq .gpus.free", "for a script"),
    ],
)
@options.output("text", "json", "yaml")
@options.controller
def status() -> None:
    """Show the cluster at a glance."""
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.output import record

    with connect() as client:
        found = client.status()
    record("Status", found, lambda: words(found))


def words(found: Status) -> str:
    """The status as text."""
    from orchestrator.cli.job_words import fields
    from orchestrator.cli.text import ago

    rows = [
        ("cluster", found.cluster or "none yet: `gangline up cluster.yaml` gives the controller its nodes"),
        ("uid", found.uid),
        ("controller", f"version {found.version}, epoch {found.epoch}, {found.seq:,} events"),
        ("last event", f"{ago(found.updated_at, found.now)} ago" if found.updated_at else ""),
        ("nodes", _nodes(found)),
        ("GPUs", _gpus(found)),
        ("jobs", _jobs(found)),
        ("apply", _apply(found)),
        (
            "recovering",
            "the ledger was restored: `gangline server recover` lets starts go on"
            if found.recovering
            else "",
        ),
        ("orphans", f"{found.orphans}: `gangline server recover` takes them back" if found.orphans else ""),
    ]
    for pool in found.bought:
        rows.append((f"pool {pool.pool}", _bought(pool)))
        rows += [("", _rest(one, found.now)) for one in pool.offerings if one.state != "open"]
    return "\n".join(fields(rows))


def _bought(pool: BoughtPool) -> str:
    """How many nodes of a bought pool there are, what they cost, and what keeps it from buying more."""
    named = [("being launched", pool.asked), ("booting", pool.booting), ("being given back", pool.releasing)]
    parts = [f"{pool.ready} of {pool.least} to {pool.most} ready"]
    parts += [f"{count} {name}" for name, count in named if count]
    parts += [f"${pool.usd_per_hour:,.2f} an hour"] if pool.usd_per_hour else []
    parts += [f"${pool.billed_usd:,.2f} for nodes that are gone"] if pool.billed_usd else []
    words = ", ".join(parts)
    words += f"; nothing is bought: {pool.blocked}" if pool.blocked else ""
    return words + "".join(f"; not ended: {stuck}" for stuck in pool.stuck)


def _rest(one: OfferingState, now: datetime) -> str:
    from orchestrator.cli.text import left

    again = f"for {left(one.retry_at, now)}" if one.retry_at else "until the file changes"
    return f"{one.type} {one.market} in {one.zone} rests {again} ({one.fault}: {one.words})"


def _apply(found: Status) -> str:
    """Nothing to say of one that did all it was to do."""
    last = found.apply
    if last is None or last.outcome == "done":
        return ""
    words = f"{last.id} of {last.holder}: "
    if last.outcome is None:
        words += "under way" if last.leased else "left open, its holder gives no sign of life"
    else:
        words += last.outcome
    words += f"; {last.done} of {last.total} steps done"
    words += f"; pending: {fold_names(last.pending)}" if last.pending else ""
    words += f" ({last.detail})" if last.detail else ""
    return words if last.leased and last.outcome is None else f"{words}: `gangline apply` goes on from there"


def _nodes(found: Status) -> str:
    counts = found.nodes
    parts = [f"{counts.open} of {counts.total} open"]
    parts += [f"{counts.silent} silent"] if counts.silent else []
    parts += [f"{counts.marked} marked: `gangline nodes` says why"] if counts.marked else []
    return ", ".join(parts)


def _gpus(found: Status) -> str:
    counts = found.gpus
    parts = [f"{counts.free} free of {counts.total}", f"{counts.allocated} allocated"]
    parts += [f"{counts.not_ready} not ready"] if counts.not_ready else []
    parts += (
        ["all emulated" if counts.emulated == counts.total else f"{counts.emulated} emulated"]
        if counts.emulated
        else []
    )
    return ", ".join(parts)


def _jobs(found: Status) -> str:
    counts = found.jobs
    named = [
        ("running", counts.running),
        ("starting", counts.starting),
        ("ending", counts.ending),
        ("waiting", counts.waiting),
        ("held", counts.held),
        ("lost", counts.lost),
    ]
    return ", ".join(f"{count} {name}" for name, count in named if count) or "none that is not over"
