"""The harness itself: a job and a gang through real processes, and nothing left of them."""

from __future__ import annotations

import pytest

from tests.system.harness import Cluster
from tests.system.workload import Work, gang, single

pytestmark = pytest.mark.system


def test_jobs_run_and_leave_nothing(cluster: Cluster) -> None:
    one = cluster.submit("one", Work(lines=25), single(2))
    two = cluster.submit("two", Work(lines=25), gang())
    for job in cluster.succeeded(one, two):
        cluster.check_logs(job)
    cluster.finish()
