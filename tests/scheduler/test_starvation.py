"""Nobody waits for ever: a gang among an endless stream of small jobs, on a virtual clock.

Nodes are full of small jobs that last ten minutes, their ends spread over time, and more of them wait than can run; for
each that starts another one comes. Then a gang comes that is first in order, and each end of work is followed by a
pass.
"""

from __future__ import annotations

import heapq
import random
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.ledger.capacity import FAR
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.job import JobSpec
from tests.builders import BOB, cluster, job, pool
from tests.scheduler.scenes import Stage, share

SECOND = 1_000_000
LIMIT = 600 * SECOND
STEPS = 20  # instants over ten minutes at which small jobs end


@dataclass
class Stream:
    """A cluster that small jobs fill all the time; `early`: they end before their time limit, who knows when."""

    spec: ClusterSpec
    small: JobSpec
    room: int  # how many of the small jobs run at once
    kept: int = 8
    early: bool = False
    passes: int = 0
    running: list[int] = field(default_factory=list)  # small jobs that run, at each pass
    ends: list[tuple[int, int]] = field(default_factory=list)  # when, and which job

    def __post_init__(self) -> None:
        self.stage = Stage(self.spec, kept=self.kept)
        self.dice = random.Random(1)
        for _ in range(STEPS):
            for _ in range(self.room // STEPS + 1):
                self.stage.submit(self.small, BOB)
            self._pass()
            self._move(self.stage.now_us + LIMIT // STEPS)
        for _ in range(self.room // STEPS + 1):
            self.stage.submit(self.small, BOB)

    def _pass(self) -> list[int]:
        """Jobs that started; for each small one, another comes."""
        self.passes += 1
        found = list(self.stage.look())
        for one in found:
            lasts = self.dice.randint(1, STEPS) * LIMIT // STEPS if self.early else LIMIT
            heapq.heappush(self.ends, (self.stage.now_us + lasts, one))
            if self.stage.state.jobs[one].owner == BOB:
                self.stage.submit(self.small, BOB)
        self.running.append(len(self.ends))
        return found

    def _move(self, until_us: int) -> None:
        """Time passes, and work that is over by then ends."""
        self.stage.now_us = until_us
        while self.ends and self.ends[0][0] <= until_us:
            self.stage.end(heapq.heappop(self.ends)[1])

    def until(self, gang: JobSpec, most_us: int) -> int:
        """Microseconds from its submit until the gang starts; `FAR` if it has not by then."""
        begun, one = self.stage.now_us, self.stage.submit(replace(gang, priority=1))
        self.passes, self.running = 0, []
        while self.stage.now_us - begun <= most_us:
            if one in self._pass():
                return self.stage.now_us - begun
            self._move(self.ends[0][0])
        return FAR


MINUTES: dict[str, Any] = {"time_limit_s": 600}
NODES = cluster(pool(nodes=64, gpus=8))
CORES = cluster(pool(nodes=8, gpus=0, cores=8))
ONE = job(gpus=1, time_limit_s=600)

# cluster, the small jobs, how many of them run at once, who comes
STREAMS: dict[str, tuple[ClusterSpec, JobSpec, int, JobSpec]] = {
    "half of all nodes": (NODES, ONE, 512, job(nodes=32, gpus=8)),
    "tasks of a node each": (NODES, ONE, 512, job(tasks=32, gpus=8)),
    "tasks of a GPU each": (NODES, ONE, 512, job(tasks=256, gpus=1)),
    "one node of one": (cluster(pool(nodes=1, gpus=8)), ONE, 8, job(nodes=1, gpus=8)),
    "cores of half the nodes": (
        CORES,
        job(gpus=0, cores=1, time_limit_s=600),
        64,
        job(nodes=4, gpus=0, cores=8),
    ),
    "most of a device": (cluster(pool(nodes=2, gpus=4)), share(500, time_limit_s=600), 16, share(800)),
    "most of every device of a node": (
        cluster(pool(nodes=2, gpus=4)),
        share(500, time_limit_s=600),
        16,
        share(800, tasks=4),
    ),
}


@pytest.mark.parametrize("early", [False, True], ids=["to their limits", "ending early"])
@pytest.mark.parametrize("name", STREAMS)
def test_who_comes_among_an_endless_stream_starts_when_the_longest_of_it_has_ended(
    name: str, early: bool
) -> None:
    """Whatever ran when it came is over after ten minutes, and nobody else has its nodes."""
    spec, small, room, gang = STREAMS[name]
    stream = Stream(spec, small, room, early=early)
    waited = stream.until(gang, 6 * LIMIT)
    use = sum(stream.running) / (len(stream.running) * room)
    sys.stdout.write(f"{name}: {waited / SECOND:.0f} s, {stream.passes} passes, {use:.0%} in use meanwhile\n")
    assert waited <= LIMIT
    assert stream.passes <= STEPS + 1


def test_meanwhile_small_jobs_have_all_that_is_not_kept() -> None:
    stream = Stream(NODES, ONE, 512)
    stream.until(job(nodes=32, gpus=8), 6 * LIMIT)
    assert min(stream.running[:-1]) >= 256
    assert sum(stream.running) / len(stream.running) >= 0.7 * 512


def test_without_nodes_kept_it_would_wait_for_ever() -> None:
    """What keeping is for."""
    stream = Stream(cluster(pool(nodes=4, gpus=4)), ONE, 16, kept=0)
    assert stream.until(job(nodes=2, gpus=4), 20 * LIMIT) == FAR
