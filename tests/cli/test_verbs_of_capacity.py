"""`nodes`, `gpus`, `queues`, `status`, `token`: their tables to the letter, emulated GPUs called that."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from orchestrator.cli.nodes_cmd import gpu_listing, node_listing
from orchestrator.cli.queues_cmd import queue_listing
from orchestrator.cli.session import Session
from orchestrator.cli.status_cmd import words
from orchestrator.cli.token_cmd import token_listing
from orchestrator.cli.topology_cmd import topology_listing
from orchestrator.wire import api_cluster as wire
from tests.cli.conftest import Said
from tests.cli.fakes import NOW, FakeClient, ago, device, node, reason

Run = Callable[..., Said]
Make = Callable[..., FakeClient]
TABLE = Session()


def mark(kind: str, why: str) -> wire.Mark:
    return wire.Mark(kind=kind, why=why, by="user:bob", since=ago(60))


NODES = [
    node("n1"),
    node(
        "n2",
        open=False,
        marks=[mark("cordoned", "fan replacement")],
        devices=[device(0, emulated=True)],
        jobs=[],
    ),
    node("n3", open=False, contact="unreachable", devices=[], jobs=list(range(9)), cores=0, memory_bytes=0),
]


def test_nodes() -> None:
    assert node_listing(NOW).text(NODES, TABLE).split("\n") == [
        "NAME  POOL  STATE        FREE  GPUS  MODEL          CORES  MEMORY  JOBS      WHY",
        "n1    h100  open            1     2  H100           90/96    1TiB  7         -",
        "n2    h100  cordoned        1     1  emulated H100  90/96    1TiB  -         fan replacement",
        "n3    h100  unreachable     0     0  -                  -       -  0,1,2,+6  -",
    ]


def test_nodes_of_one_pool(controller: Make, gangline: Run) -> None:
    controller().found_nodes = [node("a"), node("b", pool="other")]

    assert gangline("nodes", "--pool", "other", "-o", "name").out == "b\n"
    assert [item["name"] for item in json.loads(gangline("nodes", "-o", "json").out)["items"]] == ["a", "b"]


def test_gpus() -> None:
    pool = wire.GpuPool(
        model="H100",
        pool="local",
        site="here",
        emulated=True,
        nodes=4,
        open_nodes=3,
        total=32,
        free=18,
        allocated=6,
        not_ready=8,
        largest=8,
        shapes=[
            wire.FreeShape(gpus=8, nodes=2),
            wire.FreeShape(gpus=2, nodes=1),
            wire.FreeShape(gpus=0, nodes=1),
        ],
        largest_milli=1000,
        stranded=6,
    )

    divided = pool.model_copy(
        update={
            "shapes": [],
            "instances": [
                wire.FreeInstances(profile="1g.10gb", free=10),
                wire.FreeInstances(profile="7g.80gb", free=0),
                wire.FreeInstances(profile="3g.40gb", free=3),
            ],
        }
    )
    assert "10 × 1g.10gb, 3 × 3g.40gb" in gpu_listing().text([divided], TABLE)
    assert gpu_listing().text([pool], TABLE).split("\n") == [
        "MODEL          POOL   FREE  TOTAL  ALLOCATED  NOT READY  NODES  CAN ASK         SHARE  STRANDED",
        "emulated H100  local    18     32          6          8    3/4  8 on 2, 2 on 1      1   6 (33%)",
    ]


def test_queues() -> None:
    limits = wire.QueueLimits(
        default_time_limit_s=0,
        max_time_limit_s=14400,
        max_running_jobs=0,
        max_waiting_jobs=0,
        max_jobs_per_user=5,
        max_gpus_per_user=0,
        max_gpus_per_job=0,
    )
    queue = wire.Queue(
        name="research",
        parent="",
        weight=2,
        guarantee=[wire.QueueShare(pool="h100", gpu_model="", gpus=48)],
        borrow_limit=[],
        limits=limits,
        running_jobs=3,
        used_gpus=40,
        waiting_jobs=2,
        waiting_gpus=24,
        held_jobs=1,
        used_milli=39250,
        borrowed_milli=500,
        share_milli=19625,
        reason=reason("wait.gpus", fit=1),
        reason_jobs=2,
    )

    assert queue_listing().text([queue], TABLE).split("\n") == [
        "NAME      GUARANTEE   WEIGHT  RUNNING   GPUS  BORROWED   SHARE  WAITING  GPUS ASKED  HELD  MOST WAIT FOR",
        "research  48 of h100       2        3  39.25       0.5  19.625        2          24     1  wait.gpus (2)",
    ]
    assert "LONGEST" in queue_listing().text([queue], Session(output="wide"))
    powered = queue.model_copy(update={"used_watts": 28000})
    assert "  GPUS  KW  BORROWED" in queue_listing(powered=True).text([powered], TABLE)
    assert "39.25  28       0.5" in queue_listing(powered=True).text([powered], TABLE)


STATUS = wire.Status(
    cluster="lab",
    digest="d",
    version="0.1",
    epoch=7,
    seq=1234,
    updated_at=ago(4),
    now=NOW,
    recovering=False,
    orphans=0,
    nodes=wire.NodeCounts(total=4, open=3, silent=0, marked=1),
    gpus=wire.GpuCounts(total=32, free=8, allocated=16, not_ready=8, emulated=32),
    jobs=wire.JobCounts(held=0, waiting=2, starting=0, running=1, ending=0, lost=0),
)


def test_a_pool_without_nodes_is_named(controller: Make, gangline: Run) -> None:
    controller()

    assert (
        gangline("nodes", "--pool", "nope").err
        == "no nodes in pool nope; `gangline nodes` shows those of all pools\n"
    )
    assert gangline("nodes").err == "no nodes; `gangline up cluster.yaml` brings them\n"


def test_status() -> None:
    assert words(STATUS).split("\n") == [
        "  cluster     lab",
        "  controller  version 0.1, epoch 7, 1,234 events",
        "  last event  4s ago",
        "  nodes       3 of 4 open, 1 marked: `gangline nodes` says why",
        "  GPUs        8 free of 32, 16 allocated, 8 not ready, all emulated",
        "  jobs        1 running, 2 waiting",
    ]


def test_status_of_a_bought_pool_has_its_dollars_and_a_line_for_each_offering_that_rests() -> None:
    offering = wire.OfferingState(
        type="p5.48xlarge",
        market="spot",
        zone="us-east-1a",
        reservation="",
        state="resting",
        at_once=1,
        failures=1,
        fault="capacity",
        words="there is none",
        retry_at=ago(-60),
    )
    pool = wire.BoughtPool(
        pool="burst",
        site="use1",
        least=0,
        most=4,
        asked=0,
        booting=2,
        ready=0,
        releasing=0,
        usd_per_hour=60,
        billed_s=3600,
        billed_usd=12.5,
        blocked="",
        offerings=[
            offering,
            offering.model_copy(update={"zone": "us-east-1b", "state": "out", "retry_at": None}),
        ],
        stuck=[],
    )
    lines = words(STATUS.model_copy(update={"uid": "7pesgl2al8rc", "bought": [pool]})).split("\n")
    assert lines[1] == "  uid         7pesgl2al8rc"
    assert lines[-3:] == [
        "  pool burst  0 of 0 to 4 ready, 2 booting, $60.00 an hour, $12.50 for nodes that are gone",
        "              p5.48xlarge spot in us-east-1a rests for 1m00s (capacity: there is none)",
        "              p5.48xlarge spot in us-east-1b rests until the file changes (capacity: there is none)",
    ]


def test_status_names_what_needs_a_person() -> None:
    found = words(STATUS.model_copy(update={"recovering": True, "orphans": 2, "cluster": ""}))

    assert "gangline server recover` lets starts go on" in found
    assert "2: `gangline server recover` takes them back" in found
    assert "none yet: `gangline up cluster.yaml`" in found


def test_status_says_what_an_apply_has_left() -> None:
    last = wire.LastApply(
        id="apply-35",
        holder="alice@ctl",
        outcome=None,
        leased=True,
        done=2,
        total=5,
        pending=["h1", "h2"],
        detail="",
    )
    assert "apply       apply-35 of alice@ctl: under way; 2 of 5 steps done; pending: h[1-2]" in words(
        STATUS.model_copy(update={"apply": last})
    )
    dead = last.model_copy(update={"leased": False})
    assert "left open, its holder gives no sign of life" in words(STATUS.model_copy(update={"apply": dead}))
    failed = last.model_copy(update={"outcome": "partial", "leased": False, "detail": "h2: no space left"})
    found = words(STATUS.model_copy(update={"apply": failed}))
    assert (
        "partial; 2 of 5 steps done; pending: h[1-2] (h2: no space left): `gangline apply` goes on" in found
    )
    done = last.model_copy(update={"outcome": "done"})
    assert words(STATUS.model_copy(update={"apply": done})) == words(STATUS)


def test_tokens() -> None:
    tokens = [
        wire.Token(id="t1", role="submit", name="alice", created_at=ago(3600), expires_at=None),
        wire.Token(id="t2", role="join", name="n1", created_at=ago(60), expires_at=ago(-7200)),
        wire.Token(id="t3", role="join", name="n2", created_at=ago(7200), expires_at=ago(60)),
    ]

    assert token_listing(NOW).text(tokens, TABLE).split("\n") == [
        "ID  ROLE    NAME     AGE  ENDS IN",
        "t1  submit  alice  1h00m    never",
        "t2  join    n1     1m00s    2h00m",
        "t3  join    n2     2h00m    ended",
    ]


def test_a_new_tokens_secret_is_all_that_is_on_stdout(controller: Make, gangline: Run) -> None:
    controller()

    said = gangline("token", "create", "--role", "submit", "--name", "alice", "--expires", "30d")

    assert (said.code, said.out) == (0, "gln_secret\n")
    assert "the secret is not shown again" in said.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_the_command_back(gangline: Run, shell: str) -> None:
    said = gangline("completion", shell)

    assert said.code == 0
    assert f"_GANGLINE_COMPLETE={shell}_complete" in said.out.replace("env ", "")


def test_completion_of_ids_asks_the_controller(
    controller: Make, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.cli.fakes import job

    controller(job(12), job(13))
    monkeypatch.setenv("_GANGLINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "gangline cancel 1")
    monkeypatch.setenv("COMP_CWORD", "2")

    assert gangline().out.split() == ["plain,12", "plain,13"]


def test_completion_without_a_controller_is_silent(gangline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GANGLINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "gangline cancel ")
    monkeypatch.setenv("COMP_CWORD", "2")

    said = gangline()
    assert (said.out.strip(), said.err) == ("", "")


def test_version_without_a_controller(gangline: Run) -> None:
    said = gangline("version")

    assert said.code == 0
    assert said.out.splitlines()[1] == "no controller answers"
    assert json.loads(gangline("version", "--client", "-o", "json").out)["server"] is None


def test_topology() -> None:
    whole = wire.WholeNodes(nodes=4, gpus=8, pool="h100")
    spine = wire.TopologyDomain(
        site="hall",
        level="spine",
        domain="sp-1",
        nodes=8,
        node_names="h100-[01-08]",
        open_nodes=7,
        gpus=64,
        free_gpus=35,
        largest_gang=4,
        gangs=[whole],
    )
    left = spine.model_copy(update={"domain": "", "gangs": [], "node_names": "h100-09", "free_gpus": 0})

    assert topology_listing().text([spine, left], TABLE).split("\n") == [
        "SITE  LEVEL  DOMAIN  NODES         OPEN  FREE  GPUS  LARGEST GANG",
        "hall  spine  sp-1    h100-[01-08]   7/8    35    64    4 x 8 GPUs",
        "hall  spine  -       h100-09        7/8     0    64             -",
    ]


def test_topology_with_power() -> None:
    rack = wire.TopologyDomain(
        site="hall",
        level="power",
        domain="rack-1",
        nodes=4,
        node_names="h100-[01-04]",
        open_nodes=4,
        gpus=32,
        free_gpus=9,
        largest_gang=0,
        gangs=[],
        power=wire.PowerUse(
            used_watts=31250, limit_watts=44000, parent="", fed_by=["a", "b"], redundancy="2N"
        ),
    )
    feed = rack.model_copy(
        update={
            "domain": "a",
            "power": wire.PowerUse(used_watts=9000, limit_watts=0, parent="hall", fed_by=[], redundancy="N"),
        }
    )
    site = rack.model_copy(update={"level": "site", "domain": "hall", "power": None})

    assert topology_listing(powered=True).text([site, feed, rack], TABLE).split("\n") == [
        "SITE  LEVEL  DOMAIN  NODES         OPEN  FREE  GPUS  LARGEST GANG        KW  FED BY",
        "hall  site   hall    h100-[01-04]   4/4     9    32             -         -  -",
        "hall  power  a       h100-[01-04]   4/4     9    32             -         9  hall",
        "hall  power  rack-1  h100-[01-04]   4/4     9    32             -  31.25/44  2N a+b",
    ]
