"""What a simulation says: each figure on a case that can be counted by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from orchestrator.model.cluster import Market, Offering, Queue, SiteKind, SitePower
from orchestrator.simulate.metrics import percentile, size_of, spread, summary
from orchestrator.simulate.settings import Settings
from tests.builders import cluster, job, pool, queue
from tests.simulate.stories import S, played, trace

ONE = cluster(pool(nodes=1, gpus=8))


def test_waits_completion_and_use() -> None:
    found = summary(played(ONE, trace((0, 3600, job(gpus=8)), (1800, 1800, job(gpus=4)))))

    assert (found.wait.jobs, found.wait.mean, found.wait.p50, found.wait.p99) == (2, 900, 0, 1800)
    assert (found.completion.mean, found.completion.most) == (3600, 3600)
    assert (found.lasted_s, found.capacity_hours, found.held_hours) == (5400, 12, 10)
    assert found.utilisation == pytest.approx(10 / 12)
    assert found.states == {"succeeded": 2, "failed": 0, "refused": 0, "running": 0, "waiting": 0}


def test_refused_jobs_count_in_no_wait() -> None:
    found = summary(played(ONE, trace((0, 60, job(gpus=9)))))

    assert (found.wait.jobs, found.completion.jobs, found.states["refused"]) == (0, 0, 1)
    assert (found.wait.mean, found.fairness, found.fragmentation) == (None, None, None)


def test_percentiles_are_nearest_ranks() -> None:
    assert [percentile([10, 20, 30, 40], percent) for percent in (1, 25, 50, 51, 95, 100)] == [
        10,
        10,
        20,
        30,
        40,
        40,
    ]
    assert percentile([], 50) == 0
    assert spread([]).mean is None


def test_groups_are_in_the_order_of_the_file_and_by_size() -> None:
    spec = cluster(pool(nodes=4, gpus=8), queues=(queue("b"), queue("a"), queue("idle")))
    jobs = trace(
        (0, 1, job(gpus=1, queue="a")),
        (0, 1, job(nodes=2, gpus=8, queue="b")),
        (0, 1, job(gpus=0, cores=1, queue="a")),
    )
    found = summary(played(spec, jobs))

    assert [(one.name, one.wait.jobs) for one in found.queues] == [("b", 1), ("a", 2)]
    assert [(one.name, one.wait.jobs) for one in found.sizes] == [
        ("no GPU", 1),
        ("1 GPU", 1),
        ("9-64 GPUs", 1),
    ]
    assert [size_of(milli) for milli in (0, 500, 1000, 2000, 8000, 65_000)] == [
        "no GPU",
        "part of a GPU",
        "1 GPU",
        "2-7 GPUs",
        "8 GPUs",
        "over 64 GPUs",
    ]


@pytest.mark.parametrize(
    ("weights", "hours", "index"),
    [((1, 1), (2, 2), 1.0), ((1, 1), (4, 0), 0.5), ((3, 1), (3, 1), 1.0), ((1, 1), (3, 1), 0.8)],
)
def test_fairness_is_jains_index_of_gpu_time_by_weight(
    weights: tuple[int, int], hours: tuple[int, int], index: float
) -> None:
    spec = cluster(
        pool(nodes=1, gpus=8), queues=(Queue("a", weight=weights[0]), Queue("b", weight=weights[1]))
    )
    jobs = trace(*[(0, 3600 * hour, job(gpus=1, queue=name)) for name, hour in zip("ab", hours, strict=True)])

    assert summary(played(spec, jobs)).fairness == pytest.approx(index)


def test_fragmentation_is_what_no_waiting_job_could_use() -> None:
    """Two nodes with six of eight GPUs taken each: of the four that are free, a job for three could use none, one for
    two all."""
    spec = cluster(pool(nodes=2, gpus=8), queues=(queue(), queue("small", max_running_jobs=1)))
    six = [(0.0, 1000.0, job(gpus=6))] * 2
    small = (0.0, 1000.0, job(gpus=0, cores=1, queue="small"))  # so that its queue's next job waits

    assert summary(played(spec, trace(*six, (0, 1, job(gpus=3))), Settings(samples=50))).fragmentation == 1
    both = trace(*six, small, (0, 1, job(gpus=3)), (0, 1, job(gpus=2, queue="small")))
    assert summary(played(spec, both, Settings(samples=50))).fragmentation == 0


def test_fragmentation_looks_at_cores_memory_and_models() -> None:
    spec = cluster(pool("a", 1, 8, cores=8), pool("b", 1, 8, model="L4-24GB"))
    rows = [(0.0, 1000.0, job(gpus=1, cores=8)), (0.0, 1000.0, job(gpus=8, models=("L4-24GB",)))]
    waits = [(0.0, 1.0, job(gpus=1, cores=2, models=("H100-SXM5-80GB",)))]
    found = summary(played(spec, trace(*rows, *waits), Settings(samples=50)))

    assert found.fragmentation == 1  # seven free, and no core beside them


def test_energy_and_its_price() -> None:
    """Eight GPUs of 700 W at their limit for an hour, at 0.20 dollars and a PUE of 1.5; what idle ones draw has no
    source here."""
    priced = cluster(pool(nodes=1, gpus=8))
    site = replace(priced.sites[0], power=SitePower(200_000, 1500))
    found = summary(played(replace(priced, sites=(site,)), trace((0, 3600, job(gpus=8)))))

    assert found.kwh == pytest.approx(5.6)
    assert found.dollars == pytest.approx(5.6 * 1.5 * 0.2)


def test_what_is_not_known_is_left_out_and_named() -> None:
    spec = cluster(pool("x", 1, 8, model="T-1000"), pool("cpu", 1, 0))
    found = summary(played(spec, trace((0, 3600, job(gpus=8)))))

    assert (found.kwh, found.dollars) == (None, None)
    assert [words for words in found.left_out if "T-1000" in words] != []


def test_hired_nodes_cost_their_hours() -> None:
    spec = cluster(pool("p", 2, 8, offerings=(Offering(("p5.48xlarge",), Market.ON_DEMAND),)))
    site = replace(spec.sites[0], kind=SiteKind.AWS, region="us-east-1")
    dear = summary(played(replace(spec, sites=(site,)), trace((0, 3600, job(gpus=8)))))
    twice = summary(played(replace(spec, sites=(site,)), trace((0, 7200, job(gpus=8)))))

    assert dear.dollars is not None
    assert dear.dollars > 50
    assert twice.dollars == pytest.approx(2 * dear.dollars)


def test_pictures_are_about_as_many_as_were_asked_for() -> None:
    """The last job runs a hundred times longer than anybody could guess."""
    jobs = trace(*[(n, 1, job(gpus=1)) for n in range(100)], (100, 10_000, job(gpus=2)))
    samples = played(ONE, jobs, Settings(samples=20)).sampler.samples

    assert 20 <= len(samples) <= 40
    gaps = {later.at_us - one.at_us for one, later in pairwise(samples)}
    assert len(gaps) == 1
    assert (samples[-1].busy, samples[-1].running) in ((2000, 1), (0, 0))
    assert samples[-1].at_us + gaps.pop() > 10_000 * S
