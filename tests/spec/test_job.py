"""What contradicts in a job, alone and against its cluster, and what a job document becomes.

Comes in: fields of job documents. Goes out: proof of path and code, and of the model's values.
"""

from __future__ import annotations

import json

import pytest

from orchestrator import spec
from orchestrator.model.codec import decode, encode
from orchestrator.model.job import JobSpec, LaunchKind, PerNode, Request, Workload
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
