"""When an offering that failed is tried again.

Comes in: the class of the error, how often it failed in a row, the intent that failed, the time. Goes out: a time.
Called by: cycle (nodes that did not boot), controller.capacity_answers (refused launches; the event keeps the time).
"""

from __future__ import annotations

from orchestrator.model.capacity import ErrorClass
from orchestrator.model.clock import SECOND

# class -> seconds of the first rest and of the longest; each failure in a row doubles it. Capacity comes back within
# minutes, quotas are raised by people, throttled APIs refill their buckets within seconds. What EC2 calls wrong it may
# just not know yet, as the role or the template that an apply has made a moment ago, or somebody mends it in the
# account; another file ends that rest at once (ledger.apply_capacity).
RESTS_S = {
    ErrorClass.CAPACITY: (60, 15 * 60),
    ErrorClass.QUOTA: (3600, 6 * 3600),
    ErrorClass.PRICE: (300, 30 * 60),
    ErrorClass.PERMANENT: (60, 3600),
    ErrorClass.THROTTLING: (5, 120),
    ErrorClass.AUTH: (300, 3600),
}


def retry_us(fault: ErrorClass, failures: int, intent: str, now_us: int) -> int:
    """When to try again after `failures` in a row (this one included). Up to a quarter longer, by the intent's id, so
    that what failed together does not come back together."""
    first, longest = RESTS_S[fault]
    rest_us = min(first << min(max(failures - 1, 0), 16), longest) * SECOND
    return now_us + rest_us + rest_us // 4 * jitter_milli(intent) // 1000


def jitter_milli(text: str) -> int:
    """0 to 999 from a text, the same everywhere (FNV-1a)."""
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found % 1000
