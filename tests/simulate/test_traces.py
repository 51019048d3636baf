"""Traces of three formats: what they become, and how every fault is told with its place."""

from __future__ import annotations

import gzip
from dataclasses import fields
from pathlib import Path

import pytest

from orchestrator.model.errors import InputError
from orchestrator.model.job import Checkpoint, PerNode, Retries, Topology, Workload
from orchestrator.scheduler import Policy
from orchestrator.simulate.faults import TraceError
from orchestrator.simulate.trace import Special, Trace
from orchestrator.simulate.trace_csv import COLUMNS
from orchestrator.simulate.traces import load_trace, scaled
from orchestrator.wire.policy import PolicyDocument
from tests.builders import cluster, job, queue
from tests.simulate.stories import S, trace

SPEC = cluster(queues=(queue("first"), queue("queue7")))
GIB = 1 << 30
DOCS = Path(__file__).resolve().parents[2] / "docs" / "simulate.md"


def read(tmp_path: Path, text: str, name: str = "jobs.csv", **more: float) -> Trace:
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return load_trace(str(path), SPEC, **more)  # type: ignore[arg-type]


def faults(tmp_path: Path, text: str, name: str = "jobs.csv") -> list[tuple[int, int, str]]:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text, name)
    return [(fault.line, fault.column, fault.code) for fault in caught.value.faults]


# --- own CSV --------------------------------------------------------------------------------------------------------


def test_the_least_that_a_job_says(tmp_path: Path) -> None:
    trace = read(tmp_path, "run_s,submit_s\n5,1.25\n")

    spec = trace.spec(0)
    assert (trace.submit_us[0], trace.run_us[0], trace.name(0)) == (1_250_000, 5 * S, "1")
    assert (spec.queue, spec.request.tasks, spec.request.per_task) == ("first", 1, PerNode())


def test_everything_that_a_job_may_say(tmp_path: Path) -> None:
    names = [name for name in COLUMNS if name not in ("tasks", "gpu_milli", "run_s@MODEL")]
    row = {
        **dict.fromkeys(names, ""),
        "job": "pretrain",
        "submit_s": "0",
        "run_s": "60",
        "nodes": "2",
        "gpus": "8",
        "gpu_memory": "40GiB",
        "gpu_model": "A100|H100",
        "cores": "96",
        "memory": "960GiB",
        "queue": "queue7",
        "user": "bob",
        "workload": "training",
        "priority": "-3",
        "time_limit_s": "90.5",
        "exclusive": "1",
        "segment": "2:unit",
        "required": "spine",
        "preferred": "unit",
        "checkpoint_s": "1800",
        "fail_after_s": "20",
        "fail_attempts": "1",
        "job_retries": "2",
        "node_retries": "7",
    }
    trace = read(tmp_path, ",".join(names) + "\n" + ",".join(row[name] for name in names) + "\n")

    spec = trace.spec(0)
    assert spec.request.nodes == 2
    assert spec.request.per_node == PerNode(8, 96, 960 * GIB, ("A100", "H100"), gpu_memory=40 * GIB)
    assert (spec.queue, spec.workload, spec.priority, spec.time_limit_s) == (
        "queue7",
        Workload.TRAINING,
        -3,
        91,
    )
    assert spec.topology == Topology("spine", "unit", 2, "unit")
    assert spec.request.exclusive
    assert (spec.checkpoint, spec.retries) == (Checkpoint("job", 1800), Retries(7, 2))
    assert (trace.name(0), trace.owners[0].name) == ("pretrain", "bob")
    assert trace.special == {0: Special((), 20 * S, 1)}


