"""One self-contained page about a simulation: figures, load, queue, waits by size, the GPU map; all policies side by
side.

Comes in: `Run`s. Goes out: the text of an HTML file that loads nothing. Called by: cli/simulate_cmd.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from html import escape

from orchestrator.simulate import charts, pictures, pixels
from orchestrator.simulate.metrics import Summary
from orchestrator.simulate.pictures import Axis, Series
from orchestrator.simulate.report import Run

COLOURS = ("#1f6fb4", "#d1601f")  # of the first policy and of the second; told apart by all kinds of sight
STYLE = """
:root { color-scheme: light; --first: FIRST; --second: SECOND; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 960px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 2.2rem 0 .3rem; }
p { margin: .2rem 0; color: #52606d; }
figure { margin: .6rem 0; }
table { border-collapse: collapse; margin-top: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem 1.2rem .2rem 0; text-align: right; border-bottom: 1px solid #e4e9ee;
  font-weight: 400; }
th:first-child, td:first-child { text-align: left; color: #52606d; }
thead th { font-weight: 600; }
.key { display: inline-flex; align-items: center; gap: .4rem; margin-right: 1.2rem; }
.key i { width: 14px; height: 3px; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: #e4e9ee; }
.mark { stroke: #9aa7b4; }
.tick { font-size: 12px; fill: #52606d; }
.end { text-anchor: end; }
.mid { text-anchor: middle; }
.p0 { stroke: var(--first); --own: var(--first); }
.p1 { stroke: var(--second); --own: var(--second); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.ceiling { fill: none; stroke-width: 1; stroke-dasharray: 3 3; opacity: .8; }
.cross { stroke: #52606d; stroke-width: 1; }
.reach { stroke: var(--own); stroke-width: 3; opacity: .45; }
.half, .most { stroke: var(--own); stroke-width: 2; }
.half { fill: var(--own); }
.most { fill: #fff; }
.scale { display: inline-block; width: 120px; height: 10px; vertical-align: middle; }
.gone { display: inline-block; width: 10px; height: 10px; vertical-align: middle; margin-left: 1rem; }
.tip { position: fixed; pointer-events: none; background: #1c2733; color: #fff; font-size: 12px;
  padding: .3rem .5rem; border-radius: 4px; display: none; white-space: pre; }
""".replace("FIRST", COLOURS[0]).replace("SECOND", COLOURS[1])
# Shows the values under the mouse; the page says the same without it.
SCRIPT = (
    """
const tip = document.querySelector('.tip');
const valueAt = (series, time) => {
  let low = 0, high = series.t.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (series.t[middle] <= time) low = middle; else high = middle - 1;
  }
  return series.v[low];
};
document.querySelectorAll('figure[data-series]').forEach(figure => {
  const svg = figure.querySelector('svg'), cross = figure.querySelector('.cross');
  const data = JSON.parse(figure.dataset.series);
  const hide = () => {
    tip.style.display = 'none';
    cross.setAttribute('x1', -9);
    cross.setAttribute('x2', -9);
  };
  figure.addEventListener('mousemove', event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * WIDE / box.width, time = (x - LEFT) / ROOM * data.most;
    if (time < 0 || time > data.most) return hide();
    cross.setAttribute('x1', x);
    cross.setAttribute('x2', x);
    tip.style.display = 'block';
    tip.style.left = Math.min(event.clientX + 14, innerWidth - 180) + 'px';
    tip.style.top = event.clientY + 14 + 'px';
    const values = data.series.map(one => one.name + ': ' + valueAt(one, time).toLocaleString('en'));
    tip.textContent = [(time / data.size).toFixed(1) + ' ' + data.unit, ...values].join('\\n');
  });
  figure.addEventListener('mouseleave', hide);
});
""".replace("WIDE", str(charts.WIDE))
    .replace("LEFT", str(charts.LEFT))
    .replace("ROOM", str(charts.ROOM))
)


HTML = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}: simulation</title><style>{style}</style></head>
<body>{body}<div class="tip"></div><script>{script}</script></body>
</html>
"""
WAITS = "Full dot: half of the jobs waited no longer. Ring: 95 % did not. Under a second counts as one."


def page(runs: list[Run]) -> str:
    """The whole page."""
    across = pictures.time_axis(max((run.summary.lasted_s for run in runs), default=0.0))
    cluster = escape(runs[0].world.cluster.name)
    jobs = len(runs[0].world.trace)
    load, queue = _each(runs, pictures.load), _each(runs, pictures.queued)
    held = charts.over_time("GPUs held over time", across, load, _each(runs, pictures.there))
    waiting = charts.over_time("waiting jobs over time", across, queue)
    waits = charts.wait_chart("wait by size", [pictures.waits(run) for run in runs])
    body = [
        f"<h1>{jobs:,} jobs on {cluster}</h1>",
        f"<p>{_keys(runs)}</p>" if len(runs) > 1 else f"<p>policy: {escape(runs[0].name)}</p>",
        _table(runs),
        *_left_out(runs),
        "<h2>GPUs held</h2><p>Dashed: GPUs on nodes that are there.</p>",
        _figure(held, across, load),
        "<h2>Jobs that wait</h2>",
        _figure(waiting, across, queue),
        f"<h2>Wait by size</h2><p>{WAITS}</p><figure>{waits}</figure>",
        *_maps(runs, across),
    ]
    return HTML.format(title=cluster, style=STYLE, body="".join(body), script=SCRIPT)


def _each(runs: list[Run], make: Callable[[Run], Series]) -> list[Series]:
    return [make(run) for run in runs]


def _keys(runs: list[Run]) -> str:
    return "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(run.name)}</span>'
        for run, colour in zip(runs, COLOURS, strict=False)
    )


def _figure(svg: str, across: Axis, series: list[Series]) -> str:
    size = next(size for size, unit in pictures.UNITS if unit == across.unit)
    data = {
        "most": across.most,
        "unit": across.unit,
        "size": size,
        "series": [{"name": one.name, "t": one.at_s, "v": one.values} for one in series],
    }
    return (
        f'<figure data-series="{escape(json.dumps(data, separators=(",", ":")), quote=True)}">{svg}</figure>'
    )


def _maps(runs: list[Run], across: Axis) -> list[str]:
    light, dark, gone = (f"rgb{colour}" for colour in (pixels.LIGHT, pixels.DARK, pixels.GONE))
    scale = f'<span class="scale" style="background:linear-gradient(to right,{light},{dark})"></span>'
    away = f'<span class="gone" style="background:{gone}"></span>'
    words = f"One row a node, in the order of the file. Idle {scale} all GPUs held {away} away"
    parts = [f"<h2>What each node does</h2><p>{words}</p>"]
    for run in runs:
        grid = pictures.gpu_map(run)
        if not grid.size:
            continue
        if len(runs) > 1:
            parts.append(f"<p>{escape(run.name)}</p>")
        picture = base64.b64encode(pixels.png(grid)).decode()
        lasted_s = run.world.sampler.samples[-1].at_us / 1e6
        chart = charts.map_chart(f"GPU map, {run.name}", across, lasted_s, picture, len(grid))
        parts.append(f"<figure>{chart}</figure>")
    return parts if len(parts) > 1 else []


# --- the table ------------------------------------------------------------------------------------------------------


def _table(runs: list[Run]) -> str:
    names = "".join(f"<th>{escape(run.name)}</th>" for run in runs)
    rows = [
        f"<tr><td>{name}</td>{''.join(f'<td>{show(run.summary)}</td>' for run in runs)}</tr>"
        for name, show in ROWS
    ]
    return f"<table><thead><tr><th></th>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _left_out(runs: list[Run]) -> list[str]:
    """What the figures do not count, and why."""
    found = dict.fromkeys(words for run in runs for words in run.summary.left_out)
    return [f"<p>Left out: {escape('; '.join(found))}.</p>"] if found else []


def _states(one: Summary) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in one.states.items() if count) or "none"


def _reasons(one: Summary) -> str:
    return ", ".join(f"{escape(code)} ({count:,})" for code, count in one.reasons.items()) or "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else charts.span(seconds)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


ROWS = (
    ("jobs", _states),
    ("refused or waiting for", _reasons),
    ("wait, mean", lambda one: _time(one.wait.mean)),
    ("wait, p50 / p95 / p99", lambda one: " / ".join(map(_time, (one.wait.p50, one.wait.p95, one.wait.p99)))),
    ("completion, mean", lambda one: _time(one.completion.mean)),
    ("GPUs held", lambda one: _share(one.utilisation)),
    ("free GPUs that no waiting job could use", lambda one: _share(one.fragmentation)),
    ("fairness between queues (Jain)", lambda one: _number(one.fairness, ".3f")),
    ("GPU-hours held / lost", lambda one: f"{one.held_hours:,.1f} / {one.lost_hours:,.1f}"),
    ("kWh of GPUs", lambda one: _number(one.kwh, ",.1f")),
    ("dollars", lambda one: _number(one.dollars, ",.2f")),
)
