"""A folder that `ansible-playbook` runs on, from a spec and what its pools' hosts must have.

Comes in: the spec, a `Desired` per pool, the ssh files of the sites, the agent's archive. Goes out: files by their path
in the folder, and the folder itself. Called by: `gangline render` (for people), `ansible.py` (for apply).

    inventory.yml         every host of every metal pool, in a group per pool
    group_vars/POOL.yml   the items of each role; the same for all hosts of the pool
    host_vars/HOST.yml    only where a host differs
    site.yml accept.yml drain.yml   import the playbooks that ship with Gangline
    ansible.cfg module_utils/ files/gangline-agent.pyz
    controller.yml group_vars/gangline_controller.yml files/gangline-controller.pyz   where the controller has a host

All comes from the spec and nothing from facts of hosts, so one host in `--limit` needs no other. Equal input gives
equal bytes. Secrets are not in here: a join token is given to a run (see `ansible.py`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from orchestrator import bundled
from orchestrator.model.cluster import ClusterSpec, Emulate, Host, Pool, Site, SiteKind
from orchestrator.model.errors import Conflict
from orchestrator.model.host import Desired
from orchestrator.planning.desired import hosts_of
from orchestrator.provision.metal import archive, controller_archive
from orchestrator.provision.metal.check import plain_roles
from orchestrator.provision.metal.controller_archive import ControllerArchive

PLAYBOOKS: tuple[str, ...] = ("site.yml", "accept.yml", "drain.yml")
CONTROLLER_PLAYBOOK = "controller.yml"
NODES, CONTROLLER = "gangline_nodes", "gangline_controller"  # groups of the inventory besides those of pools
MANIFEST = (
    ".rendered"  # the files of the last rendering, so that the next one takes away what it no longer has
)
FORKS = 32  # hosts at once: each is a process of Ansible here, of about 60 MB
CONNECT_S = 15
SSH_PORT = 22
PYTHON = "/usr/bin/python3"
RESERVED = frozenset(
    {"all", "ungrouped", "localhost", NODES, CONTROLLER}
)  # names that mean something else to Ansible

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Hosted:
    """The controller's own host, what it is to have, and the file that is brought to it."""

    host: Host
    site: Site
    desired: Desired
    archive: ControllerArchive


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a folder is made from. By pool: `desired`, and `letting_go`, what is wanted no more.

    `ssh_configs`: by site, what OpenSSH reads instead of the person's own config; where there is none, it reads that.
    `ca`: a certificate in PEM that hosts keep at `ca_path`. `controller_url`: an accepted agent is connected with it.
    """

    spec: ClusterSpec
    desired: Mapping[str, Desired]
    letting_go: Mapping[str, Desired] = field(default_factory=dict)
    ssh_configs: Mapping[str, Path] = field(default_factory=dict)
    host_vars: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ca: str = ""
    ca_path: str = ""
    controller_url: str = ""
    hosted: Hosted | None = None


def render(wanted: Rendering, agent: archive.Archive) -> Files:
    """All files of the folder, by their path in it, sorted."""
    head = f"# Made by `gangline render` for the cluster {wanted.spec.name}: changes made here are lost.\n"
    files: dict[str, str] = {
        "inventory.yml": _yaml(_inventory(wanted)),
        "group_vars/all.yml": _yaml(_all_vars(wanted)),
        "ansible.cfg": _config(),
        "module_utils/check_host.py": Path(__file__).with_name("check_host.py").read_text(),
    }
    for pool in (
        metal_pools(wanted.spec) if wanted.desired else ()
    ):  # for the controller's host alone, there is none
        files[f"group_vars/{group_of(wanted.spec, pool)}.yml"] = _yaml(_pool_vars(wanted, pool))
    for host, values in wanted.host_vars.items():
        files[f"host_vars/{host}.yml"] = _yaml(dict(values))
    playbooks = PLAYBOOKS
    if wanted.hosted is not None:
        files[f"group_vars/{CONTROLLER}.yml"] = _yaml(_controller_vars(wanted, wanted.hosted))
        playbooks = (*PLAYBOOKS, CONTROLLER_PLAYBOOK)
    for name in playbooks:
        files[name] = _yaml([{"import_playbook": str(bundled.find("stacks", "metal", name))}])
    made = {path: (head + text).encode() for path, text in files.items()}
    if wanted.hosted is not None:
        made[f"files/{controller_archive.NAME}"] = wanted.hosted.archive.path.read_bytes()
    made[f"files/{archive.NAME}"] = agent.data
    return dict(sorted(made.items()))


def metal_pools(spec: ClusterSpec) -> list[Pool]:
    """Pools whose hosts Gangline configures over SSH, in the spec's order."""
    return [pool for pool in spec.pools if spec.site_of(pool).kind is SiteKind.METAL]


def group_of(spec: ClusterSpec, pool: Pool) -> str:
    """The Ansible group of a pool: its own name unless that is a host's or Ansible's."""
    taken = pool.name in RESERVED or any(pool.name in other.nodes for other in spec.pools)
    return f"pool_{pool.name}" if taken else pool.name


# --- variables -------------------------------------------------------------------------------------------------------


def _inventory(wanted: Rendering) -> dict[str, Any]:
    groups: dict[str, Any] = {
        group_of(wanted.spec, pool): {
            "hosts": {
                host.name: {"gangline_address": _unsafe(host.address or host.name)}
                for host in hosts_of(wanted.spec, pool)
            }
        }
        for pool in metal_pools(wanted.spec)
    }
    groups[NODES] = {"children": {name: {} for name in groups}}
    if (hosted := wanted.hosted) is not None:
        address = _unsafe(hosted.host.address or hosted.host.name)
        groups[CONTROLLER] = {"hosts": {hosted.host.name: {"gangline_address": address}}}
    return {"all": {"children": groups}}


