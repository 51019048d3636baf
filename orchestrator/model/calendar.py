"""Calendar periods in a zone of the world's.

Comes in: an IANA zone, a time. Goes out: the period that the time is in. Called by: controller, simulate.
"""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from orchestrator.model.clock import SECOND


def month_of(zone: str, now_us: int) -> tuple[int, int]:
    """The calendar month of the zone that the time is in: its first moment, and that of the next one, in UTC
    microseconds."""
    local = datetime.fromtimestamp(now_us / SECOND, timezone.utc).astimezone(ZoneInfo(zone))
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return _us(first), _us(following)


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND
