"""What a person asks for: a job, its gang and its rules, in base units.

Comes in: values that `spec` has read and checked. Goes out: `JobSpec`, which the ledger keeps, the scheduler
places and the agent runs. Called by: spec (builds it), ledger, scheduler, controller, agent (read it).

Units: seconds, bytes, watts, whole GPUs. Nothing here is optional by accident: a field that may be absent says
what its absence means.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.array import Array
from orchestrator.model.base import Word
from orchestrator.model.dependency import Dependency

HIGHEST_PRIORITY = 1_000_000  # and the lowest is minus that


class LaunchKind(Word):
    """How the processes of an attempt are started."""

    LAUNCHER = "launcher"  # the command once per node: torchrun, accelerate, deepspeed
    RANKS = "ranks"  # the command once per task
    BATCH = "batch"  # a script once on the first node, which starts steps itself


class Workload(Word):
    """The class of work; each has a default time limit and defaults for sharing and preemption."""

    SERVING = "serving"
    TRAINING = "training"
    BATCH = "batch"
    INTERACTIVE = "interactive"


# Seconds a job may run when neither it nor its queue says; serving runs until it is stopped (DESIGN section 5).
DEFAULT_TIME_LIMIT_S = {
    Workload.SERVING: 0,
    Workload.TRAINING: 24 * 3600,
    Workload.BATCH: 4 * 3600,
    Workload.INTERACTIVE: 2 * 3600,
}


class OnLost(Word):
    """What an attempt out of contact needs before the next one may start."""

    WAIT_FOR_PROOF = "wait_for_proof"
    SELF_FENCE = "self_fence"  # the agent ends it when its lease runs out, and the controller relies on that


# What may follow a % in `JobSpec.output`, besides %% for the sign itself; the agent fills them in. The letters are
# Slurm's, which has none for the attempt.
OUTPUT_PLACEHOLDERS = (
    ("j", "job"),
    ("A", "array, or job"),
    ("a", "index in the array"),
    ("r", "attempt"),
    ("t", "rank"),
    ("N", "node"),
    ("x", "name of the job"),
    ("u", "user"),
)


@dataclass(frozen=True, slots=True)
class PerNode:
    """What every node of the gang gives, or every task takes. `gpu_models` empty means any model.

    Devices are asked for in one of three ways: `gpus` whole ones; `gpu_milli` thousandths of a single one, which others
    may share; `gpus` MIG instances of the profile `mig`. `gpu_memory` is bytes of each device: at least so much of a
    whole one, and what is kept for the job on a shared one (with it alone, the share follows from it)."""

    gpus: int = 0
    cores: int = 0
    memory: int = 0  # bytes
    gpu_models: tuple[str, ...] = ()
    gpu_milli: int = 0
    gpu_memory: int = 0  # bytes
    mig: str = ""
    labels: tuple[tuple[str, str], ...] = ()  # that the node's pool must have

    @property
    def milli(self) -> int:
        """Thousandths of GPUs; 0 where they follow from the pool: of shares by memory, and of MIG instances."""
        return 0 if self.mig else self.gpus * 1000 or self.gpu_milli

    @property
    def shares(self) -> bool:
        """Whether it takes part of one device."""
        return not self.gpus and bool(self.gpu_milli or self.gpu_memory)


@dataclass(frozen=True, slots=True)
class Gang:
    """Equal units that start together: `nodes` nodes with `per_node` each, or `tasks` tasks with `per_task` each.

    Exactly one of `nodes` and `tasks` is not 0. With `nodes`, `tasks_per_node` ranks start on each; with `tasks`,
    the scheduler chooses how many go to which node and never splits one.
    """

    nodes: int = 0
    tasks: int = 0
    tasks_per_node: int = 1
    per_node: PerNode = PerNode()
    per_task: PerNode = PerNode()

    def gpus(self) -> int:
        """Whole GPUs of all units."""
        return sum(count * one.gpus for count, one in self._shares() if not one.mig)

    def instances(self) -> int:
        """MIG instances of all units."""
        return sum(count * one.gpus for count, one in self._shares() if one.mig)

    def milli(self) -> int:
        """Thousandths of GPUs of all units, shares included as far as the job says them."""
        return self.nodes * self.per_node.milli + self.tasks * self.per_task.milli

    def _shares(self) -> tuple[tuple[int, PerNode], ...]:
        return (self.nodes, self.per_node), (self.tasks, self.per_task)

    def ranks(self) -> int:
        """Processes of all units."""
        return self.nodes * self.tasks_per_node + self.tasks


@dataclass(frozen=True, slots=True)
class Group:
    """A part of a gang that asks for nodes or tasks of its own kind. All groups of one start together, each on nodes
    that no other group of it has."""

    name: str
    gang: Gang


@dataclass(frozen=True, slots=True)
class Request(Gang):
    """What a job asks for: equal units, or `groups` of them, and then it is none by itself."""

    exclusive: bool = False  # nobody else on its nodes, whatever it takes of them
    groups: tuple[Group, ...] = ()  # in the order of their ranks

    def total_gpus(self) -> int:
        """Whole GPUs of the whole gang."""
        return sum(one.gang.gpus() for one in self.groups) if self.groups else self.gpus()

    def total_instances(self) -> int:
        """MIG instances of the whole gang."""
        return sum(one.gang.instances() for one in self.groups) if self.groups else self.instances()

    def total_milli(self) -> int:
        """Thousandths of GPUs of the whole gang, shares included as far as the job says them."""
        return sum(one.gang.milli() for one in self.groups) if self.groups else self.milli()

    def total_tasks(self) -> int:
        """Ranks of the whole gang."""
        return sum(one.gang.ranks() for one in self.groups) if self.groups else self.ranks()

    def total_nodes(self) -> int:
        """Nodes of the whole gang; 0 where the scheduler chooses how many."""
        if not self.groups:
            return self.nodes
        nodes = [one.gang.nodes for one in self.groups]
        return sum(nodes) if all(nodes) else 0

    def of_group(self, number: int) -> Gang:
        """What the group of that number asks for; without groups all of it."""
        return self.groups[number].gang if number < len(self.groups) else self


@dataclass(frozen=True, slots=True)
class Retries:
    """How often an attempt that ended for a class of failure is followed by another one."""

    node_failure: int = 5
    job_failure: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """How work is asked to end: signal, then `grace_s` seconds, then SIGKILL. `to` is `all`, or `launcher` (rank 0)."""

    signal: str = "SIGTERM"
    to: str = "all"
    grace_s: int = 30


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Who checkpoints and how losses are counted. `by`: `job`, `signal` or empty for no checkpoints."""

    by: str = ""
    every_s: int = 0
    stop: Stop | None = None
    report_path: str = ""


