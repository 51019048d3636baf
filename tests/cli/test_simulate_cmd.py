"""`simulate` and `replay` as people call them: figures, documents, pictures, faults with their places, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.ledger.events import Event, to_stored
from orchestrator.model.clock import ManualClock
from orchestrator.simulate.settings import START_US, Settings
from orchestrator.store.open import open_store
from tests.builders import cluster, job, pool
from tests.cli.conftest import Said
from tests.simulate.stories import S, played, trace

Run = Callable[..., Said]

CLUSTER = """apiVersion: gangline/v1
kind: Cluster
metadata: {name: lab}
sites: [{name: here, kind: local}]
pools: [{name: p, site: here, nodes: "n[1-2]", cores: 64, memory: 512GiB, gpu: {model: H100-SXM5-80GB, count: 8}}]
"""
JOBS = "job,submit_s,run_s,nodes,gpus\n" + "".join(
    f"j{n},{60 * n},{900 + n},{1 + n % 2},8\n" for n in range(20)
)
POLICY = "apiVersion: gangline/v1\nkind: Policy\ndefault_time_limit: {batch: 10m}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("cluster.yaml", CLUSTER), ("jobs.csv", JOBS), ("short.yaml", POLICY)):
        (tmp_path / name).write_text(text)
    return tmp_path


CALL = ("simulate", "--cluster", "cluster.yaml", "--trace", "jobs.csv")


def test_figures_for_people(folder: Path, gangline: Run) -> None:
    said = gangline(*CALL)

    assert said.code == 0
    lines = dict(line.rsplit("  ", 1) for line in said.out.splitlines()[1:18] if "  " in line)
    assert {name.strip(): value.strip() for name, value in lines.items()}["jobs that succeeded"] == "20"
    assert "passes" in said.err
    assert "ms at p50" not in said.out  # what differs from run to run is no data


def test_two_policies_side_by_side(folder: Path, gangline: Run) -> None:
    said = gangline(*CALL, "--against", "short.yaml")

    assert said.out.splitlines()[0].split() == ["FIGURE", "defaults", "short"]
    failed = next(line for line in said.out.splitlines() if line.startswith("failed"))
    assert failed.split() == ["failed", "0", "20"]


def test_the_document_has_every_job_and_every_limit(folder: Path, gangline: Run) -> None:
    said = gangline(*CALL, "--policy", "short.yaml", "-o", "json")
    found = json.loads(said.out)

    assert (found["apiVersion"], found["kind"], found["cluster"]) == ("gangline/v1", "SimulationList", "lab")
    (item,) = found["items"]
    assert item["policy"] == "short"
    assert list(item["jobs"][0]) == [
        "job", "queue", "user", "state", "submit_s", "start_s", "end_s", "attempts", "nodes", "devices", "reason",
    ]  # fmt: skip
    first, second = item["jobs"][:2]
    assert (first["submit_s"], first["start_s"], first["end_s"], first["attempts"]) == (0, 0, 600, 1)
    (node,) = first["nodes"]
    assert first["devices"] == {node: list(range(8))}
    assert (second["start_s"], second["reason"], second["nodes"]) == (600, "wait.gpus", ["n1", "n2"])
    top = next(one for one in item["limits"] if (one["scope"], one["dimension"]) == ("cluster", "gpus"))
    assert top["steps"][0] == [0, 8]
    assert top["steps"][-1][1] == 0
    assert item["summary"]["wait_s"]["jobs"] == 20


def test_the_same_call_prints_the_same(folder: Path, gangline: Run) -> None:
    call = (*CALL, "--mtbf", "1h", "--repair", "10m", "--seed", "4", "-o", "json")
    first = gangline(*call)

    assert gangline(*call).out == first.out
    assert gangline(*call[:-3], "5", "-o", "json").out != first.out


def test_pictures(folder: Path, gangline: Run) -> None:
    assert gangline(*CALL, "--against", "short.yaml", "--html", "out.html").code == 0

    assert "short" in (folder / "out.html").read_text()
    said = gangline(*CALL, "--html", "no/such/folder.html")
    assert (said.code, "no/such/folder.html can't be written" in said.err) == (2, True)


def test_a_png_where_matplotlib_is(folder: Path, gangline: Run) -> None:
    pytest.importorskip("matplotlib")

    assert gangline(*CALL, "--png", "out.png").code == 0
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_packages_it_says_what_to_install(
    folder: Path, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    monkeypatch.delitem(__import__("sys").modules, "orchestrator.simulate.plot", raising=False)
    said = gangline(*CALL, "--png", "out.png")

    assert said.code == 1
    assert "the package matplotlib is not installed" in said.err
    assert "gangline[plot]" in said.err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cluster.yaml", CLUSTER.replace("pools", "poolz"), "cluster.yaml:5:1: poolz: unknown field"),
        (
            "jobs.csv",
            JOBS.replace("j3,180", "j3,18o"),
            "jobs.csv:5:4: submit_s: '18o' is no number of seconds",
        ),
        (
            "short.yaml",
            POLICY.replace("limit", "limits"),
            "short.yaml:3:1: default_time_limits: unknown field",
        ),
    ],
)
def test_faults_of_files_have_their_places(
    folder: Path, gangline: Run, name: str, text: str, said: str
) -> None:
    (folder / name).write_text(text)
    found = gangline(*CALL, "--policy", "short.yaml")

    assert found.code == 2
    assert said in found.err
    assert found.out == ""


@pytest.mark.parametrize(
    "option", [("--grid", "-1"), ("--time-scale", "0"), ("--launch", "nan"), ("--trace", "none.csv")]
)
def test_options_that_can_not_be_meant(folder: Path, gangline: Run, option: tuple[str, str]) -> None:
    said = gangline(*CALL, *option)

    assert (said.code, said.out) == (2, "")


def test_what_is_assumed_is_said(folder: Path, gangline: Run) -> None:
    (folder / "cluster.yaml").write_text(CLUSTER.replace("cores: 64, ", ""))

    assert "note: pool p says no cores" in gangline(*CALL).err


# --- replay ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The state folder of a controller that has run twelve jobs, as the simulator tells it."""
    told: list[Event] = []
    jobs = trace(*[(5 * n, 40, job(gpus=5)) for n in range(12)], (3, 40, job(gpus=1, time_limit_s=10)))
    played(cluster(pool(nodes=2)), jobs, Settings(launch_us=2 * S), sink=told.append)
    store = open_store(tmp_path / "state", ManualClock(START_US))
    epoch = store.claim(1)
    store.append([to_stored(event)._replace(epoch=epoch) for event in told])
    store.close()
    return tmp_path / "state"


