"""Changes for which work must leave a node: batch by batch, never more away than the pool allows.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from tests.planning.scene import GONE, Edits, Scene

ONE: Edits = {"pools[old].update": {"max_unavailable": 1}}

FREE: Edits = {"queues": [{"name": "all"}], "budgets[people]": GONE, "access.grants[1]": GONE}

SCENES = (
    Scene(
        "another kernel",
        new={"sites[hall].system.packages.linux-image-amd64": "6.1.99-1"},
        want="""
        sites[hall].system.packages.linux-image-amd64: - -> 6.1.99-1
        [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) reboot accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) reboot accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) reboot accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) reboot accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) reboot accept uncordon a100-1
        old.2: cordon drain configure(base,agent) reboot accept uncordon a100-2
        """,
    ),
    Scene(
        "a part of the driver",
        new={"sites[hall].system.packages.nvidia-persistenced": "580.126.20-1"},
        want="""
        sites[hall].system.packages.nvidia-persistenced: - -> 580.126.20-1
        [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "users from elsewhere",
        new={"identity": {"source": "sssd", "min_uid": 2000}},
        want="""
        identity.source: pushed -> sssd [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        identity.users[alice]: {uid: 2001, groups:… -> - [in-place] on a100-[1-2],h100-[01-08]
        identity.users[bob]: {uid: 2002} -> - [in-place] on a100-[1-2],h100-[01-08]
        identity.groups[research]: {gid: 3001} -> - [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "fewer cores than before",
        new={"pools[h100].cores": 96},
        want="""
        pools[h100].cores: 192 -> 96 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "fewer cores in number and more as a text",
        old={"pools[h100].cores": 128},
        new={"pools[h100].cores": 96},
        want="""
        pools[h100].cores: 128 -> 96 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "kind and number of GPUs at once",
        old=FREE,
        new=FREE | {"pools[old].gpu.count": 2, "pools[old].gpu.model": "H100-SXM5-80GB"},
        want="""
        pools[old].gpu.model: A100-SXM4-CUSTOM -> H100-SXM5-80GB [drain-and-reconfigure] on a100-[1-2]
        pools[old].gpu.count: 4 -> 2 [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "cores where nobody had said any",
        new={"pools[old].cores": 64},
        want="""
        pools[old].cores: - -> 64 [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "less memory than before",
        new={"pools[h100].memory": "1TiB"},
        want="""
        pools[h100].memory: 2TiB -> 1TiB [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "a driver for one pool",
        new={"pools[h100].software.driver": "580.200.1"},
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "other libraries",
        new={"pools[h100].software.cuda": "13.1", "pools[h100].software.nccl": "2.29.1"},
        want="""
        pools[h100].software.cuda: 13.0 -> 13.1 [drain-and-reconfigure] on h100-[01-08]
        pools[h100].software.nccl: 2.28.9 -> 2.29.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "other GPUs",
        new={"pools[h100].gpu.model": "H200-SXM5-141GB"},
        want="""
        pools[h100].gpu.model: H100-SXM5-80GB -> H200-SXM5-141GB [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "emulated GPUs",
        new={"pools[old].gpu.emulate": "always"},
        want="""
        pools[old].gpu.emulate: auto -> always [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "no GPUs any more",
        new={"pools[old].gpu": GONE, "queues[research].guarantee[A100-SXM4-CUSTOM]": GONE},
        want="""
        pools[old].gpu: {model: A100-SXM4-C… -> - [drain-and-reconfigure] on a100-[1-2]
        queues[research].guarantee[A100-SXM4-CUSTOM]: {gpus: 4} -> - [controller-only]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "another fabric",
        new={"pools[h100].fabric": {"kind": "roce", "rails": 4}},
        want="""
        pools[h100].fabric.kind: infiniband -> roce [drain-and-reconfigure] on h100-[01-08]
        pools[h100].fabric.rails: 8 -> 4 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "a storage moved",
        new={"storage[home].source": "nas2:/home"},
        want="""
        storage[home].source: nas1:/home -> nas2:/home [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a storage at another path",
        new={"storage[home].path": "/users"},
        want="""
        storage[home].path: /home -> /users [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a storage less",
        new={"storage[home]": GONE},
        want="""
        storage[home]: {kind: nfs, path: /… -> - [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a storage on fewer sites",
        new={"storage[home].sites": ["use1"]},
        want="""
        storage[home].sites: [hall, use1] -> [use1] [drain-and-reconfigure] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a driver and a setting together",
        new={"pools[h100].software.driver": "580.200.1", 'sites[hall].system.sysctls["vm.swappiness"]': "1"},
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 1 [in-place] on a100-[1-2],h100-[01-08]
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "one node at a time",
        old=ONE,
        new=ONE | {"pools[old].software.driver": "580.200.1"},
        want="""
        pools[old].software.driver: - -> 580.200.1 [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
)
