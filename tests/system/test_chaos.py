"""Controllers, agents, nurseries and shepherds, all killed at random moments under one load.

GANGLINE_CHAOS_KILLS and GANGLINE_CHAOS_SEED, if given, say how many and from which seed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from orchestrator.agent import procfs
from tests.system.conftest import MakeCluster
from tests.system.harness import Cluster
from tests.system.keeper import Keeper, Submitter
from tests.system.processes import carriers
from tests.system.workload import Work, gang, single

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

KILLS = int(os.environ.get("GANGLINE_CHAOS_KILLS") or 60)
SEED = int(os.environ.get("GANGLINE_CHAOS_SEED") or 7)
PAUSE_S = (0.02, 0.4)  # between two deaths
KINDS = (
    (Work(lines=20), gang()),
    (Work(lines=30, pause="0.2"), single(2)),
    (Work(lines=20, pause="0.3"), gang(tasks=1, gpus=1)),
    (Work(lines=3), single(1)),
)
WHOM = (
    "controller",
    "agent",
    "agent",
    "gl-nursery",
    "gl-shepherd",
    "gl-shepherd",
    "gl-idle",
    "gl-mop",
    "gl-prepare",
)


def strike(cluster: Cluster, dice: random.Random) -> str:
    """Kill one process of a random kind, if there is one; whom."""
    kind = dice.choice(WHOM)
    if kind == "controller":
        pids = [cluster.controller.process.pid]
    elif kind == "agent":
        pids = [agent.process.pid for agent in cluster.agents.values()]
    else:
        pids = [each.pid for each in carriers(cluster.folder, ()) if each.name == kind]
    if not pids:
        return ""
    with suppress(ProcessLookupError):
        os.kill(dice.choice(sorted(pids)), signal.SIGKILL)
    return kind


def test_everything_is_killed_at_random(make_cluster: MakeCluster) -> None:
    """A shepherd's death alone ends an attempt; whatever else dies, nothing is lost, doubled, or left.

    Over TCP, where the other tests use the Unix socket.
    """
    cluster = make_cluster(nodes=3, tcp=True)
    dice = random.Random(SEED)
    struck: list[str] = []
    jobs: list[int] = []
    with Keeper(cluster) as keeper, Submitter(cluster) as submitter:
        while len(struck) < KILLS:
            submitter.put(*KINDS[len(struck) % len(KINDS)], retries={"node_failure": 1000})
            time.sleep(dice.uniform(*PAUSE_S))  # the random moment
            if kind := strike(cluster, dice):
                struck.append(kind)
        jobs = submitter.wait()
        for found in cluster.succeeded(*jobs):
            cluster.check_logs(found)
    assert {code for _, code in keeper.deaths} == {-signal.SIGKILL}
    ledger = cluster.finish()
    causes = {each.cause for history in ledger.histories.values() for each in history.attempts}
    assert causes <= {"completed", "node_failed", "prepare_failed"}
    assert {"controller", "agent", "gl-nursery", "gl-shepherd"} <= set(struck)
    assert procfs.stat(cluster.controller.process.pid) is None
