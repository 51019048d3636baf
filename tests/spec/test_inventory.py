"""Ansible inventories: what is read from them, and each fault once, at its place in that file.

Comes in: inventories, alone and named by a cluster. Goes out: proof of hosts, places, and uniqueness across the hosts.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator import spec
from orchestrator.spec.inventory import expand_range, read_inventory
from tests.spec.said import HEAD, lines, write

CLUSTER = HEAD + "sites: [{name: hall, kind: metal, inventory: hosts.yml}]\n"


def faults(text: str) -> list[str]:
    found = read_inventory(dedent(text)).faults
    return [f"{one.place.line}:{one.place.column} {one.problem.code}" for one in found]


def test_hosts_get_the_values_of_all_their_groups() -> None:
    inventory = read_inventory(
        dedent("""\
        all:
          vars: {free: [1, null]}
          children:
            h100:
              hosts:
                h-01: {ansible_host: 10.0.0.1, mac: "AA:00:00:00:00:01", rack: r1, ansible_become: true}
                h-[02:03]:
            bmcs:
              children: {h100: }
              hosts:
                h-[01:03]: {bmc_user: root, bmc_password: "env:BMC"}
        """)
    )
    assert inventory.faults == ()
    assert [host.name for host in inventory.hosts] == ["h-01", "h-02", "h-03"]
    first, second = inventory.hosts[:2]
    assert (first.address, first.mac, first.rack) == ("10.0.0.1", "aa:00:00:00:00:01", "r1")
    assert (second.address, second.bmc_user, second.bmc_password) == ("", "root", "env:BMC")
    assert first.groups == ("h100", "bmcs")


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("n[1:3]", ["n1", "n2", "n3"]),
        ("n[08:10]", ["n08", "n09", "n10"]),
        ("n[1:9:4]", ["n1", "n5", "n9"]),
        ("r[a:c]-n[1:2]", ["ra-n1", "ra-n2", "rb-n1", "rb-n2", "rc-n1", "rc-n2"]),
        ("plain.example.org", ["plain.example.org"]),
    ],
)
def test_ranges_are_those_of_ansible(pattern: str, wanted: list[str]) -> None:
    assert expand_range(pattern) == wanted


@pytest.mark.parametrize(
    "pattern",
    [
        "n[3:1]",
        "n[1-3]",
        "n[a:3]",
        "n[01:100]",
        "n[1:999999999]",
        "n[1:999][1:999]",
        "-n",
        "",
        "a b",
        "n[z:a]",
        "n[1:2:0]",
    ],
)
def test_what_is_no_range_has_a_reason(pattern: str) -> None:
    assert isinstance(expand_range(pattern), str)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("§- a\n", "spec.wrong-type"),
        ("all: §5\n", "spec.wrong-type"),
        ("all: {§host: {a: }}\n", "spec.unknown-field"),
        ("all: {hosts: §[a]}\n", "spec.wrong-type"),
        ("all: {hosts: {a: §5}}\n", "spec.wrong-type"),
        ("all: {hosts: {a: {§mca: x}}}\n", "spec.unknown-field"),
        ("all: {hosts: {a: {mac: §00:11:22:33:44:5}}}\n", "spec.bad-mac"),
        ("all: {hosts: {a: {bmc_password: §hunter2}}}\n", "spec.bad-secret"),
        ("all: {hosts: {a: {ansible_host: §'a b'}}}\n", "spec.bad-address"),
        ("all: {hosts: {a: {rack: §12}}}\n", "spec.wrong-type"),
        ("all: {hosts: {§'n[3:1]': }}\n", "spec.bad-hostlist"),
        ("all: {hosts: {a: , §a: }}\n", "spec.duplicate-key"),
        ("all: {hosts: {a: {rack: §!!str 12}}}\n", "spec.yaml-tag"),
        ("all: {children: {§-x: {}}}\n", "spec.bad-name"),
        # --- what must be one host's own ---
        (
            "all: {hosts: {a: {ansible_host: 10.0.0.1}, b: {ansible_host: §10.0.0.1}}}\n",
            "spec.duplicate-address",
        ),
        ("all: {hosts: {a: {ansible_host: 10.0.0.1}, b: {bmc: §10.0.0.1}}}\n", "spec.duplicate-address"),
        (
            "all: {hosts: {a: {mac: '02:00:00:00:00:0a'}, b: {mac: §'02:00:00:00:00:0A'}}}\n",
            "spec.duplicate-address",
        ),
        ("all: {hosts: {'n[1:9]': {ansible_host: §10.0.0.1}}}\n", "spec.duplicate-address"),
        ("all: {hosts: {a: {bmc: 'fe80::1'}, b: {bmc: §'fe80:0::1'}}}\n", "spec.duplicate-address"),
        ("a: {hosts: {x: {rack: r1}}}\nb: {hosts: {x: {rack: §r2}}}\n", "spec.host-conflict"),
        ("a: {hosts: {x: {rack: r1}}}\nb: {hosts: {x: {rack: r1}}}\n", ""),
        (
            "all: {hosts: {a: {ansible_host: 10.0.0.1}, b: {bmc: §'::ffff:10.0.0.1'}}}\n",
            "spec.duplicate-address",
        ),
        (
            "all: {hosts: {a: {bmc: 'fe80:0::00aa:0001'}, b: {bmc: §'fe80::aa:1'}}}\n",
            "spec.duplicate-address",
        ),
        ("all: {hosts: {a: {ansible_host: §256.0.0.1}}}\n", "spec.bad-address"),
        ("all: {hosts: {a: {ansible_host: 255.249.199.99}}}\n", ""),
        ("all: {hosts: {a: {ansible_host: N1.lan}, b: {ansible_host: §n1.LAN}}}\n", "spec.duplicate-address"),
        ("all: {hosts: {a: {ansible_host: 10.0.0.7, bmc: §10.0.0.7}}}\n", "spec.duplicate-address"),
        ("all: {hosts: {§a: , b: {ansible_host: a}}}\n", "spec.duplicate-address"),
        ("all: {hosts: {a: {ansible_host: b}, §b: {rack: r1}}}\n", "spec.duplicate-address"),
        ("all: {hosts: {a: {ansible_host: b}, b: {ansible_host: a}}}\n", ""),
        # --- addresses that are none, or another one to each program
        ("all: {hosts: {a: {ansible_host: §10.0.01.1}}}\n", "spec.bad-address"),
        ("all: {hosts: {a: {bmc: §300.1.1.1}}}\n", "spec.bad-address"),
        ("all: {hosts: {a: {ansible_host: §10.1.1}}}\n", "spec.bad-address"),
        ("all: {hosts: {a: {ansible_host: §'fe80:::1'}}}\n", "spec.bad-address"),
        ("all: {hosts: {a: {ansible_host: §10.0.0.0/24}}}\n", "spec.bad-address"),
        # --- what would be passed over
        ("all: {hosts: {a: {§ansible_hots: 10.0.0.1}}}\n", "spec.unknown-field"),
        ("all: {hosts: {a: {§ansible_hosts: 10.0.0.1}}}\n", "spec.unknown-field"),
        ("all: {hosts: {a: {ansible_pipelining: true}}}\n", ""),
        ("all: {vars: {§bmc_user: root}, hosts: {a: }}\n", "spec.no-effect"),
        ("all: {vars: {§ansible_host: '{{ inventory_hostname }}.lan'}, hosts: {a: }}\n", "spec.no-effect"),
        ("all: {vars: §[a], hosts: {a: }}\n", "spec.wrong-type"),
        ("all: {hosts: {a: {bmc_password: §!vault 'x'}}}\n", "spec.yaml-tag"),
        ("§$ANSIBLE_VAULT;1.1;AES256\n6162\n", "spec.wrong-type"),
        ("§n1 ansible_host=10.0.0.1\n", "spec.wrong-type"),
        ("all: {hosts: {a: , b: }}\n§all: {hosts: {c: }}\n", "spec.duplicate-key"),
    ],
)
def test_each_fault_is_said_once_at_its_place(text: str, code: str) -> None:
    """The sign § stands in front of the fault."""
    before = text.partition("§")[0]
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
    assert faults(text.replace("§", "")) == ([f"{place} {code}"] if code else [])


def test_a_second_use_names_the_first_host_and_its_line() -> None:
    (fault,) = read_inventory(
        "all:\n  hosts:\n    a: {mac: '02:00:00:00:00:01'}\n    b: {mac: '02:00:00:00:00:01'}\n"
    ).faults
    assert fault.problem.message == "MAC address 02:00:00:00:00:01 belongs to host a already (line 3)"


def test_errors_stand_in_the_file_where_they_are(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        cluster_yaml=CLUSTER + "pools: [{name: p, site: hall, nodes: 'n[1-3]', zz: 1}]\n",
        hosts_yml="all: {hosts: {'n[1:2]': {rak: r1}}}\n",
    )
    errors = spec.validate_file(path).errors
    assert [(Path(one.file).name, one.line, one.code) for one in errors] == [
        ("cluster.yaml", 5, "spec.unknown-field"),
        ("hosts.yml", 1, "spec.unknown-field"),
    ]
    assert errors[1].file == str(tmp_path / "hosts.yml")
    assert "did you mean 'rack'?" in spec.render(errors)


def test_pools_name_hosts_of_the_inventory(tmp_path: Path) -> None:
    pools = "pools: [{name: p, site: hall, nodes: 'n[1-4]'}]\n"
    path = write(tmp_path, cluster_yaml=CLUSTER + pools, hosts_yml="all: {hosts: {'n[1:2]': }}\n")
    errors = spec.load_cluster(path).errors
    assert lines(errors) == ["5:38 pools[p].nodes spec.node-unknown"]
    assert errors[0].message == "node n3 and 1 more is not in hosts.yml"
    (tmp_path / "hosts.yml").write_text("all: {hosts: {'n[1:4]': {rack: r1}}}\n")
    cluster = spec.load_cluster(path).cluster
    assert cluster is not None
    assert [host.name for host in cluster.site("hall").hosts] == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("inventory", ["none.yml", ".", "/dev/zero"])
def test_an_inventory_that_cannot_be_read_is_one_error_at_the_spec(tmp_path: Path, inventory: str) -> None:
    text = CLUSTER.replace("hosts.yml", inventory) + "pools: [{name: p, site: hall, nodes: 'n[1-4]'}]\n"
    errors = spec.load_cluster(write(tmp_path, cluster_yaml=text)).errors
    assert [one.path for one in errors] == ["sites[hall].inventory"]


def test_an_inventory_of_two_sites_is_read_and_told_once(tmp_path: Path) -> None:
    sites = "sites: [{name: a, kind: metal, inventory: hosts.yml}, {name: b, kind: metal, inventory: hosts.yml}]\n"
    path = write(
        tmp_path, cluster_yaml=HEAD + sites + "pools: []\n", hosts_yml="all: {hosts: {n1: {x: 1}}}\n"
    )
    assert [one.code for one in spec.load_cluster(path).errors] == ["spec.unknown-field"]


def test_the_ini_form_is_pointed_to_what_turns_it_into_yaml(tmp_path: Path) -> None:
    path = write(
        tmp_path, cluster_yaml=CLUSTER + "pools: []\n", hosts_yml="[gpu]\nn1 ansible_host=10.0.0.1\n"
    )
    (error,) = spec.load_cluster(path).errors
    assert (error.code, error.line) == ("spec.yaml-syntax", 2)
    assert "ansible-inventory -i FILE --list --yaml" in error.hint


def test_vaults_are_answered_with_references() -> None:
    for text in ("all: {hosts: {a: {bmc_password: !vault x}}}\n", "$ANSIBLE_VAULT;1.1;AES256\n6162\n"):
        (fault,) = read_inventory(text).faults
        assert "vaults are not opened" in fault.problem.hint
        assert "env:NAME" in fault.problem.hint


SSH = "sites: [{name: hall, kind: metal, inventory: hosts.yml, ssh: {user: ops, port: 2222, key: 'file:/k/a'}}]\n"


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("ansible_user: ops", ""),
        ("ansible_user: root", "their site's ssh.user, which is ops"),
        ("ansible_ssh_user: root", "their site's ssh.user, which is ops"),
        ("ansible_port: 2222", ""),
        ("ansible_port: '2222'", ""),
        ("ansible_port: 22", "their site's ssh.port, which is 2222"),
        ("ansible_ssh_private_key_file: /k/a", ""),
        ("ansible_ssh_private_key_file: /k/b", "their site's ssh.key, which is file:/k/a"),
        ("ansible_ssh_private_key_file: ~nobody-of-that-name/k", "their site's ssh.key, which is file:/k/a"),
        ("ansible_ssh_common_args: -J bastion", "their site's ssh.jump, which says nothing"),
        ("ansible_ssh_host: 10.0.0.1", "write it as ansible_host"),
        ("ansible_connection: ssh", ""),
        ("ansible_connection: local", "metal sites are reached by OpenSSH"),
        ("ansible_password: hunter2", "logs in with a key"),
    ],
)
@pytest.mark.parametrize("place", ["line", "vars"])
def test_another_way_to_a_host_than_the_sites_is_not_passed_over(
    tmp_path: Path, line: str, advice: str, place: str
) -> None:
    hosts = (
        f"all: {{hosts: {{n1: {{{line}}}}}}}\n"
        if place == "line"
        else f"all: {{vars: {{{line}}}, hosts: {{n1: }}}}\n"
    )
    errors = spec.load_cluster(
        write(tmp_path, cluster_yaml=HEAD + SSH + "pools: []\n", hosts_yml=hosts)
    ).errors
    assert [one.code for one in errors] == (["spec.no-effect"] if advice else [])
    assert all(advice in one.hint and one.file == str(tmp_path / "hosts.yml") for one in errors)
    assert all("hunter2" not in one.message + one.hint for one in errors)


def test_a_site_without_ssh_of_its_own_says_no_user(tmp_path: Path) -> None:
    hosts = "all: {hosts: {n1: {ansible_user: root, ansible_port: 22}}}\n"
    (error,) = spec.load_cluster(
        write(tmp_path, cluster_yaml=CLUSTER + "pools: []\n", hosts_yml=hosts)
    ).errors
    assert error.path == "all.hosts.n1.ansible_user"
    assert error.hint == "hosts are reached by their site's ssh.user, which says nothing"


TWO = (
    "sites: [{name: a, kind: metal, inventory: a.yml}, {name: b, kind: metal, inventory: b.yml}]\npools: []\n"
)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "{n1: {ansible_host: 10.0.0.1}}",
            "{m1: {ansible_host: 10.0.0.1}}",
            "address 10.0.0.1 belongs to host n1",
        ),
        ("{n1: {bmc: 10.0.0.1}}", "{m1: {ansible_host: 10.0.0.1}}", "address 10.0.0.1 belongs to host n1"),
        (
            "{n1: {mac: '02:00:00:00:00:0a'}}",
            "{m1: {mac: '02:00:00:00:00:0A'}}",
            "MAC address 02:00:00:00:00:0a belongs to host n1",
        ),
        ("{n1: }", "{m1: {ansible_host: n1}}", "address n1 belongs to host n1"),
        ("{n1: {ansible_host: 10.0.0.1}}", "{n1: {ansible_host: 10.0.0.1}}", ""),
        ("{n1: {ansible_host: 10.0.0.1}}", "{m1: {ansible_host: 10.0.0.2}}", ""),
    ],
)
def test_what_is_one_hosts_own_is_so_over_all_sites(
    tmp_path: Path, first: str, second: str, message: str
) -> None:
    inventories = {"a_yml": f"all: {{hosts: {first}}}\n", "b_yml": f"all: {{hosts: {second}}}\n"}
    errors = spec.load_cluster(write(tmp_path, cluster_yaml=HEAD + TWO, **inventories)).errors
    assert [one.code for one in errors] == (["spec.duplicate-address"] if message else [])
    for error in errors:
        assert error.message == f"{message} already ({tmp_path / 'a.yml'}, line 1)"
        assert error.file == str(tmp_path / "b.yml")


def test_a_missing_inventory_is_looked_for_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (error,) = spec.load_cluster(write(tmp_path, cluster_yaml=CLUSTER + "pools: []\n")).errors
    assert error.hint == "check the path; it is relative to the folder of the file that names it"
