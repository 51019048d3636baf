"""A host of a metal site: what it must have, what was seen on it, and how the two differ.

Comes in: what the spec renders to (`provision.metal`), what a probe or a check saw. Goes out: `Desired`, `Sight`,
`Drift`. Called by: planning (compares), provision.metal (renders, checks, configures), controller (keeps), api, cli.

`Desired` is the one source of what the roles do and of what the check looks for: `gangline render` writes it as the
variables of the roles, and the check on the host compares the host with it. Texts of files hold `@NODE@` and
`@ADDRESS@` where hosts of one pool differ, so that all hosts of a pool share one `Desired`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word


class ItemKind(Word):
    """What a desired item is about; with the name it identifies the item on a host."""

    PACKAGE = "package"
    FILE = "file"
    UNIT = "unit"
    SYSCTL = "sysctl"
    USER = "user"
    GROUP = "group"
    ARCHIVE = "archive"  # the agent's own code
    HOST = "host"  # the host as a whole: operating system, hardware, a pending reboot


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a role keeps on a host, as a flat set of values.

    `values` by kind, sorted by key: package `version` (empty: any), `held` yes/no (absent: either); file `content`
    (text; absent: a folder), `mode`, `owner`, `group`; unit `enabled`, `active`, `masked` yes/no; sysctl `value`; user
    `uid` (empty: any), `home`, `shell`, `groups` (with commas), `system` yes/no; group `gid`; archive `sha256`.
    `restarts` names units that must be restarted when it changes; `reboots`: a change is in force only after a reboot;
    `disturbs`: running work notices the change.
    """

    kind: ItemKind
    name: str
    values: tuple[tuple[str, str], ...]
    restarts: tuple[str, ...] = ()
    reboots: bool = False
    disturbs: bool = False


@dataclass(frozen=True, slots=True)
class RoleState:
    """What one Ansible role keeps on a host, in the order in which it is made."""

    role: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Desired:
    """All that Gangline keeps on the hosts of one pool."""

    roles: tuple[RoleState, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """One value on one host that is not as wanted. `found` is empty where the item is absent."""

    role: str
    kind: ItemKind
    name: str
    value: str  # the key of `Item.values`, or `present`
    wanted: str
    found: str


class Step(Word):
    """How far a probe of a host came; each needs the ones before it."""

    TCP = "tcp"
    HOST_KEY = "host-key"
    AUTH = "auth"
    SUDO = "sudo"
    PYTHON = "python"
    SYSTEM = "system"  # operating system and release are supported
    DONE = "done"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a probe read. `gpus` are PCI addresses with ids, as in `0000:1b:00.0 10de:2330`; clock skew in milliseconds,
    positive when the host is ahead. `macs` are those of all its network cards; `agent_url` is the controller that an
    agent there calls once the host boots, empty where there is none. A check reads both, a mere probe does not."""

    machine_id: str
    boot_id: str
    hostname: str = ""
    os: str = ""  # debian, ubuntu
    release: str = ""  # 12
    kernel: str = ""
    python: str = ""  # 3.11.2
    arch: str = ""
    gpus: tuple[str, ...] = ()
    clock_skew_ms: int = 0
    reboot_needed: bool = False
    macs: tuple[str, ...] = ()
    agent_url: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of one host. `reached` DONE: all of it; else the step that failed, with `error` and `hint`.

    `checked`: the host was compared with a `Desired`, and `drift` is the whole difference.
    """

    host: str
    reached: Step
    error: str = ""
    hint: str = ""
    facts: HostFacts | None = None
    checked: bool = False
    drift: tuple[Drift, ...] = ()
    seen_us: int = 0


@dataclass(frozen=True, slots=True)
class PoolDesired:
    """What the hosts of a pool are to have, with the SHA-256 of its canonical form."""

    pool: str
    digest: str
    desired: Desired
