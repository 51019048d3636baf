"""Three bare hosts become a cluster, stay one, and run a gang: the whole way over real SSH, systemd and TLS."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

import pytest

from tests.testbed.bed import Bed
from tests.testbed.lab import USER, Done, Lab

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
READY_S = 180  # from bare hosts to ready, at most
TIMES_PING = 3  # a second `up` against a plain ping by Ansible of the same hosts
TURNS = 5


@pytest.fixture(scope="module")
def first(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Done]]:
    """Three hosts as just installed, of both releases, after their first `up`."""
    lab = Lab(testbed, testbed.fresh(3, "12", "13"), tmp_path_factory.mktemp("lab"))
    try:
        yield lab, lab.up()
    finally:
        lab.stop()


@pytest.fixture
def lab(first: tuple[Lab, Done]) -> Lab:
    return first[0]


def test_bare_hosts_are_ready_in_time(first: tuple[Lab, Done]) -> None:
    lab, done = first
    done.ok()
    print(f"\nthree bare hosts were ready after {done.seconds:.1f} s")  # noqa: T201 - a figure for people
    assert lab.open_nodes() == ["h1", "h2", "h3"]
    assert done.seconds <= READY_S


def test_every_host_has_its_line(lab: Lab) -> None:
    said = lab.run("doctor", str(lab.file)).ok().out
    for host, release in zip(("h1", "h2", "h3"), ("12", "13", "12"), strict=True):
        (line,) = [line for line in said.splitlines() if f" {host} " in line]
        assert line.startswith(f"ok    {host} ")
        assert f"debian {release}, kernel " in line
    lab.hosts[0].inside("chmod 0 /home/ops/.ssh/authorized_keys").check()
    try:
        refused = lab.run("doctor", str(lab.file)).ok(1)
        assert [line.split()[:2] for line in refused.out.splitlines() if line.startswith("fail")] == [
            ["fail", "h1"]
        ]
    finally:
        lab.hosts[0].inside("chmod 600 /home/ops/.ssh/authorized_keys").check()


def test_nothing_to_change_runs_no_ansible_and_is_quick(lab: Lab) -> None:
    """In turn with a plain ping of the same hosts by Ansible; the medians are compared."""
    lab.up().ok()
    with lab.client() as client:
        before = client.status().seq
        ours, theirs = [], []
        for _ in range(TURNS):
            done = lab.up().ok()
            assert "nothing to change" in done.err
            ours.append(done.seconds)
            theirs.append(lab.ansible_ping())
        assert client.status().seq == before, "the ledger heard of it"
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(  # noqa: T201 - a figure for people
        f"\nup: {statistics.median(ours):.2f} s, ansible -m ping: {statistics.median(theirs):.2f} s, ratio {ratio:.2f}"
    )
    assert ratio <= TIMES_PING


def test_a_full_run_changes_nothing(lab: Lab) -> None:
    done = lab.up("--full").ok()
    assert "(changed)" not in done.err
    with lab.client() as client:
        (step,) = [step for step in client.applies()[0].steps if step.id == "lab.full"]
    assert [(result.host, result.ok, result.changed) for result in step.hosts] == [
        ("h1", True, 0),
        ("h2", True, 0),
        ("h3", True, 0),
    ]


def test_a_gang_runs_as_the_person_who_submitted_it(lab: Lab) -> None:
    script = 'echo "$RANK/$WORLD_SIZE $(hostname) $(id -un)"'
    done = lab.run(
        "run",
        "-n",
        "6",
        "--gpus-per-task",
        "4",
        "--workdir",
        f"/home/{USER}",
        "--",
        "sh",
        "-c",
        script,
        env=lab.user(),
    ).ok()
    lines = sorted(done.out.split("\n")[:-1])
    assert lines == [f"{rank}/6 h{rank // 2 + 1} {USER}" for rank in range(6)]


def test_the_plan_is_empty_and_nothing_drifts(lab: Lab) -> None:
    plan = lab.plan()
    assert (plan.get("changes", []), plan.get("steps", [])) == ([], [])
    lab.run("plan", str(lab.file), "--detailed-exitcode").ok()
    assert lab.drift() == []


def test_what_was_changed_by_hand_is_found_named_and_healed_alone(lab: Lab) -> None:
    h2 = lab.hosts[1]
    h2.inside("echo 'x' >> /etc/gangline/agent.json").check()
    h2.inside("chmod 600 /etc/security/limits.d/gangline.conf").check()
    assert lab.drift() == [
        ("h2", "file", "/etc/security/limits.d/gangline.conf", "mode"),
        ("h2", "file", "/etc/gangline/agent.json", "content"),
    ]
    assert lab.run("drift", str(lab.file)).code == 3
    lab.apply().ok()
    with lab.client() as client:
        touched = {node for step in client.applies()[0].steps for node in step.nodes}
    assert touched == {"h2"}
    assert lab.drift() == []
    assert lab.open_nodes() == ["h1", "h2", "h3"]


def test_a_change_that_fails_on_a_host_is_rolled_back(lab: Lab) -> None:
    """The way back is a plan from wherever the failed one stopped, and needs nothing of the failed one."""
    lab.site["system"] = {"sysctls": {"net.core.somaxconn": "7777"}, "packages": {"jq": "9.9-no-such"}}
    lab.write()
    failed = lab.apply()
    assert (failed.code, "jq" in failed.err) == (4, True), failed
    back = lab.run("rollback", "--yes").ok()
    assert "its file does not know that" in back.err
    assert lab.open_nodes() == ["h1", "h2", "h3"]
    for host in lab.hosts:
        assert "7777" not in host.inside("cat /etc/sysctl.d/90-gangline.conf").check()
    del lab.site["system"]
    lab.write()
    assert (lab.plan().get("changes", []), lab.drift()) == ([], [])


def test_a_plan_from_another_machine_wants_no_other_authority(lab: Lab) -> None:
    """As in CI: another state folder, and the controller by its address and a token."""
    with lab.client() as client:
        secret = client.create_token("operator", "root").secret
    elsewhere = lab.user() | {"GANGLINE_TOKEN": secret, "GANGLINE_HOME": str(lab.folder / "elsewhere")}
    done = lab.run("plan", str(lab.file), "--detailed-exitcode", env=elsewhere)
    assert (done.code, "nothing to change" in done.out) == (0, True), done


def test_nodes_of_this_cluster_come_into_no_other_unasked(lab: Lab) -> None:
    """Another file names the same hosts, and another controller; looking changes nothing on them."""
    other = lab.folder / "other.yaml"
    other.write_text(
        lab.file.read_text().replace("name: lab\n", "name: other\n", 1).replace(f":{lab.port}", ":7443")
    )
    found = json.loads(lab.run("plan", str(other), "-o", "json").ok().out)
    assert [change["consent"] for change in found["changes"] if change.get("consent")] == [
        "host/h1",
        "host/h2",
        "host/h3",
    ]
    assert len(found["blockers"]) == 3
    assert "node of another controller" in found["blockers"][0]
    assert lab.drift() == []


def test_a_node_taken_out_is_let_go_and_the_rest_is_left_alone(lab: Lab) -> None:
    h3 = lab.hosts[2]
    lab.pool["nodes"] = "h1,h2"
    lab.write()
    assert {node for step in lab.plan()["steps"] for node in step.get("nodes", ())} == {"h3"}
    lab.apply().ok()
    assert lab.open_nodes() == ["h1", "h2"]
    assert h3.inside("systemctl is-active gangline-agent").out.strip() == "inactive"
    assert lab.plan().get("changes", []) == []


def test_destroy_lets_all_go_and_deletes_nothing(lab: Lab) -> None:
    """Those that it can reach; a second one lets go what was silent at the first, and a third finds nothing."""
    destroy = ("destroy", str(lab.file), "--yes", "lab")
    h2 = lab.hosts[1]
    assert lab.run("destroy", str(lab.file)).code == 5, "nobody can be asked, and no name is given"
    h2.cut()
    first = lab.run(*destroy)
    assert (first.code, "h2: " in first.err) == (4, True), first
    assert lab.open_nodes() == []
    h2.heal()
    assert h2.inside("systemctl is-active gangline-agent").out.strip() == "active"
    lab.run(*destroy).ok()
    assert "nothing to change" in lab.run(*destroy).ok().err
    for host in lab.hosts:
        assert host.inside("systemctl is-active gangline-agent").out.strip() == "inactive"
        host.inside("test -e /etc/gangline/agent.json").check()
