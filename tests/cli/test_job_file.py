"""Documents from options and files: what `run` makes of its options, what `--set` changes, where faults are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.job_file import Asked, document_of, job_name, put, read_job
from orchestrator.model.errors import InputError
from orchestrator.spec import InvalidDocument, job_from_document

JOB = """apiVersion: gangline/v1
kind: Job
metadata: {name: a}
spec:
  nodes: 2
  env: {LR: "1"}
  command: python train.py
"""


@pytest.mark.parametrize(
    ("asked", "gang"),
    [
        ({}, {"tasks": 1, "per_task": {}}),
        ({"tasks": 16, "gpus_per_task": 1}, {"tasks": 16, "per_task": {"gpus": 1}}),
        ({"nodes": 2, "gpus_per_node": 8}, {"nodes": 2, "per_node": {"gpus": 8}}),
        (
            {"nodes": 2, "tasks": 16, "gpus_per_task": 1},
            {"nodes": 2, "per_node": {"gpus": 8}, "tasks_per_node": 8},
        ),
        ({"gpus_per_node": 8}, {"nodes": 1, "per_node": {"gpus": 8}}),
        ({"gpus_per_node": 8, "tasks": 4}, {"nodes": 1, "per_node": {"gpus": 8}, "tasks_per_node": 4}),
        (
            {"launch": "launcher", "gpus_per_node": 8},
            {"nodes": 1, "per_node": {"gpus": 8}, "launch": {"kind": "launcher"}},
        ),
        (
            {"gpu_share": 0.5, "gpu_memory": "20GiB", "labels": {"network": "fast"}, "exclusive": True},
            {
                "tasks": 1,
                "per_task": {"gpu_share": 0.5, "gpu_memory": "20GiB", "labels": {"network": "fast"}},
                "exclusive": True,
            },
        ),
        (
            {"nodes": 8, "mig": "1g.10gb", "segment": (4, "unit")},
            {
                "nodes": 8,
                "per_node": {"mig": "1g.10gb"},
                "topology": {"segment": {"nodes": 4, "level": "unit"}},
            },
        ),
        (
            {"tasks": 2, "cores": 4, "memory": "8GiB", "gpu_model": ("H100",)},
            {"tasks": 2, "per_task": {"cores": 4, "memory": "8GiB", "gpu_model": ["H100"]}},
        ),
    ],
)
def test_the_gang(asked: dict[str, Any], gang: dict[str, Any]) -> None:
    spec = document_of(Asked(("true",), **asked))["spec"]

    assert {key: spec[key] for key in spec if key != "command"} == gang


def test_every_document_of_run_is_one_that_the_spec_accepts() -> None:
    document = document_of(
        Asked(
            ("./train.sh", "--lr", "0.1"),
            nodes=2,
            gpus_per_node=4,
            queue="research",
            priority=5,
            time_limit_s=5400,
            launch="launcher",
            workdir="/home/alice",
            output="logs/%j-%t.out",
            env={"A": "b"},
        )
    )

    job = job_from_document(document)
    assert (job.name, job.queue, job.priority, job.time_limit_s) == ("train.sh", "research", 5, 5400)
    assert (job.command, job.workdir, job.output, job.env) == (
        ("./train.sh", "--lr", "0.1"),
        "/home/alice",
        "logs/%j-%t.out",
        (("A", "b"),),
    )


def test_a_launcher_counts_nodes() -> None:
    with pytest.raises(InputError, match="once per node"):
        document_of(Asked(("torchrun",), nodes=2, tasks=4, launch="launcher"))


def test_tasks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InputError, match="5 tasks can't be spread evenly over 2 nodes"):
        document_of(Asked(("true",), nodes=2, tasks=5))


@pytest.mark.parametrize(
    ("program", "name"),
    [("/usr/bin/python3.11", "python3.11"), ("./tr@in.sh", "tr-in.sh"), ("--", "job"), ("ä", "job")],
)
def test_job_name(program: str, name: str) -> None:
    assert job_name(program) == name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_a_file_is_sent_as_it_stands(file: Path) -> None:
    assert read_job(str(file), ())["spec"] == {"nodes": 2, "env": {"LR": "1"}, "command": "python train.py"}


def test_set_changes_values_and_adds_some(file: Path) -> None:
    document = read_job(
        str(file), ("spec.nodes=4", "spec.env.SEED='7'", 'spec.command=["a", "b"]', "spec.per_node.gpus=8")
    )

    assert document["spec"] == {
        "nodes": 4,
        "env": {"LR": "1", "SEED": "7"},
        "command": ["a", "b"],
        "per_node": {"gpus": 8},
    }


def test_set_makes_a_faulty_file_good(file: Path) -> None:
    file.write_text(JOB.replace("nodes: 2", "nodes: -2"))

    assert read_job(str(file), ("spec.nodes=2",))["spec"]["nodes"] == 2


@pytest.mark.parametrize(
    "setting", ["spec.nodes", "=3", "spec..nodes=3", "spec.nodes.x=3", "spec.env=[", "spec.command.x=1"]
)
def test_bad_settings(file: Path, setting: str) -> None:
    with pytest.raises(InputError):
        read_job(str(file), (setting,))


def test_faults_have_their_place(file: Path) -> None:
    file.write_text(JOB.replace("nodes: 2", "nodez: 2"))

    with pytest.raises(InvalidDocument) as caught:
        read_job(str(file), ())

    assert (caught.value.errors[0].line, caught.value.errors[0].column) == (5, 3)


@pytest.mark.parametrize(
    "text", ["#!/bin/bash\n#SBATCH -N 2\nsrun a\n", "#SBATCH -n 2\n", "#!/bin/sh\ntrue\n"]
)
def test_batch_scripts_are_refused_with_a_way_out(file: Path, text: str) -> None:
    file.write_text(text)

    with pytest.raises(InputError) as caught:
        read_job(str(file), ())

    assert caught.value.code == "submit.script"
    assert "gangline run -- ./script" in caught.value.hint


def test_a_missing_file_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read_job(str(tmp_path / "no.yaml"), ())

    assert caught.value.code == "spec.file-not-found"


def test_put_does_not_reach_through_texts() -> None:
    with pytest.raises(InputError, match="no fields"):
        put({"spec": {"command": "a"}}, "spec.command.a=1")
