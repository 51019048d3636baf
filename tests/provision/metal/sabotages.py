"""What people and packages do to hosts behind Gangline's back, and the drift that must be told of each.

Comes in: nothing. Goes out: `SABOTAGES`, each on an item of its own so that they add up; the items that a host has for
them besides what the spec gives. Called by: test_roles_on_hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.host import Item, ItemKind
from orchestrator.model.installed import (
    AGENT_ARCHIVE,
    AGENT_CONFIG,
    AGENT_UNIT,
    LIMITS_FILE,
)
from orchestrator.planning.desired import (
    SYSCTL_FILE,
    TIME_FILE,
)

UNIT_TEXT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
UNITS = ("gl-masked", "gl-stopped", "gl-disabled", "gl-off")
FILES = ("edited", "opened", "given", "linked", "gone")
APT = "apt-get -qq -y --allow-downgrades --allow-change-held-packages"


@dataclass(frozen=True)
class Sabotage:
    """A shell command; the drift that it makes: kind, name, key, and a word of what was found."""

    title: str
    command: str
    kind: ItemKind
    name: str
    value: str
    found: str
    role: str = "base"

    @property
    def key(self) -> tuple[str, ItemKind, str, str]:
        return (self.role, self.kind, self.name, self.value)


def extra_items() -> list[Item]:
    """Files and units to sabotage. Their unit files lie where masking does not replace them."""
    files = [file_item(extra(name), f"{name} on @NODE@\n") for name in FILES]
    files += [file_item(f"/usr/local/lib/systemd/system/{name}.service", UNIT_TEXT) for name in UNITS]
    return files + [unit_item(f"{name}.service", "no" if name == "gl-off" else "yes") for name in UNITS]


def extra(name: str) -> str:
    """The path of one of FILES."""
    return f"/etc/gangline-test/{name}.conf"


def file_item(path: str, content: str) -> Item:
    values = (("content", content), ("group", "root"), ("mode", "0644"), ("owner", "root"))
    return Item(ItemKind.FILE, path, values)


def unit_item(name: str, on: str) -> Item:
    return Item(ItemKind.UNIT, name, (("active", on), ("enabled", on), ("masked", "no")))


def _unit(title: str, verb: str, name: str, value: str, found: str) -> Sabotage:
    return Sabotage(title, f"systemctl {verb} {name}.service", ItemKind.UNIT, f"{name}.service", value, found)


def _file(title: str, command: str, path: str, value: str, found: str, role: str = "base") -> Sabotage:
    return Sabotage(title, command.replace("FILE", path), ItemKind.FILE, path, value, found, role)


def _package(title: str, command: str, name: str, value: str, found: str) -> Sabotage:
    return Sabotage(title, f"{command.replace('APT', APT)}", ItemKind.PACKAGE, name, value, found)


def _user(title: str, command: str, name: str, value: str, found: str) -> Sabotage:
    return Sabotage(title, command, ItemKind.USER, name, value, found)


_OVERRIDE = f"""mkdir -p /etc/systemd/system/{AGENT_UNIT}.d
printf '[Service]\\nNice=5\\n' > /etc/systemd/system/{AGENT_UNIT}.d/mine.conf; systemctl daemon-reload"""
_SYSCTL = "net.core.somaxconn"

SABOTAGES = (
    _unit("unit masked", "mask --now", "gl-masked", "masked", "yes"),
    _unit("unit stopped", "stop", "gl-stopped", "active", "inactive"),
    _unit("unit disabled", "disable", "gl-disabled", "enabled", "no"),
    _unit("unit started", "start", "gl-off", "active", "yes"),
    _file("file edited", "echo more >> FILE", extra("edited"), "content", "line 2: more"),
    _file("file deleted", "rm FILE", extra("gone"), "present", ""),
    _file("mode changed", "chmod 666 FILE", extra("opened"), "mode", "0666"),
    _file("owner changed", "chown alice FILE", extra("given"), "owner", "alice"),
    _file("link instead", "cp FILE /tmp/l; ln -sf /tmp/l FILE", extra("linked"), "type", "link to /tmp/l"),
    _file("folder opened", "chmod 777 FILE", "/opt/gangline", "mode", "0777"),
    _file("limits removed", "rm FILE", LIMITS_FILE, "present", ""),
    _file("time servers edited", "echo server x > FILE", TIME_FILE, "content", "line 1: server x"),
    _file("sysctl file edited", f"echo {_SYSCTL}=77 > FILE", SYSCTL_FILE, "content", f"line 1: {_SYSCTL}=77"),
    Sabotage("sysctl changed", f"sysctl -qw {_SYSCTL}=77", ItemKind.SYSCTL, _SYSCTL, "value", "77"),
    _package("package unheld", "apt-mark unhold gl-held", "gl-held", "held", "no"),
    _package("package downgraded", "APT install gl-new=1.0", "gl-new", "version", "1.0"),
    _package("package removed", "APT remove logrotate", "logrotate", "present", ""),
    _user("user removed", "userdel bob", "bob", "present", ""),
    _user("shell changed", "usermod -s /bin/false alice", "alice", "shell", "/bin/false"),
    _user("group removed", "groupdel research", "carol", "groups", ""),
    Sabotage(
        "agent downgraded", f"echo old > {AGENT_ARCHIVE}", ItemKind.ARCHIVE, AGENT_ARCHIVE, "sha256", "", "agent"
    ),
    _file("agent's config edited", "sed -i s/always/never/ FILE", AGENT_CONFIG, "content", '"never"', "agent"),
    Sabotage(
        "agent's unit overridden", _OVERRIDE, ItemKind.UNIT, AGENT_UNIT, "overrides", "mine.conf", "agent"
    ),
)  # fmt: skip
