"""`submit`: a job file to the controller, its id on stdout.

Comes in: a file, values set over it. Goes out: the id; with `--wait` the job's exit code. Called by: the command's
table.
"""

from __future__ import annotations

import sys

import click

from orchestrator.cli import options
from orchestrator.cli.session import current
from orchestrator.cli.verbs import Example, verb


@verb(
    "submit",
    examples=[
        Example("gangline submit job.yaml", "print the new job's id"),
        Example("gangline submit job.yaml --set spec.nodes=4 --set spec.env.LR=0.1", "with other values"),
        Example("gangline submit job.yaml --array 0-99%4", "100 jobs, at most 4 of them at a time"),
        Example("gangline submit job.yaml --dependency afterok:12:13", "once both have succeeded"),
        Example("gangline submit job.yaml --wait && echo done", "wait for its end; its exit code is ours"),
        Example(
            "gangline submit job.yaml --key nightly-2026-11-30", "a repeat with this key makes no second job"
        ),
        Example("gangline submit job.yaml --even-if-never", "queue it for a cluster that is still to grow"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Set a value over the file's.")
@click.option(
    "--array",
    metavar="TASKS[%N]",
    help="Make a job for each index, as in 0-99, 0-98:2 or 1,5; at most N at a time.",
)
@click.option(
    "--dependency",
    metavar="KIND:JOB[:JOB...][,...]",
    help="Start when all of it holds: after, afterany, afterok, afternotok or singleton.",
)
@click.option("--wait", is_flag=True, help="Wait until it has ended and return its exit code.")
@click.option(
    "--key", metavar="KEY", help="Makes the submit safe to repeat: the same key gives the same job."
)
@click.option(
    "--even-if-never",
    is_flag=True,
    help="Queue it even if no node or domain of the cluster could ever hold it; it waits with that reason.",
)
@options.output("text", "json", "yaml", "name")
@options.controller
def submit(
    file: str,
    settings: tuple[str, ...],
    array: str | None,
    dependency: str | None,
    wait: bool,
    key: str | None,
    even_if_never: bool,
) -> int:
    """Submit a job file and print its id.

    The file is checked before it is sent; `-` reads standard input. It returns when the job is in the ledger on the
    controller's disk: from then on it is not lost. With --wait, 125 means that Gangline failed, 126 that it was
    refused; of an array it returns when all tasks have ended, with the highest of their codes.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_file import read_job
    from orchestrator.cli.output import record
    from orchestrator.cli.slurm_words import array_of, dependencies_of

    more = (array_of(array) if array else None, dependencies_of(dependency) if dependency else {})
    document = read_job(file, settings, {**({"array": more[0]} if more[0] else {}), **more[1]})
    if wait:
        current().returns_job_code()
    with connect() as client:
        made = client.submit(document, key, force=even_if_never)
    record("JobCreated", made, lambda: str(made.id))
    sys.stdout.flush()
    return _stay(made.id, array=made.tasks > 1) if wait else 0


def _stay(job_id: int, *, array: bool) -> int:
    from orchestrator.cli.attached import PATIENCE_S, Attached, stay_with_array
    from orchestrator.cli.contexts import connect

    with connect(patience_s=PATIENCE_S) as client:
        if array:
            return stay_with_array(client, job_id)
        return Attached(client, output=False).stay(job_id)
