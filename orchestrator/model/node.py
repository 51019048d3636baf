"""Nodes and devices: what a node is made of, and why it may not be given work.

Comes in: what the agent measured and what people said. Goes out: `NodeFacts`, `Device`, `Mark`, the words for
contact. Called by: ledger, scheduler, controller, agent, API.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word
from orchestrator.model.cluster import DrainThen
from orchestrator.model.ids import AttemptId


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: `slot` is its place in PCI order, `memory` in bytes; `numa` is the NUMA node that it hangs on, -1 where
    nobody says. `emulated` ones exist on paper only."""

    slot: int
    model: str
    memory: int = 0
    uuid: str = ""
    pci: str = ""
    emulated: bool = False
    numa: int = -1


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the agent found on its node. `memory` in bytes. `run_as` is the agent's own POSIX name; an agent that
    can't switch users runs jobs of that name only."""

    boot_id: str
    cores: int
    memory: int
    devices: tuple[Device, ...] = ()
    machine_id: str = ""
    hostname: str = ""
    agent_version: str = ""
    run_as: str = ""
    can_switch_user: bool = False
    supervisor: str = ""  # systemd, cgroup2 or process-tree: how units are kept together
    unenforced: tuple[
        str, ...
    ] = ()  # limits of an allocation that nothing holds here: cores, devices, memory, tasks, metadata


@dataclass(frozen=True, slots=True)
class Hardware:
    """What tells one machine from another: its machine id, and the UUIDs of its real GPUs, sorted."""

    machine_id: str = ""
    gpus: tuple[str, ...] = ()


def hardware_of(facts: NodeFacts) -> Hardware:
    """The part of the facts that a person must agree to when it changes."""
    real = (device.uuid for device in facts.devices if device.uuid and not device.emulated)
    return Hardware(facts.machine_id, tuple(sorted(real)))


class Contact(Word):
    """Whether a node answers. Silence never removes a node."""

    NEVER = "never"  # known from the spec, not yet heard of
    OK = "ok"
    SUSPECT = "suspect"  # one lease missed
    UNREACHABLE = "unreachable"  # its attempts count as lost until there is proof


class MarkKind(Word):
    """Why a node gets no new work although it answers."""

    UNPROVED = "unproved"  # acceptance has not passed
    CORDONED = "cordoned"  # a person said so
    UPDATING = "updating"  # an apply changes it
    CHANGED = "changed"  # it is another machine, or has other GPUs, than the one that was let in
    DRAINING = "draining"  # something is wrong that work can't repair: an unkillable process, a failed epilog
    RELEASING = "releasing"  # it was bought, is idle, and is given back unless work for it comes first
    PREPARE_FAILED = (
        "prepare_failed"  # a job could not be prepared here; withdrawn if the job turns out at fault
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """One reason against new work on a node; removed by kind (and job, where one caused it).

    `deadline_us`: when what still runs there is dealt with as `then` says; 0: it is left alone.
    """

    kind: MarkKind
    why: str
    by: str
    since_us: int
    job: int = 0
    attempt: AttemptId | None = None
    deadline_us: int = 0
    then: DrainThen = DrainThen.WAIT
