"""Starts within power: scenes of one domain, racks, two feeds, shares, lowered caps, and what never fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger import events
from orchestrator.model.cluster import ClusterSpec, PowerDomain, SitePower
from orchestrator.model.cluster_words import Redundancy
from orchestrator.scheduler import refuse
from tests.builders import BOB, cluster, job, pool
from tests.scheduler.scenes import STARTS, Scene, Stage, share
from tests.scheduler.test_scenarios import play

WAITS = "wait.power"


def powered(*domains: PowerDomain, nodes: int = 2, mig: bool = False) -> ClusterSpec:
    """Nodes of four GPUs of 100 W."""
    spec = cluster(pool(nodes=nodes, gpus=4, mig=mig))
    each = spec.pools[0]
    assert each.gpu is not None
    pools = (replace(each, gpu=replace(each.gpu, max_watts=100)),)
    return replace(spec, pools=pools, sites=(replace(spec.sites[0], power=SitePower(domains=domains)),))


def root(watts: int) -> PowerDomain:
    return PowerDomain("root", limit_watts=watts)


def rack(number: int, watts: int, **rest: object) -> PowerDomain:
    return PowerDomain(f"r{number}", limit_watts=watts, nodes=(f"p-{number}",), **rest)  # type: ignore[arg-type]


SCENES = {
    "GPUs are free and no watts are": Scene(
        [job(gpus=1)],
        [WAITS],
        powered(root(300)),
        runs=[job(gpus=3)],
        says={0: "power domain here/root may have 300 W committed and has 300: the 1 GPU(s)"},
    ),
    "a node whose rack has none left is left out, another takes it": Scene(
        [job(gpus=3), job(gpus=2)],
        [STARTS, WAITS],
        powered(root(800), rack(1, 100, parent="root"), rack(2, 400, parent="root")),
        says={1: "here/r"},
    ),
    "a gang over two racks takes of each what that carries": Scene(
        [job(tasks=5), job(tasks=1)],
        [STARTS, WAITS],
        powered(root(800), rack(1, 200, parent="root"), rack(2, 300, parent="root")),
    ),
    "both racks carry it, what feeds them does not": Scene(
        [job(nodes=2, gpus=2), job(nodes=2, gpus=1)],
        [WAITS, STARTS],
        powered(root(300), rack(1, 300, parent="root"), rack(2, 300, parent="root")),
        says={0: "here/root"},
    ),
    "under 2N one feed alone must carry all": Scene(
        [job(tasks=3), job(tasks=2)],
        [WAITS, STARTS],
        powered(
            PowerDomain("a", limit_watts=250),
            PowerDomain("b", limit_watts=900),
            rack(1, 0, fed_by=("a", "b"), redundancy=Redundancy.TWO_N),
            rack(2, 0, fed_by=("a", "b"), redundancy=Redundancy.TWO_N),
        ),
        says={0: "here/a may have 250 W"},
    ),
    "without redundancy each carries half": Scene(
        [job(tasks=5)],
        [STARTS],
        powered(
            PowerDomain("a", limit_watts=250),
            PowerDomain("b", limit_watts=250),
            rack(1, 0, fed_by=("a", "b")),
            rack(2, 0, fed_by=("a", "b")),
        ),
    ),
    "a share of a GPU that is lit already draws nothing more": Scene(
        [share(300), share(800)],
        [STARTS, WAITS],
        powered(root(100)),
        runs=[share(300)],
    ),
    "so does a MIG instance, and a wide one that needs another GPU waits": Scene(
        [job(mig="4g.40gb"), job(mig="3g.40gb"), job(mig="1g.10gb")],
        [STARTS, WAITS, STARTS],
        powered(root(100), mig=True),
        runs=[job(mig="1g.10gb")],
        says={1: "the 1 GPU(s)"},
    ),
    "a gang of instances fills lit GPUs before it lights one": Scene(
        [job(mig="1g.10gb", tasks=11), job(mig="1g.10gb", tasks=3)],
        [STARTS, WAITS],
        powered(root(200), nodes=1, mig=True),
        runs=[job(mig="1g.10gb", tasks=2)],
        says={1: "the 1 GPU(s)"},
    ),
    "work without GPUs is no matter of power": Scene(
        [job(gpus=0, cores=1)], [STARTS], powered(root(100)), runs=[job(gpus=1)]
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    play(SCENES[name])


def test_a_lowered_cap_stops_nothing_that_runs_and_lets_nothing_start() -> None:
    stage = Stage(powered(root(800)))
    first, second = stage.submit(job(gpus=4)), stage.submit(job(gpus=2))
    assert list(stage.look()) == [first, second]
    stage(events.ClusterApplied(powered(root(300)), "lower"), "cluster")
    third = stage.submit(job(gpus=1))
    assert stage.look() == {}
    assert stage.why(third).fact("over") == 400
    stage.end(first)
    assert list(stage.look()) == [third]
    assert stage.state.limits.scopes["power=here/root"].used == {"watts": 300}


def test_power_that_comes_free_on_other_nodes_wakes_who_waits() -> None:
    stage = Stage(powered(root(400)))
    first = stage.submit(job(nodes=1, gpus=4))
    stage.look()
    second = stage.submit(job(nodes=1, gpus=2))
    assert stage.look() == {}
    assert stage.outcome(second) == WAITS
    stage.end(first)
    assert list(stage.look()) == [second]


def test_small_jobs_do_not_starve_one_that_waits_for_watts() -> None:
    stage = Stage(powered(root(400)))
    small = [stage.submit(job(gpus=1, time_limit_s=600)) for _ in range(4)]
    stage.look()
    large = stage.submit(job(gpus=4, priority=1))
    for one in small:
        other = stage.submit(job(gpus=1), BOB)
        stage.look()
        assert stage.outcome(other) != STARTS
        stage.end(one)
    assert large in stage.look()


def test_more_than_a_domain_carries_is_refused_at_submit() -> None:
    state = Stage(powered(root(500))).state
    assert refuse.never(state, job(tasks=5), "alice") is None
    found = refuse.never(state, job(tasks=6), "alice")
    assert found is not None
    assert found.sentence() == (
        "power domain here/root carries 500 W beside idle nodes, and the 6 GPU(s) of the job need 600 there"
    )
