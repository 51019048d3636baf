"""What a host has, compared with what it must have: this one file runs on the host and stays nowhere.

Comes in: a payload with the items of each role (see `look`). Goes out: one JSON object with every difference, a digest
of what was seen, and a few facts of the host. Called by: `check.py`, which sends this file over SSH each time, and the
Ansible module `gangline_items`, which heals what this finds: so the check and the roles never disagree.

Standard library only, Python 3.9 or newer, reads and never writes; two child processes at most (dpkg-query, systemctl).

Every looker answers {name: {key: text}}, with the keys of an item's values; a name that is absent on the host is left
out. Keys that no item has to name are checked too, against IMPLIED.
"""

from __future__ import annotations

import grp
import hashlib
import itertools
import json
import os
import platform
import pwd
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Plain = dict[str, Any]  # an item or a drift as plain values
Found = dict[str, dict[str, str]]

IMPLIED: dict[str, dict[str, str]] = {
    "package": {"status": "installed"},
    "unit": {"overrides": "", "runs": "what is on disk"},
    "user": {"group": "yes"},
    "archive": {"type": "file", "mode": "0644", "owner": "root", "group": "root"},
}
ANY_IF_EMPTY = {("package", "version"), ("user", "uid")}
VERSION_PATHS = ("/usr/lib/", "/lib/")  # what packages ship, as against what people put in /etc and /run
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
MOST_TEXT = 160  # characters of a value in a drift


def look(payload: Plain) -> Plain:
    """Compare the host with `payload`: {"node", "address", "roles": [{"role", "items": [{"kind", "name",
    "values": {key: text}, "restarts": [unit], "reboots": bool}]}]}. Returns {"drift", "notes", "digest", "facts"}."""
    host = Host(payload)
    drift: list[Plain] = []
    for role in host.roles:
        for item in role["items"]:
            drift += [{"role": role["role"], **each} for each in host.compare(item)]
    reasons = host.reboot_reasons()
    if reasons:  # no drift: no role heals it, and whether and when is for the plan
        host.notes.append(f"a reboot is needed: {'; '.join(reasons)}")
    return {"drift": drift, "notes": host.notes, "digest": host.digest(), "facts": facts(bool(reasons))}


