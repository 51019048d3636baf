"""What people and packages do to a host behind Gangline's back, while a gang runs there.

The look finds and names every one, the plan disturbs nobody, the next apply heals just that, and the gang, whose ranks
count aloud on both hosts, never notices.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from orchestrator.model.host import ItemKind
from orchestrator.model.installed import (
    AGENT_ARCHIVE,
    AGENT_CONFIG,
    AGENT_STATE,
    AGENT_UNIT,
    AGENT_UNIT_FILE,
    LIMITS_FILE,
    LOGIN_FILE,
    TIME_UNIT,
)
from orchestrator.planning.desired import (
    AGENT,
    SYSCTL_FILE,
    TIME_FILE,
)
from tests.provision.metal.sabotages import APT, Sabotage
from tests.testbed.bed import Bed, Host
from tests.testbed.debs import REPOSITORY, repository
from tests.testbed.lab import UID, USER, Lab, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

CA = "/etc/gangline/ca.pem"
FOLDER = "/opt/gangline"
SYSTEM = {
    "packages": {"gl-held": "1.0", "gl-low": "2.0", "gl-high": "1.0", "gl-half": "1.0", "logrotate": ""},
    "sysctls": {"net.core.somaxconn": "4096", "net.ipv4.tcp_fin_timeout": "30"},
    "time_servers": ["time.example.org"],
}
PEOPLE = [
    {"name": USER, "uid": UID},
    {"name": "bob", "uid": 20002},
    {"name": "carol", "uid": 20003},
    {"name": "dora", "uid": 20004, "groups": ["research", "modellers"]},
    {"name": "erin", "uid": 20005},
    {"name": "fred", "uid": 20006},
]

# A rank's whole life: it counts every tenth of a second, and ends well when it is told to.
TRACE, STOP = f"/home/{USER}/trace", f"/home/{USER}/stop"
RANK = f"""
import itertools, os, socket, time
with open(f"{TRACE}.{{os.environ['RANK']}}", "a", buffering=1) as out:
    for count in itertools.count():
        print(count, os.getpid(), socket.gethostname(), time.time_ns(), file=out)
        if os.path.exists("{STOP}"):
            break
        time.sleep(0.1)
