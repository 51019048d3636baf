"""PURE: from a launch to the plan of one unit: what runs, as whom, with which environment and which bounds.

Comes in: the controller's `Launch`, what this node is (`NodeContext`). Goes out: `Plan`, which the shepherd reads
from the attempt's folder. Called by: the daemon.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from orchestrator.agent import groups_env, layout, slurm_env
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import LaunchKind, OnLost, Owner, Stop
from orchestrator.model.protocol import GangPart, Launch

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a unit may use. `memory` in bytes, 0 for no bound; `cores` 0 for the usual share; `minors` are the numbers
    of its GPUs' nodes /dev/nvidiaN, `devices` patterns of further nodes; `stop_s` is the job's own grace; `closed` are
    addresses that its processes can't reach."""

    memory: int = 0
    cores: int = 0
    minors: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    stop_s: int = 0
    closed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """How the unit is kept together: `kind` is `systemd` (the scope `unit` with its `limits`, its group at `path`),
    `cgroup2` (with the group's `path`, and `home`, the shepherd's own group) or `process-tree`."""

    kind: str
    path: str = ""
    home: str = ""
    unit: str = ""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device of this node: its `slot` here, its `ordinal` in PCI order on the machine; emulated ones run nothing."""

    slot: int
    ordinal: int
    uuid: str = ""
    emulated: bool = False
    minor: int = -1  # of its node /dev/nvidiaN


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What a plan needs to know of the node and its agent. Seconds are seconds."""

    node: str
    place: str
    state_dir: str
    notices: str
    supervisor: str
    box_base: str = ""
    box_home: str = ""
    box_suffix: str = ""  # of the names of systemd's units
    devices: tuple[str, ...] = ()  # patterns of nodes that every job may open, besides the usual ones
    closed: tuple[str, ...] = ()  # addresses that no job may reach
    lease: str = ""
    gpus: tuple[Gpu, ...] = ()
    run_as_self: bool = False
    min_uid: int = 1000
    stuck_s: float = 15.0
    failure_grace_s: float = 1.0


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One process: its number in the gang, where its output goes (empty: the attempt's folder), its own variables."""

    rank: int
    output: str = ""
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a worker needs. `problem` is set where the launch can't run here at all."""

    attempt: AttemptId
    marker: str
    notices: str
    box: Box
    owner: Owner
    argv: tuple[str, ...]
    ranks: tuple[RankPlan, ...]
    env: dict[str, str]
    workdir: str
    stop: Stop
    lease: str = ""  # the file with the lease's end; empty: losing the controller ends nothing
    gpu_uuids: tuple[str, ...] = ()  # real devices, for the epilog gate
    run_as_self: bool = False
    min_uid: int = 1000
    stuck_s: float = 15.0
    failure_grace_s: float = 1.0
    problem: str = ""


def build(attempt: AttemptId, launch: Launch, context: NodeContext) -> Plan:
    """The plan of this node's part."""
    directory = layout.attempt_dir(context.state_dir, attempt)
    mark = layout.marker(attempt, context.place)
    mine = [gpu for gpu in context.gpus if gpu.slot in launch.slots]
    problem = _problem(launch, context)
    count = 0 if problem else _processes(launch)
    return Plan(
        attempt=attempt,
        marker=mark,
        notices=context.notices,
        box=_box(attempt, context, _limits(launch, context, mine)),
        owner=launch.owner,
        argv=_command(launch),
        ranks=tuple(_rank_plan(attempt, launch, context, local) for local in range(count)),
        env={} if problem else _common_env(attempt, launch, context, mine) | {"GANGLINE_UNIT": mark},
        workdir=launch.job.workdir or os.path.join(directory, layout.WORK),
        stop=launch.job.stop,
        lease=context.lease if launch.job.on_lost is OnLost.SELF_FENCE else "",
        # What computes on a shared device may be another attempt's; its own is gone when its box is empty.
        gpu_uuids=() if launch.milli else tuple(gpu.uuid for gpu in mine if not gpu.emulated),
        run_as_self=context.run_as_self,
        min_uid=context.min_uid,
        stuck_s=context.stuck_s,
        failure_grace_s=context.failure_grace_s,
        problem=problem,
    )


def bare(attempt: AttemptId, context: NodeContext) -> Plan:
    """What is known of a unit without records: only how it is kept together."""
    return Plan(
        attempt=attempt,
        marker=layout.marker(attempt, context.place),
        notices=context.notices,
        box=_box(attempt, context),
        owner=Owner("", 0, 0),
        argv=(),
        ranks=(),
        env={},
        workdir="",
        stop=Stop(),
        stuck_s=context.stuck_s,
        problem="its records were lost",
    )


def _problem(launch: Launch, context: NodeContext) -> str:
    if launch.job.launch is LaunchKind.BATCH and len(launch.parts) > 1:
        return "a batch script over several nodes needs step shims, which this agent does not have"
    if not 0 <= launch.index < len(launch.parts):
        return f"the launch names part {launch.index} of {len(launch.parts)}"
    if _processes(launch) < 1:
        return "the launch has no task for this node"
    if not _command(launch):
        return "the job has no command"
    broken = _broken_text(launch)
    if broken:
        return broken
    known = {gpu.slot for gpu in context.gpus}
    missing = sorted(set(launch.slots) - known)
    if missing:
        return f"this node has no device in slot {', '.join(map(str, missing))}"
    if launch.instances and any(not gpu.emulated for gpu in context.gpus if gpu.slot in launch.slots):
        return "its MIG instances would have to be made of real GPUs, which this agent can't do"
    return ""


def _broken_text(launch: Launch) -> str:
    """What no process can be given: the kernel ends texts at a zero byte, and names of variables at an equals sign."""
    job = launch.job
    texts = [*_command(launch), job.workdir, job.output, *(text for pair in job.env for text in pair)]
    if any("\0" in text for text in texts):
        return "the command, a variable or a path has a zero byte in it"
    bad = sorted(name for name, _ in job.env if not name or "=" in name)
    return f"{bad[0]!r} can't be the name of a variable" if bad else ""


def _limits(launch: Launch, context: NodeContext, mine: list[Gpu]) -> Limits:
    minors = tuple(gpu.minor for gpu in mine if gpu.minor >= 0)
    return Limits(
        launch.memory, launch.cores, minors, context.devices, launch.job.stop.grace_s, context.closed
    )


def _box(attempt: AttemptId, context: NodeContext, limits: Limits = Limits()) -> Box:
    if context.supervisor == "systemd":
        unit = f"{attempt.unit}{context.box_suffix}.scope"
        return Box("systemd", os.path.join(context.box_base, unit), unit=unit, limits=limits)
    if not context.box_base:
        return Box("process-tree")
    return Box("cgroup2", os.path.join(context.box_base, attempt.unit), context.box_home)


def _part(launch: Launch) -> GangPart:
    return launch.parts[launch.index]


def _command(launch: Launch) -> tuple[str, ...]:
    """What the processes of this node run: that of their group."""
    return launch.job.command_of(_part(launch).group if launch.job.commands else 0)


def _processes(launch: Launch) -> int:
    """Processes on this node: one per task, or the one launcher."""
    return _part(launch).tasks if launch.job.launch is LaunchKind.RANKS else 1


def _world(launch: Launch) -> int:
    return sum(part.tasks for part in launch.parts)


def expand_output(pattern: str, attempt: AttemptId, launch: Launch, rank: int, node: str) -> str:
    """`%j` job, `%A` array (or job), `%a` index, `%r` attempt, `%t` rank, `%N` node, `%x` name, `%u` user, `%%` a
    percent sign; others stay as they are."""
    words = {
        "j": str(attempt.job),
        "A": str(launch.array or attempt.job),
        "a": str(launch.array_index),
        "r": str(attempt.number),
        "t": str(rank),
        "N": node,
        "x": launch.job.name,
        "u": launch.owner.name,
        "%": "%",
    }
    done: list[str] = []
    chars = iter(pattern)
    for char in chars:
        if char != "%":
            done.append(char)
            continue
        key = next(chars, "")
        done.append(words.get(key, "%" + key))
    return "".join(done)


def output_path(attempt: AttemptId, launch: Launch, node: str, directory: str, rank: int) -> str:
    """The absolute path of a rank's output if the job names one, else empty."""
    if not launch.job.output:
        return ""
    workdir = launch.job.workdir or os.path.join(directory, layout.WORK)
    return os.path.join(workdir, expand_output(launch.job.output, attempt, launch, rank, node))


def _rank_plan(attempt: AttemptId, launch: Launch, context: NodeContext, local: int) -> RankPlan:
    rank = _part(launch).first_rank + local
    directory = layout.attempt_dir(context.state_dir, attempt)
    env = {"GANGLINE_RANK": str(rank), "GANGLINE_LOCAL_RANK": str(local)}
    env |= _share_of_gpus(launch, context, local)
    env |= groups_env.of_rank(launch, local)
    if launch.job.launch is LaunchKind.RANKS:
        env |= {"RANK": str(rank), "LOCAL_RANK": str(local)}
        env |= _torchrun_env(attempt, launch, nodes=_world(launch), node_rank=rank, processes=1)
    else:
        processes = _part(launch).tasks if _part(launch).tasks > 1 else max(1, launch.devices)
        env |= _torchrun_env(
            attempt, launch, nodes=len(launch.parts), node_rank=launch.index, processes=processes
        )
    if launch.job.compat == "slurm" or launch.job.launch is LaunchKind.BATCH:
        env |= slurm_env.of_rank(rank, local)
    return RankPlan(rank, output_path(attempt, launch, context.node, directory, rank), env)


def _common_env(attempt: AttemptId, launch: Launch, context: NodeContext, mine: list[Gpu]) -> dict[str, str]:
    """What all ranks here share. The job's own variables may set what the base sets, and none of Gangline's."""
    part, world = _part(launch), _world(launch)
    env = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"} | dict(launch.job.env)
    env |= {
        "GANGLINE_CLUSTER": launch.cluster,
        "GANGLINE_JOB_ID": str(attempt.job),
        "GANGLINE_JOB_NAME": launch.job.name,
        "GANGLINE_ATTEMPT": str(attempt.number),
        "GANGLINE_NODE": context.node,
        "GANGLINE_NODE_RANK": str(launch.index),
        "GANGLINE_NNODES": str(len(launch.parts)),
        "GANGLINE_NODES": ",".join(each.node for each in launch.parts),
        "GANGLINE_WORLD_SIZE": str(world),
        "GANGLINE_LOCAL_WORLD_SIZE": str(part.tasks),
        "GANGLINE_SCRATCH": os.path.join(layout.attempt_dir(context.state_dir, attempt), layout.SCRATCH),
        "MASTER_ADDR": launch.master_address,
        "MASTER_PORT": str(launch.master_port),
    }
    if launch.job.launch is LaunchKind.RANKS:
        env |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(part.tasks)}
    env |= groups_env.of_node(launch)
    if launch.array:
        env |= {"GANGLINE_ARRAY_ID": str(launch.array), "GANGLINE_ARRAY_INDEX": str(launch.array_index)}
    if launch.job.compat == "slurm" or launch.job.launch is LaunchKind.BATCH:
        env |= slurm_env.of_node(attempt, launch, world)
    return env | _devices_env(mine, launch.slots) | _shared_env(launch) | _instances_env(launch)


