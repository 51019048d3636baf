"""What queues say of GPU-hours: used and committed of what a month may have."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.api import render_queues
from orchestrator.cli.queues_cmd import gpu_hours
from orchestrator.controller.view import View
from orchestrator.ledger.scopes import queue_scope
from tests.builders import job
from tests.scheduler.test_hours import ENDS_US, LONG, PARENT, Metered


def test_a_queue_tells_what_it_and_those_below_it_have_used_of_its_month() -> None:
    made = Metered(PARENT)
    made.submit(job(gpus=2, **LONG))
    made.look()
    assert made.state.hours is not None
    hours = {name: made.state.hours.used(queue_scope(name)) for name in made.state.queues}
    view = View(cluster=made.state.cluster, hours=hours, month_ends_us=ENDS_US)

    found = {one.name: one for one in render_queues.queues(view)}

    assert {name: gpu_hours(one) for name, one in found.items()} == {
        "all": "20 of 30",
        "default": "20 of 40",
        "other": "0",
        "free": "0",
    }
    assert found["all"].month_ends_at == datetime.fromtimestamp(ENDS_US / 1_000_000, UTC)
    assert found["all"].limits.max_gpu_hours_per_month == 30


def test_without_limits_nothing_is_said() -> None:
    (found,) = render_queues.queues(View(cluster=Metered(PARENT).state.cluster))[:1]
    assert (found.gpu_hours, found.month_ends_at, gpu_hours(found)) == (None, None, "-")
