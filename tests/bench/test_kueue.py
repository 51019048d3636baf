"""Kueue's work is what Kueue states, and its account finds what must not be."""

from __future__ import annotations

import pytest

from orchestrator.spec import job_from_document
from orchestrator.spec.load import load_cluster_text
from tests.bench import kueue_account, kueue_work
from tests.bench.common import Failed
from tests.bench.kueue_account import Asked
from tests.bench.kueue_work import BASELINE, LARGE_SCALE, Work

SPANS = [
    # job, node, slots, begun, ended
    (1, "a", [0, 1], 0, 10),
    (1, "b", [0], 1, 14),
    (2, "a", [0], 13, 20),
    (3, "a", [1], 16, 20),
    (3, "b", [0], 17, 25),
]


@pytest.mark.parametrize(
    ("work", "jobs", "device_s", "ideal_s", "last_ms"),
    [(BASELINE, 15_000, 39_600, 66.0, 58_800), (LARGE_SCALE, 50_000, 80_500, 4.025, 3_000)],
)
def test_the_work_is_what_kueue_states(
    work: Work, jobs: int, device_s: float, ideal_s: float, last_ms: int
) -> None:
    plan = kueue_work.plan(work)
    documents = kueue_work.documents(work)
    assert (work.jobs, len(plan)) == (jobs, jobs)
    assert work.device_s == pytest.approx(device_s)
    assert work.ideal_s == pytest.approx(ideal_s)
    assert (plan[0][0], plan[-1][0]) == (0, last_ms * 1000)
    asked = sum(documents[place]["spec"]["tasks"] for _, place in plan)
    assert asked == work.cohorts * work.queues * sum(size.count * size.request for size in work.sizes)


def test_a_tenth_has_the_same_rates_and_half_of_the_queues_half_of_the_devices() -> None:
    tenth = kueue_work.shortened(BASELINE, 0.1, 1.0)
    assert (tenth.jobs, tenth.devices) == (1500, 120)
    assert tenth.ideal_s == pytest.approx(6.6)
    assert [size.every_ms for size in tenth.sizes] == [100, 500, 1200]
    half = kueue_work.shortened(BASELINE, 1.0, 0.5)
    assert (half.jobs, half.devices) == (7500, 60)
    assert half.ideal_s == pytest.approx(66.0)


def test_nothing_can_leave_its_cohort() -> None:
    loaded = load_cluster_text(kueue_work.cluster_text(BASELINE, 8), "cluster.yaml")
    assert loaded.errors == ()
    spec = loaded.cluster
    assert spec is not None
    models = {pool.name: pool.gpu.model for pool in spec.pools if pool.gpu is not None}
    assert models == kueue_work.models(BASELINE)
    assert [len(pool.nodes) for pool in spec.pools] == [15] * 5
    for document in kueue_work.documents(BASELINE):
        job = job_from_document(document)
        cohort = int(job.queue[1]) - 1
        assert job.request.per_task.gpu_models == (kueue_work.MODELS[cohort],)


def asked(*jobs: tuple[int, int, int, int], cohort: str = "c") -> dict[int, Asked]:
    """Jobs as (number, devices, priority, since)."""
    return {job: Asked(devices, cohort, priority, since) for job, devices, priority, since in jobs}


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        ([(1, 3, 50, 0), (2, 1, 50, 0), (3, 2, 50, 0)], [3, 3]),
        # 2 was not there yet when its device became free (10), 3 was when its last one did (14).
        ([(1, 3, 50, 0), (2, 1, 50, 11), (3, 2, 50, 14)], [3]),
        # 3 comes first, and waits: what 2 gets may have been kept for it.
        ([(1, 3, 50, 0), (2, 1, 50, 0), (3, 2, 100, 0)], [3]),
        # 3 comes first, but was not there at 10.
        ([(1, 3, 50, 0), (2, 1, 50, 0), (3, 2, 100, 11)], [3, 3]),
    ],
)
def test_a_turnaround_counts_where_the_device_could_be_had_at_once(
    jobs: list[tuple[int, int, int, int]], wanted: list[int]
) -> None:
    ran = kueue_account.by_job(SPANS)
    kueue_account.check(ran, asked(*jobs))
    assert kueue_account.turnarounds_ns(ran, asked(*jobs)) == wanted


def test_who_waits_in_another_cohort_is_in_nobodys_way() -> None:
    jobs = asked((1, 3, 50, 0), (2, 1, 50, 0), (3, 2, 50, 0))
    other = asked((4, 1, 200, 0), cohort="d")
    ran = kueue_account.by_job([*SPANS, (4, "c", [0], 40, 50)])
    assert kueue_account.turnarounds_ns(ran, jobs | other) == [3, 3]


@pytest.mark.parametrize(
    ("spans", "jobs", "said"),
    [
        ([(1, "a", [0], 0, 10), (2, "a", [0], 9, 20)], [(1, 1), (2, 1)], "jobs 1 and 2 at once"),
        ([(1, "a", [0], 0, 10)], [(1, 2)], "asked for 2 devices, and ran on 1"),
        ([(1, "a", [0], 0, 10), (1, "a", [0], 20, 30)], [(1, 1)], "asked for 1 devices, and ran on 2"),
        ([(1, "a", [0], 0, 10)], [(1, 1), (2, 1)], "2 jobs were submitted, and 1 ran"),
    ],
)
def test_what_must_not_be_ends_the_benchmark(
    spans: list[tuple[int, str, list[int], int, int]], jobs: list[tuple[int, int]], said: str
) -> None:
    with pytest.raises(Failed, match=said):
        kueue_account.check(
            kueue_account.by_job(spans), asked(*((job, devices, 50, 0) for job, devices in jobs))
        )