"""
# The longest that a rank may stand still. The agent is gone for longer in each of these tests, and so is whatever else
# is stopped and started: what depended on them would be seen.
MOST_S = 5.0

OVERRIDE = f"""mkdir -p /etc/systemd/system/{AGENT_UNIT}.d
printf '[Service]\\nKillMode=control-group\\n' > /etc/systemd/system/{AGENT_UNIT}.d/mine.conf"""
OLDER = f"""python3 -c 'import zipfile; zipfile.ZipFile("{AGENT_ARCHIVE}", "a").writestr("OLDER", "1")'"""
RESTART = f"systemctl daemon-reload && systemctl restart {AGENT_UNIT}"

PACKAGE, FILE, UNIT = ItemKind.PACKAGE, ItemKind.FILE, ItemKind.UNIT
SYSCTL, ACCOUNT, GROUP = ItemKind.SYSCTL, ItemKind.USER, ItemKind.GROUP


def file(title: str, command: str, path: str, value: str, found: str, role: str = "base") -> Sabotage:
    return Sabotage(title, command.replace("PATH", path), FILE, path, value, found, role)


OF_THE_HOST = (
    Sabotage("package unheld", "apt-mark unhold gl-held", PACKAGE, "gl-held", "held", "no"),
    Sabotage("package downgraded", f"{APT} install gl-low=1.0", PACKAGE, "gl-low", "version", "1.0"),
    Sabotage("package upgraded", f"{APT} install gl-high=2.0", PACKAGE, "gl-high", "version", "2.0"),
    Sabotage("package removed", f"{APT} remove logrotate", PACKAGE, "logrotate", "present", ""),
    Sabotage(
        "package half installed",
        f"dpkg --unpack {REPOSITORY}/gl-half_1.0.deb",
        PACKAGE,
        "gl-half",
        "status",
        "unpacked",
    ),
    Sabotage(
        "sysctl changed",
        "sysctl -qw net.core.somaxconn=77",
        SYSCTL,
        "net.core.somaxconn",
        "value",
        "77",
    ),
    file("sysctls' file edited", "echo a.b=1 > PATH", SYSCTL_FILE, "content", "line 1: a.b=1"),
    file("limits removed", "rm PATH", LIMITS_FILE, "present", ""),
    file("file opened", "chmod 666 PATH", LOGIN_FILE, "mode", "0666"),
    file("link instead", "cp PATH /tmp/l; ln -sf /tmp/l PATH", TIME_FILE, "type", "link to /tmp/l"),
    file("folder opened", "chmod 777 PATH", FOLDER, "mode", "0777"),
    file("folder given away", "chown carol PATH", "/etc/gangline", "owner", "carol"),
    file("state opened", "chmod 777 PATH", AGENT_STATE, "mode", "0777"),
    Sabotage("unit masked", f"systemctl mask --now {TIME_UNIT}", UNIT, TIME_UNIT, "masked", "yes"),
    Sabotage("user removed", "userdel bob", ACCOUNT, "bob", "present", ""),
    Sabotage("shell changed", "usermod -s /bin/false carol", ACCOUNT, "carol", "shell", "/bin/false"),
    Sabotage(
        "own group renumbered", "groupmod -g 30003 carol", ACCOUNT, "carol", "group", "no: it is carol, 30003"
    ),
    Sabotage("member struck", "gpasswd -d dora modellers", ACCOUNT, "dora", "groups", "research"),
    Sabotage("group renumbered", "groupmod -g 30101 modellers", GROUP, "modellers", "gid", "30101"),
    Sabotage("number changed", "usermod -u 30005 erin", ACCOUNT, "erin", "uid", "30005"),
    Sabotage("home changed", "usermod -d /srv fred", ACCOUNT, "fred", "home", "/srv"),
)
OF_THE_AGENT = (
    Sabotage("agent downgraded", OLDER, ItemKind.ARCHIVE, AGENT_ARCHIVE, "sha256", "", AGENT),
    file("agent's config edited", "sed -i s/1000/1/ PATH", AGENT_CONFIG, "content", ": 1", AGENT),
    file("authority edited", "sed -i 2d PATH", CA, "content", "line 2", AGENT),
    file(
        "unit file edited", "sed -i s/TasksMax=.*/TasksMax=99/ PATH", AGENT_UNIT_FILE, "content", "99", AGENT
    ),
    Sabotage("unit overridden", f"{OVERRIDE}; {RESTART}", UNIT, AGENT_UNIT, "overrides", "mine.conf", AGENT),
    Sabotage("unit disabled", f"systemctl disable {AGENT_UNIT}", UNIT, AGENT_UNIT, "enabled", "no", AGENT),
    Sabotage("unit stopped", f"systemctl stop {AGENT_UNIT}", UNIT, AGENT_UNIT, "active", "inactive", AGENT),
)
# A masked unit has nothing left of its file, KillMode included: stopping it ends all that is in its control group.
MASKED = (
    file("file is a link", "ln -sf /dev/null PATH", AGENT_UNIT_FILE, "type", "link to /dev/null", AGENT),
    Sabotage(
        "unit masked",
        f"systemctl daemon-reload; systemctl stop {AGENT_UNIT}",
        UNIT,
        AGENT_UNIT,
        "masked",
        "yes",
        AGENT,
    ),
)
# The entry of the very person whose gang runs: what usermod would refuse to set right now.
MOVED = (
    Sabotage(
        "number", f"sed -i 's/^{USER}:x:{UID}/{USER}:x:30001/' /etc/passwd", ACCOUNT, USER, "uid", "30001"
    ),
    Sabotage("home", f"sed -i 's#/home/{USER}:#/srv:#' /etc/passwd", ACCOUNT, USER, "home", "/srv"),
)
REMOVED = Sabotage("user of the gang removed", f"userdel -f {USER}", ACCOUNT, USER, "present", "")


@dataclass(frozen=True)
class Beat:
    """One line of a rank."""

    count: int
    pid: int
    host: str
    at_ns: int


@dataclass
class Gang:
    """The job that counts on all hosts of a lab."""

    lab: Lab
    job: int

    def beats(self, host: Host) -> list[Beat]:
        """All that its rank on that host has written."""
        lines = host.inside(f"cat {TRACE}.*").check().splitlines()
        return [Beat(int(count), int(pid), where, int(at)) for count, pid, where, at in map(str.split, lines)]

    def assert_unmoved(self) -> None:
        """Each rank is the process that it was from the start, counts on, and never stood still."""
        for host in self.lab.hosts:
            before = len(self.beats(host))
            until(lambda host=host, most=before + 1: len(self.beats(host)) > most, "it counts on")  # type: ignore[misc]
            beats = self.beats(host)
            assert {(each.pid, each.host) for each in beats} == {(beats[0].pid, host.name)}
            assert [each.count for each in beats] == list(range(len(beats)))
            longest = max(b.at_ns - a.at_ns for a, b in itertools.pairwise(beats)) / 1e9
            assert longest < MOST_S, f"the rank on {host.name} stood still for {longest:.1f} s"
        job = self.lab.job(self.job)
        assert (job.state, job.attempts) == ("running", 1)


@pytest.fixture(scope="module")
def lab(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two hosts, of both releases, with something of everything that a file can ask for."""
    made = Lab(testbed, testbed.fresh(2, "12", "13", furnished=True), tmp_path_factory.mktemp("lab"))
    made.site["system"] = SYSTEM
    made.spec["identity"] |= {"users": PEOPLE, "groups": [{"name": "modellers", "gid": 20101}]}
    made.write()
    for host in made.hosts:
        host.inside(repository("gl-held", "gl-low", "gl-high", "gl-half")).check()
    try:
        made.up().ok()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def gang(lab: Lab) -> Gang:
    """A rank on each host, each on all of its GPUs."""
    job = lab.submit(
        {
            "apiVersion": "gangline/v1",
            "kind": "Job",
            "metadata": {"name": "counts"},
            "spec": {
                "nodes": len(lab.hosts),
                "tasks_per_node": 1,
                "per_node": {"gpus": 8},
                "workdir": f"/home/{USER}",
                "launch": {"kind": "ranks"},
                "command": ["python3", "-c", RANK],
            },
        }
    )
    until(lambda: lab.job(job).state == "running", "the gang runs")
    return Gang(lab, job)


