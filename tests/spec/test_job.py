"""What contradicts in a job, alone and against its cluster, and what a job document becomes.

Comes in: fields of job documents. Goes out: proof of path and code, and of the model's values.
"""

from __future__ import annotations

import json

import pytest

from orchestrator import spec
from orchestrator.model.array import Array, Range
from orchestrator.model.codec import decode, encode
from orchestrator.model.dependency import Dependency, On
from orchestrator.model.job import Gang, JobSpec, LaunchKind, PerNode, Request, Topology, Workload
from tests.spec.said import JOB_HEAD, cluster_of, job_said

FAULTS: list[tuple[str, str, list[str]]] = [
    ("tasks and nodes", "tasks: 4\nnodes: 2\ncommand: x", ["spec.nodes job.not-with-form"]),
    ("tasks and per_node", "tasks: 4\nper_node: {gpus: 1}\ncommand: x", ["spec.per_node job.not-with-form"]),
    (
        "tasks and elastic",
        "tasks: 4\nelastic: {min_nodes: 1, mode: live}\ncommand: x",
        ["spec.elastic job.not-with-form"],
    ),
    (
        "per_task without tasks",
        "nodes: 4\nper_task: {gpus: 1}\ncommand: x",
        ["spec.per_task job.not-with-form"],
    ),
    (
        "a launcher of tasks",
        "tasks: 4\nlaunch: {kind: launcher}\ncommand: x",
        ["spec.tasks job.not-with-form"],
    ),
    (
        "a launcher with ranks",
        "nodes: 2\ntasks_per_node: 8\nlaunch: {kind: launcher}\ncommand: x",
        ["spec.tasks_per_node job.not-with-form"],
    ),
    (
        "more than all nodes",
        "nodes: 2\nelastic: {min_nodes: 3, mode: live}\ncommand: x",
        ["spec.elastic.min_nodes spec.min-over-max"],
    ),
    (
        "a cap over the other",
        "gpu_power: {min_watts: 700, max_watts: 500}\ncommand: x",
        ["spec.gpu_power.min_watts spec.min-over-max"],
    ),
    (
        "a signal that nobody names",
        "checkpoint: {by: signal}\ncommand: x",
        ["spec.checkpoint.stop spec.missing-field"],
    ),
    ("storage twice", "needs: [a, a]\ncommand: x", ["spec.needs[1] spec.duplicate-item"]),
    ("no command", "nodes: 1", ["spec.command spec.missing-field"]),
    ("an empty command", "command: '  '", ["spec.command job.empty-command"]),
    ("an empty list", "command: []", ["spec.command job.empty-command"]),
    ("a number among words", "command: [sleep, 5]", ["spec.command[1] spec.wrong-type"]),
    ("an unknown placeholder", "output: logs/%q.out\ncommand: x", ["spec.output job.bad-placeholder"]),
    (
        "a number as a variable",
        "env: {OMP_NUM_THREADS: 8}\ncommand: x",
        ["spec.env.OMP_NUM_THREADS spec.wrong-type"],
    ),
    (
        "a name of Gangline's own",
        "env: {GANGLINE_JOB: '1'}\ncommand: x",
        ["spec.env.GANGLINE_JOB spec.bad-name"],
    ),
    ("Slurm's tasks with nodes", "nodes: 2\nntasks: 16\ncommand: x", ["spec.ntasks spec.unknown-field"]),
    (
        "Slurm's tasks under a launcher",
        "ntasks: 16\nlaunch: {kind: launcher}\ncommand: x",
        ["spec.ntasks spec.unknown-field"],
    ),
    ("misspelt nodes with tasks", "tasks: 4\nnodez: 2\ncommand: x", ["spec.nodez spec.unknown-field"]),
    ("misspelt per_task", "per_tsk: {gpus: 1}\ncommand: x", ["spec.per_tsk spec.unknown-field"]),
    ("a bare number as time", "time_limit: 3600\ncommand: x", ["spec.time_limit spec.wrong-type"]),
    ("a relative workdir", "workdir: run7\ncommand: x", ["spec.workdir spec.bad-path"]),
    ("a way out of the workdir", "workdir: /home/../etc\ncommand: x", ["spec.workdir spec.bad-path"]),
    ("a number as indices", "array: {tasks: 7}\ncommand: x", ["spec.array.tasks spec.wrong-type"]),
    ("indices the wrong way round", "array: {tasks: 9-1}\ncommand: x", ["spec.array.tasks job.bad-array"]),
    ("too many tasks", "array: {tasks: 0-100000}\ncommand: x", ["spec.array.tasks job.bad-array"]),
    (
        "no task at a time",
        'array: {tasks: "1", at_most: 0}\ncommand: x',
        ["spec.array.at_most spec.out-of-range"],
    ),
    (
        "a job by its name",
        "depends_on: [{job: prep}]\ncommand: x",
        ["spec.depends_on[0].job job.bad-reference"],
    ),
    ("job 0", "depends_on: [{job: 0}]\ncommand: x", ["spec.depends_on[0].job spec.out-of-range"]),
    (
        "Slurm's word",
        "depends_on: [{job: 1, on: afterok}]\ncommand: x",
        ["spec.depends_on[0].on spec.bad-choice"],
    ),
    ("an index without an array", "output: '%a.out'\ncommand: x", ["spec.output job.no-index"]),
    (
        "all of a GPU as its share",
        "per_node: {gpu_share: 1}\ncommand: x",
        ["spec.per_node.gpu_share spec.out-of-range"],
    ),
    (
        "a share in percent",
        "per_node: {gpu_share: 50}\ncommand: x",
        ["spec.per_node.gpu_share spec.out-of-range"],
    ),
    (
        "too fine a share",
        "per_node: {gpu_share: 0.0005}\ncommand: x",
        ["spec.per_node.gpu_share spec.bad-number"],
    ),
    (
        "a share and whole GPUs",
        "tasks: 2\nper_task: {gpu_share: 0.5, gpus: 1}\ncommand: x",
        ["spec.per_task.gpu_share job.not-with-form"],
    ),
    (
        "a share of an instance",
        "per_node: {gpu_share: 0.5, mig: 1g.10gb}\ncommand: x",
        ["spec.per_node.gpu_share job.not-with-form"],
    ),
    ("no profile", "per_node: {mig: 10gb}\ncommand: x", ["spec.per_node.mig spec.bad-name"]),
    ("no instance", "per_node: {mig: 1g.10gb, gpus: 0}\ncommand: x", ["spec.per_node.mig job.not-with-form"]),
    (
        "memory of an instance",
        "per_node: {mig: 1g.10gb, gpu_memory: 10GiB}\ncommand: x",
        ["spec.per_node.gpu_memory job.not-with-form"],
    ),
    (
        "segments that leave nodes over",
        "nodes: 6\ntopology: {segment: {nodes: 4, level: unit}}\ncommand: x",
        ["spec.topology.segment.nodes job.uneven-segments"],
    ),
    (
        "segments of tasks",
        "tasks: 8\ntopology: {segment: {nodes: 4, level: unit}}\ncommand: x",
        ["spec.topology.segment job.not-with-form"],
    ),
    (
        "groups and nodes",
        "nodes: 2\ngroups: [{name: a}]\ncommand: x",
        ["spec.nodes job.not-with-form"],
    ),
    (
        "groups and what each node of them gives",
        "per_node: {gpus: 1}\ntasks_per_node: 2\ngroups: [{name: a}]\ncommand: x",
        ["spec.per_node job.not-with-form"],
    ),
    (
        "groups and another size",
        "elastic: {min_nodes: 1, mode: restart}\ngroups: [{name: a, nodes: 2}]\ncommand: x",
        ["spec.elastic job.not-with-form"],
    ),
    (
        "groups and Slurm's variables",
        "compat: slurm\ngroups: [{name: a}]\ncommand: x",
        ["spec.compat job.not-with-form"],
    ),
    (
        "groups of a batch script",
        "launch: {kind: batch}\ngroups: [{name: a}]\ncommand: x",
        ["spec.launch job.not-with-form"],
    ),
    (
        "groups in segments",
        "topology: {segment: {nodes: 2, level: unit}}\ngroups: [{name: a, nodes: 2}]\ncommand: x",
        ["spec.topology.segment job.not-with-form"],
    ),
    (
        "two groups of one name",
        "groups: [{name: a}, {name: b}, {name: a}]\ncommand: x",
        ["spec.groups[a].name spec.duplicate-name"],
    ),
    (
        "more groups than can be tried",
        f"groups: [{', '.join(f'{{name: g{number}}}' for number in range(9))}]\ncommand: x",
        ["spec.groups job.too-many-groups"],
    ),
    (
        "a group of tasks and nodes",
        "groups: [{name: a, tasks: 2, nodes: 1}]\ncommand: x",
        ["spec.groups[a].nodes job.not-with-form"],
    ),
    (
        "per_task in a group of nodes",
        "groups: [{name: a}, {name: b, nodes: 2, per_task: {gpus: 1}}]\ncommand: x",
        ["spec.groups[b].per_task job.not-with-form"],
    ),
    (
        "a launcher in a group of tasks",
        "launch: {kind: launcher}\ngroups: [{name: a, tasks: 2}]\ncommand: x",
        ["spec.groups[a].tasks job.not-with-form"],
    ),
    (
        "a share and whole GPUs in a group",
        "groups: [{name: a, tasks: 2, per_task: {gpu_share: 0.5, gpus: 1}}]\ncommand: x",
        ["spec.groups[a].per_task.gpu_share job.not-with-form"],
    ),
    (
        "a group without a name",
        "groups: [{nodes: 2}]\ncommand: x",
        ["spec.groups[0].name spec.missing-field"],
    ),
    (
        "misspelt nodes in a group",
        "groups: [{name: a, nodez: 2, tasks: 3}]\ncommand: x",
        ["spec.groups[a].nodez spec.unknown-field"],
    ),
    ("SIGKILL as a request", "stop: {signal: SIGKILL}\ncommand: x", ["spec.stop.signal spec.bad-choice"]),
]