def _all_vars(wanted: Rendering) -> dict[str, Any]:
    values: dict[str, Any] = {
        "gangline_cluster": wanted.spec.name,
        "ansible_python_interpreter": PYTHON,
    }
    if wanted.controller_url:
        values["gangline_accept_url"] = wanted.controller_url
    if wanted.ca_path:
        values |= {"gangline_ca": wanted.ca, "gangline_ca_path": wanted.ca_path}
    return {name: _unsafe(value) for name, value in values.items()}


def _pool_vars(wanted: Rendering, pool: Pool) -> dict[str, Any]:
    values: dict[str, Any] = {"gangline_pool": pool.name, **_way_in(wanted, wanted.spec.site_of(pool))}
    if pool.gpu is not None and pool.gpu.emulate is not Emulate.ALWAYS:
        values["gangline_accept_gpus"] = pool.gpu.count
    values["gangline_items"] = _items(wanted.desired[pool.name])
    if pool.name in wanted.letting_go:
        values["gangline_let_go"] = _items(wanted.letting_go[pool.name])
    return values


def _controller_vars(wanted: Rendering, hosted: Hosted) -> dict[str, Any]:
    (items,) = _items(hosted.desired).values()
    return {**_way_in(wanted, hosted.site), "gangline_controller_items": items}


def _way_in(wanted: Rendering, site: Site) -> dict[str, Any]:
    root = {"ansible_become": False} if site.ssh.user == "root" else {}
    return {**_ssh_vars(site, wanted.ssh_configs.get(site.name)), **root}


def _ssh_vars(site: Site, config: Path | None) -> dict[str, Any]:
    """With Gangline's own config of the site, or, for people by hand, with what the spec says on top of theirs."""
    if config is not None:
        return {"ansible_ssh_common_args": _unsafe(f"-F {shlex.quote(str(config))}")}
    values: dict[str, Any] = {}
    values |= {"ansible_user": site.ssh.user} if site.ssh.user else {}
    values |= {"ansible_port": site.ssh.port} if site.ssh.port != SSH_PORT else {}
    values |= {"ansible_ssh_common_args": f"-J {shlex.quote(site.ssh.jump)}"} if site.ssh.jump else {}
    if site.ssh.key.startswith("file:"):
        values["ansible_ssh_private_key_file"] = site.ssh.key.removeprefix("file:")
    return {"ansible_host": "{{ gangline_address }}"} | {name: _unsafe(each) for name, each in values.items()}


def _items(desired: Desired) -> dict[str, Any]:
    return {role["role"]: [_unsafe(item) for item in role["items"]] for role in plain_roles(desired)}


def _config() -> str:
    return f"""[defaults]
inventory = inventory.yml
roles_path = {bundled.find("roles")}
module_utils = module_utils
forks = {FORKS}
timeout = {CONNECT_S}
gathering = explicit
host_key_checking = true
force_valid_group_names = ignore
localhost_warning = false
retry_files_enabled = false
nocows = true

[ssh_connection]
pipelining = true
retries = 2
ssh_args = -o BatchMode=yes
"""


# --- YAML ------------------------------------------------------------------------------------------------------------


class Unsafe(str):
    """A text that Ansible must take as it is, braces and all."""

    __slots__ = ()


class _Dumper(yaml.CSafeDumper):
    """Blocks for texts of several lines."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    tag = "!unsafe" if isinstance(text, Unsafe) else "tag:yaml.org,2002:str"
    return dumper.represent_scalar(tag, str(text), style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(Unsafe, _represent_text)


def _unsafe(value: Any) -> Any:
    """The same with every text that has what Jinja would take for its own marked as unsafe."""
    if isinstance(value, dict):
        return {key: _unsafe(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_unsafe(each) for each in value]
    if isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#")):
        return Unsafe(value)
    return value


def _yaml(value: Any) -> str:
    return "---\n" + yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20, default_flow_style=False
    )


# --- the folder ------------------------------------------------------------------------------------------------------


def write(folder: Path, files: Files) -> None:
    """Make the folder hold these files: each is replaced whole, and those of an earlier rendering that are no more are
    taken away. Files that people have put there stay. Conflict if the folder was not made by this."""
    before = _manifest(folder)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    _replace(folder / MANIFEST, _manifest_text(sorted({*before, *files})), 0o644)
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _replace(target, data, 0o644)
    for path in sorted(set(before) - set(files)):
        (folder / path).unlink(missing_ok=True)
    _replace(folder / MANIFEST, _manifest_text(sorted(files)), 0o644)


def _manifest(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    if not (folder / MANIFEST).exists():
        if any(folder.iterdir()):
            raise Conflict(
                "render.foreign-folder",
                f"{folder} holds files that `gangline render` has not written",
                "name an empty folder, or one of an earlier rendering",
            )
        return []
    lines = (folder / MANIFEST).read_text().splitlines()[1:]
    return [line for line in lines if line and ".." not in PurePosixPath(line).parts and line[0] != "/"]


def _manifest_text(paths: list[str]) -> bytes:
    return "\n".join(["# The files of this folder that `gangline render` has written.", *paths, ""]).encode()


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Write a file that nobody ever sees in part; one that is the same already stays."""
    if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
        path.chmod(mode)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
