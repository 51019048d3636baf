"""`explain`: why a job does not run, with its numbers, its place, who is in its way, and what to do.

Comes in: an id, or a job file that is not submitted. Goes out: the one reason that holds now, or where it would start.
Called by: the command's table; `run` and `demo` print the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from orchestrator.cli import completing, options
from orchestrator.cli.arguments import JOB
from orchestrator.cli.verbs import Example, verb
from orchestrator.wire.api import Explanation

if TYPE_CHECKING:
    from orchestrator.wire.api_cluster import WhatIf, WhatIfNode

_WOULD = {"end.dependency": "be cancelled at once"}  # what a submit would come to, where it is not to wait
BOTH = "give the ID of a job, or --what-if with a job file and its --set"


@verb(
    "explain",
    examples=[
        Example("gangline explain 12", "why job 12 waits"),
        Example("gangline explain --what-if job.yaml", "whether it would start now, and where"),
        Example("gangline explain 1234_7", "why task 7 of array 1234 waits; 1234 alone: its next task"),
        Example("gangline explain 12 -o json | jq .reason.code", "the stable word for a script"),
    ],
)
@click.argument("job_id", metavar="ID", type=JOB, shell_complete=completing.live_job, required=False)
@click.option(
    "--what-if", "file", metavar="FILE", help="A job file: say what would come of it, and submit nothing."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="With --what-if: a value over the file's."
)
@options.output("text", "json", "yaml")
@options.controller
def explain(job_id: int | str | None, file: str | None, settings: tuple[str, ...]) -> None:
    """Say why a job waits, and what to do about it.

    There is exactly one reason, true for the state of this moment: take away what it names, and the job starts. Of an
    array --what-if says how many tasks would start now, and why the next would not.
    """
    if file is not None and job_id is None:
        _what_if(file, settings)
        return
    if job_id is None or file is not None or settings:
        raise click.UsageError("missing argument 'ID'" if file is None and not settings else BOTH)
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_words import ending
    from orchestrator.cli.output import record
    from orchestrator.cli.text import now
    from orchestrator.model.attempt import ENDED_STATES

    with connect() as client:
        found = client.explain(job_id)
        over = ending(client.job(found.job)) if found.state in map(str, ENDED_STATES) else ""
    record("Explanation", found, lambda: over or words(found, now()))


def _what_if(file: str, settings: tuple[str, ...]) -> None:
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_file import read_job
    from orchestrator.cli.output import record

    document = read_job(file, settings)
    with connect() as client:
        found = client.what_if(document)
    record("WhatIf", found, lambda: what_if_words(found))


def what_if_words(found: WhatIf) -> str:
    """Where the job would start, or why not, as text; of an array how many of its tasks, and why the next would not."""
    from orchestrator.cli.text import plural

    if not found.starts:
        return _would_not(found, "it")
    whole = "it" if not found.array_tasks else _tasks(found)
    lines = [f"{whole} would start now on {plural(len(found.nodes), 'node')}:", "", *_places(found)]
    if found.reason is not None:
        lines += ["", _would_not(found, "the next task")]
    elif found.tried < found.array_tasks:
        lines += ["", f"only its first {found.tried} tasks were looked at"]
    return "\n".join(lines)


def _tasks(found: WhatIf) -> str:
    from orchestrator.cli.text import plural

    if found.starting == found.array_tasks > 1:
        return f"all {found.array_tasks} of its tasks"
    return f"{found.starting} of its {plural(found.array_tasks, 'task')}"


def _places(found: WhatIf) -> list[str]:
    from orchestrator.cli.tables import Cell, Head, render
    from orchestrator.cli.text import indent

    named = any(one.group for one in found.nodes)
    heads = [Head("NODE"), *([Head("GROUP")] if named else []), Head("GPUS"), Head("TASKS", right=True)]
    rows = [
        [
            Cell(one.node),
            *([Cell(one.group)] if named else []),
            Cell(_devices(one)),
            Cell(str(one.array_tasks or one.tasks)),
        ]
        for one in found.nodes
    ]
    return [indent("\n".join(render(heads, rows)))]


def _would_not(found: WhatIf, what: str) -> str:
    from orchestrator.cli.job_words import numbers
    from orchestrator.cli.text import indent, safe, wrap

    why = found.reason
    if why is None:
        return f"{what} would wait"
    would = "be refused" if found.refused else _WOULD.get(why.code, "wait")
    lines = [wrap(f"{what} would {would}: {safe(why.sentence)} [{why.code}]"), ""]
    table = numbers(why.facts)
    lines += [indent("\n".join(table)), ""] if table else []
    lines.append(wrap(f"  what to do: {safe(why.action)}", "    "))
    return "\n".join(lines)


def _devices(one: WhatIfNode) -> str:
    """`0-2`, or with shares `0 (0.25)`, MIG instances as `0:3g.40gb@4`."""
    from orchestrator.cli.text import fold

    if one.instances:
        return ",".join(one.instances)
    if not one.milli:
        return fold(one.devices) or "-"
    shares = zip(one.devices, one.milli, strict=False)
    return ",".join(f"{slot} ({milli / 1000:g})" for slot, milli in shares)


def words(found: Explanation, now: datetime) -> str:
    """The explanation as text."""
    from orchestrator.cli.job_words import numbers
    from orchestrator.cli.text import indent, safe, wrap

    if found.reason is None:
        return f"job {_name(found)} is {found.state}, and nothing is in its way"
    lines = [
        wrap(f"{_head(found)}{safe(found.reason.sentence)} [{found.reason.code}]"),
        "",
    ]
    if found.place:
        lines += [f"  place: {found.place} of {found.waiting} waiting in its queue; {_ahead(found)}", ""]
    table = numbers(found.reason.facts)
    lines += [indent("\n".join(table)), ""] if table else []
    if found.blockers:
        lines += [indent("\n".join(_blockers(found, now))), ""]
    lines.append(wrap(f"  what to do: {safe(found.reason.action)}", "    "))
    return "\n".join(lines)


def _head(found: Explanation) -> str:
    held = (
        found.reason is not None and found.reason.code == "wait.held"
    )  # then the sentence says the state itself
    return f"job {_name(found)}: " if held else f"job {_name(found)} is {found.state}: "


def _name(found: Explanation) -> str:
    return found.label or str(found.job)


def _ahead(found: Explanation) -> str:
    from orchestrator.cli.text import plural, thousandths

    if found.place == 1:
        return "nothing before it"
    ask = "asks" if found.place == 2 else "ask"
    gpus = thousandths(found.ahead_milli or found.ahead_gpus * 1000)
    return f"{plural(found.place - 1, 'job')} before it {ask} for {gpus} GPU{'' if gpus == '1' else 's'}"


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
        [
            Cell(each.label or str(each.job)),
            Cell(each.owner),
            Cell(str(each.gpus)),
            Cell(left(each.ends_at, now)),
        ]
        for each in found.blockers
    ]
    return render(heads, rows)
