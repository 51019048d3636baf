"""A kernel that is exchanged: cordon, drain, configure, reboot, prove, open again, batch by batch; and no reboot while
anything runs, whoever knows of it. A host that does not come back stops the change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.cli.changing import hosts_for, means_of, read
from tests.provision.metal.sabotages import APT
from tests.testbed.bed import Bed, Host
from tests.testbed.debs import repository
from tests.testbed.lab import USER, Lab, Watch, until
from tests.testbed.machine import SHARED

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
KERNEL = "linux-image-gl"
STRANGER = "gangline-4242-1"  # a unit of an attempt that no ledger knows
ROLLED = ["cordon", "drain", "configure", "reboot", "accept", "uncordon"]
DOWNGRADE = f"{APT} install {KERNEL}=1.0; apt-mark hold {KERNEL}"


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three hosts with the old kernel; one may be away at a time."""
    made = Lab(testbed, testbed.fresh(3, "12", "13", furnished=True), tmp_path_factory.mktemp("lab"))
    for host in made.hosts:
        host.inside(repository(KERNEL)).check()
    wants(made, "1.0", deadline="4s", then="requeue")
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


def wants(lab: Lab, version: str, deadline: str, then: str) -> None:
    lab.site["system"] = {"packages": {KERNEL: version}}
    lab.pool["update"] = {"max_unavailable": 1, "drain": {"deadline": deadline, "then": then}}
    lab.write()


def boots(lab: Lab) -> dict[str, str]:
    return {host.name: host.boot_id() for host in lab.hosts}


def versions(lab: Lab) -> list[str]:
    shown = f"dpkg-query -W -f '${{Version}}' {KERNEL}"
    return [host.inside(shown).check() for host in lab.hosts]


def job(lab: Lab) -> int:
    """One rank on one whole node, until it is told to end."""
    return lab.submit(
        {
            "apiVersion": "gangline/v1",
            "kind": "Job",
            "metadata": {"name": "one"},
            "spec": {
                "nodes": 1,
                "tasks_per_node": 1,
                "per_node": {"gpus": 8},
                "workdir": f"/home/{USER}",
                "stop": {"grace": "1s"},
                "command": ["sh", "-c", f"until test -e {SHARED}/end; do sleep 0.1; done"],
            },
        }
    )


def running(lab: Lab) -> int:
    """The same, once it runs."""
    (lab.bed.shared / "end").unlink(missing_ok=True)
    made = job(lab)
    until(lambda: lab.job(made).state == "running", "it runs")
    return made


def steps(lab: Lab) -> list[tuple[str, list[str], str]]:
    """(kind, nodes, how far) of the last apply."""
    with lab.client() as client:
        return [(step.kind, step.nodes, step.state) for step in client.applies()[0].steps]


def at(lab: Lab, name: str) -> Host:
    return next(host for host in lab.hosts if host.name == name)


def test_a_pending_reboot_alone_is_a_note(lab: Lab) -> None:
    """The first installation of a kernel asks for one, and nobody drains a host for that."""
    changes = lab.plan()["changes"]
    assert {(each["path"], each["deferred"]) for each in changes} == {
        (f"host[{host.name}].reboot", True) for host in lab.hosts
    }
    before = boots(lab)
    assert "nothing to change" in lab.up().ok().err
    assert boots(lab) == before


def test_a_new_kernel_goes_through_the_pool_one_by_one(lab: Lab) -> None:
    before, long = boots(lab), running(lab)
    wants(lab, "2.0", deadline="4s", then="requeue")
    assert ("stopped", long) in {(each["fate"], each["job"]) for each in lab.plan()["work"]}
    with Watch(lab) as watch:
        lab.apply().ok()
    assert watch.least >= 2
    done = steps(lab)[1:]
    assert [kind for kind, _, _ in done] == ROLLED * 3
    assert sorted({tuple(nodes) for _, nodes, _ in done}) == [("h1",), ("h2",), ("h3",)]
    after = boots(lab)
    assert all(before[name] != after[name] for name in before)
    assert versions(lab) == ["2.0"] * 3
    until(lambda: lab.job(long).state == "running", "the job runs again")
    assert {past.cause for past in lab.job(long).past} == {"requeued"}, "no boot took it"
    assert lab.drift() == []
    assert lab.plan().get("changes", []) == []
    with lab.client() as client:
        client.cancel(long, now=True)
    until(lambda: lab.job(long).ended, "it has gone")