def snapshot(host: Host, paths: Sequence[str]) -> str:
    """What would tell that something wrote there: content, inode, and times of change and of modification."""
    return host.inside(
        f"stat -c '%n %i %a %U %Y %z' {' '.join(paths)}; cat {' '.join(paths)} | sha256sum"
    ).check()


def agent_of(host: Host) -> str:
    """The agent's process and when it started."""
    return host.inside(f"systemctl show -p MainPID,ExecMainStartTimestampMonotonic {AGENT_UNIT}").check()


FILES = (LIMITS_FILE, LOGIN_FILE, TIME_FILE, SYSCTL_FILE, AGENT_CONFIG, AGENT_UNIT_FILE, AGENT_ARCHIVE, CA)
UNTOUCHED = ("/var/lib/dpkg/info/chrony.list", "/etc/hostname")  # a third thing, of no role's business now


def sabotage(lab: Lab, victim: Host, deeds: Sequence[Sabotage]) -> None:
    """Do all of it, and see that the look names each and nothing else."""
    for deed in deeds:
        victim.inside(deed.command).check()
    done = lab.run("drift", str(lab.file), "-o", "json").ok(3)
    items = {item["host"]: item.get("drift", []) for item in json.loads(done.out)["items"]}
    others = [host.name for host in lab.hosts if host is not victim]
    assert [items[name] for name in others] == [[] for _ in others]
    named = {
        (each["role"], each["kind"], each["name"], each["value"]): each["found"]
        for each in items[victim.name]
    }
    for deed in deeds:
        key = (deed.role, str(deed.kind), deed.name, deed.value)
        assert key in named, (deed.title, sorted(named))
        assert deed.found in named[key], (deed.title, named[key])
    assert {key[:3] for key in named} == {(deed.role, str(deed.kind), deed.name) for deed in deeds}


def heal(lab: Lab, victim: Host, roles: Sequence[str]) -> None:
    """The plan disturbs nobody; what is carried out is that, on this host alone, by these roles alone."""
    plan = lab.plan()
    assert plan.get("work", []) == []
    assert {(change["source"], change["cls"]) for change in plan["changes"]} == {("drift", "in-place")}
    lab.apply().ok()
    with lab.client() as client:
        steps = client.applies()[0].steps
    assert [(step.kind, step.nodes, step.roles) for step in steps] == [
        ("configure", [victim.name], list(roles))
    ]
    assert lab.plan().get("changes", []) == [], "a plan looks at every host as `drift` does"


