"""What nodes cost and who pays: the queue that a node was bought for, others that work there, budgets around both."""

from __future__ import annotations

from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.model.capacity import ErrorClass
from orchestrator.model.cluster import Queue
from orchestrator.model.decisions import Buy
from tests.autoscale.scene import DOLLAR, Scene, budget, elastic, hybrid, offer
from tests.builders import job
from tests.controller.invariants import check_state

QUEUES = (Queue("top"), Queue("a", parent="top"), Queue("b", parent="top"))


def scene(**hours: int) -> Scene:
    """Nodes of eight GPUs at 48 dollars an hour; budgets of queues, and one of the site that has room for all."""
    budgets = [budget(name, hour=most, queue=name) for name, most in hours.items()]
    spec = hybrid(elastic(most=4), budgets=(budget("site", hour=500, site="use1"), *budgets), queues=QUEUES)
    return Scene(spec, (offer(dollars=48),))


def paid(made: Scene) -> dict[str, int]:
    """Dollars an hour of every scope; the same from records, and after a snapshot."""
    check_state(made.state)
    again = from_plain(to_plain(made.state))
    for name, scope in made.state.limits.scopes.items():
        here = again.limits.scopes.get(name)  # scopes of people who are gone are not made again
        assert (here.used.get("usd") if here else None) == scope.used.get("usd")
    return {
        name.removeprefix("queue="): scope.used["usd"] // DOLLAR
        for name, scope in made.state.limits.scopes.items()
        if scope.used.get("usd")
    }


def test_a_node_counts_for_its_price_from_the_decision_to_its_end_and_its_own_work_adds_nothing() -> None:
    made = scene(a=48)
    whole = {"a": 48, "top": 48, "cluster": 48, "budget=site": 48}
    first = made.submit(job(nodes=1, gpus=8, queue="a"))
    made.carry_out()
    assert paid(made) == whole, "nothing but an intent"
    nodes = made.launch()
    assert paid(made) == whole
    made.join(*nodes)
    made.look()
    assert made.state.jobs[first].attempt is not None, "the budget is full, and its own node costs it no more"
    assert paid(made) == whole
    made.end(first)
    assert paid(made) == whole, "idle, until it is gone"
    made.gone(*nodes)
    assert paid(made) == {}


def test_a_refused_launch_costs_nothing() -> None:
    made = scene(a=48)
    made.submit(job(nodes=1, gpus=8, queue="a"))
    (intent,) = made.carry_out()
    made.refuse(intent, ErrorClass.CAPACITY)
    assert paid(made) == {}


def test_others_pay_for_their_part_and_the_buyer_for_all_since_they_may_leave() -> None:
    made = scene(a=48, b=18)
    first = made.submit(job(gpus=2, queue="a"))
    made.bought()
    second, third = made.submit(job(gpus=3, queue="b")), made.submit(job(gpus=1, queue="b"))
    made.look()
    assert [made.state.jobs[one].attempt is None for one in (first, second, third)] == [False, False, True]
    assert paid(made) == {"a": 48, "b": 18, "top": 48, "cluster": 48, "budget=site": 48}
    why = made.reason_of(third)
    assert (why.code, why.fact("used"), why.fact("need")) == ("wait.spending", "$18.00", "$6.00")
    made.end(second)
    made.look()
    assert paid(made) == {"a": 48, "b": 6, "top": 48, "cluster": 48, "budget=site": 48}


def test_nothing_is_bought_for_a_job_that_a_budget_stops() -> None:
    made = scene(b=18)
    made.submit(job(gpus=2, queue="a"))
    made.bought()
    waits = made.submit(job(gpus=4, queue="b"))
    assert not any(isinstance(one, Buy) for one in made.look())
    assert made.reason_of(waits).code == "wait.spending"


def test_what_a_gang_takes_of_nodes_that_are_there_counts_with_what_is_bought_for_it() -> None:
    made = scene(b=70)
    made.submit(job(gpus=4, queue="a"))
    made.bought()
    gang = made.submit(job(tasks=11, gpus=1, queue="b"))
    assert not any(isinstance(one, Buy) for one in made.look()), "24 of the node that is there, and 48"
    assert made.reason_of(gang).code == "wait.budget"


def test_coming_nodes_of_another_queue_are_counted_on_as_far_as_the_budget_goes() -> None:
    made = scene(b=18)
    made.submit(job(gpus=2, queue="a"))
    made.carry_out()
    dear, cheap = made.submit(job(gpus=4, queue="b")), made.submit(job(gpus=3, queue="b"))
    assert not any(isinstance(one, Buy) for one in made.look())
    assert made.reason_of(dear).code == "wait.spending"
    assert made.reason_of(cheap).code == "wait.booting"


def test_a_parents_budget_holds_for_what_is_bought_below_it() -> None:
    made = scene(top=90)
    made.submit(job(nodes=1, gpus=8, queue="a"))
    made.bought()
    made.look()
    second = made.submit(job(nodes=1, gpus=8, queue="b"))
    assert not any(isinstance(one, Buy) for one in made.look())
    assert made.reason_of(second).fact("budget") == "top"