def test_a_ledger_that_decides_the_same_again(ledger: Path, gangline: Run) -> None:
    said = gangline("replay", str(ledger))

    assert said.code == 0
    assert "13 starts: every pass decides the same again" in said.out
    found = json.loads(gangline("replay", str(ledger), "-o", "json").out)
    assert (found["kind"], found["same"], found["starts"], found["difference"]) == ("Replay", True, 13, None)


def test_the_first_difference(ledger: Path, gangline: Run, tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(POLICY)
    said = gangline("replay", str(ledger), "--policy", str(tmp_path / "short.yaml"))

    assert said.code == 1
    assert "recorded: attempt 1/1 on p-" in said.out
    assert "time limit 14400 s" in said.out
    assert "time limit 600 s" in said.out
    found = json.loads(
        gangline("replay", str(ledger), "--policy", str(tmp_path / "short.yaml"), "-o", "json").out
    )
    assert found["difference"]["decided"]["time_limit_s"] == 600


def test_what_is_no_ledger(tmp_path: Path, gangline: Run) -> None:
    said = gangline("replay", str(tmp_path))

    assert said.code == 1
    assert "there is no ledger" in said.err


def test_a_ledger_is_a_trace(ledger: Path, gangline: Run, folder: Path) -> None:
    """What ran on two nodes is played on one: the same jobs, at the same times, as long as they ran."""
    (folder / "one.yaml").write_text(CLUSTER.replace("n[1-2]", "n1"))
    said = gangline("simulate", "--cluster", "one.yaml", "--trace", str(ledger), "-o", "json")

    assert said.code == 0
    assert "13 jobs of the ledger" in said.err
    (item,) = json.loads(said.out)["items"]
    assert [one["submit_s"] for one in item["jobs"]][:4] == [0, 3, 5, 10]
    assert item["jobs"][0]["start_s"] == 2  # its launch takes as long as it took
    assert {round(one["end_s"] - one["start_s"], 3) for one in item["jobs"]} == {40, 10}
    assert [one["job"] for one in item["jobs"] if one["state"] == "failed"] == ["2"]


def test_decay_that_only_the_policy_file_asks_for_has_an_effect(folder: Path, gangline: Run) -> None:
    """Ann has used the node for an hour; then Bob, who has not, goes first, though he came last."""
    rows = ["job,submit_s,run_s,nodes,gpus,user", "a,0,3600,2,8,ann", "b,10,60,2,8,ann", "c,20,60,2,8,bob"]
    (folder / "jobs.csv").write_text("\n".join(rows) + "\n")
    head = "apiVersion: gangline/v1\nkind: Policy\n"
    (folder / "decay.yaml").write_text(head + "fair_share: decay\nhalf_life: 1d\n")
    (folder / "off.yaml").write_text(head + "fair_share: off\n")
    found = json.loads(gangline(*CALL, "--policy", "off.yaml", "--against", "decay.yaml", "-o", "json").out)
    starts = [[job["start_s"] for job in item["jobs"]] for item in found["items"]]
    assert starts == [[0, 3600, 3660], [0, 3660, 3600]]


def test_why_jobs_were_refused_or_wait_is_said(folder: Path, gangline: Run) -> None:
    rows = ["submit_s,run_s,nodes,gpus", "0,3600,2,8", "0,60,3,8", "0,60,1,9", "1,60,1,8"]
    (folder / "jobs.csv").write_text("\n".join(rows) + "\n")
    said = gangline(*CALL, "--until", "5m", "--html", "out.html")

    assert "refused or waiting, defaults: never.nodes (2), wait.gpus (1)" in said.out
    assert "never.nodes (2), wait.gpus (1)" in (folder / "out.html").read_text()
    assert not said.err.startswith("\n")
    assert json.loads(gangline(*CALL, "--until", "5m", "-o", "json").out)["items"][0]["summary"][
        "reasons"
    ] == {
        "never.nodes": 2,
        "wait.gpus": 1,
    }


def test_a_trace_without_jobs_is_said_to_have_none(folder: Path, gangline: Run) -> None:
    (folder / "jobs.csv").write_text("submit_s,run_s\n")
    said = gangline(*CALL, "--html", "out.html")

    assert (said.code, "note: the trace has no jobs" in said.err) == (0, True)
    assert "<td>none</td>" in (folder / "out.html").read_text()


def test_a_cluster_without_gpus(folder: Path, gangline: Run) -> None:
    (folder / "cluster.yaml").write_text(CLUSTER.replace(", gpu: {model: H100-SXM5-80GB, count: 8}", ""))
    (folder / "jobs.csv").write_text("submit_s,run_s,nodes,cores\n0,60,1,64\n0,60,2,64\n")
    said = gangline(*CALL, "--html", "out.html")

    assert (said.code, said.out.split("jobs that succeeded")[1].split()[0]) == (0, "2")
    assert "dollars of pool p" in (folder / "out.html").read_text()
