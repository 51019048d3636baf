"""`apply` killed with SIGKILL at each of its steps over six hosts, then run again: it converges, and does nothing
twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from orchestrator.model.apply import Outcome
from tests.testbed.bed import Bed
from tests.testbed.lab import Lab, Watch

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

# Where it dies, at the how-manieth passing. A change of a sysctl has the steps record, one host first, the others.
STEPS = 3
POINTS = [
    "apply.start.after:1",
    *(
        f"{point}:{step}"
        for step in range(1, STEPS + 1)
        for point in ("apply.step.started", "apply.step.acted")
    ),
    f"apply.step.ended:{STEPS}",
    "apply.end.before:1",
]
KILLED = -9
VALUES = itertools.count(4100)
KINDS = itertools.cycle(["roce", "infiniband"])


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Six hosts, up."""
    made = Lab(testbed, testbed.fresh(6, "12", "13"), tmp_path_factory.mktemp("lab"))
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_apply_is_run_again_and_goes_on(lab: Lab, point: str) -> None:
    value = str(next(VALUES))
    lab.site["system"] = {"sysctls": {"net.core.somaxconn": value}}
    lab.write()
    killed = lab.apply(env={"GANGLINE_FAILPOINT": point})
    assert killed.code == KILLED, killed

    status = lab.run("status").ok().out
    assert "steps done" in status, "people must see that something is pending"
    before = configured(lab, value)
    lab.apply().ok()

    with lab.client() as client:
        newest = client.applies()[0]
        again = {name for step in newest.steps if step.kind == "configure" for name in step.nodes}
    assert configured(lab, value) == {host.name for host in lab.hosts}
    if before and newest.outcome == "done":
        assert not again & before, "hosts that had it already were configured again"
    assert lab.drift() == []
    plan = lab.plan()
    assert (plan.get("changes", []), plan.get("steps", [])) == ([], [])
    assert "apply " not in lab.run("status").ok().out
    assert lab.open_nodes() == [host.name for host in lab.hosts]


# A change for which work must leave: record, then cordon, drain, configure, accept, uncordon of each batch.
@pytest.mark.parametrize(
    "point",
    [f"apply.step.{at}" for at in ("acted:2", "acted:3", "started:4", "acted:4", "acted:5", "acted:6")],
)
def test_a_killed_rolling_change_gives_all_hosts_back(lab: Lab, point: str) -> None:
    """A host that the killed run had closed is neither forgotten nor opened before it is as wanted."""
    lab.pool["update"] = {"max_unavailable": 3}
    lab.pool["fabric"] = {"kind": next(KINDS)}
    lab.write()
    killed = lab.apply(env={"GANGLINE_FAILPOINT": point})
    assert killed.code == KILLED, killed
    assert "steps done" in lab.run("status").ok().out, "people must see that something is pending"
    assert len(lab.open_nodes()) >= 3

    with Watch(lab) as watch:
        lab.apply().ok()

    assert watch.least >= 3
    assert lab.open_nodes() == [host.name for host in lab.hosts]
    assert lab.drift() == []
    plan = lab.plan()
    assert (plan.get("changes", []), plan.get("steps", [])) == ([], [])
    assert "apply " not in lab.run("status").ok().out


def configured(lab: Lab, value: str) -> set[str]:
    """Hosts on which the sysctl has the value."""
    return {host.name for host in lab.hosts if host.inside("sysctl -n net.core.somaxconn").check() == value}


def test_two_at_once_do_not_meet(lab: Lab) -> None:
    """Of two applies of two people one waits its turn in words, and touches nothing."""
    lab.site["system"] = {"sysctls": {"net.core.somaxconn": str(next(VALUES))}}
    lab.write()
    with lab.client() as client:
        other = client.start_apply("bob@laptop", "digest", (), 60).id
        refused = lab.apply()
        assert refused.code == 1
        assert "bob@laptop" in refused.err
        client.end_apply(other, Outcome.DONE)
    lab.apply().ok()
