"""PURE: the SLURM_* variables that scripts written for Slurm read, for `compat: slurm` and batch jobs only.

Comes in: an attempt and its launch. Goes out: variables with Slurm's meaning of each. Called by: plan.
"""

from __future__ import annotations

from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import Launch


def of_node(attempt: AttemptId, launch: Launch, world: int) -> dict[str, str]:
    """What all ranks of this node share."""
    names = ",".join(part.node for part in launch.parts)
    return _of_array(launch) | {
        "SLURM_JOB_ID": str(attempt.job),
        "SLURM_JOBID": str(attempt.job),
        "SLURM_JOB_NAME": launch.job.name,
        "SLURM_JOB_PARTITION": launch.job.queue,
        "SLURM_JOB_USER": launch.owner.name,
        "SLURM_JOB_NUM_NODES": str(len(launch.parts)),
        "SLURM_NNODES": str(len(launch.parts)),
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_NTASKS": str(world),
        "SLURM_NPROCS": str(world),
        "SLURM_TASKS_PER_NODE": ",".join(str(part.tasks) for part in launch.parts),
        "SLURM_NODEID": str(launch.index),
        "SLURMD_NODENAME": launch.parts[launch.index].node if launch.parts else "",
        "SLURM_STEP_ID": "0",
        "SLURM_RESTART_COUNT": str(attempt.number - 1),
        "SLURM_CPUS_ON_NODE": str(launch.cores),
        "SLURM_GPUS_ON_NODE": str(launch.devices),
        "SLURM_LAUNCH_NODE_IPADDR": launch.master_address,
    }


def _of_array(launch: Launch) -> dict[str, str]:
    array = launch.job.array
    if not launch.array or array is None:
        return {}
    first, last = array.tasks[0], array.tasks[-1]
    return {
        "SLURM_ARRAY_JOB_ID": str(launch.array),
        "SLURM_ARRAY_TASK_ID": str(launch.array_index),
        "SLURM_ARRAY_TASK_COUNT": str(array.count()),
        "SLURM_ARRAY_TASK_MIN": str(first.first),
        "SLURM_ARRAY_TASK_MAX": str(last.last),
        "SLURM_ARRAY_TASK_STEP": str(first.step),
    }


def of_rank(rank: int, local: int) -> dict[str, str]:
    """What one rank has of its own."""
    return {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local)}