def test_run_times_by_model(tmp_path: Path) -> None:
    trace = read(tmp_path, "submit_s,run_s@V100,run_s@K80\n0,10,50\n0,20,\n")

    assert [trace.run_on_us(0, model) // S for model in ("V100", "K80", "P100")] == [10, 50, 50]
    assert [trace.run_on_us(1, model) // S for model in ("V100", "K80")] == [20, 20]


def test_jobs_are_in_order_of_arrival_and_keep_what_is_theirs(tmp_path: Path) -> None:
    trace = read(tmp_path, "job,submit_s,run_s,fail_after_s\nlate,9,1,3\nb,5,2,\na,5,3,\n")

    assert [trace.name(job) for job in range(3)] == ["b", "a", "late"]
    assert list(trace.run_us) == [2 * S, 3 * S, S]
    assert list(trace.special) == [2]


def test_jobs_that_ask_for_the_same_share_a_shape(tmp_path: Path) -> None:
    trace = read(tmp_path, "submit_s,run_s,gpus,user\n0,1,1,a\n0,2,1,b\n0,3,2,a\n0,4,1,a\n")

    assert (len(trace.shapes), list(trace.shape), list(trace.owner)) == (2, [0, 0, 1, 0], [0, 1, 0, 0])


def test_comments_blank_lines_quotes_and_packed_files(tmp_path: Path) -> None:
    text = '# from the portal\nsubmit_s,run_s,user\n\n0,1,"bob, the second"\n'

    assert [owner.name for owner in read(tmp_path, text).owners] == ["bob, the second"]
    assert [owner.name for owner in read(tmp_path, text, "jobs.csv.gz").owners] == ["bob, the second"]


def test_a_time_scale_divides_all_times(tmp_path: Path) -> None:
    trace = read(tmp_path, "submit_s,run_s,time_limit_s,fail_after_s\n100,50,600,20\n", time_scale=10)

    assert (trace.submit_us[0], trace.run_us[0], trace.spec(0).time_limit_s) == (10 * S, 5 * S, 60)
    assert trace.special[0].fail_after_us == 2 * S


def test_a_time_scale_divides_what_a_ledger_says_of_single_jobs() -> None:
    recorded = trace(
        (0, 9, job(), Special(launch_us=4 * S, sooner_us=(2 * S, 0), decide_us=S)), (0, 9, job())
    )

    found = scaled(recorded, 2).special

    assert found == {0: Special(launch_us=2 * S, sooner_us=(S, 0), decide_us=S // 2)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [(0, 0, "trace.empty")]),
        ("submit_s,run_s,gpuz\n0,1,1\n", [(1, 16, "trace.unknown-column")]),
        ("submit_s,gpus\n0,1\n", [(1, 1, "trace.missing-column")]),
        (
            "submit_s,gpus\n0,x\n0\n",
            [(1, 1, "trace.missing-column"), (2, 3, "trace.bad-value"), (3, 1, "trace.bad-line")],
        ),
        ("kind: Cluster\nsites: []\na,b\n", [(1, 1, "trace.no-header")]),
        ("submit_s,run_s@A,run_s@B\n0,,\n", [(2, 1, "trace.missing-value")]),
        ("submit_s,run_s,run_s\n", [(1, 16, "trace.duplicate-column")]),
        ("submit_s,run_s\n0\n", [(2, 1, "trace.bad-line")]),
        ("submit_s,run_s\n,x\n", [(2, 1, "trace.missing-value"), (2, 2, "trace.bad-value")]),
        ("submit_s,run_s\n-1,1\n0,1e99\n", [(2, 1, "trace.bad-value"), (3, 3, "trace.bad-value")]),
        ("submit_s,run_s,nodes,tasks\n0,1,1,1\n", [(2, 7, "trace.exclusive")]),
        (
            "submit_s,run_s,gpus,gpu_milli\n0,1,1,500\n0,1,,1500\n",
            [(2, 7, "trace.exclusive"), (3, 6, "trace.bad-value")],
        ),
        ("submit_s,run_s,workload\n0,1,trainin\n", [(2, 5, "trace.bad-value")]),
        ("submit_s,run_s,memory\n0,1, 4 apples\n", [(2, 6, "trace.bad-value")]),
        ('submit_s,run_s\n0,"1\n', [(2, 1, "trace.bad-line")]),
    ],
)
def test_every_fault_has_its_place(tmp_path: Path, text: str, found: list[tuple[int, int, str]]) -> None:
    assert sorted(faults(tmp_path, text)) == found


def test_faults_of_all_lines_come_together_and_not_without_end(tmp_path: Path) -> None:
    found = faults(tmp_path, "submit_s,run_s\n" + "x,1\n" * 1200)

    assert len(found) == 1001
    assert found[-1] == (0, 0, "trace.more-faults")


def test_the_docs_list_every_column() -> None:
    text = DOCS.read_text()

    assert [name for name in COLUMNS if f"| `{name}` | {COLUMNS[name]} |" not in text] == []


def test_the_docs_name_every_setting_of_the_scheduler() -> None:
    text = DOCS.read_text()
    written = [name for name in PolicyDocument.model_fields if name not in ("api_version", "kind")]
    said = {"kept": "kept_jobs", "default_time_limit_s": "default_time_limit"}
    assert {said.get(one.name, one.name) for one in fields(Policy)} | {"half_life"} == set(written)
    assert [name for name in written if f"\n{name}: " not in text] == []


def test_a_file_that_can_not_be_read_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"submit_s,run_s\n" * 50)[:20])
    (tmp_path / "latin.csv").write_bytes(b"submit_s,run_s,user\n0,1,J\xf6rg\n")

    for name in ("none.csv", "cut.csv.gz", "latin.csv"):
        with pytest.raises(InputError, match=name):
            load_trace(str(tmp_path / name), SPEC)


