"""What queues say of dollars an hour: committed of what their budgets allow."""

from __future__ import annotations

from orchestrator.api import render_queues
from orchestrator.cli.queues_cmd import dollars
from orchestrator.controller.view import View
from tests.builders import Fold, cluster, job
from tests.scheduler.test_spend import budget, stage


def test_a_queue_tells_what_it_commits_of_its_budget() -> None:
    made = stage(budget(50), q=0)
    made.submit(job(gpus=3))
    made.look()
    assert made.state.spending is not None
    view = View(cluster=made.state.cluster, dollars=made.state.spending.by_queue())

    found = {one.name: one for one in render_queues.queues(view)}

    assert (found["default"].usd_per_hour, found["default"].budget_usd_per_hour) == (30.0, 50.0)
    assert dollars(found["default"]) == "$30.00 of $50.00"
    assert dollars(found["top"]) == "$0.00"


def test_without_budgets_of_hours_nothing_is_said_of_dollars() -> None:
    state = Fold(cluster()).state
    assert state.spending is None
    (found,) = render_queues.queues(View(cluster=state.cluster))
    assert (found.usd_per_hour, found.budget_usd_per_hour, dollars(found)) == (None, None, "-")
