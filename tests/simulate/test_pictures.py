"""The page and the PNG: they hold everything, need nothing, and their axes have round ticks."""

from __future__ import annotations

import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from orchestrator.simulate import pictures, pixels
from orchestrator.simulate.page import page
from orchestrator.simulate.report import Run, finished
from orchestrator.simulate.settings import Faults, Settings
from tests.builders import cluster, job, pool
from tests.simulate.stories import S, played, trace


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    spec = cluster(pool(nodes=3, gpus=8))
    jobs = trace(*[(20 * n, 300 + n, job(gpus=1 + n % 8)) for n in range(60)])
    faults = Faults(mtbf_us=1000 * S, repair_us=200 * S, boot_us=S, seed=2)
    each = [played(spec, jobs, Settings(samples=80)), played(spec, jobs, Settings(samples=80, faults=faults))]
    return [finished(name, world) for name, world in zip(("now", "<new> & other"), each, strict=True)]


class Tags(HTMLParser):
    """Every element with its attributes; fails for what is never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "line", "circle", "path", "image"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_is_whole(runs: list[Run]) -> None:
    text = page(runs)
    tags = Tags()
    tags.feed(text)

    assert tags.open == []
    assert not re.search(r"https?://|src=|@import|url\(", text)
    assert all(str(attrs["href"]).startswith("data:") for tag, attrs in tags.found if "href" in attrs)


def test_the_page_shows_all_policies_side_by_side(runs: list[Run]) -> None:
    text = page(runs)

    assert "&lt;new&gt; &amp; other" in text
    assert "<new>" not in text
    assert text.count('class="line p0"') == text.count('class="line p1"') == 2  # load and queue
    assert text.count("<image") == 2
    assert "1 GPU" in text


def test_one_policy_has_a_page_too(runs: list[Run]) -> None:
    text = page(runs[:1])

    assert "policy: now" in text
    assert 'class="line p1"' not in text


def test_a_simulation_of_nothing_has_a_page() -> None:
    empty = finished("none", played(cluster(pool(nodes=1)), trace()))

    assert "0 jobs" in page([empty])


def test_the_map_has_a_row_a_node_and_tells_who_is_away(runs: list[Run]) -> None:
    grid = pictures.gpu_map(runs[1])

    assert grid.shape == (3, len(runs[1].world.sampler.samples))
    assert (grid == pictures.AWAY).any()
    assert grid.max() == 1000
    assert not (pictures.gpu_map(runs[0]) == pictures.AWAY).any()


def test_many_nodes_share_rows() -> None:
    world = played(
        cluster(pool(nodes=400, gpus=1), pool("cpu", 5, 0)), trace((0, 10, job(nodes=200, gpus=1)))
    )

    assert len(pictures.gpu_map(finished("x", world))) == pictures.MOST_ROWS


def test_pixels_are_a_png_that_says_what_the_grid_says() -> None:
    data = pixels.png(np.array([[0, 500, 1000], [pictures.AWAY, 0, 1000]], dtype=np.int16))

    assert data.startswith(pixels.SIGNATURE)
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    rows = zlib.decompress(data[at + 4 : at + 4 + length])
    last = pixels.SHADES - 1
    assert list(rows) == [0, 0, last // 2, last, 0, pixels.SHADES, 0, last]


@pytest.mark.parametrize(
    ("most_s", "unit", "first"),
    [(0, "s", "0"), (50, "s", "0"), (600, "min", "0"), (9000, "h", "0"), (400_000, "d", "0")],
)
def test_time_has_a_unit_that_suits(most_s: float, unit: str, first: str) -> None:
    axis = pictures.time_axis(most_s)

    assert (axis.unit, axis.labels[0]) == (unit, first)
    assert all(label.endswith(f" {unit}") for label in axis.labels[1:])
    assert len(axis.ticks) <= 10
    assert axis.ticks[-1] <= axis.most


@pytest.mark.parametrize("most", [0, 1, 7, 8, 32, 999, 8000.5])
def test_counts_end_at_a_round_number(most: float) -> None:
    axis = pictures.count_axis(most)

    assert axis.most >= most
    assert axis.ticks[-1] == axis.most
    assert 2 <= len(axis.ticks) <= 11


@pytest.mark.parametrize("most_s", [0, 0.2, 5, 86_400, 10**9])
def test_waits_have_a_logarithmic_axis(most_s: float) -> None:
    axis = pictures.log_axis(most_s)

    assert axis.most > axis.least
    assert axis.most >= most_s
    assert axis.labels[0] == "1 s"


def test_the_png_has_the_same_pictures(runs: list[Run]) -> None:
    pytest.importorskip("matplotlib")
    from orchestrator.simulate.plot import plot

    assert plot(runs).startswith(pixels.SIGNATURE)