class Host:
    """All that is read of this host for one payload, each kind once."""

    def __init__(self, payload: Plain) -> None:
        self.roles = [
            {"role": role["role"], "items": [for_node(item, payload) for item in role["items"]]}
            for role in payload["roles"]
        ]
        self.notes: list[str] = []
        self.contained = in_container()
        self._items = [item for role in self.roles for item in role["items"]]
        self.found = {kind: looker(self._of(kind)) for kind, looker in LOOKERS.items()}
        self.found["unit"] = look_at_units(self._of("unit"), self._changed_at(), set(self.found["file"]))

    def _of(self, kind: str) -> list[Plain]:
        return [item for item in self._items if item["kind"] == kind]

    def _changed_at(self) -> dict[str, list[tuple[float, str]]]:
        """For each unit, when what it must be restarted for changed last, and what that is. What differs itself is told
        as that: healing it makes it new, and then the unit is late."""
        changed: dict[str, list[tuple[float, str]]] = {}
        for item in self._items:
            if item.get("restarts") and not self.compare(item):
                for unit in item["restarts"]:
                    changed.setdefault(unit, []).append((changed_at(item), item["name"]))
        return changed

    def digest(self) -> str:
        """SHA-256 of all that was seen: equal while nothing that Gangline keeps has changed."""
        text = json.dumps(self.found, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def compare(self, item: Plain) -> list[Plain]:
        """The differences of one item."""
        kind, name, values = item["kind"], item["name"], item["values"]
        found = self.found[kind].get(name)
        if kind == "unit":
            differing = compare_unit(values, found)
            return [_drift(item, *each) for each in differing if not self._unmet(name, *each)]
        if kind == "sysctl" and self._untouchable(item, found):
            return []
        if found is None:
            return [_drift(item, "present", "yes", "")]
        wanted = {**IMPLIED.get(kind, {}), **values}
        if kind == "file":
            wanted["type"] = "file" if "content" in values else "folder"
            if found["type"] != wanted["type"]:
                return [_drift(item, "type", wanted["type"], found["type"])]
        return [
            _drift(item, key, *_show(kind, key, wanted[key], found, name))
            for key in sorted(wanted)
            if not _same(kind, key, wanted[key], found.get(key, ""))
        ]

    def _unmet(self, unit: str, key: str, _wanted: str, found: str) -> bool:
        """A unit that its own conditions keep from running in a container, as a time daemon: told, and no drift."""
        if not self.contained or key != "active" or found != UNMET:
            return False
        self.notes.append(f"unit {unit} does not run: its conditions are not met in a container")
        return True

    def _untouchable(self, item: Plain, found: dict[str, str] | None) -> bool:
        """A kernel that belongs to another machine: told, and no drift, since nothing here can heal it."""
        path = sysctl_path(item["name"])
        if not self.contained or (found is not None and os.access(path, os.W_OK)):
            return False
        if found is None or not _same("sysctl", "value", item["values"]["value"], found["value"]):
            has, wanted = found["value"] if found else "absent", item["values"]["value"]
            self.notes.append(f"sysctl {item['name']} is {has}, wanted {wanted}: a container can't set it")
        return True

    def reboot_reasons(self) -> list[str]:
        """Why what is on disk is in force only after a reboot."""
        reasons = [] if self.contained else kernel_reasons()
        if os.path.exists("/run/reboot-required"):
            packages = _read("/run/reboot-required.pkgs").split()
            reasons.append(f"packages ask for it: {', '.join(sorted(set(packages)))}".rstrip(": "))
        booted = booted_at()
        reasons += [
            f"{item['kind']} {item['name']} has changed since the boot"
            for item in self._items
            if item.get("reboots") and changed_at(item) > booted
        ]
        return reasons


# --- comparing -------------------------------------------------------------------------------------------------------


def compare_unit(values: Plain, found: dict[str, str] | None) -> list[tuple[str, str, str]]:
    """(key, wanted, found) of what differs. A masked unit is told as masked alone; one that should be masked is not
    asked about the rest; whether a unit runs what is on disk matters while it should run."""
    if found is None and "yes" in (values.get("active"), values.get("enabled")):
        return [("present", "yes", "")]
    if found is None:
        return [("masked", "yes", "no")] if values.get("masked") == "yes" else []
    wanted = {**IMPLIED["unit"], **values}
    moot = {"enabled", "runs", "overrides"} if "yes" in (found["masked"], wanted.get("masked")) else set()
    if wanted.get("active") != "yes" or found["active"] != "yes":
        moot.add("runs")
    keys = [key for key in sorted(wanted) if key not in moot]
    return [(key, wanted[key], found[key]) for key in keys if not _same("unit", key, wanted[key], found[key])]


def _same(kind: str, key: str, wanted: str, found: str) -> bool:
    if not wanted and (kind, key) in ANY_IF_EMPTY:
        return True
    if kind == "file" and key == "content":
        return hashlib.sha256(wanted.encode()).hexdigest() == found
    if key == "active":
        return found == wanted or (wanted == "no" and found in ("no", "inactive", "failed", UNMET))
    return _plain_form(kind, key, wanted) == _plain_form(kind, key, found)


def _plain_form(kind: str, key: str, text: str) -> str:
    if kind == "sysctl":
        return " ".join(text.split())
    if key == "mode":
        return text.zfill(4)
    if key == "groups":
        return ",".join(sorted(filter(None, text.split(","))))
    return text


def _show(kind: str, key: str, wanted: str, found: dict[str, str], name: str) -> tuple[str, str]:
    """Texts of both sides; of a file's content, the first line that differs if all may read the file."""
    if kind != "file" or key != "content":
        return wanted, found.get(key, "")
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    if not int(found["mode"], 8) & 0o004:
        return f"sha256:{digest[:16]}", f"sha256:{found[key][:16]}"
    return first_difference(wanted.splitlines(), _read(name).splitlines())


def first_difference(wanted: list[str], found: list[str]) -> tuple[str, str]:
    """`line N: TEXT` of both sides."""
    pairs = enumerate(itertools.zip_longest(wanted, found, fillvalue="(ends before)"), start=1)
    for number, (ours, theirs) in pairs:
        if ours != theirs:
            return f"line {number}: {ours}", f"line {number}: {theirs}"
    return "its ends of lines", "others"


def _drift(item: Plain, key: str, wanted: str, found: str) -> Plain:
    sides = {"wanted": _short(wanted), "found": _short(found)}
    return {"kind": item["kind"], "name": item["name"], "value": key, **sides}


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def for_node(item: Plain, payload: Plain) -> Plain:
    """The item with this node's name and address in its texts."""
    values = {
        key: text.replace("@NODE@", payload["node"]).replace("@ADDRESS@", payload["address"])
        for key, text in item["values"].items()
    }
    return {**item, "values": values}


# --- lookers ---------------------------------------------------------------------------------------------------------


def look_at_packages(items: list[Plain]) -> Found:
    """From dpkg, all in one call. Half-installed ones are there, with the status that dpkg has for them."""
    if not items:
        return {}
    form = "${Package}\t${Architecture}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n"
    text = _output(["dpkg-query", "-W", "-f", form, *sorted(item["name"] for item in items)])
    found: Found = {}
    for line in text.splitlines():
        name, arch, version, want, status = line.split("\t")
        if status in ("not-installed", "config-files"):
            continue
        seen = {"version": version, "held": "yes" if want == "hold" else "no", "status": status}
        found[f"{name}:{arch}"] = seen
        if arch in ("all", architecture()) or name not in found:
            found[name] = seen
    return found


def look_at_files(items: list[Plain]) -> Found:
    """Type, mode, owner, group, and of regular files the SHA-256 of their content."""
    found = {item["name"]: _file(item["name"]) for item in items}
    return {name: seen for name, seen in found.items() if seen is not None}


def look_at_archives(items: list[Plain]) -> Found:
    """As files, with their SHA-256 as a value of its own."""
    found = look_at_files(items)
    return {name: {**seen, "sha256": seen.get("content", "")} for name, seen in found.items()}


TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def _file(path: str) -> dict[str, str] | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    seen = {
        "type": TYPES.get(stat.S_IFMT(status.st_mode), "special file"),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "owner": _name_of(pwd.getpwuid, status.st_uid),
        "group": _name_of(grp.getgrgid, status.st_gid),
    }
    if seen["type"] == "file":
        seen["content"] = _sha256(path)
    elif seen["type"] == "link":
        seen["type"] = f"link to {os.readlink(path)}"
    return seen


def _name_of(lookup: Callable[[int], Any], number: int) -> str:
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)


