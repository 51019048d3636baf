"""`queues`: the quota tree and what goes on in it.

Comes in: nothing. Goes out: a table. Called by: the command's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.verbs import Example, verb

if TYPE_CHECKING:
    from orchestrator.cli.output import Listing
    from orchestrator.wire.api_cluster import Queue, QueueShare


@verb(
    "queues",
    examples=[
        Example("gangline queues", "all queues"),
        Example("gangline queues -o wide", "with their limits"),
    ],
)
@options.listing
@options.controller
def queues() -> None:
    """List queues with their guarantees and use."""
    from orchestrator.cli.contexts import connect

    with connect() as client:
        queue_listing().print(client.queues())


def queue_listing() -> Listing[Queue]:
    """The list of queues."""
    from orchestrator.cli.output import Column, Listing
    from orchestrator.cli.text import span

    columns: tuple[Column[Queue], ...] = (
        Column("NAME", lambda queue: queue.name, cut=True),
        Column("PARENT", lambda queue: queue.parent or "-", cut=True, wide=True),
        Column("GUARANTEE", lambda queue: shares(queue.guarantee), cut=True),
        Column("BORROWS", lambda queue: shares(queue.borrow_limit), cut=True, wide=True),
        Column("WEIGHT", lambda queue: str(queue.weight), right=True),
        Column("RUNNING", lambda queue: str(queue.running_jobs), right=True),
        Column("GPUS", lambda queue: str(queue.used_gpus), right=True),
        Column("WAITING", lambda queue: str(queue.waiting_jobs), right=True),
        Column("GPUS ASKED", lambda queue: str(queue.waiting_gpus), right=True),
        Column("HELD", lambda queue: str(queue.held_jobs), right=True),
        Column("JOBS/USER", lambda queue: _number(queue.limits.max_jobs_per_user), right=True, wide=True),
        Column("GPUS/USER", lambda queue: _number(queue.limits.max_gpus_per_user), right=True, wide=True),
        Column("GPUS/JOB", lambda queue: _number(queue.limits.max_gpus_per_job), right=True, wide=True),
        Column(
            "LONGEST",
            lambda queue: span(queue.limits.max_time_limit_s) if queue.limits.max_time_limit_s else "-",
            right=True,
            wide=True,
        ),
    )
    return Listing(
        "QueueList", columns, lambda queue: queue.name, "no queues: no cluster has been applied yet"
    )


def shares(found: list[QueueShare]) -> str:
    """`48 of h100, 32 of burst`."""
    return ", ".join(f"{share.gpus} of {share.pool or share.gpu_model}" for share in found) or "-"


def _number(limit: int) -> str:
    return str(limit) if limit else "-"
