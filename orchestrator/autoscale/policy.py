"""What decisions about capacity go by beside State and offers.

Comes in: numbers that the controller has found out: the calendar, what runs by itself, which sites can't be used.
Goes out: `Policy`. Called by: controller (makes one a pass), the modules of this room.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.capacity import NEVER_US
from orchestrator.model.job import DEFAULT_TIME_LIMIT_S, Workload


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a pass. The month is the present one of the cluster's zone, [month_us, month_ends_us) in UTC.

    `standing`: pool -> micro-dollars an hour of nodes that stand all the time and are paid for. `blocked`: site -> why
    nothing can be launched there now. `outdated`: intents whose nodes the file wants otherwise by now.
    """

    month_us: int = 0
    month_ends_us: int = NEVER_US
    standing: tuple[tuple[str, int], ...] = ()
    blocked: tuple[tuple[str, str], ...] = ()
    usual_time_limit_s: tuple[tuple[Workload, int], ...] = tuple(DEFAULT_TIME_LIMIT_S.items())
    # Boot failures in a row after which a pool stops buying; ParallelCluster's protected mode takes as many.
    most_boot_failures: int = 10
    outdated: frozenset[str] = frozenset()