def _shared_env(launch: Launch) -> dict[str, str]:
    """What the attempt may use of devices that others use as well, in the order of CUDA_VISIBLE_DEVICES. Nothing keeps
    a process to it: frameworks that can be told a share are told by whoever wrote the job."""
    if not launch.milli or launch.instances:
        return {}
    env = {"GANGLINE_GPU_MILLI": ",".join(map(str, launch.milli))}
    if any(launch.device_bytes):
        env["GANGLINE_GPU_MEMORY"] = ",".join(map(str, launch.device_bytes))
    return env


def _instances_env(launch: Launch) -> dict[str, str]:
    """The unit's MIG instances, as `slot:profile@first slice`. Real ones would be UUIDs in CUDA_VISIBLE_DEVICES, of
    which CUDA lets a process see one."""
    if not launch.instances:
        return {}
    return {"GANGLINE_MIG_INSTANCES": ",".join(map(str, launch.instances))}


def _devices_env(mine: list[Gpu], slots: tuple[int, ...]) -> dict[str, str]:
    """All devices of the unit, the same list for each rank: CUDA peer access needs to see them all."""
    real = [str(gpu.ordinal) for gpu in mine if not gpu.emulated]
    env = {"CUDA_VISIBLE_DEVICES": ",".join(real), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if slots and not real:
        env["GANGLINE_EMULATED_GPUS"] = ",".join(map(str, slots))
    return env


def _share_of_gpus(launch: Launch, context: NodeContext, local: int) -> dict[str, str]:
    """Which of the visible devices (or instances) are this rank's own, as ordinals in that list, where tasks divide
    them."""
    processes, count = _processes(launch), launch.devices
    if launch.milli and not launch.instances:
        own = _shared_by_rank(launch)
        return {"GANGLINE_RANK_GPUS": str(own[local])} if local < len(own) else {}
    if not count or count % processes:
        return {}
    each = count // processes
    return {"GANGLINE_RANK_GPUS": ",".join(str(local * each + k) for k in range(each))}


def _shared_by_rank(launch: Launch) -> list[int]:
    """The device of each rank: what a task takes of one is known, so as many follow each other there as fit into what
    is taken of it. All ranks of a node that has one share of its own have that."""
    asked = launch.job.request.of_group(_part(launch).group)
    share = asked.per_task
    if not asked.tasks or len(launch.slots) == 1:
        return [0] * _processes(launch) if len(launch.slots) == 1 else []
    taken, each = (
        (launch.milli, share.gpu_milli) if share.gpu_milli else (launch.device_bytes, share.gpu_memory)
    )
    return [at for at, amount in enumerate(taken) for _ in range(amount // each if each else 0)]


def _torchrun_env(
    attempt: AttemptId, launch: Launch, nodes: int, node_rank: int, processes: int
) -> dict[str, str]:
    """torchrun reads each of its options from PET_<OPTION>. The static rendezvous keeps the gang's own order of
    nodes; a torchrun that fails is not restarted in place, since the whole gang ends on the first death."""
    address = launch.master_address or "127.0.0.1"
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_NODE_RANK": str(node_rank),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": f"{address}:{launch.master_port}",
        "PET_RDZV_ID": f"{attempt.job}-{attempt.number}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(launch.master_port),
        "PET_LOCAL_ADDR": _part(launch).address,
        "PET_MAX_RESTARTS": "0",
    }
