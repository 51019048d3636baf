"""`queues`: the quota tree and what goes on in it.

Comes in: nothing. Goes out: a table. Called by: the command's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.text import thousandths
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
    """List queues with their guarantees and use.

    BORROWED is what is held beyond the guarantee, SHARE what is held for each unit of weight, both with the queues
    below: where GPUs held decide, the queue with the smallest share goes first. KW is what the GPUs that they hold
    may draw, where power domains have limits; `topology` shows those. `-o json` has in words what most wait for.
    """
    from orchestrator.cli.contexts import connect

    with connect() as client:
        found = client.queues()
        queue_listing(powered=any(queue.used_watts is not None for queue in found)).print(found)


def queue_listing(*, powered: bool = False) -> Listing[Queue]:
    """The list of queues; `powered`: with what their GPUs may draw."""
    from orchestrator.cli.output import Column, Listing
    from orchestrator.cli.text import span

    columns: tuple[Column[Queue], ...] = (
        Column("NAME", lambda queue: queue.name, cut=True),
        Column("PARENT", lambda queue: queue.parent or "-", cut=True, wide=True),
        Column("GUARANTEE", lambda queue: shares(queue.guarantee), cut=True),
        Column("MAY BORROW", lambda queue: shares(queue.borrow_limit), cut=True, wide=True),
        Column("LENDS", lambda queue: shares(queue.lending_limit), cut=True, wide=True),
        Column("WEIGHT", lambda queue: str(queue.weight), right=True),
        Column("RUNNING", lambda queue: str(queue.running_jobs), right=True),
        Column("GPUS", lambda queue: thousandths(queue.used_milli), right=True),
        *([Column("KW", kilowatts, right=True)] if powered else []),
        Column("BORROWED", lambda queue: thousandths(queue.borrowed_milli), right=True),
        Column("SHARE", lambda queue: thousandths(queue.share_milli), right=True),
        Column("WAITING", lambda queue: str(queue.waiting_jobs), right=True),
        Column(
            "GPUS ASKED",
            lambda queue: thousandths(max(queue.waiting_milli, queue.waiting_gpus * 1000)),
            right=True,
        ),
        Column("HELD", lambda queue: str(queue.held_jobs), right=True),
        Column("MOST WAIT FOR", why, cut=True),
        Column("JOBS/USER", lambda queue: _number(queue.limits.max_jobs_per_user), right=True, wide=True),
        Column("GPUS/USER", lambda queue: _number(queue.limits.max_gpus_per_user), right=True, wide=True),
        Column("GPUS/JOB", lambda queue: _number(queue.limits.max_gpus_per_job), right=True, wide=True),
        Column("DOLLARS/H", dollars, right=True, wide=True),
        Column("GPU-HOURS/MONTH", gpu_hours, right=True, wide=True),
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


def kilowatts(queue: Queue) -> str:
    """`31.2`."""
    return f"{(queue.used_watts or 0) / 1000:g}"


def why(queue: Queue) -> str:
    """`wait.gpus (12)`."""
    return f"{queue.reason.code} ({queue.reason_jobs})" if queue.reason is not None else "-"


def dollars(queue: Queue) -> str:
    """`$30.00 of $48.00`."""
    if queue.usd_per_hour is None:
        return "-"
    most = f" of ${queue.budget_usd_per_hour:,.2f}" if queue.budget_usd_per_hour is not None else ""
    return f"${queue.usd_per_hour:,.2f}{most}"


def gpu_hours(queue: Queue) -> str:
    """`18,250 of 20,000`."""
    if queue.gpu_hours is None:
        return "-"
    most = queue.limits.max_gpu_hours_per_month
    return f"{queue.gpu_hours:,.0f} of {most:,}" if most else f"{queue.gpu_hours:,.0f}"


def shares(found: list[QueueShare]) -> str:
    """`48 of h100, 32 of burst`."""
    return ", ".join(f"{share.gpus} of {share.pool or share.gpu_model}" for share in found) or "-"


def _number(limit: int) -> str:
    return str(limit) if limit else "-"
