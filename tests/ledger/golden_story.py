"""The story of the golden ledger, played once by the real controller; `python -m tests.ledger.golden_story` writes it.

Comes in: nothing. Goes out: golden/ledger.jsonl and golden/snapshot-1.json, if they are not there yet. Called by:
people, once. Later controllers may decide otherwise; the files stay what a released version wrote.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from orchestrator.controller import commands
from orchestrator.ledger.snapshot import VERSION, to_plain
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost, Stop
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import GangPart, Launch
from tests.builders import BOB, cluster, job, pool, queue
from tests.controller.world import Held, World
from tests.ledger.samples import GOLDEN


def play(world: World) -> None:
    """Gangs that end well and badly, a node that reboots, one that freezes, one that falls silent, and people."""
    say = world.do
    say(commands.CreateToken("t1", "ab" * 32, "join", "a-1", "user:root"))
    say(commands.JoinNode("a-1", NodeFacts("boot-1", 8, 1 << 36), "t2", "cd" * 32, used="t1"))
    world.beat()
    good = world.submit(job("good", nodes=2, gpus=4), key="alice:1")
    bad = world.submit(job("bad", tasks=2, gpus=1, job_failures=1), BOB)
    world.settle(3)
    for agent in world.agents.values():
        for attempt in list(agent.running):
            agent.finish(attempt, code=3 if attempt.job == bad and agent.name == "b-1" else 0)
    world.settle(3)
    world.agents["a-1"].reboot()
    for attempt in list(world.agents["b-1"].running):
        world.agents["b-1"].finish(attempt, code=4)
    world.settle(3)
    frozen = world.submit(
        job("frozen", nodes=1, gpus=2, models=("L40S-48GB",), stop=Stop("SIGINT", "all", 5))
    )
    world.settle(3)
    assert world.agents["b-1"].running
    world.agents["b-1"].unkillable = True
    say(commands.CancelJob(frozen, "user:alice", "too slow"))
    world.settle(3)
    nowhere = world.submit(job("nowhere", gpus=2))
    for agent in world.agents.values():
        agent.refuse[nowhere] = "no such directory: /data"
    world.settle(4)
    world.submit(job("fenced", gpus=4, on_lost=OnLost.SELF_FENCE))
    world.submit(job("waits", nodes=2, gpus=4, priority=1))
    say(commands.HoldJob(world.submit(job("held", gpus=1)), "user:bob", "later"))
    world.settle(3)
    say(commands.CordonNode("a-2", "user:root", "a fan"))
    for silent_s in (70, 70):
        world.wait(silent_s)
        world.beat("a-1", "a-2")
    world.agents["a-2"].journal[AttemptId(500, 1)] = Held(_forgotten(), prepared=True, started=True)
    world.beat("a-2")
    world.beat("a-2")
    say(commands.Recover("user:root", without=("b-1",)))
    world.settle(1)
    assert good < bad < frozen


def _forgotten() -> Launch:
    """What a node says of an attempt that the ledger does not know."""
    parts = (GangPart("a-2", "127.0.0.1", 0, 1),)
    return Launch(job("forgotten", time_limit_s=60), BOB, parts, 0, (3,), 1, master_port=20400)


def write(folder: Path) -> None:
    """Play it and keep what came out."""
    with tempfile.TemporaryDirectory() as place:
        spec = cluster(
            pool("a", nodes=2, gpus=4, cores=8),
            pool("b", nodes=1, gpus=2, cores=4, model="L40S-48GB"),
            queues=(queue("default", max_running_jobs=9),),
        )
        world = World(Path(place), spec)
        play(world)
        told = list(world.store.tail(0))
        snapshot = to_plain(world.state)
        world.kill_controller()
    lines = [json.dumps(each._asdict(), separators=(",", ":")) for each in told]
    (folder / "ledger.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / f"snapshot-{VERSION}.json").write_text(json.dumps(snapshot, indent=1) + "\n")
    sys.stdout.write(f"{len(told)} events of {len({each.type for each in told})} types\n")


if __name__ == "__main__":
    if (GOLDEN / "ledger.jsonl").exists():
        sys.exit("it is there: a golden ledger is never written again")
    write(GOLDEN)