def look_at_sysctls(items: list[Plain]) -> Found:
    """The values that are in force; what is set at a boot lies in a file, which is an item of its own."""
    values = {item["name"]: " ".join(_read(sysctl_path(item["name"])).split()) for item in items}
    return {name: {"value": value} for name, value in values.items() if value}


def sysctl_path(name: str) -> str:
    """As sysctl(8): the first separator decides what the other one means."""
    slash, dot = name.find("/"), name.find(".")
    if dot >= 0 and (slash < 0 or dot < slash):
        name = name.translate(str.maketrans("./", "/."))
    return "/proc/sys/" + name


def look_at_users(items: list[Plain]) -> Found:
    """From the host's own files: Gangline makes no users elsewhere."""
    if not items:
        return {}
    groups = [line.split(":") for line in _read("/etc/group").splitlines() if line.count(":") == 3]
    names = {gid: name for name, _, gid, _ in groups}
    wanted = {item["name"] for item in items}
    found: Found = {}
    for line in _read("/etc/passwd").splitlines():
        if line.count(":") != 6:
            continue
        name, _, uid, gid, _, home, shell = line.split(":")
        if name in wanted:
            member = sorted(group for group, _, _, members in groups if name in members.split(","))
            found[name] = {
                "uid": uid,
                "home": home,
                "shell": shell,
                "groups": ",".join(member),
                "group": _own_group(uid, gid, names),
                "system": "yes" if int(uid) < 1000 else "no",
            }
    return found


