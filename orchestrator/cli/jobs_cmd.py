"""`jobs` and `job show`: lists of jobs, and one of them in full.

Comes in: filters, an id. Goes out: a table, a card, documents. Called by: the command's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli import completing, options
from orchestrator.cli.arguments import AGE, COUNT, JOB, NUMBER
from orchestrator.cli.session import note
from orchestrator.cli.verbs import SETTINGS, Example, Verbs, verb
from orchestrator.model.attempt import JobState
from orchestrator.model.errors import InputError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.wire.api import JobSummary

MOST = 100  # jobs that are shown unless told otherwise


@verb(
    "jobs",
    examples=[
        Example("gangline jobs", "my jobs: those not over, and those ended in the last day"),
        Example("gangline jobs -a --state waiting -o wide", "everyone's waiting jobs, with their reasons"),
        Example("gangline jobs -w", "watch them"),
        Example("gangline jobs -o json | jq '.items[].id'", "for a script"),
    ],
)
@click.option("-a", "--all-users", is_flag=True, help="Jobs of all users, not only one's own.")
@click.option("--user", metavar="NAME", help="Jobs of this user.")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help=f"Only these states ({', '.join(map(str, JobState))}); several, or a comma list.",
)
@click.option(
    "--queue", metavar="NAME", default="", shell_complete=completing.queue, help="Only of this queue."
)
@click.option("--name", metavar="NAME", default="", help="Only of this name.")
@click.option("--array", type=COUNT, metavar="ID", help="Only tasks of this array, of whatever age.")
@click.option(
    "--since",
    type=AGE,
    metavar="AGE",
    default="1d",
    show_default=True,
    help="How old ended jobs may be (30m, 8h, 7d), or `all`.",
)
@click.option(
    "-n",
    "--limit",
    type=NUMBER,
    default=MOST,
    show_default=True,
    metavar="N",
    help="At most so many; 0: all.",
)
@click.option("-w", "--watch", is_flag=True, help="Show them again whenever something changes, until Ctrl-C.")
@options.listing
@options.controller
def jobs(  # noqa: PLR0913 - one argument for each option
    all_users: bool,
    user: str | None,
    states: tuple[str, ...],
    queue: str,
    name: str,
    array: int | None,
    since: int,
    limit: int,
    watch: bool,
) -> None:
    """List jobs, newest first.

    TIME is how long a job runs, ran or waits. The last column has its nodes, or in brackets why it waits;
    `gangline explain ID` says more.
    """
    from orchestrator.cli.contexts import chosen, connect, own_name
    from orchestrator.cli.job_words import listing
    from orchestrator.cli.text import now
    from orchestrator.cli.watching import repeat

    wanted = _states(states)
    context = chosen()
    owner = "" if all_users or array else user or own_name(context)
    with connect(context) as client:

        def ask() -> list[JobSummary]:
            if array:
                return list(client.jobs(array=array, states=wanted, most=limit))
            return _ask(client, wanted, queue, owner, name, since, limit)

        which = _which(wanted, queue, name)
        if watch:
            repeat(lambda: listing(now(), owner, which), ask)
            return
        found = ask()
        listing(now(), owner, which).print(found)
        if len(found) == limit == MOST:
            note(f"the newest {MOST}; -n 0 shows all")


def _which(states: list[str], queue: str, name: str) -> str:
    """The filters in words: where nothing passes them, they are what to look at."""
    parts = [" named " + name if name else "", " in queue " + queue if queue else ""]
    return "".join(parts) + (" that are " + " or ".join(states) if states else "")


def _states(given: tuple[str, ...]) -> list[str]:
    words = [word for each in given for word in each.split(",") if word]
    known = [str(state) for state in JobState]
    for word in words:
        if word not in known:
            raise InputError(
                "jobs.bad-state", f"there is no state '{word}'", f"states are: {', '.join(known)}"
            )
    return words


def _ask(
    client: Client, states: list[str], queue: str, owner: str, name: str, since: int, limit: int
) -> list[JobSummary]:
    from orchestrator.cli.text import now

    since_us = int((now().timestamp() - since) * 1_000_000) if since else 0
    return list(
        client.jobs(states=states, queue=queue, owner=owner, name=name, since_us=since_us, most=limit)
    )


@click.group(
    "job",
    cls=Verbs,
    context_settings=SETTINGS,
    examples=[Example("gangline job show 12", "all about job 12")],
)
def job() -> None:
    """Look at one job, or change it."""


@verb(
    "show",
    group=job,
    examples=[
        Example("gangline job show 12", "request, attempts, the first rank that failed"),
        Example("gangline job show 1234", "how the tasks of array 1234 stand; 1234_7: all about one of them"),
        Example("gangline job show 12 -o json | jq .attempt.parts", "where it runs, for a script"),
    ],
)
@click.argument("job_id", metavar="ID", type=JOB, shell_complete=completing.any_job)
@options.output("text", "json", "yaml")
@options.controller
def show(job_id: int | str) -> None:
    """Print all that is known of a job: request, attempts, first failed rank."""
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_words import card
    from orchestrator.cli.output import record

    with connect() as client:
        found = client.job(job_id)
    record("Job", found, lambda: card(found))


@verb(
    "set",
    group=job,
    examples=[Example("gangline job set 1234 --at-most 8", "8 tasks of array 1234 at a time from now on")],
)
@click.argument("array", metavar="ARRAY", type=COUNT, shell_complete=completing.live_job)
@click.option(
    "--at-most", type=NUMBER, required=True, metavar="N", help="So many tasks at a time; 0: any number."
)
@options.output("text", "json", "yaml")
@options.controller
def set_(array: int, at_most: int) -> None:
    """Change how many tasks of an array have an attempt at a time.

    Tasks that have one keep it, also where there are more of them now.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_words import array_title
    from orchestrator.cli.output import record

    with connect() as client:
        found = client.throttle(array, at_most)
    words = f"at most {at_most} task(s) at a time" if at_most else "any number of tasks at a time"
    record("Job", found, lambda: f"{array_title(found)}: {words}")