@pytest.fixture(params=["h1", "h2"])
def victim(lab: Lab, gang: Gang, request: pytest.FixtureRequest) -> Iterator[Host]:
    """Each host in turn. The other one, and what is nobody's business, stay as they are; so does the gang."""
    found = next(host for host in lab.hosts if host.name == request.param)
    others = [host for host in lab.hosts if host is not found]
    before = [
        snapshot(found, UNTOUCHED),
        *((snapshot(host, (*FILES, *UNTOUCHED)), agent_of(host)) for host in others),
    ]
    gang.assert_unmoved()
    yield found
    gang.assert_unmoved()
    assert before == [
        snapshot(found, UNTOUCHED),
        *((snapshot(host, (*FILES, *UNTOUCHED)), agent_of(host)) for host in others),
    ]


def test_what_is_done_to_the_host(lab: Lab, victim: Host) -> None:
    agents = (AGENT_CONFIG, AGENT_UNIT_FILE, AGENT_ARCHIVE, CA)
    before = (snapshot(victim, agents), agent_of(victim))
    sabotage(lab, victim, OF_THE_HOST)
    heal(lab, victim, ["base"])
    assert (snapshot(victim, agents), agent_of(victim)) == before, "the other role has nothing to do"


def test_what_is_done_to_the_agent(lab: Lab, victim: Host) -> None:
    of_base = (LIMITS_FILE, LOGIN_FILE, TIME_FILE, SYSCTL_FILE)
    before = snapshot(victim, of_base)
    sabotage(lab, victim, OF_THE_AGENT)
    heal(lab, victim, [AGENT])
    assert snapshot(victim, of_base) == before
    until(lambda: lab.node(victim.name).contact == "ok", "the agent is back")


@pytest.mark.parametrize("victim", ["h1"], indirect=True)
def test_an_agent_that_is_masked(lab: Lab, victim: Host) -> None:
    sabotage(lab, victim, MASKED)
    heal(lab, victim, [AGENT])


@pytest.mark.parametrize("victim", ["h2"], indirect=True)
def test_an_agent_that_sees_no_gpus_any_more(lab: Lab, victim: Host) -> None:
    """Its node is unproved and takes nothing new; what runs there runs on."""
    blind = file(
        "blind", f"sed -i s/always/never/ PATH; {RESTART}", AGENT_CONFIG, "content", '"never"', AGENT
    )
    sabotage(lab, victim, [blind])
    until(lambda: not lab.node(victim.name).open, "the controller hears of it")
    heal(lab, victim, [AGENT])
    until(lambda: lab.node(victim.name).open, "it is proved again")


@pytest.mark.parametrize("victim", ["h2"], indirect=True)
def test_the_user_of_the_gang_removed(lab: Lab, victim: Host) -> None:
    sabotage(lab, victim, [REMOVED])
    heal(lab, victim, ["base"])
    owner = victim.inside(f"stat -c '%U:%G' {TRACE}.*; id -u {USER}").check().split()
    assert owner == [f"{USER}:{USER}", str(UID)]


@pytest.mark.parametrize("victim", ["h1"], indirect=True)
def test_the_entry_of_the_gangs_user_changed(lab: Lab, victim: Host) -> None:
    sabotage(lab, victim, MOVED)
    heal(lab, victim, ["base"])
    assert victim.inside(f"getent passwd {USER}").check().split(":")[2:6:3] == [str(UID), f"/home/{USER}"]


def test_the_gang_ends_well_even_without_its_user(lab: Lab, gang: Gang) -> None:
    """Who may run is asked at a start; what runs is a number to the node, and needs no name to end."""
    gang.assert_unmoved()
    sabotage(lab, lab.hosts[0], [REMOVED])
    for host in lab.hosts:
        host.inside(f"touch {STOP}").check()
    until(lambda: lab.job(gang.job).ended, "it ends")
    job = lab.job(gang.job)
    assert (job.state, job.attempts) == ("succeeded", 1)
    assert lab.open_nodes() == [host.name for host in lab.hosts]
    heal(lab, lab.hosts[0], ["base"])
