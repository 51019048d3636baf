"""How a simulation is run: its clock's start, how often passes are made, how nodes behave and fail.

Comes in: options. Goes out: `Settings`, `Faults`, `Core`. Called by: cli/simulate_cmd and the benchmarks (make them),
world and machines (obey them). Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import Event
from orchestrator.ledger.state import State
from orchestrator.model.clock import SECOND
from orchestrator.scheduler import decide

START_US = 1_798_761_600 * SECOND  # the trace's zero in UTC, unless somebody says otherwise: 2027-01-01
HOUR = 3600 * SECOND


@dataclass(frozen=True, slots=True)
class Faults:
    """How nodes come and go, drawn from `seed`. `mtbf_us` is a node's mean time from one loss to the next (0: none is
    lost), `repair_us` how long it is away before it boots. A boot takes `boot_us`, and of a thousand `slow_milli` take
    `slow_boot_us`. `at_start`: nodes boot when the simulation begins, too."""

    mtbf_us: int = 0
    repair_us: int = 2 * HOUR
    boot_us: int = 300 * SECOND
    slow_milli: int = 0
    slow_boot_us: int = 2700 * SECOND
    at_start: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """`grid_us`: passes are made at its multiples only (0: whenever something has changed), `rest_us`: no sooner
    after the one before. `prepare_us`: what a gang over several nodes takes until all are ready; `launch_us`: from
    then to the first process; `release_us`: from the last process to the proof that it is gone. `until_us`: nothing
    after it (0: to the end). `samples`: about how many pictures of the cluster are kept."""

    start_us: int = START_US
    grid_us: int = 0
    rest_us: int = 0
    prepare_us: int = 0
    launch_us: int = 0
    release_us: int = 0
    until_us: int = 0
    work_budget: int = 100_000  # as the controller's own
    lease_s: int = (
        180  # as the controller's own: silence closes a node after one, and proves things after two
    )
    samples: int = 400
    commitments: bool = True  # whether the use of each limit is kept over time
    reasons: bool = (
        True  # whether each job's last reason is kept: the scheduler makes reasons when somebody asks
    )
    faults: Faults = Faults()


def _no_clock() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Core:
    """The decision core, and a clock in nanoseconds for its pass times; whoever measures lends other ones."""

    decide: Callable[..., tuple[object, ...]] = decide
    apply: Callable[[State, Event], None] = apply
    clock_ns: Callable[[], int] = _no_clock
