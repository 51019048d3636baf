"""`run`: a command as a gang, with its output here and its exit code as ours.

Comes in: options and a command. Goes out: the job's output on stdout, what happens to it on stderr, its exit code.
Called by: the command's table.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli import completing, options
from orchestrator.cli.arguments import COUNT, LABEL, NUMBER, PRIORITY, SEGMENT, SPAN, VARIABLE
from orchestrator.cli.session import current, note
from orchestrator.cli.verbs import SETTINGS, Example, verb

if TYPE_CHECKING:
    from orchestrator.cli.job_file import Asked

TAKE_BACK_S = 5.0  # how long someone who has pressed Ctrl-C is kept


@verb(
    "run",
    context_settings={**SETTINGS, "ignore_unknown_options": False, "allow_interspersed_args": False},
    examples=[
        Example(
            "gangline run -n 16 --gpus-per-task 1 -- python train.py",
            "16 tasks with a GPU each, wherever they fit",
        ),
        Example(
            "gangline run -N 2 --gpus-per-node 8 --launch launcher -- torchrun train.py",
            "torchrun once on each of 2 nodes",
        ),
        Example("gangline run -n 4 --label -- hostname", "no GPUs; each line behind its rank"),
        Example(
            "gangline run --time 10m --env LR=0.1 --name try -- ./step.sh",
            "with a time limit, a variable, a name",
        ),
    ],
)
@click.option("-n", "--tasks", type=COUNT, metavar="TASKS", help="Tasks of the gang (default 1).")
@click.option("-N", "--nodes", type=COUNT, metavar="NODES", help="Nodes of the gang.")
@click.option("--gpus-per-task", type=NUMBER, default=0, metavar="G", help="GPUs of each task.")
@click.option("--gpus-per-node", type=NUMBER, default=0, metavar="G", help="GPUs of each node.")
@click.option("--gpu-model", multiple=True, metavar="MODEL", help="GPU models that will do; any without it.")
@click.option(
    "--gpu-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Share of one GPU, such as 0.5, of each task, or of each node with -N.",
)
@click.option("--gpu-memory", default="", metavar="SIZE", help="Memory of each GPU, such as 20GiB.")
@click.option("--mig", default="", metavar="PROFILE", help="MIG instances of this profile instead of GPUs.")
@click.option(
    "--node-label",
    "labels",
    type=LABEL,
    multiple=True,
    metavar="KEY=VALUE",
    help="Only on nodes of pools with this label.",
)
@click.option("--exclusive", is_flag=True, help="Nobody else on its nodes.")
@click.option(
    "--segment",
    type=SEGMENT,
    metavar="NODES:LEVEL",
    help="Each so many nodes within one domain, as in 4:unit.",
)
@click.option(
    "--cores", type=NUMBER, default=0, metavar="C", help="Cores of each task, or of each node with -N."
)
@click.option(
    "--memory",
    default="",
    metavar="SIZE",
    help="Memory of each task, or of each node with -N, such as 64GiB.",
)
@click.option(
    "--queue", default="", metavar="NAME", shell_complete=completing.queue, help="Queue (default: default)."
)
@click.option("--name", default="", metavar="NAME", help="Name of the job (default: the program's).")
@click.option(
    "--time",
    "time_limit",
    type=SPAN,
    metavar="LIMIT",
    help="Time limit, such as 30m or 4h; without it its queue's, else 4h.",
)
@click.option(
    "--env",
    type=VARIABLE,
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the job's environment.",
)
@click.option(
    "--workdir", metavar="PATH", help="Where it runs on the nodes (default: the folder that we are in)."
)
@click.option(
    "--output",
    "output_file",
    default="",
    metavar="PATTERN",
    help="File for each rank's output, such as logs/%j-%t.out.",
)
@click.option(
    "--priority",
    type=PRIORITY,
    default=0,
    metavar="P",
    help="Higher starts first within the queue.",
)
@click.option(
    "--launch",
    type=click.Choice(["ranks", "launcher"]),
    default="ranks",
    show_default=True,
    help="Start the command once per task, or once per node (torchrun, accelerate).",
)
@click.option("--label/--no-label", default=False, help="Write each line's rank before it.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but what the job says.")
@options.controller
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
def run(
    command: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    workdir: str | None,
    gpu_model: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    segment: tuple[int, str] | None,
    label: bool,
    quiet: bool,
    **more: int | float | str | None,
) -> int:
    """Run a command as a gang and stream its output.

    Everything starts together or not at all. No GPUs are given unless asked for. The output of all ranks is printed
    here, and the exit code is the job's own; 125 means that Gangline failed, 126 that the job was refused.

    The job gets PATH as it is here and the variables given by --env, nothing else of this environment, and no
    standard input.
    Ctrl-C asks the job to end; a second one kills it; a third one leaves it alone and returns.
    """
    from orchestrator.cli.attached import PATIENCE_S, Attached
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.job_file import document_of

    asked = _asked(command, env, workdir, gpu_model, more)
    asked.labels, asked.segment = dict(labels), segment
    document = document_of(asked)
    _check(document)
    current().returns_job_code()
    made = _submit(document)
    with connect(patience_s=PATIENCE_S) as client:
        return Attached(client, label=label, quiet=quiet, own=True).stay(made)


def _asked(
    command: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    workdir: str | None,
    gpu_model: tuple[str, ...],
    more: dict[str, int | float | str | None],
) -> Asked:
    from orchestrator.cli.job_file import Asked

    path = os.environ.get("PATH", "")
    return Asked(
        command=command,
        name=str(more["name"]),
        tasks=int(more["tasks"] or 0),
        nodes=int(more["nodes"] or 0),
        gpus_per_task=int(more["gpus_per_task"] or 0),
        gpus_per_node=int(more["gpus_per_node"] or 0),
        cores=int(more["cores"] or 0),
        memory=str(more["memory"]),
        gpu_model=gpu_model,
        gpu_share=float(more["gpu_share"] or 0),
        gpu_memory=str(more["gpu_memory"]),
        mig=str(more["mig"]),
        exclusive=bool(more["exclusive"]),
        queue=str(more["queue"]),
        priority=int(more["priority"] or 0),
        time_limit_s=int(more["time_limit"] or 0),
        launch=str(more["launch"]),
        workdir=str(Path(workdir or ".").absolute()),
        output=str(more["output_file"]),
        env=({"PATH": path} if path else {}) | dict(env),
    )


def _submit(document: dict[str, object]) -> int:
    """Its id. Whoever interrupts this wants no job: one that was made all the same is found by its key, and ended."""
    from orchestrator.cli.contexts import connect

    key = secrets.token_urlsafe(16)
    with connect() as client:
        try:
            return client.submit(document, key).id
        except KeyboardInterrupt:
            note("interrupted while it was submitted: making sure that no job is left")
            with connect(patience_s=TAKE_BACK_S) as again:
                again.cancel(again.submit(document, key).id, "interrupted while it was submitted")
            raise


def _check(document: dict[str, object]) -> None:
    """What is wrong with it is said here, before anything is sent."""
    from orchestrator.spec import job_from_document

    job_from_document(document)
