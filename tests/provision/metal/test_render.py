"""What `gangline render` writes: the same bytes for the same spec, readable by Ansible, and nothing secret."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.model.cluster import (
    ClusterSpec,
    Controller,
    GpuSpec,
    Host,
    Pool,
    Site,
    SiteKind,
    Ssh,
    System,
)
from orchestrator.model.errors import Conflict
from orchestrator.model.host import Desired, Item, ItemKind, RoleState
from orchestrator.planning.desired import Resolved, desired
from orchestrator.planning.desired_controller import desired_controller
from orchestrator.provision.metal import archive, render
from orchestrator.provision.metal.check import plain_roles
from orchestrator.provision.metal.controller_archive import ControllerArchive

AGENT = archive.Archive(b"PK", "ab" * 32)
SITE = Site(
    "hall",
    SiteKind.METAL,
    ssh=Ssh(user="ops", jump="bastion", port=2222),
    system=System(packages=(("jq", "1.6"),), time_servers=("ntp.example.org",)),
    hosts=(Host("n1", "10.0.0.1"), Host("n2", "10.0.0.2")),
)
POOLS = (Pool("gpu", "hall", ("n1", "n2"), gpu=GpuSpec("H100", 8)), Pool("cpu", "hall", ("n3",)))
SPEC = ClusterSpec("atlas", sites=(SITE,), pools=POOLS)


def rendering(spec: ClusterSpec = SPEC, **more: Any) -> render.Rendering:
    resolved = Resolved(AGENT.sha256, "https://atlas:7443", "/etc/gangline/ca.pem", "1")
    return render.Rendering(spec, {pool.name: desired(spec, pool, resolved) for pool in spec.pools}, **more)


def loaded(files: render.Files, path: str) -> Any:
    class Loader(yaml.SafeLoader):
        """Takes Ansible's own tag as the text that it marks."""

    Loader.add_constructor("!unsafe", lambda _, node: str(node.value))
    return yaml.load(files[path], Loader)


def test_same_spec_gives_the_same_bytes_in_a_stable_order() -> None:
    first, second = render.render(rendering(), AGENT), render.render(rendering(), AGENT)

    assert first == second
    assert list(first) == sorted(first)


def test_every_file_says_in_its_first_line_that_it_is_generated() -> None:
    files = render.render(rendering(host_vars={"n1": {"gangline_rack": "r1"}}), AGENT)

    texts = {path: data.decode() for path, data in files.items() if not path.startswith("files/")}
    assert {text.splitlines()[0] for text in texts.values()} == {
        "# Made by `gangline render` for the cluster atlas: changes made here are lost."
    }


def test_inventory_has_every_host_in_the_group_of_its_pool() -> None:
    groups = loaded(render.render(rendering(), AGENT), "inventory.yml")["all"]["children"]

    nodes = groups.pop(render.NODES)
    assert {group: list(each["hosts"]) for group, each in groups.items()} == {
        "gpu": ["n1", "n2"],
        "cpu": ["n3"],
    }
    assert nodes == {"children": {"gpu": {}, "cpu": {}}}
    assert groups["gpu"]["hosts"]["n2"] == {"gangline_address": "10.0.0.2"}
    assert groups["cpu"]["hosts"]["n3"] == {"gangline_address": "n3"}, "no inventory line: by its name"


def hosted(name: str, tmp_path: Path) -> render.Hosted:
    """The controller's own host, with an archive of three bytes."""
    (tmp_path / "c.pyz").write_bytes(b"PK!")
    spec = replace(SPEC, controller=Controller("https://n1:7443", host=name))
    host = Host(name, "10.0.0.9")
    wanted = desired_controller(replace(spec, sites=(replace(SITE, hosts=(host,)),)), "cd" * 32)
    return render.Hosted(host, SITE, wanted, ControllerArchive(tmp_path / "c.pyz", "cd" * 32))


@pytest.mark.parametrize("name", ["c1", "n1"])
def test_the_controllers_host_has_a_playbook_of_its_own_whether_it_is_a_node_or_not(
    name: str, tmp_path: Path
) -> None:
    own = hosted(name, tmp_path)
    files = render.render(rendering(hosted=own), AGENT)

    groups = loaded(files, "inventory.yml")["all"]["children"]
    assert groups[render.CONTROLLER] == {"hosts": {name: {"gangline_address": "10.0.0.9"}}}
    assert groups[render.NODES] == {"children": {"gpu": {}, "cpu": {}}}
    found = loaded(files, f"group_vars/{render.CONTROLLER}.yml")
    assert [{"role": "controller", "items": found["gangline_controller_items"]}] == plain_roles(own.desired)
    assert found["ansible_user"] == "ops"
    assert files["files/gangline-controller.pyz"] == b"PK!"
    assert loaded(files, "controller.yml")[0]["import_playbook"].endswith("stacks/metal/controller.yml")


def test_without_a_host_of_its_own_nothing_is_said_of_a_controller() -> None:
    assert [path for path in render.render(rendering(), AGENT) if "controller" in path] == []


def test_group_vars_are_the_desired_items() -> None:
    wanted = rendering()

    items = loaded(render.render(wanted, AGENT), "group_vars/gpu.yml")["gangline_items"]

    assert [{"role": role, "items": each} for role, each in items.items()] == plain_roles(
        wanted.desired["gpu"]
    )


