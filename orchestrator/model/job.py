"""What a person asks for: a job, its gang and its rules, in base units.

Comes in: values that `spec` has read and checked. Goes out: `JobSpec`, which the ledger keeps, the scheduler
places and the agent runs. Called by: spec (builds it), ledger, scheduler, controller, agent (read it).

Units: seconds, bytes, watts, whole GPUs. Nothing here is optional by accident: a field that may be absent says
what its absence means.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.base import Word


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


# What may follow a % in `JobSpec.output`, besides %% for the sign itself; the agent fills them in.
OUTPUT_PLACEHOLDERS = (("j", "job"), ("a", "attempt"), ("t", "rank"), ("N", "node"))


@dataclass(frozen=True, slots=True)
class PerNode:
    """What every node of the gang gives. `gpu_models` empty means any model."""

    gpus: int = 0
    cores: int = 0
    memory: int = 0  # bytes
    gpu_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """The gang: either `nodes` nodes with `per_node` each, or `tasks` tasks with `per_task` each.

    Exactly one of `nodes` and `tasks` is not 0. With `nodes`, `tasks_per_node` ranks start on each; with `tasks`,
    the scheduler chooses how many go to which node and never splits one.
    """

    nodes: int = 0
    tasks: int = 0
    tasks_per_node: int = 1
    per_node: PerNode = PerNode()
    per_task: PerNode = PerNode()

    def total_gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.nodes * self.per_node.gpus + self.tasks * self.per_task.gpus

    def total_tasks(self) -> int:
        """Ranks of the whole gang."""
        return self.nodes * self.tasks_per_node + self.tasks


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
    """Level names within which the gang must (`required`) or should (`preferred`) stay; empty means none."""

    required: str = ""
    preferred: str = ""


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
    command: tuple[str, ...]  # argv; a shell line becomes ("/bin/sh", "-c", line)
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


@dataclass(frozen=True, slots=True)
class Owner:
    """The POSIX identity a job runs as; the agent resolves `name` itself and refuses a difference."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = field(default=())