def test_one_host_alone_and_only_after_its_job(lab: Lab) -> None:
    wants(lab, "2.0", deadline="5m", then="wait")
    lab.apply().ok()
    jobs = [running(lab) for _ in lab.hosts]
    (victim,) = lab.job(jobs[1]).node_names
    before = boots(lab)
    at(lab, victim).inside(DOWNGRADE).check()
    with lab.start("apply", str(lab.file), "--yes") as applying:
        words = applying.stdout
        assert words is not None
        until(lambda: f"draining {victim}" in next(words), "it waits for the job")
        assert (boots(lab), lab.job(jobs[1]).state) == (before, "running")
        (lab.bed.shared / "end").touch()
        said = words.read()
    assert applying.returncode == 0, said
    after = boots(lab)
    assert {name for name in before if before[name] != after[name]} == {victim}
    assert versions(lab) == ["2.0"] * 3
    for each in jobs:
        until(lambda each=each: lab.job(each).ended, "it ends")  # type: ignore[misc]
        assert (lab.job(each).state, lab.job(each).attempts) == ("succeeded", 1)


def test_what_no_ledger_knows_is_neither_exchanged_nor_rebooted_under(lab: Lab) -> None:
    wants(lab, "2.0", deadline="5s", then="wait")
    lab.apply().ok()
    before, h2 = boots(lab), at(lab, "h2")
    h2.inside(DOWNGRADE).check()
    h2.inside(f"systemd-run --unit {STRANGER} sleep 600").check()
    done = lab.apply().ok(4)
    assert f"h2: drain failed: {STRANGER} outlived the drain's deadline" in done.err
    assert versions(lab) == ["2.0", "1.0", "2.0"]
    assert lab.open_nodes() == ["h1", "h2", "h3"], "nothing was changed on it"

    spec = read(str(lab.file))
    means = means_of(spec, lab.state)
    refused = hosts_for(spec, lab.state, means, means.by_pool).reboot(["h2"])
    assert [(one.host, one.ok, one.error) for one in refused] == [
        ("h2", False, f"it was not rebooted: {STRANGER}")
    ]
    assert boots(lab) == before

    h2.inside(f"systemctl stop {STRANGER}").check()
    lab.apply().ok()
    assert {name for name, boot in boots(lab).items() if boot != before[name]} == {"h2"}
    assert lab.plan().get("changes", []) == []


def test_a_host_that_does_not_come_back_stops_the_change(lab: Lab) -> None:
    before, h1 = boots(lab), at(lab, "h1")
    h1.inside("systemctl disable ssh").check()
    for name in ("h1", "h2"):
        at(lab, name).inside(DOWNGRADE).check()
    done = lab.apply("--reboot-wait", "8s").ok(4)
    assert "h1: reboot failed: it was not back 8s after its reboot" in done.err
    assert "pool lab: stopped after batch 1" in done.err
    after = boots(lab)
    assert {name for name in before if before[name] != after[name]} == {"h1"}
    assert versions(lab)[1] == "1.0"
    assert lab.open_nodes() == ["h2", "h3"]

    h1.inside("systemctl enable --now ssh").check()
    lab.apply().ok()
    assert boots(lab)["h1"] == after["h1"], "it has booted since: once is enough"
    assert {name for name, boot in boots(lab).items() if boot != after[name]} == {"h2"}
    assert lab.open_nodes() == ["h1", "h2", "h3"]
    assert lab.drift() == []
