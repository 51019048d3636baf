"""`explain`: why a job does not run, with its numbers, its place, who is in its way, and what to do.

Comes in: an id. Goes out: the one reason that holds now. Called by: the command's table; `run` and `demo` print the
same.
"""

from __future__ import annotations

from datetime import datetime

import click

from orchestrator.cli import completing, options
from orchestrator.cli.arguments import JOB
from orchestrator.cli.verbs import Example, verb
from orchestrator.wire.api import Explanation


@verb(
    "explain",
    examples=[
        Example("gangline explain 12", "why job 12 waits"),
        Example("gangline explain 12 -o json | jq .reason.code", "the stable word for a script"),
    ],
)
@click.argument("job_id", metavar="ID", type=JOB, shell_complete=completing.live_job)
@options.output("text", "json", "yaml")
@options.controller
def explain(job_id: int) -> None:
    """Say why a job waits, and what to do about it.

    There is exactly one reason, true for the state of this moment: take away what it names, and the job starts.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_words import ending
    from orchestrator.cli.output import record
    from orchestrator.cli.text import now
    from orchestrator.model.attempt import ENDED_STATES

    with connect() as client:
        found = client.explain(job_id)
        over = ending(client.job(job_id)) if found.state in map(str, ENDED_STATES) else ""
    record("Explanation", found, lambda: over or words(found, now()))


def words(found: Explanation, now: datetime) -> str:
    """The explanation as text."""
    from orchestrator.cli.job_words import numbers
    from orchestrator.cli.text import indent, safe, wrap

    if found.reason is None:
        return f"job {found.job} is {found.state}, and nothing is in its way"
    lines = [
        wrap(f"{_head(found)}{safe(found.reason.sentence)} [{found.reason.code}]"),
        "",
    ]
    if found.place:
        lines += [f"  place: {found.place} of {found.waiting} waiting in its queue; {_ahead(found)}", ""]
    if found.reason.facts:
        lines += [indent("\n".join(numbers(found.reason.facts))), ""]
    if found.blockers:
        lines += [indent("\n".join(_blockers(found, now))), ""]
    lines.append(wrap(f"  what to do: {safe(found.reason.action)}", "    "))
    return "\n".join(lines)


def _head(found: Explanation) -> str:
    held = (
        found.reason is not None and found.reason.code == "wait.held"
    )  # then the sentence says the state itself
    return f"job {found.job}: " if held else f"job {found.job} is {found.state}: "


def _ahead(found: Explanation) -> str:
    from orchestrator.cli.text import plural

    if found.place == 1:
        return "nothing before it"
    ask = "asks" if found.place == 2 else "ask"
    return f"{plural(found.place - 1, 'job')} before it {ask} for {plural(found.ahead_gpus, 'GPU')}"


def _blockers(found: Explanation, now: datetime) -> list[str]:
    from orchestrator.cli.tables import Cell, Head, render
    from orchestrator.cli.text import left

    heads = [
        Head("BLOCKER", right=True),
        Head("USER"),
        Head("GPUS", right=True),
        Head("ENDS BY ITSELF IN", right=True),
    ]
    rows = [
        [Cell(str(each.job)), Cell(each.owner), Cell(str(each.gpus)), Cell(left(each.ends_at, now))]
        for each in found.blockers
    ]
    return render(heads, rows)
