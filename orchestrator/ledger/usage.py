"""What queues and people have used of late: GPU time, of which older counts less.

Comes in: how many milli-GPU a scope holds, the time. Goes out: `Used` records, and what one comes to at a later time.
Called by: state (keeps a record for each scope while the file asks for it), scheduler (compares them).

The unit is milli-GPU-seconds. All of it is integers, so that a replay comes to the same: the weight of time past is a
power of two in steps of 1/64 of a half-life, in 32 binary digits (rounded down).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Final

from orchestrator.model.clock import SECOND

_ONE: Final = 1 << 32
_STEPS: Final = 64
_LN2_INVERSE_MILLI: Final = (
    1443  # 1000 / ln 2: a constant load comes to 1.443 half-lives of itself in the end
)


def _root64(value: int) -> int:
    """The 64th root, rounded down: six integer square roots."""
    for _ in range(6):
        value = isqrt(value)
    return value


# 2 ** (-step / 64), in 32 binary digits.
_WEIGHTS: Final = tuple(_root64((1 << (64 * 32)) >> step) for step in range(_STEPS + 1))


@dataclass(slots=True)
class Used:
    """What a scope had used at `t_us`, in milli-GPU-seconds, and the milli-GPU that it has held since."""

    t_us: int = 0
    amount: int = 0
    held: int = 0

    def at(self, now_us: int, half_life_s: int) -> int:
        """What it comes to now."""
        weight = weight_of(max(0, now_us - self.t_us), half_life_s)
        since = self.held * half_life_s * _LN2_INVERSE_MILLI * (_ONE - weight) // (1000 * _ONE)
        return self.amount * weight // _ONE + since

    def hold(self, held: int, now_us: int, half_life_s: int) -> None:
        """It holds another number from now on."""
        self.amount, self.t_us, self.held = self.at(now_us, half_life_s), max(now_us, self.t_us), held


def weight_of(past_us: int, half_life_s: int) -> int:
    """How much of use so long ago counts, in 32 binary digits."""
    whole, rest = divmod(past_us * _STEPS, half_life_s * SECOND)
    halves, step = divmod(whole, _STEPS)
    here, there = _WEIGHTS[step], _WEIGHTS[step + 1]
    return (here - (here - there) * rest // (half_life_s * SECOND)) >> min(halves, 64)
