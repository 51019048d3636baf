"""Changes of what hosts have that are made while work runs: a few nodes first, then the rest.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from tests.planning.scene import GONE, Scene

SCENES = (
    Scene(
        "a package more",
        new={"sites[hall].system.packages.jq": ""},
        want="""
        sites[hall].system.packages.jq: - -> '' [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a package at another version",
        new={"sites[hall].system.packages.libnccl2": "2.29.1-1+cuda13.1"},
        want="""
        sites[hall].system.packages.libnccl2: 2.28.9-1+cuda13.0 -> 2.29.1-1+cuda13.1
        [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a package at any version",
        new={"sites[hall].system.packages.libnccl2": ""},
        want="""
        sites[hall].system.packages.libnccl2: 2.28.9-1+cuda13.0 -> '' [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a package less",
        new={"sites[hall].system.packages.htop": GONE},
        want="""
        sites[hall].system.packages.htop: '' -> - [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a package that Gangline wants anyway",
        new={"sites[hall].system.packages.chrony": ""},
        want="""
        sites[hall].system.packages.chrony: - -> '' [in-place] on a100-[1-2],h100-[01-08]
        record: record
        """,
    ),
    Scene(
        "a kernel setting",
        new={'sites[hall].system.sysctls["vm.swappiness"]': "1"},
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 1 [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a kernel setting more",
        new={'sites[hall].system.sysctls["net.core.wmem_max"]': "67108864"},
        want="""
        sites[hall].system.sysctls["net.core.wmem_max"]: - -> 67108864 [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a kernel setting less",
        new={'sites[hall].system.sysctls["vm.swappiness"]': GONE},
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> - [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "other time servers",
        new={"sites[hall].system.time_servers": ["ntp3.example.org"]},
        want="""
        sites[hall].system.time_servers: [ntp1.example.org, … -> [ntp3.example.org]
        [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "time servers in another order",
        new={"sites[hall].system.time_servers": ["ntp2.example.org", "ntp1.example.org"]},
        want="""

        """,
    ),
    Scene(
        "a user more",
        new={"identity.users[carol]": {"name": "carol", "uid": 2003}},
        want="""
        identity.users[carol]: - -> {uid: 2003} [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a user less",
        new={"identity.users[bob]": GONE},
        want="""
        identity.users[bob]: {uid: 2002} -> - [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a user in other groups",
        new={"identity.users[alice].groups": ["research"]},
        want="""
        identity.users[alice].groups: [docker, research] -> [research] [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a user with another number",
        new={"identity.users[alice].uid": 2009},
        want="""
        identity.users[alice].uid: 2001 -> 2009 [refused]
        record: record
        blocked: identity.users[alice].uid
        """,
    ),
    Scene(
        "the least number of a user",
        new={"identity.min_uid": 1500},
        want="""
        identity.min_uid: 2000 -> 1500 [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        old.1: configure(agent) a100-1
        old.2: configure(agent) a100-2
        """,
    ),
    Scene(
        "the controller answers elsewhere",
        new={"controller.address": "https://new.example.org:7443"},
        want="""
        controller.address: https://full.exampl… -> https://new.example…
        [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        old.1: configure(agent) a100-1
        old.2: configure(agent) a100-2
        """,
    ),
    Scene(
        "more cores than before",
        new={"pools[h100].cores": 200},
        want="""
        pools[h100].cores: 192 -> 200 [in-place] on h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        """,
    ),
    Scene(
        "more cores in number and fewer as a text",
        old={"pools[h100].cores": 96},
        new={"pools[h100].cores": 128},
        want="""
        pools[h100].cores: 96 -> 128 [in-place] on h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        """,
    ),
    Scene(
        "more memory in number and less as a text",
        old={"pools[h100].memory": "960GiB"},
        new={"pools[h100].memory": "2TiB"},
        want="""
        pools[h100].memory: 960GiB -> 2TiB [in-place] on h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        """,
    ),
    Scene(
        "cores no longer said",
        new={"pools[h100].cores": GONE},
        want="""
        pools[h100].cores: 192 -> - [in-place] on h100-[01-08]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        """,
    ),
    Scene(
        "memory of a GPU",
        new={"pools[old].gpu.memory": "81920MiB"},
        want="""

        """,
    ),
    Scene(
        "memory of a GPU, another one",
        new={"pools[old].gpu.memory": "40GiB"},
        want="""
        pools[old].gpu.memory: 80GiB -> 40GiB [in-place] on a100-[1-2]
        record: record
        old.1: configure(agent) a100-1
        old.2: configure(agent) a100-2
        """,
    ),
    Scene(
        "a storage more",
        new={"storage[data]": {"name": "data", "kind": "nfs", "source": "nas1:/data", "path": "/data"}},
        want="""
        storage[data]: - -> {kind: nfs, path: /… [in-place] on a100-[1-2],h100-[01-08]
        record: record
        """,
    ),
    Scene(
        "a storage on a site more",
        new={"storage[home].sites": ["hall", "use1", "desk"]},
        want="""
        storage[home].sites: [hall, use1] -> [desk, hall, use1] [in-place] on a100-[1-2],h100-[01-08]
        record: record
        """,
    ),
    Scene(
        "a storage on all sites",
        new={"storage[home].sites": GONE},
        want="""
        storage[home].sites: [hall, use1] -> - [in-place] on a100-[1-2],h100-[01-08]
        record: record
        """,
    ),
    Scene(
        "a driver that is no longer looked after",
        new={"pools[h100].software.driver": GONE},
        want="""
        pools[h100].software.driver: 580.126.20 -> - [controller-only]
        record: record
        """,
    ),
    Scene(
        "never emulated, which metal never is",
        new={"pools[old].gpu.emulate": "never"},
        want="""
        pools[old].gpu.emulate: auto -> never [controller-only]
        record: record
        """,
    ),
)
