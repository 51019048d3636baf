#!/usr/bin/python
"""Ansible module: prove that a host is what the cluster's file says, as far as that can be seen without running work.

Comes in: what must hold. Goes out: one proof per thing, with what was wanted and what was found, and the same as a file
on the host that ends with its boot. Called by: the role `acceptance`. Reads only, but for that file.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: gangline_acceptance
short_description: Prove that a host is what the cluster's file says
options:
  unit: {description: The agent's unit., type: str, required: true}
  state: {description: The folder in which the agent keeps its state., type: str, required: true}
  url: {description: The controller's address, with which the agent must be connected., type: str, default: ""}
  gpus: {description: How many GPUs the host must show as device nodes; -1 for no proof., type: int, default: -1}
  devices: {description: Device nodes that must be there., type: list, elements: str, default: []}
  free_bytes: {description: Free space by folder., type: dict, default: {}}
  clock_us: {description: The time here when this was sent, in microseconds., type: int, default: 0}
  skew_ms: {description: How far the host's clock may be off., type: int, default: 2000}
  patience_s: {description: How long the agent may take to be connected., type: float, default: 30}
  report: {description: Where the result is kept on the host., type: str, default: /run/gangline/acceptance.json}
author: [Gangline]
"""

EXAMPLES = r"""
- name: Prove
  gangline_acceptance:
    unit: gangline-agent.service
    state: /var/lib/gangline-agent
    free_bytes: {/var/lib/gangline-agent: 1073741824}
"""

RETURN = r"""
acceptance:
  description: Whether all held, the boot that it is about, and each proof with C(name), C(ok), C(wanted), C(found)
  returned: always
  type: dict
"""

import glob  # noqa: E402 - Ansible wants its documentation first
import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import shutil  # noqa: E402
import stat  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from urllib.parse import urlsplit  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

ESTABLISHED = "01"  # state in /proc/net/tcp
LOOK_S = 0.2
PORTS = {"https": 443, "http": 80}


def proof(name, ok, wanted, found):
    """One thing that was looked at."""
    return {"name": name, "ok": bool(ok), "wanted": str(wanted), "found": str(found)}


def unit_is_active(unit):
    """systemd's word."""
    asked = ["systemctl", "show", "--property=ActiveState,SubState,MainPID", "--", unit]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    state = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    found = f"{state.get('ActiveState', 'unknown')} ({state.get('SubState', '')})"
    return proof("agent unit", state.get("ActiveState") == "active", "active", found), int(
        state.get("MainPID") or 0
    )


def enrolled(state):
    """The node has a token of its own, which only the controller gives."""
    there = os.path.exists(os.path.join(state, "token"))
    return proof("agent enrolled", there, "a token of its own", "there" if there else "none")


def listening(state):
    """The agent alone reads its pipe for notices: so the process is at work, whatever systemd believes."""
    try:
        os.close(os.open(os.path.join(state, "notices"), os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return proof("agent at work", False, "it reads its notices", error.strerror)
    return proof("agent at work", True, "it reads its notices", "it does")


def connected(pid, url):
    """The agent holds a connection to the controller's port."""
    parts = urlsplit(url)
    port = parts.port or PORTS.get(parts.scheme, 0)
    inodes = {inode for inode, remote in established() if remote == port}
    mine = sockets_of(pid) & inodes
    return proof(
        "agent connected", mine, f"a connection to {url}", "there is one" if mine else "there is none"
    )


def established():
    """(inode, remote port) of every established TCP connection of this host."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                for line in list(file)[1:]:
                    words = line.split()
                    if words[3] == ESTABLISHED:
                        yield words[9], int(words[2].rpartition(":")[2], 16)


def sockets_of(pid):
    """Inodes of the sockets that a process holds."""
    found = set()
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(path))
        except OSError:
            continue
        if match:
            found.add(match.group(1))
    return found


def gpus(count):
    """Device nodes of NVIDIA GPUs."""
    found = [path for path in glob.glob("/dev/nvidia[0-9]*") if stat.S_ISCHR(os.stat(path).st_mode)]
    return proof("gpus", len(found) == count, f"{count} device nodes", f"{len(found)} device nodes")


def device(path):
    """A device node that a pool needs."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return proof(f"device {path}", False, "a device node", error.strerror)
    there = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    return proof(f"device {path}", there, "a device node", "there" if there else "no device node")


def free(folder, wanted):
    """Room on the disk of a folder."""
    try:
        found = shutil.disk_usage(folder).free
    except OSError as error:
        return proof(f"free space {folder}", False, f"{wanted} bytes", error.strerror)
    return proof(f"free space {folder}", found >= int(wanted), f"{wanted} bytes", f"{found} bytes")


def clock(sent_us, allowed_ms):
    """The host's clock against the one that sent this; the way here counts as skew, so it is no fine measure."""
    skew_ms = (time.time_ns() // 1000 - sent_us) // 1000
    return proof("clock", abs(skew_ms) <= allowed_ms, f"within {allowed_ms} ms", f"{skew_ms} ms ahead")


def agent_proofs(parameters):
    """What is about the agent, again until all hold or its patience is over: it may have started just now."""
    end = time.monotonic() + parameters["patience_s"]
    while True:
        unit, pid = unit_is_active(parameters["unit"])
        proofs = [unit, enrolled(parameters["state"]), listening(parameters["state"])]
        if parameters["url"]:
            proofs.append(connected(pid, parameters["url"]))
        if all(each["ok"] for each in proofs) or time.monotonic() > end:
            return proofs
        time.sleep(LOOK_S)


def prove(parameters):
    """All proofs."""
    proofs = [clock(parameters["clock_us"], parameters["skew_ms"])] if parameters["clock_us"] else []
    proofs += agent_proofs(parameters)
    if parameters["gpus"] >= 0:
        proofs.append(gpus(parameters["gpus"]))
    proofs += [device(path) for path in parameters["devices"]]
    proofs += [free(folder, wanted) for folder, wanted in sorted(parameters["free_bytes"].items())]
    return proofs


def keep(path, acceptance):
    """On a file system that a boot empties: a node that has booted again is not proved."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    draft = path + ".new"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(acceptance, file, indent=2)
        file.write("\n")
    os.chmod(draft, 0o644)
    os.replace(draft, path)


def boot_id():
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def main():
    """One call of the module."""
    spec = {
        "unit": {"type": "str", "required": True},
        "state": {"type": "str", "required": True},
        "url": {"type": "str", "default": ""},
        "gpus": {"type": "int", "default": -1},
        "devices": {"type": "list", "elements": "str", "default": []},
        "free_bytes": {"type": "dict", "default": {}},
        "clock_us": {"type": "int", "default": 0},
        "skew_ms": {"type": "int", "default": 2000},
        "patience_s": {"type": "float", "default": 30},
        "report": {"type": "str", "default": "/run/gangline/acceptance.json"},
    }
    module = AnsibleModule(spec, supports_check_mode=True)
    proofs = prove(module.params)
    failed = [each for each in proofs if not each["ok"]]
    acceptance = {"ok": not failed, "boot_id": boot_id(), "at_us": time.time_ns() // 1000, "proofs": proofs}
    if not module.check_mode:
        keep(module.params["report"], acceptance)
    if failed:
        words = "; ".join("{name}: wanted {wanted}, found {found}".format(**each) for each in failed)
        module.fail_json(msg=f"not accepted: {words}", acceptance=acceptance)
    module.exit_json(changed=False, acceptance=acceptance)


if __name__ == "__main__":
    main()
