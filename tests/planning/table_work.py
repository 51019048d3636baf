"""What a change does to jobs: which end in time, which are told to end, which hold it up, which wait longer.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from orchestrator.planning.world import Running, Waiting
from tests.planning.scene import HOUR, NOW, Edits, Scene

NEW_DRIVER: Edits = {"pools[h100].software.driver": "580.200.1"}

SCENES = (
    Scene(
        "a job that ends in time",
        new=NEW_DRIVER,
        running=(Running(5, "alice", "research", ("h100-03", "h100-04"), 16, NOW + HOUR),),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        job 5 drained on h100-[03-04]
        """,
    ),
    Scene(
        "a job that is told to checkpoint",
        new=NEW_DRIVER,
        running=(Running(5, "alice", "research", ("h100-03", "h100-04"), 16, NOW + 30 * HOUR),),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        job 5 stopped on h100-[03-04]
        """,
    ),
    Scene(
        "a job of which nobody knows when it ends",
        new=NEW_DRIVER,
        running=(Running(5, "alice", "research", ("h100-07",), 8),),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[08,07]
        job 5 stopped on h100-07
        """,
    ),
    Scene(
        "a job that the pool waits for",
        new={"pools[old].software.driver": "580.200.1"},
        running=(Running(5, "alice", "research", ("a100-1",), 4),),
        want="""
        pools[old].software.driver: - -> 580.200.1 [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-2
        old.2: cordon drain configure(base,agent) accept uncordon a100-1
        job 5 blocks on a100-1
        """,
    ),
    Scene(
        "a job on other nodes",
        new={"pools[old].software.driver": "580.200.1"},
        running=(Running(5, "alice", "research", ("h100-07",), 8),),
        want="""
        pools[old].software.driver: - -> 580.200.1 [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a job over two pools",
        new=NEW_DRIVER,
        running=(Running(5, "alice", "research", ("a100-1", "h100-01"), 12),),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[02-03]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[04-05]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[06-07]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[08,01]
        job 5 stopped on h100-01
        """,
    ),
    Scene(
        "a job that waits for the whole pool",
        new=NEW_DRIVER,
        waiting=(
            Waiting(6, "bob", "research", 64, "h100"),
            Waiting(7, "bob", "research", 48, "h100"),
            Waiting(8, "bob", "research", 400),
        ),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        job 6 delayed
        """,
    ),
    Scene(
        "gangs are met once",
        new=NEW_DRIVER,
        running=(
            Running(5, "alice", "research", ("h100-02", "h100-05"), 16),
            Running(6, "bob", "research", ("h100-01", "h100-07"), 16),
            Running(7, "bob", "research", ("h100-03",), 8),
        ),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[04,06]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[08,03]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[02,05]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[01,07]
        job 5 stopped on h100-[02,05]
        job 6 stopped on h100-[01,07]
        job 7 stopped on h100-03
        """,
    ),
    Scene(
        "a job under a change in place",
        new={"identity.min_uid": 1500},
        running=(Running(5, "alice", "research", ("h100-01",), 8),),
        want="""
        identity.min_uid: 2000 -> 1500 [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        old.1: configure(agent) a100-1
        old.2: configure(agent) a100-2
        """,
    ),
)