def _own_group(uid: str, gid: str, names: dict[str, str]) -> str:
    """Whether a person's own group has their number, as the controller tells agents; other accounts need any."""
    if gid not in names:
        return f"no: {gid} has no name"
    return "yes" if gid == uid or int(uid) < 1000 else f"no: it is {names[gid]}, {gid}"


def look_at_groups(items: list[Plain]) -> Found:
    """From the host's own file."""
    wanted = {item["name"] for item in items}
    lines = (line.split(":") for line in _read("/etc/group").splitlines() if line.count(":") == 3)
    return {name: {"gid": gid} for name, _, gid, _ in lines if name in wanted}


LOOKERS: dict[str, Callable[[list[Plain]], Found]] = {
    "package": look_at_packages,
    "file": look_at_files,
    "sysctl": look_at_sysctls,
    "user": look_at_users,
    "group": look_at_groups,
    "archive": look_at_archives,
}

UNIT_PROPERTIES = (
    "LoadState,ActiveState,UnitFileState,NeedDaemonReload,DropInPaths,ConditionResult,ConditionTimestampMonotonic,"
    "ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic"
)
UNMET = "inactive (its conditions were not met)"
ENABLED = ("enabled", "static", "alias", "indirect", "generated")  # nothing is left that `enable` could do


def look_at_units(items: list[Plain], changed: dict[str, list[tuple[float, str]]], ours: set[str]) -> Found:
    """From systemd, all in one call. `changed`: when what a unit is restarted for changed; `ours`: Gangline's files."""
    if not items:
        return {}
    names = sorted({item["name"] for item in items})
    text = _output(["systemctl", "show", "--property", UNIT_PROPERTIES, "--", *names])
    blocks = [_properties(block) for block in text.strip().split("\n\n")]
    found: Found = {}
    for name, block in zip(names, blocks):
        if block.get("LoadState") not in ("not-found", None):
            found[name] = _unit(block, changed.get(name, []), ours)
    return found


def _properties(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines())
    return {key: value for key, _, value in pairs}


def _unit(block: dict[str, str], changed: list[tuple[float, str]], ours: set[str]) -> dict[str, str]:
    state = block["ActiveState"]
    refused = block["ConditionResult"] == "no" and block["ConditionTimestampMonotonic"] != "0"
    if refused and state == "inactive":
        state = UNMET
    return {
        "active": "yes" if state in ("active", "reloading") else state,
        "enabled": "yes" if block["UnitFileState"] in ENABLED else "no",
        "masked": "yes" if block["LoadState"] == "masked" else "no",
        "overrides": " ".join(overrides(block, ours)),
        "runs": _runs(block, changed),
    }


def overrides(block: dict[str, str], ours: set[str]) -> list[str]:
    """Drop-ins of this unit that neither a package nor Gangline has put there."""
    return [
        path
        for path in block["DropInPaths"].split()
        if path not in ours
        and not path.startswith(VERSION_PATHS)
        and os.path.basename(os.path.dirname(path)) != "service.d"
    ]


def _runs(block: dict[str, str], changed: list[tuple[float, str]]) -> str:
    """Whether the unit's process is younger than the files that it reads at its start."""
    if block["NeedDaemonReload"] == "yes":
        return "an older unit file"
    times = [int(block.get(f"{name}TimestampMonotonic") or 0) for name in ("ExecMainStart", "ActiveEnter")]
    began = times[0] or times[1]
    started = time.time() - (time.monotonic() - began / 1e6)
    late = sorted(name for at, name in changed if started < at <= time.time())
    return f"an older {', '.join(late)}" if late else "what is on disk"


