"""`history` and `rollback`: what was applied to the cluster before, and the way back to it.

Comes in: records of the ledger. Goes out: a list; a plan to an earlier record, carried out like any other. Called by:
the command's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli import options
from orchestrator.cli.change_cmd import carry_out, show
from orchestrator.cli.session import note
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import InputError

if TYPE_CHECKING:
    from orchestrator.cli.output import Listing
    from orchestrator.client import Client
    from orchestrator.wire.api_apply import Record


# --- history ---------------------------------------------------------------------------------------------------------


@verb(
    "history",
    examples=[
        Example("gangline history", "what was applied, when, by whom, from which commit"),
        Example("gangline history -o json", "for a program"),
    ],
)
@options.listing
@options.controller
def history() -> None:
    """List what was applied to the cluster, newest first.

    The last 100 are kept. `gangline rollback RECORD` goes back to one.
    """
    from orchestrator.cli.contexts import connect

    with connect() as client:
        record_listing().print(client.records())


def record_listing() -> Listing[Record]:
    """The list of records."""
    from orchestrator.cli.output import Column, Listing
    from orchestrator.cli.text import instant

    columns: tuple[Column[Record], ...] = (
        Column("RECORD", lambda record: record.record),
        Column("APPLIED", lambda record: instant(record.at)),
        Column("BY", lambda record: record.by, cut=True),
        Column("COMMIT", lambda record: record.commit or "-"),
        Column("DIGEST", lambda record: record.digest[:12], wide=True),
        Column("", lambda record: "current" if record.current else ""),
    )
    return Listing("RecordList", columns, lambda record: record.record, "nothing was applied yet")


# --- rollback --------------------------------------------------------------------------------------------------------


@verb(
    "rollback",
    examples=[
        Example("gangline rollback --dry-run", "what going back to the record before this one would change"),
        Example("gangline rollback r812", "show the plan, ask, carry it out"),
    ],
)
@click.argument("record", required=False, metavar="[RECORD]")
@click.option("--dry-run", is_flag=True, help="Show the plan; change nothing.")
@options.consent
@options.yes
@options.output("text", "json", "markdown")
@options.controller
def rollback(record: str | None, dry_run: bool, yes: bool, consents: tuple[str, ...]) -> int:
    """Go back to what was applied earlier: a plan like any other.

    Without RECORD it is the one before the present one; `gangline history` lists them. What is rendered for hosts is
    this version of Gangline's. The cluster's file still says what it said: change it as well, or the next `apply` of
    it undoes this. Exit code 4: some hosts are not as wanted yet, and running it again converges.
    """
    from orchestrator.cli.changing import look_at
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.past import spec_in

    with connect() as client:
        to = client.record(record or _one_before(client))
        found = look_at(spec_in(to.spec), client, consents=consents)
        if dry_run:
            show(found.plan)
            return 0
        code = carry_out(found, client, to.commit, yes=yes)
    was = f", which came from commit {to.commit}" if to.commit else ""
    note(f"the cluster is to be what {to.record} says{was}; its file does not know that: change it as well")
    return code


def _one_before(client: Client) -> str:
    """The record before the present one."""
    known = client.records()
    if len(known) < 2:
        raise InputError(
            "rollback.no-record",
            "there is no record before the present one",
            "`gangline history` lists those that are kept",
        )
    return known[1].record
