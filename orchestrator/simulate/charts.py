"""Charts as SVG texts.

Comes in: series, waits, axes. Goes out: `<svg>` elements that the page's style sheet paints. Called by: page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from orchestrator.simulate.pictures import Axis, Series, Waits, count_axis, log_axis

WIDE, LEFT, RIGHT, TOP, BOTTOM = 920, 64, 16, 12, 26
ROOM = WIDE - LEFT - RIGHT  # for values, from left to right
HIGH = 240
ROW = 26  # of the waits, for each policy of a size


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the values of a chart stand in its picture."""

    across: Axis
    up: Axis
    high: int = HIGH

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + ROOM * value / self.across.most

    def y(self, value: float) -> float:
        """Pixels from the top."""
        room = self.high - TOP - BOTTOM
        return TOP + room - room * value / self.up.most


def over_time(title: str, across: Axis, series: list[Series], ceiling: Sequence[Series] = ()) -> str:
    """Steps, one line a policy; `ceiling` are thin lines above them, of what there is at most."""
    most = max((value for one in (*series, *ceiling) for value in one.values), default=0.0)
    frame = Frame(across, count_axis(most))
    parts = [_grid(frame)]
    parts += [
        f'<path class="ceiling p{number}" d="{_steps(frame, one)}"/>' for number, one in enumerate(ceiling)
    ]
    parts += [f'<path class="line p{number}" d="{_steps(frame, one)}"/>' for number, one in enumerate(series)]
    parts.append(f'<line class="cross" y1="{TOP}" y2="{HIGH - BOTTOM}" x1="-9" x2="-9"/>')
    return _svg(title, HIGH, parts)


def _steps(frame: Frame, series: Series) -> str:
    """A path that keeps each value until the next. What does not change needs no point."""
    words: list[str] = []
    last: float | None = None
    for at_s, value in zip(series.at_s, series.values, strict=True):
        if value != last:
            x, y = frame.x(at_s), frame.y(value)
            words.append(f"H{x:.1f}V{y:.1f}" if words else f"M{x:.1f} {y:.1f}")
            last = value
    if series.at_s:
        words.append(f"H{frame.x(series.at_s[-1]):.1f}")
    return "".join(words)


def _grid(frame: Frame) -> str:
    parts = []
    for tick, label in zip(frame.up.ticks, frame.up.labels, strict=True):
        y = frame.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{label}</text>')
    parts.append(time_ticks(frame))
    return "".join(parts)


def time_ticks(frame: Frame) -> str:
    """The labels under a chart."""
    base = frame.high - BOTTOM
    parts = []
    for tick, label in zip(frame.across.ticks, frame.across.labels, strict=True):
        x = frame.x(tick)
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>')
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{base + 18}">{label}</text>')
    return "".join(parts)


def wait_chart(title: str, policies: list[list[Waits]]) -> str:
    """A row for each size and policy: a dot at p50, a line from there to a dot at p95; the axis is logarithmic."""
    most = max((one.p95 for waits in policies for one in waits), default=0.0)
    axis = log_axis(most)
    sizes = [one.size for one in policies[0]]
    block = ROW * len(policies) + 10
    high = TOP + block * len(sizes) + BOTTOM
    left = LEFT + 56
    parts = []
    for value, label in zip(axis.ticks, axis.labels, strict=True):
        x = _log_x(axis, left, value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{high - BOTTOM}"/>')
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{high - BOTTOM + 18}">{label}</text>')
    for row, size in enumerate(sizes):
        top = TOP + block * row
        parts.append(
            f'<text class="tick end" x="{left - 12}" y="{top + block / 2 + 4:.1f}">{escape(size)}</text>'
        )
        for number, waits in enumerate(policies):
            parts.append(_wait_row(axis, left, top + 5 + ROW * number + ROW / 2, number, waits[row]))
    return _svg(title, high, parts)


def _wait_row(axis: Axis, left: int, y: float, number: int, one: Waits) -> str:
    from_x, to_x = _log_x(axis, left, one.p50), _log_x(axis, left, one.p95)
    said = f"{one.jobs} jobs: p50 {span(one.p50)}, mean {span(one.mean)}, p95 {span(one.p95)}"
    return (
        f'<g class="p{number}"><title>{said}</title>'
        f'<line class="reach" x1="{from_x:.1f}" x2="{to_x:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<circle class="half" cx="{from_x:.1f}" cy="{y:.1f}" r="5"/>'
        f'<circle class="most" cx="{to_x:.1f}" cy="{y:.1f}" r="4"/></g>'
    )


def _log_x(axis: Axis, left: int, value: float) -> float:
    share = math.log(max(value, axis.least) / axis.least) / math.log(axis.most / axis.least)
    return left + (WIDE - left - RIGHT - 24) * min(share, 1.0)


def span(seconds: float) -> str:
    """`2.5 h`."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def map_chart(title: str, across: Axis, lasted_s: float, picture: str, rows: int) -> str:
    """A map of nodes over time: a picture of a pixel each, stretched over the time that it is of."""
    room = min(max(rows * 4, 120), 400)
    frame = Frame(across, Axis(1.0, [], []), room + TOP + BOTTOM)
    image = (
        f'<image x="{LEFT}" y="{TOP}" width="{frame.x(lasted_s) - LEFT:.1f}" height="{room}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{picture}"/>'
    )
    return _svg(title, frame.high, [image, time_ticks(frame)])


def _svg(title: str, high: float, parts: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDE} {high:g}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
