"""From a launch to what each process gets: environments, devices, outputs, and launches that can't run here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.agent import layout, plan
from orchestrator.agent.plan import Gpu, NodeContext, build, expand_output
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, LaunchKind, OnLost, Owner, PerNode, Request
from orchestrator.model.mig import MigInstance
from orchestrator.model.protocol import GangPart, Launch

SEVENTH = AttemptId(7, 2)
EMULATED = tuple(Gpu(slot, slot, emulated=True) for slot in range(8))
REAL = tuple(Gpu(slot, slot + 4, f"GPU-{slot}") for slot in range(4))  # the machine's last four of eight


def context(**more: Any) -> NodeContext:
    return NodeContext(
        "n2", "n2.abc", "/state", "/state/notices", "process-tree", **{"gpus": EMULATED, **more}
    )


def two_nodes(kind: LaunchKind, slots: tuple[int, ...] = (), tasks: int = 2, **job: Any) -> Launch:
    spec = JobSpec(
        "train", Request(nodes=2, per_node=PerNode(gpus=len(slots))), ("prog",), launch=kind, **job
    )
    parts = (GangPart("n1", "10.0.0.1", 0, tasks), GangPart("n2", "10.0.0.2", tasks, tasks))
    return Launch(spec, Owner("alice", 1000, 1000), parts, 1, slots, 4, 1 << 30, "10.0.0.1", 20001, "atlas")


def env_of(launch: Launch, local: int, **more: Any) -> dict[str, str]:
    made = build(SEVENTH, launch, context(**more))
    return {**made.env, **made.ranks[local].env}


def test_ranks_know_their_place_in_the_world() -> None:
    made = build(SEVENTH, two_nodes(LaunchKind.RANKS), context())
    assert [rank.rank for rank in made.ranks] == [2, 3]
    env = env_of(two_nodes(LaunchKind.RANKS), 1)
    wanted = {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20001",
        "GANGLINE_JOB_ID": "7", "GANGLINE_ATTEMPT": "2", "GANGLINE_NODE": "n2", "GANGLINE_NODE_RANK": "1",
        "GANGLINE_NNODES": "2", "GANGLINE_NODES": "n1,n2", "GANGLINE_RANK": "3", "GANGLINE_LOCAL_RANK": "1",
        "GANGLINE_WORLD_SIZE": "4", "GANGLINE_LOCAL_WORLD_SIZE": "2", "GANGLINE_CLUSTER": "atlas",
        "GANGLINE_UNIT": "gangline-7-2@n2.abc",
        "PET_NNODES": "4", "PET_NODE_RANK": "3", "PET_NPROC_PER_NODE": "1",
    }  # fmt: skip
    assert {name: env.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("slots", "tasks", "processes"), [((), 1, "1"), ((0, 1, 2), 1, "3"), ((0, 1), 4, "4")]
)
def test_launcher_runs_once_and_torchrun_finds_its_options(
    slots: tuple[int, ...], tasks: int, processes: str
) -> None:
    launch = two_nodes(LaunchKind.LAUNCHER, slots, tasks)
    assert len(build(SEVENTH, launch, context()).ranks) == 1
    env = env_of(launch, 0)
    wanted = {
        "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": processes, "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "10.0.0.1:20001", "PET_RDZV_ID": "7-2", "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "20001", "PET_MAX_RESTARTS": "0", "PET_LOCAL_ADDR": "10.0.0.2",
    }  # fmt: skip
    assert {name: env.get(name) for name in wanted} == wanted
    assert "RANK" not in env
    assert "WORLD_SIZE" not in env


def test_real_devices_are_ordinals_of_the_machine_and_shared_by_all_ranks() -> None:
    launch = two_nodes(LaunchKind.RANKS, (1, 3))
    made = build(SEVENTH, launch, context(gpus=REAL))
    assert made.gpu_uuids == ("GPU-1", "GPU-3")
    env = env_of(launch, 1, gpus=REAL)
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("5,7", "PCI_BUS_ID")
    assert env["GANGLINE_RANK_GPUS"] == "1"
    assert "GANGLINE_EMULATED_GPUS" not in env


def test_emulated_devices_hide_real_ones() -> None:
    env = env_of(two_nodes(LaunchKind.RANKS, (1, 3)), 0)
    assert (env["CUDA_VISIBLE_DEVICES"], env["GANGLINE_EMULATED_GPUS"]) == ("", "1,3")
    assert build(SEVENTH, two_nodes(LaunchKind.RANKS, (1, 3)), context()).gpu_uuids == ()


def test_job_without_devices_sees_none() -> None:
    env = env_of(two_nodes(LaunchKind.RANKS), 0, gpus=REAL)
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "GANGLINE_RANK_GPUS" not in env


def test_tasks_that_do_not_divide_the_devices_share_them_all() -> None:
    assert "GANGLINE_RANK_GPUS" not in env_of(two_nodes(LaunchKind.RANKS, (0, 1, 2)), 0)


def test_own_variables_go_before_defaults_and_never_before_ours() -> None:
    own = (("PATH", "/opt/bin"), ("RANK", "99"), ("GANGLINE_JOB_ID", "0"), ("X", "y"))
    env = env_of(two_nodes(LaunchKind.RANKS, env=own), 0)
    assert (env["PATH"], env["X"], env["RANK"], env["GANGLINE_JOB_ID"]) == ("/opt/bin", "y", "2", "7")


def test_slurm_variables_only_where_asked_for() -> None:
    assert not any(name.startswith("SLURM") for name in env_of(two_nodes(LaunchKind.RANKS), 0))
    env = env_of(two_nodes(LaunchKind.RANKS, compat="slurm"), 1)
    wanted = {
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4",
        "SLURM_NNODES": "2",
    }
    assert {name: env.get(name) for name in wanted} == wanted
    assert env["SLURM_RESTART_COUNT"] == "1"


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("out", "out"),
        ("%j-%r-%t-%N", "7-2-3-n2"),
        ("%A/%x-%u-%a", "7/train-alice-0"),
        ("100%%/%t", "100%/3"),
        ("%q%", "%q%"),
    ],
)
def test_output_patterns(pattern: str, want: str) -> None:
    assert expand_output(pattern, SEVENTH, two_nodes(LaunchKind.RANKS), 3, "n2") == want


def test_a_task_knows_its_array_and_index() -> None:
    launch = replace(two_nodes(LaunchKind.RANKS), array=5, array_index=40)
    env = env_of(launch, 0)
    assert (env["GANGLINE_ARRAY_ID"], env["GANGLINE_ARRAY_INDEX"]) == ("5", "40")
    assert "SLURM_ARRAY_TASK_ID" not in env
    assert "GANGLINE_ARRAY_ID" not in env_of(two_nodes(LaunchKind.RANKS), 0)
    assert expand_output("%A_%a", SEVENTH, launch, 0, "n2") == "5_40"


def test_slurm_s_words_of_an_array() -> None:
    array = Array(read_tasks("38-42:2,90"))
    launch = replace(two_nodes(LaunchKind.RANKS, compat="slurm", array=array), array=5, array_index=40)
    env = env_of(launch, 0)
    assert {name: value for name, value in env.items() if name.startswith("SLURM_ARRAY")} == {
        "SLURM_ARRAY_JOB_ID": "5",
        "SLURM_ARRAY_TASK_ID": "40",
        "SLURM_ARRAY_TASK_COUNT": "4",
        "SLURM_ARRAY_TASK_MIN": "38",
        "SLURM_ARRAY_TASK_MAX": "90",
        "SLURM_ARRAY_TASK_STEP": "2",
    }


def test_a_shared_device_is_visible_with_its_share_and_holds_up_no_end() -> None:
    """Others compute on it, so the gate at the end of the attempt looks at its own processes alone."""
    launch = replace(two_nodes(LaunchKind.RANKS, (1,)), milli=(250,), device_bytes=(20 << 30,))
    env = env_of(launch, 1, gpus=REAL)
    assert (env["CUDA_VISIBLE_DEVICES"], env["GANGLINE_GPU_MILLI"]) == ("5", "250")
    assert env["GANGLINE_GPU_MEMORY"] == str(20 << 30)
    made = build(SEVENTH, launch, context(gpus=REAL))
    assert made.gpu_uuids == ()
    without = env_of(replace(launch, device_bytes=(0,)), 0, gpus=REAL)
    assert "GANGLINE_GPU_MEMORY" not in without
    assert "GANGLINE_GPU_MILLI" not in env_of(two_nodes(LaunchKind.RANKS, (1,)), 0, gpus=REAL)


@pytest.mark.parametrize(
    ("share", "slots", "milli", "memory", "tasks", "own"),
    [
        (PerNode(gpu_milli=500), (0, 2), (1000, 500), (0, 0), 3, ["0", "0", "1"]),
        (PerNode(gpu_milli=300), (0, 2), (900, 300), (0, 0), 4, ["0", "0", "0", "1"]),
        (PerNode(gpu_memory=1 << 30), (0, 2), (13, 26), (1 << 30, 2 << 30), 3, ["0", "1", "1"]),
        (PerNode(gpu_milli=500), (3,), (1000,), (0,), 2, ["0", "0"]),
    ],
)
def test_each_task_has_its_share_on_one_device(
    share: PerNode,
    slots: tuple[int, ...],
    milli: tuple[int, ...],
    memory: tuple[int, ...],
    tasks: int,
    own: list[str],
) -> None:
    launch = two_nodes(LaunchKind.RANKS, slots, tasks)
    request = Request(tasks=2 * tasks, per_task=share)
    launch = replace(launch, milli=milli, device_bytes=memory, job=replace(launch.job, request=request))
    assert [env_of(launch, local)["GANGLINE_RANK_GPUS"] for local in range(tasks)] == own


def test_output_lies_under_the_workdir() -> None:
    made = build(SEVENTH, two_nodes(LaunchKind.RANKS, workdir="/home/alice", output="o/%t"), context())
    assert [rank.output for rank in made.ranks] == ["/home/alice/o/2", "/home/alice/o/3"]
    made = build(SEVENTH, two_nodes(LaunchKind.RANKS, output="/abs/%t"), context())
    assert made.ranks[0].output == "/abs/2"
    assert made.workdir == f"{layout.attempt_dir('/state', SEVENTH)}/work"


def test_only_who_chose_it_has_a_lease() -> None:
    assert build(SEVENTH, two_nodes(LaunchKind.RANKS), context(lease="/state/lease")).lease == ""
    fenced = two_nodes(LaunchKind.RANKS, on_lost=OnLost.SELF_FENCE)
    assert build(SEVENTH, fenced, context(lease="/state/lease")).lease == "/state/lease"


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (two_nodes(LaunchKind.BATCH), "shims"),
        (two_nodes(LaunchKind.RANKS, (0, 9)), "slot 9"),
        (two_nodes(LaunchKind.RANKS, tasks=0), "no task"),
        (two_nodes(LaunchKind.RANKS, env=(("A=B", "c"),)), "'A=B' can't be the name"),
        (two_nodes(LaunchKind.RANKS, env=(("A", "c\0"),)), "zero byte"),
        (Launch(JobSpec("x", Request(tasks=1), ("p",)), Owner("a", 1, 1), (), 0), "part 0 of 0"),
    ],
)
def test_what_cannot_run_here_says_why(launch: Launch, words: str) -> None:
    made = build(SEVENTH, launch, context())
    assert words in made.problem
    assert made.ranks == ()


def test_plan_survives_its_file() -> None:
    made = build(SEVENTH, two_nodes(LaunchKind.RANKS, (0, 1)), context(box_base="/cg", box_home="/home"))
    assert decode(plan.Plan, encode(made)) == made
    assert made.box == plan.Box("cgroup2", "/cg/gangline-7-2", "/home")
    bare = plan.bare(SEVENTH, context())
    assert decode(plan.Plan, encode(bare)) == bare


def test_mig_instances_of_emulated_gpus_are_told_and_shared_out_among_the_ranks() -> None:
    instances = tuple(MigInstance(1, "1g.10gb", start, 1) for start in (4, 5, 6, 2))
    launch = replace(two_nodes(LaunchKind.RANKS, (1,)), milli=(500,), instances=instances)
    env = env_of(launch, 1)
    assert env["GANGLINE_MIG_INSTANCES"] == "1:1g.10gb@4,1:1g.10gb@5,1:1g.10gb@6,1:1g.10gb@2"
    assert (env["GANGLINE_EMULATED_GPUS"], env["GANGLINE_RANK_GPUS"]) == ("1", "2,3")
    assert "GANGLINE_GPU_MILLI" not in env


def test_an_instance_never_runs_on_a_whole_real_gpu() -> None:
    launch = replace(
        two_nodes(LaunchKind.RANKS, (1,)), milli=(125,), instances=(MigInstance(1, "1g.10gb", 0, 1),)
    )
    made = build(SEVENTH, launch, context(gpus=REAL))
    assert "MIG instances would have to be made of real GPUs" in made.problem
    assert (made.ranks, made.env) == ((), {})