# --- SWF ------------------------------------------------------------------------------------------------------------


def swf(*changes: tuple[int, str]) -> str:
    """One line: job 12 of user 3, submitted at 100, ran 60 s on 4 processors, in queue 7."""
    fields = [
        "12",
        "100",
        "5",
        "60",
        "4",
        "-1",
        "-1",
        "4",
        "3600",
        "1048576",
        "1",
        "3",
        "-1",
        "-1",
        "7",
        "-1",
        "-1",
        "-1",
    ]
    for at, word in changes:
        fields[at] = word
    return " ".join(fields) + "\n"


def test_a_job_of_the_standard_workload_format(tmp_path: Path) -> None:
    trace = read(tmp_path, "; Computer: x\n" + swf(), "log.swf")

    spec = trace.spec(0)
    assert (trace.submit_us[0], trace.run_us[0], trace.name(0)) == (100 * S, 60 * S, "12")
    assert (spec.request.tasks, spec.request.per_task) == (4, PerNode(cores=1, memory=GIB))
    assert (spec.queue, spec.time_limit_s, trace.owners[0].name) == ("queue7", 3600, "user3")


def test_what_is_not_known_has_defaults_and_what_never_ran_is_left_out(tmp_path: Path) -> None:
    unknown = swf((7, "-1"), (8, "-1"), (9, "-1"), (14, "4"))
    trace = read(tmp_path, unknown + swf((3, "-1")) + swf((4, "0"), (7, "0")), "log.swf.gz")

    assert len(trace) == 1
    assert (trace.spec(0).queue, trace.spec(0).time_limit_s) == ("first", 0)


def test_processors_may_be_gpus(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(swf())

    assert load_trace(str(tmp_path / "log.swf"), SPEC, gpus=True).spec(0).request.total_gpus() == 4


def test_faults_of_the_standard_workload_format(tmp_path: Path) -> None:
    assert faults(tmp_path, "1 2 3\n" + swf((3, "6o")), "log.swf") == [
        (1, 1, "trace.bad-line"),
        (2, 10, "trace.bad-value"),
    ]


# --- openb ----------------------------------------------------------------------------------------------------------

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)


def test_pods_of_openb(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        OPENB
        + "pod-b,11900,1024,1,460,V100M16|V100M32,LS,Running,1000,1600,1100\n"
        + "pod-a,4000,512,8,1000,,BE,Pending,900,950,\n",
    )

    assert [(trace.name(job), trace.submit_us[job] // S, trace.run_us[job] // S) for job in (0, 1)] == [
        ("pod-a", 0, 50),
        ("pod-b", 100, 500),
    ]
    shares = [trace.spec(job).request.per_task for job in (0, 1)]
    assert shares[0] == PerNode(8, 4, 512 << 20)
    assert shares[1] == PerNode(0, 12, GIB, ("V100M16", "V100M32"), 460)


def test_faults_of_openb(tmp_path: Path) -> None:
    assert faults(tmp_path, OPENB + "p,x,1,1,1000,,LS,Running,5,9,\n") == [(2, 3, "trace.bad-value")]
    assert faults(tmp_path, "cpu_milli,num_gpu,gpu_milli\n1,1,1\n") == [(1, 1, "trace.missing-column")] * 3