@pytest.mark.parametrize(
    "text", ["{{ lookup('pipe', 'id') }}", "{% if x %}", "{# note #}", "a: {{ b }}\nno\n"]
)
def test_what_looks_like_a_template_is_marked_as_text(text: str) -> None:
    item = Item(
        ItemKind.FILE, "/etc/x", (("content", text), ("group", "root"), ("mode", "0644"), ("owner", "root"))
    )
    wanted = replace(
        rendering(), desired=dict.fromkeys(("gpu", "cpu"), Desired((RoleState("base", (item,)),)))
    )

    files = render.render(wanted, AGENT)

    assert b"content: !unsafe" in files["group_vars/gpu.yml"]
    assert loaded(files, "group_vars/gpu.yml")["gangline_items"]["base"][0]["values"]["content"] == text


def test_nothing_of_the_spec_is_a_template_on_this_machine() -> None:
    odd = "/k/{{ lookup('pipe', 'id') }}"
    site = SPEC.sites[0]
    hosts = tuple(replace(host, address="{{ x }}") for host in site.hosts)
    spec = replace(SPEC, sites=(replace(site, ssh=replace(site.ssh, key=f"file:{odd}"), hosts=hosts),))

    by_hand = render.render(rendering(spec), AGENT)
    config = {"hall": Path(f"{odd}/config")}
    own = render.render(rendering(spec, ssh_configs=config), AGENT)

    assert b"ansible_ssh_private_key_file: !unsafe" in by_hand["group_vars/gpu.yml"]
    assert b"ansible_ssh_common_args: !unsafe" in own["group_vars/gpu.yml"]
    assert b"gangline_address: !unsafe" in own["inventory.yml"]
    assert b"ansible_host: '{{ gangline_address }}'" in by_hand["group_vars/gpu.yml"]


@pytest.mark.parametrize(
    "text", ["no", "0644", "1e3", "22:30", "null", "~", " lead", "trail \n", "#", "é\n", "tab\t\n"]
)
def test_every_text_comes_back_as_it_was(text: str) -> None:
    item = Item(ItemKind.SYSCTL, "k", (("value", text),))
    wanted = replace(
        rendering(), desired=dict.fromkeys(("gpu", "cpu"), Desired((RoleState("base", (item,)),)))
    )

    found = loaded(render.render(wanted, AGENT), "group_vars/gpu.yml")["gangline_items"]["base"][0]

    assert found["values"]["value"] == text


@pytest.mark.parametrize("name", ["all", "ungrouped", "localhost", "n1"])
def test_a_pool_with_a_name_of_ansibles_or_of_a_host_gets_a_group_of_its_own(name: str) -> None:
    spec = replace(SPEC, pools=(replace(POOLS[0], name=name),))

    files = render.render(rendering(spec), AGENT)

    assert f"group_vars/pool_{name}.yml" in files
    assert list(loaded(files, "inventory.yml")["all"]["children"]) == [f"pool_{name}", render.NODES]


def test_ssh_is_ganglines_own_where_it_has_one_and_the_specs_by_hand() -> None:
    own = render.render(rendering(ssh_configs={"hall": Path("/state/ssh/hall/config")}), AGENT)
    by_hand = render.render(rendering(), AGENT)

    assert loaded(own, "group_vars/gpu.yml")["ansible_ssh_common_args"] == "-F /state/ssh/hall/config"
    assert "ansible_host" not in loaded(own, "group_vars/gpu.yml"), "names are the config's to resolve"
    found = loaded(by_hand, "group_vars/gpu.yml")
    assert found["ansible_ssh_common_args"] == "-J bastion"
    assert (found["ansible_user"], found["ansible_port"]) == ("ops", 2222)


def test_local_pools_are_nobodys_business_here() -> None:
    local = Site("here", SiteKind.LOCAL)
    spec = replace(SPEC, sites=(SITE, local), pools=(*POOLS, Pool("toy", "here", ("t1",))))

    assert "group_vars/toy.yml" not in render.render(rendering(spec), AGENT)


def test_folder_has_what_was_rendered_and_loses_what_is_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    render.write(folder, render.render(rendering(), AGENT))
    (folder / "notes.txt").write_text("mine")
    spec = replace(SPEC, pools=POOLS[:1])

    files = render.render(rendering(spec), AGENT)
    render.write(folder, files)

    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found.pop("notes.txt") == b"mine"
    found.pop(render.MANIFEST)
    assert found == files
    assert not any(stat.S_IMODE(path.stat().st_mode) & 0o022 for path in folder.rglob("*")), (
        "for us alone to write"
    )


def test_rendering_again_touches_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    files = render.render(rendering(), AGENT)
    render.write(folder, files)
    before = {path: path.stat().st_ino for path in folder.rglob("*") if path.name != render.MANIFEST}

    render.write(folder, files)

    assert {path: path.stat().st_ino for path in folder.rglob("*") if path.name != render.MANIFEST} == before


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("mine")

    with pytest.raises(Conflict, match="not written"):
        render.write(tmp_path, render.render(rendering(), AGENT))

    assert [path.name for path in tmp_path.iterdir() if path.name != "h"] == ["site.yml"]


def test_a_manifest_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    victim = tmp_path / "victim"
    victim.write_text("mine")
    render.write(folder, render.render(rendering(), AGENT))
    (folder / render.MANIFEST).write_text(f"# head\n../victim\n{victim}\ninventory.yml\n")

    render.write(folder, render.render(rendering(), AGENT))

    assert victim.read_text() == "mine"
