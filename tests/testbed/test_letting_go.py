"""What leaves the file leaves the hosts: users, holds, settings; nodes with what let them in, and never their data.

Work leaves first, by the pool's policy or by drain.yml.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from orchestrator.cli.changing import hosts_for, means_of, read
from orchestrator.model.installed import AGENT_STATE, AGENT_UNIT
from orchestrator.planning.desired import (
    SECRETS,
)
from tests.testbed.bed import Bed, Host
from tests.testbed.debs import repository
from tests.testbed.lab import GANGLINE, UID, USER, Lab, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
PACKAGE = "gl-held"
ALICE = {"name": USER, "uid": UID}
BOB = {"name": "bob", "uid": 20002, "groups": ["research"]}


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two hosts, of both releases, with a held package and a second user."""
    made = Lab(testbed, testbed.fresh(2, "12", "13", furnished=True), tmp_path_factory.mktemp("lab"))
    for host in made.hosts:
        host.inside(repository(PACKAGE)).check()
    made.site["system"] = {"packages": {PACKAGE: "1.0"}, "sysctls": {"net.core.somaxconn": "4096"}}
    made.spec["identity"] |= {"users": [ALICE, BOB], "groups": [{"name": "research", "gid": 20100}]}
    made.pool["update"] = {"drain": {"deadline": "2s", "then": "wait"}}
    made.write()
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


def job(lab: Lab, seconds: int) -> tuple[int, Host]:
    """One rank on one whole node, running; and that node."""
    document = {
        "apiVersion": "gangline/v1",
        "kind": "Job",
        "metadata": {"name": "one"},
        "spec": {
            "nodes": 1,
            "tasks_per_node": 1,
            "per_node": {"gpus": 8},
            "workdir": f"/home/{USER}",
            "command": ["sh", "-c", f"echo kept > kept; sleep {seconds}"],
        },
    }
    made = lab.submit(document)
    until(lambda: lab.job(made).state == "running", "it runs")
    (name,) = lab.job(made).node_names
    return made, next(host for host in lab.hosts if host.name == name)


def secrets(host: Host) -> list[str]:
    """Those that are there."""
    return host.inside(f"ls {' '.join(SECRETS)} 2>/dev/null || true").check().split()


def test_users_holds_and_settings_are_undone(lab: Lab) -> None:
    for host in lab.hosts:
        assert host.inside("getent group research").check() == "research:x:20100:bob", (
            "the same number on each"
        )
        host.inside("systemd-run --uid bob --unit work-of-bob sleep 600").check()
    lab.site["system"] = {}
    lab.spec["identity"] |= {"users": [ALICE], "groups": []}
    lab.write()
    assert {change["cls"] for change in lab.plan()["changes"]} == {"in-place"}
    lab.apply().ok()
    for host in lab.hosts:
        assert host.inside("getent passwd bob").code != 0
        assert host.inside("getent group research").check() == "research:x:20100:", "files may be of it"
        assert host.inside("stat -c %u /home/bob").check() == "20002", "nobody's files are touched"
        assert host.inside("ps -o pid= -u 20002").check(), "nor what runs"
        assert host.inside("apt-mark showhold").check() == ""
        assert host.inside(f"dpkg-query -W -f '${{Version}}' {PACKAGE}").check() == "1.0"
        assert host.inside("grep -r somaxconn /etc/sysctl.d").code != 0
        host.inside("systemctl stop work-of-bob").check()
    assert lab.drift() == []
    assert lab.plan().get("changes", []) == []


def test_drain_yml_waits_for_what_runs(lab: Lab) -> None:
    made, host = job(lab, 6)
    folder = lab.folder / "rendered"
    lab.run("render", str(lab.file), "--out", str(folder)).ok()
    argv = ["ansible-playbook", "drain.yml", "--limit", host.name, "-e", "gangline_drain_look_s=1"]
    path = f"{GANGLINE.parent}:{lab.env()['PATH']}"
    done = subprocess.run(
        argv,
        cwd=folder,
        env=lab.env(PATH=path, LC_ALL="C.UTF-8"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (lab.job(made).state, lab.job(made).attempts) == ("succeeded", 1)
    node = lab.node(host.name)
    assert [(mark.kind, mark.why) for mark in node.marks] == [("cordoned", "drained by drain.yml")]
    lab.run("node", "uncordon", host.name).ok()
    assert lab.open_nodes() == ["h1", "h2"]


def test_a_node_that_leaves_takes_nothing_with_it_but_what_let_it_in(lab: Lab) -> None:
    made, leaving = job(lab, 600)
    (staying,) = [host for host in lab.hosts if host is not leaving]
    spec = read(str(lab.file))
    lab.pool["nodes"] = staying.name
    lab.write()
    lab.apply().ok(4)
    assert lab.job(made).state == "running", "the policy waits for it"
    assert secrets(leaving), "only after the drain"
    assert leaving.inside(f"systemctl is-active {AGENT_UNIT}").check() == "active"

    with lab.client() as client:
        client.cancel(made, now=True)
    until(lambda: lab.job(made).ended, "it has gone")
    with lab.client() as client:
        assert [node.name for node in client.nodes()] == [staying.name], "the controller knows it no more"
    lab.apply().ok()
    assert secrets(leaving) == []
    assert lab.plan().get("changes", []) == []
    assert leaving.inside(f"systemctl is-active {AGENT_UNIT}").out.strip() == "inactive"
    assert leaving.inside(f"systemctl is-enabled {AGENT_UNIT}").out.strip() == "disabled"
    assert leaving.inside("pgrep -f '[g]angline-agent|/opt/[g]angline|^gl-'; true").check() == "", (
        "nothing of it runs on"
    )
    assert leaving.inside(f"cat /home/{USER}/kept; ls {AGENT_STATE}/journal.jsonl").check().startswith("kept")
    assert secrets(staying)
    means = means_of(spec, lab.state)
    again = hosts_for(spec, lab.state, means, means.by_pool).retire([leaving.name])
    assert [(one.host, one.ok) for one in again] == [(leaving.name, True)]


def test_a_node_that_comes_back_is_let_in_anew(lab: Lab) -> None:
    lab.pool["nodes"] = "h1,h2"
    lab.write()
    lab.apply().ok()
    assert lab.open_nodes() == ["h1", "h2"]
    assert lab.drift() == []


def test_a_host_that_was_silent_meanwhile_is_let_go_by_the_next_apply(lab: Lab) -> None:
    h2 = lab.hosts[1]
    h2.cut()
    lab.pool["nodes"] = "h1"
    lab.write()
    lab.apply().ok(4)
    assert secrets(h2)
    h2.heal()
    lab.apply().ok()
    assert secrets(h2) == []
    lab.pool["nodes"] = "h1,h2"
    lab.write()
    lab.apply().ok()
    assert lab.open_nodes() == ["h1", "h2"]


def test_destroy_takes_what_let_them_in_from_all_even_when_it_was_killed(lab: Lab) -> None:
    """Idle nodes are forgotten with the first step: what is left to do stands in the journal alone."""
    destroy = ("destroy", str(lab.file), "--yes", "lab")
    assert lab.run(*destroy, env={"GANGLINE_FAILPOINT": "apply.step.started:2"}).code == -9
    assert secrets(lab.hosts[0])
    lab.run(*destroy).ok()
    for host in lab.hosts:
        assert secrets(host) == []
        host.inside(f"test -e /home/{USER}/kept -o -e {AGENT_STATE}/journal.jsonl").check()
    with lab.client() as client:
        assert list(client.nodes()) == []
