"""Kueue's performance tests as work for Gangline: its generators, the cluster that stands for its quota, arrivals.

Comes in: a name, how much of it. Goes out: a cluster document, job documents, a plan of arrivals. Called by: kueue.

A unit of Kueue's quota is one device, a cohort is a pool with a GPU model of its own, so that nothing can leave it, and
a workload of request r is a gang of r tasks with a device each. Each queue is guaranteed 20 devices and may borrow 100.
Numbers are those of Kueue's own configuration, in its repository: test/performance/scheduler/configs.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.helper import Plain
from tests.bench.kueue_account import Asked
from tests.bench.server import CLUSTER, job_document

NOMINAL, BORROW = 20, 100
TIME_LIMIT = "1m"  # far above what any runs: no job is ended by it
MODELS = (
    "T4-PCIE-16GB",
    "V100-SXM2-32GB",
    "A30-PCIE-24GB",
    "A100-PCIE-40GB",
    "A100-SXM4-80GB",
    "L4-PCIE-24GB",
    "L40S-PCIE-48GB",
    "H100-PCIE-80GB",
    "H100-SXM5-80GB",
    "H200-SXM5-141GB",
)


@dataclass(frozen=True, slots=True)
class Size:
    """One generator of a queue: so many workloads, one every so often."""

    name: str
    request: int
    run_s: float
    priority: int
    count: int
    every_ms: int
    admission_s: float | None  # mean time to admission that Kueue states


@dataclass(frozen=True, slots=True)
class Work:
    """One of Kueue's tests; `wall_s` and `use` (percent) are Kueue's own figures."""

    name: str
    cohorts: int
    queues: int  # of a cohort
    sizes: tuple[Size, ...]
    wall_s: float
    use: float

    @property
    def devices(self) -> int:
        """Of a cohort."""
        return self.queues * NOMINAL

    @property
    def jobs(self) -> int:
        """Workloads in all."""
        return self.cohorts * self.queues * sum(size.count for size in self.sizes)

    def asked(self, place: int, since_ns: int) -> Asked:
        """What a job of a document (as `plan` numbers them) asked for, by when it was acknowledged."""
        each, size = divmod(place, len(self.sizes))
        found = self.sizes[size]
        return Asked(found.request, pool_of(each // self.queues), found.priority, since_ns)

    @property
    def device_s(self) -> float:
        """Device-seconds of all work."""
        each = sum(size.count * size.request * size.run_s for size in self.sizes)
        return self.cohorts * self.queues * each

    @property
    def ideal_s(self) -> float:
        """Seconds at full use from the first arrival on, whatever arrives when."""
        return self.device_s / (self.cohorts * self.devices)


BASELINE = Work(
    "baseline",
    cohorts=5,
    queues=6,
    sizes=(
        Size("small", 1, 0.2, 50, 350, 100, 215.0),
        Size("medium", 5, 0.5, 100, 100, 500, 76.8),
        Size("large", 20, 1.0, 200, 50, 1200, 16.5),
    ),
    wall_s=351.0,
    use=55.9,
)
LARGE_SCALE = Work(
    "large-scale",
    cohorts=10,
    queues=100,
    sizes=(
        Size("small", 1, 0.15, 50, 35, 60, None),
        Size("medium", 5, 0.35, 100, 11, 300, None),
        Size("large", 20, 0.7, 200, 4, 700, None),
    ),
    wall_s=1179.0,
    use=38.6,
)
WORKS = {work.name: work for work in (BASELINE, LARGE_SCALE)}


def shortened(work: Work, share: float, scale: float) -> Work:
    """A share of each generator's workloads at the same rates, in so much of the queues and their devices."""
    sizes = tuple(
        Size(
            s.name, s.request, s.run_s, s.priority, max(1, round(s.count * share)), s.every_ms, s.admission_s
        )
        for s in work.sizes
    )
    queues = max(1, round(work.queues * scale))
    return Work(work.name, work.cohorts, queues, sizes, work.wall_s, work.use)


def pool_of(cohort: int) -> str:
    """The pool that stands for a cohort, counted from 0."""
    return f"cohort-{cohort + 1}"


def models(work: Work) -> dict[str, str]:
    """The GPU model of each pool."""
    return {pool_of(cohort): MODELS[cohort] for cohort in range(work.cohorts)}


def cluster_text(work: Work, gpus: int) -> str:
    """The cluster document, with `gpus` devices in a node: they must divide a cohort's."""
    nodes = work.devices // gpus
    pools = [
        f'  - {{name: {pool}, site: here, nodes: "c{number}-[{1:0{len(str(nodes))}d}-{nodes}]",'
        f" gpu: {{model: {model}, count: {gpus}, emulate: always}}}}"
        for number, (pool, model) in enumerate(models(work).items(), 1)
    ]
    queues = [
        f"  - {{name: {queue_of(cohort, queue)}, guarantee: [{{pool: {pool_of(cohort)}, gpus: {NOMINAL}}}],"
        f" borrow_limit: [{{pool: {pool_of(cohort)}, gpus: {BORROW}}}]}}"
        for cohort in range(work.cohorts)
        for queue in range(work.queues)
    ]
    head = ["apiVersion: gangline/v1", "kind: Cluster", f"metadata: {{name: {CLUSTER}}}", "sites:"]
    return "\n".join([*head, "  - {name: here, kind: local}", "pools:", *pools, "queues:", *queues, ""])


def queue_of(cohort: int, queue: int) -> str:
    """A queue's name."""
    return f"c{cohort + 1}-q{queue + 1}"


def documents(work: Work) -> list[Plain]:
    """A job document for each size of each queue, in the order in which `plan` counts them."""
    return [
        job_document(
            size.name,
            ["bench-run", str(size.run_s)],
            queue=queue_of(cohort, queue),
            priority=size.priority,
            tasks=size.request,
            per_task={"gpus": 1, "gpu_model": [MODELS[cohort]]},
            time_limit=TIME_LIMIT,
        )
        for cohort in range(work.cohorts)
        for queue in range(work.queues)
        for size in work.sizes
    ]


def plan(work: Work) -> list[tuple[int, int]]:
    """All arrivals by time: (microseconds after the begin, number of the document). The first of each is at once."""
    sizes = len(work.sizes)
    found = [
        (number * size.every_ms * 1000, each * sizes + place)
        for each in range(work.cohorts * work.queues)
        for place, size in enumerate(work.sizes)
        for number in range(size.count)
    ]
    return sorted(found)