# --- the host --------------------------------------------------------------------------------------------------------


def changed_at(item: Plain) -> float:
    """When the item changed last on this host, in seconds of its clock; 0 if nothing tells."""
    name = item["name"]
    if item["kind"] in ("file", "archive"):
        return _mtime(name)
    if item["kind"] == "package":
        base = f"/var/lib/dpkg/info/{name}"
        return max(_mtime(f"{base}.list"), _mtime(f"{base}:{architecture()}.list"))
    return 0.0


def architecture() -> str:
    """As dpkg names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def booted_at() -> float:
    """When this host's first process started (a container's uptime is that of its machine)."""
    ticks = int(_read("/proc/1/stat").rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def kernel_reasons() -> list[str]:
    """The kernel that would boot next is another one than runs."""
    links = [path for path in ("/vmlinuz", "/boot/vmlinuz") if os.path.exists(path)]
    next_one = os.path.basename(os.path.realpath(links[0])).partition("-")[2] if links else ""
    running = platform.release()
    return [f"kernel {running} runs, {next_one} is installed"] if next_one not in ("", running) else []


def in_container() -> bool:
    """Whether the kernel belongs to another machine."""
    return os.path.exists("/run/systemd/container") or os.path.exists("/run/.containerenv")


def facts(reboot_needed: bool) -> Plain:
    """The fields of `model.host.HostFacts`; `now_us` for its clock skew."""
    release = _properties(_read("/etc/os-release").replace('"', ""))
    return {
        "machine_id": _read("/etc/machine-id").strip(),
        "boot_id": _read("/proc/sys/kernel/random/boot_id").strip(),
        "hostname": platform.node(),
        "os": release.get("ID", ""),
        "release": release.get("VERSION_ID", ""),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "arch": platform.machine(),
        "gpus": gpus(),
        "reboot_needed": reboot_needed,
        "macs": macs(),
        "agent_url": agent_url(),
        "now_us": time.time_ns() // 1000,
    }


def gpus(folder: str = "/sys/bus/pci/devices") -> list[str]:
    """NVIDIA display and 3D controllers: PCI address, vendor and device."""
    found = []
    for address in _names(folder):
        base = f"{folder}/{address}"
        kind, vendor, device = (_read(f"{base}/{name}").strip()[2:] for name in ("class", "vendor", "device"))
        if vendor == "10de" and kind[:4] in ("0300", "0302"):
            found.append(f"{address} {vendor}:{device}")
    return found


def macs(folder: str = "/sys/class/net", bonds: str = "/proc/net/bonding") -> list[str]:
    """Of all network cards, those in a bond by their own address as well: a bond gives its cards one."""
    found = {_read(f"{folder}/{name}/address").strip().lower() for name in _names(folder) if name != "lo"}
    for name in _names(bonds):
        lines = _read(f"{bonds}/{name}").lower().splitlines()
        found.update(line.partition(":")[2].strip() for line in lines if line.startswith("permanent hw addr"))
    return sorted(found - {"", "00:00:00:00:00:00"})


def agent_url(
    config: str = "/etc/gangline/agent.json",
    starts: str = "/etc/systemd/system/multi-user.target.wants/gangline-agent.service",
) -> str:
    """The controller of an agent that is started at boots; one that was let go is not."""
    try:
        found = json.loads(_read(config)) if os.path.lexists(starts) else {}
    except ValueError:
        return ""
    return str(found.get("url", "")) if isinstance(found, dict) else ""


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()


def _output(argv: list[str]) -> str:
    """What a program prints; empty where it is not installed. Exit codes tell of missing names: seen anyway."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=ENVIRONMENT
        )
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")


def main(text: str) -> None:
    """Print the answer to a payload as one line of JSON."""
    sys.stdout.write(json.dumps(look(json.loads(text)), separators=(",", ":")) + "\n")
