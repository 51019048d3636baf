"""Chooses how units are kept together on this node, best first: systemd, cgroup2, process-tree.

Comes in: what the config asks for. Goes out: `Supervisor`. Called by: the daemon, at its start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from orchestrator.agent import containment, layout, log, scope, systemd
from orchestrator.agent.config import Config
from orchestrator.model.ids import AttemptId, parse_unit

KINDS = ("systemd", "cgroup2", "process-tree")
ALL_LIMITS = ("cores", "devices", "memory", "tasks")


@dataclass(frozen=True, slots=True)
class Supervisor:
    """`base`: the folder of the units' control groups, empty for process-tree. `home`: the agent's own group.

    `suffix` tells units of several agents on one machine apart. `unenforced`: limits of an allocation that nothing
    holds here. `closes`: whether its units can be kept from addresses.
    """

    kind: str
    place: str
    base: str = ""
    home: str = ""
    suffix: str = ""
    unenforced: tuple[str, ...] = ALL_LIMITS
    closes: bool = False

    def units(self) -> list[AttemptId]:
        """Attempts of this agent that have something on the node, whatever the records say."""
        if self.kind != "systemd":
            return containment.units_on_node(self.base, self.place)
        return sorted(parse_unit(name) for name in scope.units_in(self.base, self.suffix))

    def adopt_nursery(self, pid: int) -> None:
        """Called for each new nursery."""
        if self.kind != "systemd":
            return
        try:
            scope.adopt_nursery(pid, self.suffix)
        except OSError as error:
            log.error(f"{error.filename}: {error.strerror}; shepherds stay in the agent's own unit")

    def drop(self) -> None:
        """The agent ends."""
        if self.kind == "cgroup2":
            containment.drop_base(self.base)


def choose(config: Config, closed: tuple[str, ...] = ()) -> Supervisor:
    """What was asked for, or the best that works; what was asked for and does not is said in the log. `closed`:
    addresses that units should not reach; whether a unit can be kept from them is said by `closes`."""
    wanted = config.supervisor
    place = layout.place_of(config.node, config.state_dir)
    if wanted == "systemd" or (wanted == "auto" and os.geteuid() == 0 and systemd.is_manager()):
        found = _systemd(place, layout.unit_suffix(config.state_dir), closed)
        if found is not None:
            return found
    base = "" if wanted == "process-tree" else containment.find_base(place)
    if base:
        return Supervisor("cgroup2", place, base, containment.own_group())
    if wanted in ("systemd", "cgroup2"):
        log.error(f"supervisor {wanted} was asked for and no control group can be made; process-tree is used")
    return Supervisor("process-tree", place)


def _systemd(place: str, suffix: str, closed: tuple[str, ...]) -> Supervisor | None:
    try:
        if not systemd.is_manager():
            raise OSError(0, "systemd is not process 1 here")
        base, unenforced = scope.probe(closed)
    except OSError as error:
        log.error(
            f"units of systemd can't be made: {error.strerror or error}; control groups are tried instead"
        )
        return None
    closes = bool(closed) and scope.METADATA not in unenforced
    unenforced = tuple(word for word in unenforced if word != scope.METADATA)
    if unenforced:
        log.error(f"systemd can't hold units to their limits of {', '.join(unenforced)} on this node")
    return Supervisor("systemd", place, base, suffix=suffix, unenforced=unenforced, closes=closes)