@dataclass(frozen=True, slots=True)
class Elastic:
    """A gang that may run smaller: `mode` is `at_start`, `restart` or `live`."""

    min_nodes: int
    mode: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Level names within which the gang must (`required`) or should (`preferred`) stay; empty means none. With
    segments, each `segment_nodes` nodes in gang order must stay within one domain of `segment_level`."""

    required: str = ""
    preferred: str = ""
    segment_nodes: int = 0
    segment_level: str = ""


@dataclass(frozen=True, slots=True)
class GpuPower:
    """The range of per-GPU power caps that the job accepts, in watts; 0 means no bound."""

    min_watts: int = 0
    max_watts: int = 0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as asked for. `time_limit_s` 0 means the default of its workload and queue applies."""

    name: str
    request: Request
    command: tuple[str, ...]  # argv; a shell line becomes ("/bin/sh", "-c", line); empty with groups
    queue: str = "default"
    workload: Workload = Workload.BATCH
    launch: LaunchKind = LaunchKind.RANKS
    priority: int = 0
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""  # empty: the attempt's own directory
    output: str = ""  # pattern under workdir; empty: kept by the agent, per rank
    time_limit_s: int = 0
    stop: Stop = Stop()
    retries: Retries = Retries()
    on_lost: OnLost = OnLost.WAIT_FOR_PROOF
    hold: bool = False
    topology: Topology = Topology()
    elastic: Elastic | None = None
    checkpoint: Checkpoint = Checkpoint()
    gpu_power: GpuPower = GpuPower()
    needs: tuple[str, ...] = ()  # names of storage that must be mounted
    compat: str = ""  # "slurm": SLURM_* in the environment
    labels: tuple[tuple[str, str], ...] = ()
    array: Array | None = None  # one submit makes a job for each index
    depends_on: tuple[Dependency, ...] = ()  # all of it must hold before it starts
    singleton: bool = False  # it starts when no earlier job of its name and person is left
    # One a group, in their order. `command` is empty then, so that an agent that knows no groups refuses the job with
    # its reason instead of running one command everywhere.
    commands: tuple[tuple[str, ...], ...] = ()

    def command_of(self, group: int) -> tuple[str, ...]:
        """What the processes of a group run, by its number; empty where there is no such group."""
        if not self.commands:
            return self.command
        return self.commands[group] if group < len(self.commands) else ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The POSIX identity a job runs as; the agent resolves `name` itself and refuses a difference."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = field(default=())