@pytest.mark.parametrize(("name", "body", "wanted"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_what_contradicts_is_said_once_at_its_place(name: str, body: str, wanted: list[str]) -> None:
    assert job_said(body) == wanted


CLUSTER = cluster_of("""\
    storage: [{name: home, kind: nfs, source: "nas:/h", path: /home}]
    sites:
      - {name: hall, kind: metal, fabric: {levels: [unit, spine]}}
      - {name: use1, kind: aws, region: us-east-1}
    pools:
      - {name: any, site: use1, size: {max: 2}, offerings: [{type: [p4d.24xlarge, p5.48xlarge], market: on_demand}]}
      - {name: h100, site: hall, nodes: "n[1-4]", gpu: {model: H100-SXM5-80GB, count: 8}}
      - {name: spot, site: use1, size: {max: 4}, offerings: [{type: p5en.48xlarge, market: spot}]}
    queues: [{name: research}]
    """)

ON_SPOT = "queue: research\nper_node: {gpus: 1, gpu_model: H200-SXM5-141GB}\n"

GROUP_ON_SPOT = "groups: [{name: a}, {name: b, per_node: {gpus: 8, gpu_model: H200-SXM5-141GB}}]"

AGAINST: list[tuple[str, str, list[str]]] = [
    (
        "all is there",
        "queue: research\nneeds: [home]\ntopology: {required: spine, preferred: nvlink}\ncommand: x",
        [],
    ),
    ("no such queue", "queue: reserch\ncommand: x", ["spec.queue spec.dangling-reference"]),
    ("no default queue", "command: x", ["spec.queue spec.dangling-reference"]),
    (
        "no such storage",
        "queue: research\nneeds: [home, hom]\ncommand: x",
        ["spec.needs[1] spec.dangling-reference"],
    ),
    (
        "no such level",
        "queue: research\ntopology: {required: rack}\ncommand: x",
        ["spec.topology.required spec.dangling-reference"],
    ),
    (
        "no such level of segments",
        "queue: research\nnodes: 4\ntopology: {segment: {nodes: 2, level: unti}}\ncommand: x",
        ["spec.topology.segment.level spec.dangling-reference"],
    ),
    (
        "no such model",
        "queue: research\nper_node: {gpus: 8, gpu_model: [H200-SXM5-141GB, H100]}\ncommand: x",
        ["spec.per_node.gpu_model[1] spec.dangling-reference"],
    ),
    (
        "each model of a pool of two",
        "queue: research\nper_node: {gpus: 8, gpu_model: [A100-SXM4-40GB, H100-SXM5-80GB]}\ncommand: x",
        [],
    ),
    (
        "no such model in a group",
        "queue: research\ngroups: [{name: a}, {name: b, per_node: {gpus: 8, gpu_model: H10}}]\ncommand: x",
        ["spec.groups[b].per_node.gpu_model spec.dangling-reference"],
    ),
    (
        "a group too slow for spot",
        "queue: research\nstop: {grace: 3m}\ncommand: x\n" + GROUP_ON_SPOT,
        ["spec.stop.grace job.grace-over-notice"],
    ),
    (
        "too slow for spot",
        "queue: research\nper_node: {gpus: 8, gpu_model: H200-SXM5-141GB}\nstop: {grace: 121s}\ncommand: x",
        ["spec.stop.grace job.grace-over-notice"],
    ),
    (
        "just in time for spot",
        "queue: research\nper_node: {gpus: 8, gpu_model: H200-SXM5-141GB}\nstop: {grace: 2m}\ncommand: x",
        [],
    ),
    (
        "slow, but not on spot only",
        "queue: research\nper_node: {gpus: 8}\nstop: {grace: 10m}\ncommand: x",
        [],
    ),
    (
        "slow in its checkpoint",
        ON_SPOT + "checkpoint: {by: signal, stop: {signal: SIGUSR1, grace: 3m}}\ncommand: x",
        ["spec.checkpoint.stop.grace job.grace-over-notice"],
    ),
    (
        "a fault alone and one against it",
        "queue: none\ntasks: 2\nnodes: 1\ncommand: x",
        ["spec.queue spec.dangling-reference", "spec.nodes job.not-with-form"],
    ),
]


@pytest.mark.parametrize(("name", "body", "wanted"), AGAINST, ids=[name for name, _, _ in AGAINST])
def test_what_a_job_names_is_in_its_cluster(name: str, body: str, wanted: list[str]) -> None:
    assert job_said(body, CLUSTER) == wanted


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("partition: gpu", "did you mean 'queue'?"),
        ("ntasks: 4", "did you mean 'tasks'?"),
        ("time: 1h", "did you mean 'time_limit'?"),
        ("gpus: 8", "put it into per_node or per_task, as 'gpus'"),
        ("cpus-per-task: 4", "put it into per_node or per_task, as 'cores'"),
        ("per_node: {mem: 4GiB}", "did you mean 'memory'?"),
        ("quue: research", "did you mean 'queue'?"),
    ],
)
def test_words_of_other_schedulers_are_answered_with_ours(field: str, advice: str) -> None:
    (error,) = spec.load_job_text(f"{JOB_HEAD}  {field}\n  command: x\n", "job.yaml").errors

    assert (error.code, error.hint) == ("spec.unknown-field", advice)


