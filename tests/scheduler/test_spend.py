"""Starts within budgets: nodes that are paid by the hour, unlike prices, exclusive jobs, and what never fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger import events
from orchestrator.model.capacity import Shape
from orchestrator.model.cluster import Budget, ClusterSpec, Queue, Scope
from orchestrator.model.job import JobSpec
from orchestrator.model.standing import PoolPrice
from orchestrator.scheduler import refuse
from tests.builders import cluster, job, pool
from tests.priced import dollars_on_paper, passed
from tests.scheduler.scenes import STARTS, Stage, share

DOLLAR = 1_000_000
WAITS = "wait.spending"
QUEUES = (Queue("default"), Queue("top"), Queue("a", parent="top"), Queue("b", parent="top"))


def paid(*budgets: Budget, both: bool = True) -> ClusterSpec:
    """Two nodes of four GPUs in pool p, one of six in pool q."""
    pools = (pool(nodes=2, gpus=4), pool("q", nodes=1, gpus=6))
    return replace(cluster(*pools[: 1 + both], queues=QUEUES), budgets=budgets)


def budget(dollars: int, queue: str = "default", name: str = "cloud") -> Budget:
    return Budget(name, scope=Scope(queue=queue), microusd_per_hour=dollars * DOLLAR)


def stage(*budgets: Budget, p: int = 40, q: int = 30) -> Stage:
    """Nodes cost 40 and 30 dollars an hour: 10 and 5 a GPU. Without a price for q there is none."""
    made = Stage(paid(*budgets, both=q > 0))
    prices = tuple(
        PoolPrice(name, dollars * DOLLAR, Shape(gpus, 64, 64 << 30))
        for name, dollars, gpus in (("p", p, 4), ("q", q, 6))
        if dollars
    )
    made(events.ClusterApplied(made.state.cluster or paid(), "priced", prices=prices), "cluster")
    return made


def alone() -> JobSpec:
    spec = job(nodes=1, gpus=1)
    return replace(spec, request=replace(spec.request, exclusive=True))


def used(made: Stage, scope: str = "queue=default") -> int:
    """Micro-dollars an hour; as on paper."""
    on_paper = dollars_on_paper(made.state)
    assert on_paper == {
        (one.name, "usd"): one.used["usd"] for one in made.state.limits.scopes.values() if "usd" in one.used
    }
    assert not passed(made.state, on_paper)
    return on_paper.get((scope, "usd"), 0)


SCENES: dict[str, tuple[list[JobSpec], list[str], list[Budget]]] = {
    "GPUs are free and no dollars are": ([job(gpus=4), job(gpus=4)], [STARTS, WAITS], [budget(20)]),
    "the dear place does not fit, a cheaper one does": (
        [job(nodes=1, gpus=4), job(nodes=1, gpus=4)],
        [STARTS, WAITS],
        [budget(20)],
    ),
    "a gang is given what the budget pays for": ([job(tasks=6)], [STARTS], [budget(30)]),
    "an exclusive job pays for whole nodes": (
        [alone(), job(nodes=1, gpus=1)],
        [WAITS, STARTS],
        [budget(29)],
    ),
    "a share pays for its part of a GPU": (
        [share(500), share(500), share(500)],
        [STARTS, STARTS, WAITS],
        [budget(5)],
    ),
    "work without GPUs on nodes that have some costs nothing": (
        [job(gpus=0, cores=60), job(gpus=0, cores=60)],
        [STARTS, STARTS],
        [budget(1)],
    ),
    "the smallest of several budgets binds": (
        [job(gpus=4)],
        [WAITS],
        [budget(100), budget(15, name="small")],
    ),
    "a budget of another queue is none of this one's": ([job(gpus=4)], [STARTS], [budget(1, "a")]),
}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    jobs, want, budgets = SCENES[name]
    made = stage(*budgets)
    ids = [made.submit(one) for one in jobs]
    made.look()
    assert [made.outcome(one) for one in ids] == want
    used(made)


def test_a_reason_says_the_budget_with_its_numbers() -> None:
    made = stage(budget(50), q=0)
    first, second = made.submit(job(gpus=3)), made.submit(job(nodes=1, gpus=4))
    assert list(made.look()) == [first]
    assert made.why(second).sentence() == (
        "by budget cloud queue default may cost $50.00 an hour and $30.00 is committed: this job would add $40.00"
    )


def test_queues_of_one_parent_share_its_budget_and_an_end_lets_the_next_one_start() -> None:
    made = stage(budget(50, "top"), q=0)
    first, second = made.submit(job(gpus=2, queue="a")), made.submit(job(gpus=2, queue="b"))
    made.look()
    third = made.submit(job(gpus=2, queue="b"))
    assert made.look() == {}
    assert made.why(third).fact("scope") == "queue top"
    assert used(made, "queue=top") == 40 * DOLLAR
    assert used(made, "queue=a") == 20 * DOLLAR
    made.end(first)
    assert list(made.look()) == [third]
    made.end(second)
    made.end(third)
    assert used(made, "queue=top") == 0


def test_prices_that_rise_stop_nothing_that_runs_and_let_nothing_start() -> None:
    made = stage(budget(40), q=0)
    first, second = made.submit(job(gpus=3)), made.submit(job(gpus=1, priority=-1))
    assert list(made.look()) == [first, second]
    made.end(second)
    third = made.submit(job(gpus=1))
    price = (PoolPrice("p", 80 * DOLLAR, Shape(4, 64, 64 << 30)),)
    assert made.state.cluster is not None
    made(events.ClusterApplied(made.state.cluster, "dearer", prices=price), "cluster")
    assert made.look() == {}
    assert (made.outcome(first), made.outcome(third)) == (STARTS, WAITS)
    assert made.why(third).fact("used") == "$60.00"


def test_more_than_a_budget_ever_pays_is_refused_at_submit() -> None:
    made = stage(budget(50), q=0)
    state = made.state
    assert refuse.never(state, job(nodes=1, gpus=4), "alice") is None
    found = refuse.never(state, job(nodes=2, gpus=4), "alice")
    assert found is not None
    assert found.sentence() == (
        "by budget cloud queue default may cost $50.00 an hour, and the job alone costs $80.00 at least"
    )
    assert not refuse.may_wait(found)
