"""Changes that are refused until something else is done, and those that lose data until somebody consents.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from orchestrator.planning.world import Choices
from tests.planning.scene import GONE, Scene

SCENES = (
    Scene(
        "another name of the cluster",
        new={"metadata.name": "other"},
        want="""
        metadata.name: full -> other [refused]
        record: record
        blocked: metadata.name
        """,
    ),
    Scene(
        "the ledger elsewhere",
        new={"controller.state": "/srv/gangline"},
        want="""
        controller.state: /var/lib/gangline -> /srv/gangline [refused]
        record: record
        blocked: controller.state
        """,
    ),
    Scene(
        "the controller on another host",
        new={"controller.host": "h100-01"},
        want="""
        controller.host: head-1 -> h100-01 [refused]
        record: record
        blocked: controller.host
        """,
    ),
    Scene(
        "the controller back on the machine that ran up",
        new={"controller.host": GONE},
        want="""
        controller.host: head-1 -> - [refused]
        record: record
        blocked: controller.host
        """,
    ),
    Scene(
        "a site of another kind",
        new={"sites[desk]": {"name": "desk", "kind": "metal"}},
        want="""
        sites[desk].kind: local -> metal [refused]
        sites[desk].network.jobs: 127.0.0.0/8 -> - [controller-only]
        sites[desk].network.ports: 20000-20999 -> 20000-29999 [controller-only]
        sites[desk].fabric.levels: [unit] -> - [controller-only]
        sites[desk].fabric.units.su-3: desk-1 -> - [controller-only]
        sites[desk].power.price_usd_per_kwh: 0.3 -> - [controller-only]
        sites[desk].power.domains[plug]: {limit_kw: 3.5, nod… -> - [controller-only]
        pool[desk]: - -> configured [in-place] (gangline) on desk-1
        record: record
        desk.1: enrol configure(base,agent) desk-1
        blocked: sites[desk].kind
        """,
    ),
    Scene(
        "another region",
        old={"sites[use1].kms_key": GONE},
        new={
            "sites[use1].region": "us-west-2",
            "sites[use1].zones": ["us-west-2a"],
            "sites[use1].kms_key": GONE,
        },
        want="""
        sites[use1].region: us-east-1 -> us-west-2 [refused]
        sites[use1].zones: [us-east-1a, us-eas… -> [us-west-2a] [replace]
        record: record
        blocked: sites[use1].region
        """,
    ),
    Scene(
        "folders of jobs emptied from now on",
        old={"storage[scratch].purge": False},
        new={},
        want="""
        storage[scratch].purge: false -> true [destroys-data] consent storage/scratch
        record: record
        blocked: storage[scratch].purge
        """,
    ),
    Scene(
        "folders of jobs emptied, with consent",
        old={"storage[scratch].purge": False},
        new={},
        choices=Choices(("storage/scratch",)),
        want="""
        storage[scratch].purge: false -> true [destroys-data] consent storage/scratch
        record: record
        """,
    ),
    Scene(
        "folders of jobs no longer emptied",
        new={"storage[scratch].purge": False},
        want="""
        storage[scratch].purge: true -> false [controller-only]
        record: record
        """,
    ),
    Scene(
        "folders of jobs elsewhere",
        new={"storage[scratch].path": "/nvme"},
        want="""
        storage[scratch].path: /scratch -> /nvme
        [destroys-data] on a100-[1-2],h100-[01-08] consent storage/scratch
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        blocked: storage[scratch].path
        """,
    ),
    Scene(
        "folders of jobs elsewhere, with consent",
        new={"storage[scratch].path": "/nvme"},
        choices=Choices(("storage/scratch",)),
        want="""
        storage[scratch].path: /scratch -> /nvme
        [destroys-data] on a100-[1-2],h100-[01-08] consent storage/scratch
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
        "folders of jobs given up",
        new={"storage[scratch]": GONE},
        want="""
        storage[scratch]: {kind: local, path:… -> -
        [destroys-data] on a100-[1-2],h100-[01-08] consent storage/scratch
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        blocked: storage[scratch]
        """,
    ),
    Scene(
        "consent to something else",
        new={"storage[scratch]": GONE},
        choices=Choices(("storage/home",)),
        want="""
        storage[scratch]: {kind: local, path:… -> -
        [destroys-data] on a100-[1-2],h100-[01-08] consent storage/scratch
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        blocked: storage[scratch]
        """,
    ),
)
