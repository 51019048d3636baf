"""`cancel`, `hold`, `release`, `prioritize`, `requeue`: one thing done to several jobs.

Comes in: ids, a reason. Goes out: each job's new state, an error for each that could not be; exit code 4 if some could
and some could not. Called by: the command's table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli import completing, options
from orchestrator.cli.arguments import JOB, PRIORITY
from orchestrator.cli.session import current
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import GanglineError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.client.client import JobName
    from orchestrator.wire.api import Job

PARTLY = 4
RELEASED = ("waiting", "starting", "running")  # of a job that nobody holds


def _for_each(ids: Sequence[JobName], act: Callable[[Client, JobName], Job], more: str = "") -> int:
    """Act on each job, print what became of those that could be (in text with `more`), and tell all errors."""
    from orchestrator.cli import errors
    from orchestrator.cli.contexts import connect

    done: list[Job] = []
    failed: list[GanglineError] = []
    session = current()
    with connect() as client:
        for job_id in dict.fromkeys(ids):
            try:
                done.append(act(client, job_id))
            except GanglineError as error:
                failed.append(error)
    _show(done, more)
    if len(failed) == 1 and not done:
        raise failed[0]
    for each in failed:
        errors.report(each, session)
    if failed:
        return PARTLY if done else errors.exit_code(failed[0], session)
    return 0


def _unless_done(
    act: Callable[[], Job], refusal: str, client: Client, job_id: JobName, done: Sequence[str]
) -> Job:
    """Act, or look: where it is refused and the job is in a state as it was asked for, there is nothing to do. So each
    of these commands may be repeated after a kill."""
    try:
        return act()
    except GanglineError as error:
        if error.code != refusal:
            raise
        job = client.job(job_id)
        if job.state not in done:
            raise
        return job


def _show(done: list[Job], more: str) -> None:
    from orchestrator.cli.job_words import acted, listing
    from orchestrator.cli.text import now

    if current().output == "text":
        sys.stdout.writelines(f"{acted(job)}{more}\n" for job in done)
    elif done:
        listing(now()).print(done)


@verb(
    "cancel",
    examples=[
        Example("gangline cancel 12", "end job 12: its signal, its grace, then kill"),
        Example("gangline cancel 12 13 --now", "kill both at once"),
        Example("gangline cancel 40 && gangline cancel 52_7", "all tasks of array 40; task 7 of array 52"),
        Example('gangline cancel 12 --why "wrong data set"', "say why; it is kept with the job"),
    ],
)
@click.argument("ids", metavar="ID...", type=JOB, nargs=-1, required=True, shell_complete=completing.live_job)
@click.option("--now", is_flag=True, help="Without grace: kill at once.")
@click.option("--why", default="", metavar="TEXT", help="Why; kept with the job.")
@options.output("text", "json", "yaml", "name")
@options.controller
def cancel(ids: tuple[JobName, ...], now: bool, why: str) -> int:
    """End jobs: signal, grace, kill.

    A waiting job is over at once. A running one gets its stop signal, and is killed when its grace has passed.
    """

    def act(client: Client, job_id: JobName) -> Job:
        def cancelled() -> Job:
            return client.cancel(job_id, why, now=now)

        return _unless_done(cancelled, "job.ended", client, job_id, ("cancelled",))

    return _for_each(ids, act)


@verb(
    "hold",
    examples=[
        Example(
            'gangline hold 12 --why "looks at the last run first"',
            "job 12 does not start until it is released",
        )
    ],
)
@click.argument(
    "ids", metavar="ID...", type=JOB, nargs=-1, required=True, shell_complete=completing.waiting_job
)
@click.option("--why", default="", metavar="TEXT", help="Why; kept with the job.")
@options.output("text", "json", "yaml", "name")
@options.controller
def hold(ids: tuple[JobName, ...], why: str) -> int:
    """Keep waiting jobs from starting.

    A job that has started can't be held; `gangline requeue` ends its attempt first.
    """
    return _for_each(ids, lambda client, job_id: client.hold(job_id, why))


@verb("release", examples=[Example("gangline release 12 13", "both may start again")])
@click.argument("ids", metavar="ID...", type=JOB, nargs=-1, required=True, shell_complete=completing.held_job)
@options.output("text", "json", "yaml", "name")
@options.controller
def release(ids: tuple[JobName, ...]) -> int:
    """Let held jobs wait for their start again."""

    def act(client: Client, job_id: JobName) -> Job:
        return _unless_done(lambda: client.release(job_id), "job.not-held", client, job_id, RELEASED)

    return _for_each(ids, act)


@verb(
    "prioritize",
    examples=[
        Example("gangline prioritize 12 --priority 10", "job 12 goes before others of its queue"),
        Example(
            "gangline prioritize 40 52_7 --priority=-5",
            "all tasks of array 40, and task 7 of array 52, later",
        ),
    ],
)
@click.argument(
    "ids", metavar="ID...", type=JOB, nargs=-1, required=True, shell_complete=completing.waiting_job
)
@click.option(
    "--priority", type=PRIORITY, required=True, metavar="P", help="Higher starts first within the queue."
)
@options.output("text", "json", "yaml", "name")
@options.controller
def prioritize(ids: tuple[JobName, ...], priority: int) -> int:
    """Let waiting jobs start earlier, or later, than others of their queue.

    Jobs of a queue with the same priority start in the order in which they were submitted, as fair share has it. A held
    job takes its priority along. One that has started can't get another one; of an array, tasks that still wait do.
    """
    return _for_each(
        ids, lambda client, job_id: client.prioritize(job_id, priority), f", priority {priority}"
    )


@verb(
    "requeue",
    examples=[
        Example("gangline requeue 12", "end the attempt of job 12 and start another one when there is room")
    ],
)
@click.argument(
    "ids", metavar="ID...", type=JOB, nargs=-1, required=True, shell_complete=completing.running_job
)
@click.option("--why", default="", metavar="TEXT", help="Why; kept with the attempt.")
@options.output("text", "json", "yaml", "name")
@options.controller
def requeue(ids: tuple[JobName, ...], why: str) -> int:
    """End a job's attempt and let the job wait again.

    The attempt gets the job's stop signal and grace. The job keeps its id; its next start is a new attempt. A job that
    waits already is left as it is.
    """

    def act(client: Client, job_id: JobName) -> Job:
        return _unless_done(
            lambda: client.requeue(job_id, why), "job.no-attempt", client, job_id, ("waiting",)
        )

    return _for_each(ids, act)