def document(**spec_fields: object) -> dict[str, object]:
    return {"apiVersion": "gangline/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec_fields}


def test_groups_become_parts_of_one_gang_with_a_command_each() -> None:
    job = spec.job_from_document(
        document(
            groups=[
                {"name": "workers", "nodes": 2, "per_node": {"gpus": 8}, "tasks_per_node": 8},
                {"name": "loaders", "tasks": 3, "per_task": {"cores": 4}, "command": ["load"]},
                {"name": "judge"},
            ],
            command=["train"],
        )
    )
    workers = Gang(nodes=2, tasks_per_node=8, per_node=PerNode(gpus=8))
    loaders = Gang(tasks=3, per_task=PerNode(cores=4))
    assert [(one.name, one.gang) for one in job.request.groups] == [
        ("workers", workers),
        ("loaders", loaders),
        ("judge", Gang(nodes=1)),
    ]
    assert (job.command, job.commands) == ((), (("train",), ("load",), ("train",)))
    assert decode(JobSpec, encode(job)) == job


def test_a_document_becomes_a_job_in_base_units() -> None:
    job = spec.job_from_document(
        document(
            nodes=2,
            per_node={"gpus": 8, "memory": "1GiB"},
            time_limit="1h30m",
            workload="training",
            launch={"kind": "launcher"},
            env={"B": "2", "A": "1"},
            command="echo hi",
        )
    )
    assert job.request == Request(nodes=2, per_node=PerNode(gpus=8, memory=2**30))
    assert job.command == ("/bin/sh", "-c", "echo hi")
    assert (job.time_limit_s, job.workload, job.launch) == (5400, Workload.TRAINING, LaunchKind.LAUNCHER)
    assert job.env == (("A", "1"), ("B", "2"))
    assert job.queue == "default"
    assert decode(JobSpec, encode(job)) == job


def test_what_a_document_asks_of_devices_and_of_other_jobs_is_kept() -> None:
    job = spec.job_from_document(
        document(
            nodes=8,
            per_node={"gpu_share": 0.25, "gpu_memory": "20GiB", "labels": {"network": "fast", "a": "b"}},
            exclusive=True,
            topology={"segment": {"nodes": 4, "level": "unit"}},
            array={"tasks": "0-98:2,200", "at_most": 4},
            depends_on=[{"job": 12, "on": "end"}, {"job": "1234_7"}],
            singleton=True,
            command="x",
        )
    )
    labels = (("a", "b"), ("network", "fast"))
    assert job.request.per_node == PerNode(gpu_milli=250, gpu_memory=20 << 30, labels=labels)
    assert (job.request.exclusive, job.topology) == (True, Topology(segment_nodes=4, segment_level="unit"))
    assert job.array == Array((Range(0, 98, 2), Range(200, 200)), 4)
    assert job.depends_on == (Dependency(12, On.END), Dependency(1234, On.OK, 7))
    assert job.singleton
    assert decode(JobSpec, encode(job)) == job


def test_instances_are_one_unless_told_otherwise() -> None:
    one = spec.job_from_document(document(per_node={"mig": "1g.10gb+me"}, command="x"))
    two = spec.job_from_document(document(per_node={"mig": "1g.10gb", "gpus": 2}, command="x"))
    assert one.request.per_node == PerNode(gpus=1, mig="1g.10gb+me")
    assert two.request.per_node == PerNode(gpus=2, mig="1g.10gb")


def test_a_job_without_nodes_and_tasks_has_one_node() -> None:
    assert spec.job_from_document(document(command=["true"])).request == Request(nodes=1)
    assert spec.job_from_document(document(command=["true"])).command == ("true",)


def test_a_bad_document_tells_all_its_faults_without_places() -> None:
    bad = document(nodes=0, comand="x", env={"A": 1})
    before = json.dumps(bad)
    with pytest.raises(spec.InvalidDocument) as caught:
        spec.job_from_document(bad)
    assert json.dumps(bad) == before
    assert {(one.path, one.code, one.line) for one in caught.value.errors} == {
        ("spec.nodes", "spec.out-of-range", 0),
        ("spec.comand", "spec.unknown-field", 0),
        ("spec.env.A", "spec.wrong-type", 0),
    }
    assert caught.value.exit_code == 2
    assert caught.value.http_status == 422
    assert "and 2 more" in caught.value.message
    assert all(one.code in spec.FAULTS for one in caught.value.errors)


@pytest.mark.parametrize(
    "value", [None, 5, "x", [], [{}], {}, {"kind": "Job"}, {1: 2}, {"kind": "Cluster"}, object(), b"x"]
)
def test_whatever_a_client_sends_is_answered(value: object) -> None:
    with pytest.raises(spec.InvalidDocument):
        spec.job_from_document(value)


def test_a_document_that_is_too_deep_or_too_large_is_refused() -> None:
    deep: object = "x"
    for _ in range(500):
        deep = [deep]
    with pytest.raises(spec.InvalidDocument) as caught:
        spec.job_from_document(deep)
    assert caught.value.code == "spec.too-deep"
    with pytest.raises(spec.InvalidDocument) as caught:
        spec.job_from_document(document(command=["x"] * 50_000))
    assert caught.value.code == "spec.too-many-values"


def test_half_a_surrogate_pair_never_reaches_a_process() -> None:
    for fields in (
        {"command": "\ud800"},
        {"command": ["x", "\udfff"]},
        {"command": "x", "env": {"A": "\ud800"}},
    ):
        with pytest.raises(spec.InvalidDocument) as caught:
            spec.job_from_document(document(**fields))
        assert caught.value.code == "spec.bad-text"
        assert "\ud800" not in str(caught.value)
