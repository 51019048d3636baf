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
        Example("gangline submit job.yaml --wait && echo done", "wait for its end; its exit code is ours"),
        Example(
            "gangline submit job.yaml --key nightly-2026-11-30", "a repeat with this key makes no second job"
        ),
    ],
)
@click.argument("file", metavar="FILE")
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Set a value over the file's.")
@click.option("--wait", is_flag=True, help="Wait until it has ended and return its exit code.")
@click.option(
    "--key", metavar="KEY", help="Makes the submit safe to repeat: the same key gives the same job."
)
@options.output("text", "json", "yaml", "name")
@options.controller
def submit(file: str, settings: tuple[str, ...], wait: bool, key: str | None) -> int:
    """Submit a job file and print its id.

    The file is checked before it is sent; `-` reads standard input. It returns when the job is in the ledger on the
    controller's disk: from then on it is not lost. With --wait, 125 means that Gangline failed, 126 that it was
    refused.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_file import read_job
    from orchestrator.cli.output import record

    document = read_job(file, settings)
    if wait:
        current().returns_job_code()
    with connect() as client:
        made = client.submit(document, key)
    record("JobCreated", made, lambda: str(made.id))
    sys.stdout.flush()
    return _stay(made.id) if wait else 0


def _stay(job_id: int) -> int:
    from orchestrator.cli.attached import PATIENCE_S, Attached
    from orchestrator.cli.contexts import connect

    with connect(patience_s=PATIENCE_S) as client:
        return Attached(client, output=False).stay(job_id)
