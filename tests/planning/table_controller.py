"""Changes that the controller alone takes over: queues, budgets, access, power, policies of pools.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from orchestrator.planning.world import Running, Waiting
from tests.planning.scene import GONE, Scene

SCENES = (
    Scene(
        "another time zone",
        new={"metadata.timezone": "UTC"},
        want="""
        metadata.timezone: Europe/Berlin -> UTC [controller-only]
        record: record
        """,
    ),
    Scene(
        "a queue more",
        new={"queues[batch]": {"name": "batch", "parent": "all", "weight": 3}},
        want="""
        queues[batch]: - -> {parent: all, weigh… [controller-only]
        record: record
        """,
    ),
    Scene(
        "a queue with a limit of its own",
        new={"queues[batch]": {"name": "batch", "limits": {"max_time_limit": "2h"}}},
        want="""
        queues[batch]: - -> {limits: {max_time_… [controller-only]
        record: record
        """,
    ),
    Scene(
        "a queue less",
        new={"queues[production]": GONE},
        want="""
        queues[production]: {parent: all, guara… -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a queue less, with jobs in it",
        new={"queues[production]": GONE},
        running=(Running(7, "alice", "production", ("h100-01",), 8),),
        waiting=(Waiting(8, "bob", "production", 8),),
        want="""
        queues[production]: {parent: all, guara… -> - [refused]
        record: record
        blocked: queues[production]
        """,
    ),
    Scene(
        "how the scheduler decides",
        new={"scheduler.fair_share": "instant", "scheduler.kept_jobs": 16},
        want="""
        scheduler.fair_share: decay -> instant [controller-only]
        scheduler.kept_jobs: 4 -> 16 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a heavier queue",
        new={"queues[research].weight": 5},
        want="""
        queues[research].weight: 2 -> 5 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a queue under another one",
        new={"queues[production].parent": "research", "queues[production].guarantee[h100].gpus": 16},
        want="""
        queues[production].parent: all -> research [controller-only]
        queues[production].guarantee[h100].gpus: 24 -> 16 [controller-only]
        record: record
        """,
    ),
    Scene(
        "what a queue may reclaim",
        new={"queues[production].reclaim": "borrowed"},
        want="""
        queues[production].reclaim: never -> borrowed [controller-only]
        record: record
        """,
    ),
    Scene(
        "a guarantee raised",
        new={"queues[research].guarantee[h100].gpus": 36},
        want="""
        queues[research].guarantee[h100].gpus: 32 -> 36 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a guarantee more",
        new={"queues[production].guarantee[A100-SXM4-CUSTOM]": {"gpu_model": "A100-SXM4-CUSTOM", "gpus": 2}},
        want="""
        queues[production].guarantee[A100-SXM4-CUSTOM]: - -> {gpus: 2} [controller-only]
        record: record
        """,
    ),
    Scene(
        "a guarantee less",
        new={"queues[research].guarantee[A100-SXM4-CUSTOM]": GONE},
        want="""
        queues[research].guarantee[A100-SXM4-CUSTOM]: {gpus: 4} -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a guarantee counted elsewhere",
        new={"queues[research].guarantee[A100-SXM4-CUSTOM]": {"pool": "old", "gpus": 4}},
        want="""
        queues[research].guarantee[A100-SXM4-CUSTOM]: {gpus: 4} -> - [controller-only]
        queues[research].guarantee[old]: - -> {gpus: 4} [controller-only]
        record: record
        """,
    ),
    Scene(
        "no limit on borrowing any more",
        new={"queues[research].borrow_limit": GONE},
        want="""
        queues[research].borrow_limit[L4-PCIE-24GB]: {gpus: 1} -> - [controller-only]
        queues[research].borrow_limit[h100]: {gpus: 16} -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a longer default time limit",
        new={"queues[research].limits.default_time_limit": "6h"},
        want="""
        queues[research].limits.default_time_limit: 4h -> 6h [controller-only]
        record: record
        """,
    ),
    Scene(
        "a limit taken away",
        new={"queues[research].limits.max_jobs_per_user": GONE},
        want="""
        queues[research].limits.max_jobs_per_user: 20 -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a budget raised",
        new={"budgets[cloud].usd_per_hour": 450.25},
        want="""
        budgets[cloud].usd_per_hour: 400 -> 450.25 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a budget less",
        new={"budgets[people]": GONE},
        want="""
        budgets[people]: {applies_to: {queue… -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "another order at the limit of a budget",
        new={"budgets[cloud].at_limit": ["checkpoint", "stop_buying"]},
        want="""
        budgets[cloud].at_limit: [stop_buying, check… -> [checkpoint, stop_b… [controller-only]
        record: record
        """,
    ),
    Scene(
        "a budget for another place",
        new={"budgets[elastic].applies_to": {"site": "use1"}},
        want="""
        budgets[elastic].applies_to.site: - -> use1 [controller-only]
        budgets[elastic].applies_to.pool: burst -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a window with another limit",
        new={"budgets[evening].windows[0].limit_kw": 119.5},
        want="""
        budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00].limit_kw: 120 -> 119.5 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a window at another time",
        new={"budgets[evening].windows[0].from": "16:30"},
        want="""
        budgets[evening].windows[mon,tue,wed,thu,fri 16:30-20:00]: - -> {limit_kw: 120} [controller-only]
        budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00]: {limit_kw: 120} -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a window more",
        new={
            "budgets[evening].windows[1]": {
                "days": "sat,sun",
                "from": "00:00",
                "to": "24:00",
                "limit_kw": 150,
            }
        },
        want="""
        budgets[evening].windows[sat,sun 00:00-24:00]: - -> {limit_kw: 150} [controller-only]
        record: record
        """,
    ),
    Scene(
        "people of a group",
        new={"access.groups.research.users": ["alice", "carol"]},
        want="""
        access.groups.research.users: [alice, bob] -> [alice, carol] [controller-only]
        record: record
        """,
    ),
    Scene(
        "a group known by another name outside",
        new={"access.groups.infra.oidc": "ops@example.org"},
        want="""
        access.groups.infra.oidc: infra@example.org -> ops@example.org [controller-only]
        record: record
        """,
    ),
    Scene(
        "a grant more",
        new={"access.grants[4]": {"role": "submit", "to": "infra", "on": {"pool": "old"}}},
        want="""
        access.grants[submit infra on pool old]: - -> {role: submit, to: … [controller-only]
        record: record
        """,
    ),
    Scene(
        "a grant less",
        new={"access.grants[2]": GONE},
        want="""
        access.grants[read research on pool h100]: {role: read, to: re… -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "a role raised",
        new={"access.grants[1].role": "operator"},
        want="""
        access.grants[operator research on queue research]: - -> {role: operator, to… [controller-only]
        access.grants[submit research on queue research]: {role: submit, to: … -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "labels",
        new={"pools[h100].labels": {"row": "4", "owner": "physics"}},
        want="""
        pools[h100].labels.owner: - -> physics [controller-only]
        pools[h100].labels.row: 3 -> 4 [controller-only]
        pools[h100].labels.tier: gold -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "how changes reach a pool",
        new={
            "pools[h100].update": {
                "max_unavailable": 3,
                "drain": {"deadline": "2h", "then": "requeue"},
                "enough": 0.9,
            }
        },
        want="""
        pools[h100].update.max_unavailable: 2 -> 3 [controller-only]
        pools[h100].update.drain.deadline: 1d -> 2h [controller-only]
        pools[h100].update.drain.then: checkpoint -> requeue [controller-only]
        pools[h100].update.enough: 0.75 -> 0.9 [controller-only]
        record: record
        """,
    ),
    Scene(
        "how long a drain may take, written otherwise",
        new={"pools[h100].update.drain.deadline": "1d"},
        want="""

        """,
    ),
    Scene(
        "acceptance from now on",
        new={"pools[desk].acceptance": "required"},
        want="""
        pools[desk].acceptance: skip -> required [controller-only]
        record: record
        """,
    ),
    Scene(
        "copies of the ledger",
        new={"controller.backup": {"every": "6h", "keep": 28}},
        want="""
        controller.backup.every: 12h -> 6h [controller-only]
        controller.backup.keep: 14 -> 28 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a power limit lowered",
        new={"sites[hall].power.domains[root].limit_kw": 130},
        want="""
        sites[hall].power.domains[root].limit_kw: 160 -> 130 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a power domain more",
        new={
            "sites[hall].power.domains[rack-2]": {
                "name": "rack-2",
                "parent": "a",
                "limit_kw": 40,
                "nodes": "h100-[05-08]",
            }
        },
        want="""
        sites[hall].power.domains[rack-2]: - -> {parent: a, limit_k… [controller-only]
        record: record
        """,
    ),
    Scene(
        "the price of power",
        new={"sites[hall].power.price_usd_per_kwh": 0.215},
        want="""
        sites[hall].power.price_usd_per_kwh: 0.18 -> 0.215 [controller-only]
        record: record
        """,
    ),
    Scene(
        "another wiring",
        new={"sites[hall].fabric.units": {"su-1": "h100-[01-06]", "su-2": ["h100-[07-08]", "a100-[1-2]"]}},
        want="""
        sites[hall].fabric.units.su-1: h100-[01-08] -> h100-[01-06] [controller-only]
        sites[hall].fabric.units.su-2: a100-[1-2] -> a100-[1-2],h100-[07… [controller-only]
        record: record
        """,
    ),
    Scene(
        "the same nodes of a unit in another order",
        new={"sites[hall].fabric.units.su-2": "a100-2,a100-1"},
        want="""

        """,
    ),
    Scene(
        "topology levels in another order",
        old={"sites[hall].fabric.domains": GONE},
        new={"sites[hall].fabric.domains": GONE, "sites[hall].fabric.levels": ["spine", "unit"]},
        want="""
        sites[hall].fabric.levels: [unit, spine] -> [spine, unit] [controller-only]
        record: record
        """,
    ),
    Scene(
        "the ports of jobs",
        new={"sites[hall].network.ports": "30000-30999"},
        want="""
        sites[hall].network.ports: 21000-21999 -> 30000-30999 [controller-only]
        record: record
        """,
    ),
    Scene(
        "the network of jobs",
        new={"sites[hall].network.jobs": "10.21.0.0/16"},
        want="""
        sites[hall].network.jobs: 10.20.0.0/16 -> 10.21.0.0/16 [controller-only]
        record: record
        """,
    ),
    Scene(
        "how hosts are reached",
        new={"sites[hall].ssh": {"user": "ops", "key": "file:/root/.ssh/id"}},
        want="""
        sites[hall].ssh.user: ubuntu -> ops [controller-only]
        sites[hall].ssh.key: file:/etc/gangline/… -> file:/root/.ssh/id [controller-only]
        sites[hall].ssh.jump: bastion.example.org -> - [controller-only]
        sites[hall].ssh.port: 2222 -> 22 [controller-only]
        record: record
        """,
    ),
    Scene(
        "most power of a GPU that the catalog does not know",
        new={"pools[old].gpu.max_watts": 450},
        want="""
        pools[old].gpu.max_watts: 500 -> 450 [controller-only]
        record: record
        """,
    ),
    Scene(
        "nothing",
        new={},
        want="""

        """,
    ),
)
