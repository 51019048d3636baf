"""Nodes, pools, sites and offerings that come, go, move or are only listed otherwise.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from orchestrator.planning.world import Running, Waiting
from tests.planning.scene import GONE, HOUR, NOW, Edits, Scene, lost

# Without what counts GPUs of these pools, so that nodes can move between them.
FREE: Edits = {
    "queues": [{"name": "all"}],
    "budgets[people]": GONE,
    "access.grants[1]": GONE,
}
RICH: Edits = {"budgets[cloud]": GONE, "budgets[elastic]": GONE}
MIXED: Edits = {**FREE, "sites[hall].power": GONE, "sites[hall].fabric": GONE, "budgets[evening]": GONE}

SCENES = (
    Scene(
        "everything for the first time",
        old=None,
        new={},
        want="""
        metadata.timezone: UTC -> Europe/Berlin [controller-only]
        storage[fast]: - -> {kind: fsx, path: /… [in-place]
        storage[home]: - -> {kind: nfs, path: /… [in-place]
        storage[scratch]: - -> {kind: local, path:… [in-place]
        sites[desk]: - -> {kind: local, netwo… [controller-only]
        sites[hall]: - -> {kind: metal, netwo… [controller-only]
        sites[use1]: - -> {kind: aws, network… [controller-only]
        sites[usw2]: - -> {kind: aws, region:… [controller-only]
        pools[burst]: - -> {site: use1, gpu: {… [controller-only]
        pools[desk]: - -> {site: desk, nodes:… [in-place] on desk-1
        pools[fixed]: - -> {site: usw2, nodes:… [controller-only]
        pools[h100]: - -> {site: hall, nodes:… [in-place] on h100-[01-08]
        pools[old]: - -> {site: hall, nodes:… [in-place] on a100-[1-2]
        queues[all]: - -> {guarantee: [{gpus:… [controller-only]
        queues[production]: - -> {parent: all, guara… [controller-only]
        queues[research]: - -> {parent: all, guara… [controller-only]
        scheduler.fair_share: instant -> decay [controller-only]
        scheduler.half_life: 7d -> 3d [controller-only]
        scheduler.placement: standard -> filling [controller-only]
        scheduler.kept_jobs: 8 -> 4 [controller-only]
        budgets[cloud]: - -> {applies_to: {site:… [controller-only]
        budgets[elastic]: - -> {applies_to: {pool:… [controller-only]
        budgets[evening]: - -> {domain: root, wind… [controller-only]
        budgets[people]: - -> {applies_to: {queue… [controller-only]
        access.groups.infra: - -> {oidc: infra@exampl… [controller-only]
        access.groups.research: - -> {posix: research, u… [controller-only]
        access.grants[admin infra on site hall]: - -> {role: admin, to: i… [controller-only]
        access.grants[operator infra]: - -> {role: operator, to… [controller-only]
        access.grants[read research on pool h100]: - -> {role: read, to: re… [controller-only]
        access.grants[submit research on queue research]: - -> {role: submit, to: … [controller-only]
        record: record
        h100.1: enrol configure(base,agent) accept h100-[01-08]
        old.1: enrol configure(base,agent) accept a100-[1-2]
        """,
    ),
    Scene(
        "a fixed node more, and another one gone",
        new={"pools[fixed].nodes": "p5-[2-3]"},
        want="""
        pools[fixed].nodes[p5-1]: p5-1 -> - [drain-and-reconfigure] on p5-1
        pools[fixed].nodes[p5-3]: - -> p5-3 [controller-only]
        record: record
        """,
    ),
    Scene(
        "a file system that was made goes",
        new={"storage[fast]": GONE},
        want="""
        storage[fast]: {kind: fsx, path: /… -> - [destroys-data] consent storage/fast
        record: record
        blocked: storage[fast]
        """,
    ),
    Scene(
        "a file system becomes one that people keep",
        new={
            "storage[fast]": {
                "name": "fast",
                "kind": "fsx",
                "path": "/fast",
                "source": "fs-01234567",
                "sites": ["use1"],
            }
        },
        want="""
        storage[fast].source: - -> fs-01234567 [destroys-data] consent storage/fast
        storage[fast].size: 4800GiB -> - [in-place]
        storage[fast].throughput: 250 -> - [in-place]
        record: record
        blocked: storage[fast].source
        """,
    ),
    Scene(
        "a file system is to shrink",
        new={"storage[fast].size": "2400GiB"},
        want="""
        storage[fast].size: 4800GiB -> 2400GiB [refused]
        record: record
        blocked: storage[fast].size
        """,
    ),
    Scene(
        "a pool of fixed nodes goes",
        new={"pools[fixed]": GONE},
        want="""
        pools[fixed]: {site: usw2, nodes:… -> - [drain-and-reconfigure] on p5-[1-2]
        record: record
        """,
    ),
    Scene(
        "a node more",
        old=FREE | {"pools[old].nodes": ["a100-1"], "sites[hall].fabric": GONE},
        new=FREE | {"sites[hall].fabric": GONE},
        want="""
        pools[old].nodes[a100-2]: - -> a100-2 [in-place] on a100-2
        record: record
        old.1: enrol configure(base,agent) accept a100-2
        """,
    ),
    Scene(
        "a node less, from the middle",
        old=FREE,
        new=FREE | {"pools[h100].nodes": ["h100-[01-03]", "h100-[05-08]"]},
        want="""
        pools[h100].nodes[h100-04]: h100-04 -> - [drain-and-reconfigure] on h100-04
        record: record
        retire.h100.1: cordon drain retire h100-04
        """,
    ),
    Scene(
        "a node less that never came in",
        new={"pools[old].nodes": ["a100-1"], "queues[research].guarantee[A100-SXM4-CUSTOM].gpus": 4},
        nodes={"a100-2": None},
        want="""
        pools[old].nodes[a100-2]: a100-2 -> - [drain-and-reconfigure] on a100-2
        record: record
        """,
    ),
    Scene(
        "a node less that is silent",
        new={"pools[old].nodes": ["a100-1"]},
        sights=(lost("a100-2"),),
        want="""
        pools[old].nodes[a100-2]: a100-2 -> - [drain-and-reconfigure] on a100-2
        record: record
        retire.old.1: cordon drain retire a100-2
        """,
    ),
    Scene(
        "a node less with a job on it",
        new={"pools[old].nodes": ["a100-1"]},
        running=(
            Running(5, "bob", "research", ("a100-2",), 4, NOW + HOUR),
            Running(6, "bob", "research", ("a100-1",), 4),
        ),
        waiting=(Waiting(7, "bob", "research", 8, "old"),),
        want="""
        pools[old].nodes[a100-2]: a100-2 -> - [drain-and-reconfigure] on a100-2
        record: record
        retire.old.1: cordon drain retire a100-2
        job 5 drained on a100-2
        job 7 delayed
        """,
    ),
    Scene(
        "a node from one pool in another",
        old=MIXED,
        new=MIXED | {"pools[old].nodes": ["a100-1"], "pools[h100].nodes": ["h100-[01-08]", "a100-2"]},
        want="""
        pools[h100].nodes[a100-2]: - -> a100-2 [drain-and-reconfigure] on a100-2
        pools[old].nodes[a100-2]: a100-2 -> - [drain-and-reconfigure] on a100-2
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "nodes in another order",
        new={"pools[h100].nodes": ["h100-[05-08]", "h100-[01-04]"]},
        want="""

        """,
    ),
    Scene(
        "a pool more",
        old={"pools[old]": GONE, "queues[research].guarantee[A100-SXM4-CUSTOM]": GONE},
        new={"queues[research].guarantee[A100-SXM4-CUSTOM]": GONE},
        want="""
        pools[old]: - -> {site: hall, nodes:… [in-place] on a100-[1-2]
        record: record
        old.1: enrol configure(base,agent) accept a100-[1-2]
        """,
    ),
    Scene(
        "a pool less",
        new={"pools[old]": GONE, "queues[research].guarantee[A100-SXM4-CUSTOM]": GONE},
        want="""
        pools[old]: {site: hall, nodes:… -> - [drain-and-reconfigure] on a100-[1-2]
        queues[research].guarantee[A100-SXM4-CUSTOM]: {gpus: 4} -> - [controller-only]
        record: record
        retire.old.1: cordon drain retire a100-[1-2]
        """,
    ),
    Scene(
        "a pool under another name",
        old=FREE,
        new=FREE | {"pools[old].name": "ampere"},
        want="""
        pools[ampere]: - -> {site: hall, nodes:… [drain-and-reconfigure] on a100-[1-2]
        pools[old]: {site: hall, nodes:… -> - [drain-and-reconfigure] on a100-[1-2]
        record: record
        ampere.1: cordon drain configure(base,agent) accept uncordon a100-1
        ampere.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a pool more that is bought",
        new={
            "pools[spot]": {
                "name": "spot",
                "site": "use1",
                "size": {"max": 4},
                "offerings": [{"type": "p5.48xlarge", "market": "spot", "max_usd_per_hour": 20}],
            }
        },
        want="""
        pools[spot]: - -> {site: use1, gpu: {… [controller-only]
        record: record
        """,
    ),
    Scene(
        "a site more",
        new={"sites[attic]": {"name": "attic", "kind": "metal"}},
        want="""
        sites[attic]: - -> {kind: metal} [controller-only]
        record: record
        """,
    ),
    Scene(
        "a site less, with a pool of it and a job there",
        old={
            "sites[attic]": {"name": "attic", "kind": "metal"},
            "pools[spare]": {
                "name": "spare",
                "site": "attic",
                "nodes": "x-[1-2]",
                "gpu": {"model": "H100-SXM5-80GB", "count": 8},
            },
        },
        running=(Running(7, "alice", "research", ("x-1",), 8),),
        want="""
        sites[attic]: {kind: metal} -> - [controller-only]
        pools[spare]: {site: attic, nodes… -> - [drain-and-reconfigure] on x-[1-2]
        record: record
        retire.spare.1: cordon drain retire x-2
        retire.spare.2: cordon drain retire x-1
        job 7 blocks on x-1
        """,
    ),
    Scene(
        "a head node that no pool names stays alone",
        new={},
        nodes={},
        want="""

        """,
    ),
    Scene(
        "a bought pool that may grow less far",
        new={"pools[burst].size.max": 15},
        want="""
        pools[burst].size.max: 16 -> 15 [controller-only]
        record: record
        """,
    ),
    Scene(
        "an offering at another price",
        new={"pools[burst].offerings[1].max_usd_per_hour": 25.5},
        want="""
        pools[burst].offerings[1].max_usd_per_hour: 30 -> 25.5 [controller-only]
        record: record
        """,
    ),
    Scene(
        "an offering more at the end",
        new={"pools[burst].offerings[3]": {"type": "p4d.24xlarge", "market": "on_demand"}},
        want="""
        pools[burst].gpu.model: H100-SXM5-80GB or H… -> H100-SXM5-80GB or H… [controller-only]
        pools[burst].offerings[3]: - -> {type: [p4d.24xlarg… [controller-only]
        record: record
        """,
    ),
    Scene(
        "offerings in another order",
        new={
            "pools[burst].offerings": [
                {"type": "p5.48xlarge", "market": "spot", "max_usd_per_hour": 30},
                {
                    "type": "p5.48xlarge",
                    "market": "capacity_reservation",
                    "reservation": "cr-0123456789abcdef0",
                },
                {"type": ["p5.48xlarge", "p5en.48xlarge"], "market": "on_demand"},
            ]
        },
        want="""
        pools[burst].offerings: [{type: [p5.48xlarg… -> [{type: [p5.48xlarg… [controller-only]
        record: record
        """,
    ),
    Scene(
        "an offering less that nothing stands in for",
        old=RICH,
        new=RICH | {"pools[burst].offerings[1]": GONE},
        want="""
        pools[burst].offerings[1]: {type: [p5.48xlarge… -> - [replace]
        record: record
        """,
    ),
    Scene(
        "a dead reservation less",
        new={"pools[burst].offerings[0]": GONE},
        want="""
        pools[burst].offerings[0]: {type: [p5.48xlarge… -> - [replace]
        record: record
        """,
    ),
    Scene(
        "an offering with a type more",
        new={"pools[burst].offerings[1].type": ["p5.48xlarge", "p5en.48xlarge"]},
        want="""
        pools[burst].offerings[1].type: [p5.48xlarge] -> [p5.48xlarge, p5en.… [controller-only]
        record: record
        """,
    ),
    Scene(
        "an offering with another type",
        new={"pools[burst].offerings[1].type": "p5en.48xlarge"},
        want="""
        pools[burst].offerings[1].type: [p5.48xlarge] -> [p5en.48xlarge] [replace]
        record: record
        """,
    ),
    Scene(
        "a zone more",
        new={"sites[use1].zones": ["us-east-1a", "us-east-1b", "us-east-1c"]},
        want="""
        sites[use1].zones: [us-east-1a, us-eas… -> [us-east-1a, us-eas… [controller-only]
        record: record
        """,
    ),
    Scene(
        "a zone less",
        new={"sites[use1].zones": ["us-east-1a"]},
        want="""
        sites[use1].zones: [us-east-1a, us-eas… -> [us-east-1a] [replace]
        record: record
        """,
    ),
    Scene(
        "a fabric for bought nodes",
        new={"pools[burst].fabric": {"kind": "ethernet"}},
        want="""
        pools[burst].fabric.kind: efa -> ethernet [replace]
        record: record
        """,
    ),
)
