"""Plans for some hosts alone: what the file says of all of them, and steps, jobs and drift of those alone; and hosts
that differ where the file changes too, which are told against what they are to have now.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from orchestrator.model.host import ItemKind
from orchestrator.planning.world import Choices, Running
from tests.planning.scene import GONE, HOUR, NOW, Edits, Scene, drifted, lost, sight

ONE = Choices(only=frozenset(("h100-01",)))
SWAPPINESS: Edits = {'sites[hall].system.sysctls["vm.swappiness"]': "20"}
DRAINS: Edits = {"pools[h100].software.driver": "590.1"}


def _swappiness(found: str) -> tuple[ItemKind, str, str, str, str]:
    return ItemKind.SYSCTL, "vm.swappiness", "value", "10", found


SCENES = (
    Scene(
        "a change in place, on one host",
        new=SWAPPINESS,
        choices=ONE,
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 20 [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-01
        """,
    ),
    Scene(
        "a change that drains, on one host: nobody else's jobs",
        new=DRAINS,
        running=(
            Running(1, "alice", "research", ("h100-01",), 8, NOW + HOUR),
            Running(2, "bob", "research", ("h100-02",), 8, NOW + HOUR),
        ),
        choices=ONE,
        want="""
        pools[h100].software.driver: 580.126.20 -> 590.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-01
        job 1 drained on h100-01
        """,
    ),
    Scene(
        "a node that goes, and is not the one",
        new={"pools[old].nodes": "a100-1"},
        choices=ONE,
        want="""
        pools[old].nodes[a100-2]: a100-2 -> - [drain-and-reconfigure] on a100-2
        record: record
        """,
    ),
    Scene(
        "what is owed to others, and others that are not seen",
        sights=(lost("h100-02"), sight("h100-01", drifted(*_swappiness("60")))),
        owed=("h100-03",),
        choices=ONE,
        want="""
        host[h100-01].sysctl[vm.swappiness].value: 60 -> 10 [in-place] (drift) on h100-01
        h100.1: configure(base) h100-01
        """,
    ),
    Scene(
        "one that differs from both files",
        new=SWAPPINESS,
        sights=(sight("h100-03", drifted(*_swappiness("60"))),),
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 20 [in-place] on a100-[1-2],h100-[01-08]
        host[h100-03].sysctl[vm.swappiness].value: 60 -> 20 [in-place] (drift) on h100-03
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "one that has what the new file says",
        new=SWAPPINESS,
        sights=(sight("h100-03", drifted(*_swappiness("20"))),),
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 20 [in-place] on a100-[1-2],h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "one that lacks what the new file wants no more",
        new={"sites[hall].system.packages.htop": GONE},
        sights=(sight("h100-03", drifted(ItemKind.PACKAGE, "htop", "present", "yes", "")),),
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
        "a file edited that changes as well",
        new=SWAPPINESS,
        sights=(
            sight(
                "h100-03",
                drifted(ItemKind.FILE, "/etc/sysctl.d/90-gangline.conf", "content", "line 2: a", "line 2: b"),
            ),
        ),
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 20 [in-place] on a100-[1-2],h100-[01-08]
        host[h100-03].file[/etc/sysctl.d/90-gangline.conf].content: line 2: b -> what the file gets …
        [in-place] (drift) on h100-03
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
)
