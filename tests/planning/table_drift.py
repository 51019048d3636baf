"""Hosts that are not as they were recorded, or can't be looked at, and what unfinished applies left.

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.host import ItemKind, Sight, Step
from orchestrator.planning.world import Choices, Running
from tests.planning.scene import GONE, HOUR, NOW, Edits, Scene, drifted, facts, lost, node, sight

KERNEL: Edits = {"sites[hall].system.packages.linux-image-amd64": "6.1.99-1"}
DRIVER: Edits = {"sites[hall].system.packages.nvidia-driver": "580.126.20-1"}


def _of(name: str, machine: str) -> Sight:
    """A host that says that it is another one's machine."""
    return replace(sight(name), facts=replace(facts(machine), boot_id=f"boot-{name}"))


SCENES = (
    Scene(
        "a value changed on one host",
        sights=(sight("h100-03", drifted(ItemKind.SYSCTL, "vm.swappiness", "value", "10", "60")),),
        want="""
        host[h100-03].sysctl[vm.swappiness].value: 60 -> 10 [in-place] (drift) on h100-03
        h100.1: configure(base) h100-03
        """,
    ),
    Scene(
        "a unit stopped and masked",
        sights=(
            sight(
                "h100-03",
                drifted(ItemKind.UNIT, "gangline-agent.service", "active", "yes", "no", "agent"),
                drifted(ItemKind.UNIT, "gangline-agent.service", "masked", "no", "yes", "agent"),
            ),
        ),
        want="""
        host[h100-03].unit[gangline-agent.service].active: no -> yes [in-place] (drift) on h100-03
        host[h100-03].unit[gangline-agent.service].masked: yes -> no [in-place] (drift) on h100-03
        h100.1: configure(agent) h100-03
        """,
    ),
    Scene(
        "a file edited",
        sights=(
            sight(
                "h100-03",
                drifted(ItemKind.FILE, "/etc/gangline/agent.json", "content", "{}\n", "{ }\n", "agent"),
            ),
        ),
        want="""
        host[h100-03].file[/etc/gangline/agent.json].content: 1 line, sha256 1d6f… -> 1 line, sha256 ca3d…
        [in-place] (drift) on h100-03
        h100.1: configure(agent) h100-03
        """,
    ),
    Scene(
        "a package gone",
        sights=(sight("a100-1", drifted(ItemKind.PACKAGE, "htop", "present", "yes", "")),),
        want="""
        host[a100-1].package[htop]: - -> present [in-place] (drift) on a100-1
        old.1: configure(base) a100-1
        """,
    ),
    Scene(
        "different things on different hosts",
        sights=(
            sight("h100-01", drifted(ItemKind.PACKAGE, "chrony", "held", "yes", "no")),
            sight(
                "h100-02", drifted(ItemKind.ARCHIVE, "/opt/gangline/agent.pyz", "sha256", "aa", "bb", "agent")
            ),
        ),
        want="""
        host[h100-01].package[chrony].held: no -> yes [in-place] (drift) on h100-01
        host[h100-02].archive[/opt/gangline/agent.pyz].sha256: bb -> aa [in-place] (drift) on h100-02
        h100.1: configure(base) h100-01
        h100.2: configure(agent) h100-02
        """,
    ),
    Scene(
        "a driver exchanged on the host",
        old=DRIVER,
        new=DRIVER,
        sights=(
            sight(
                "h100-03", drifted(ItemKind.PACKAGE, "nvidia-driver", "version", "580.126.20-1", "590.1-1")
            ),
        ),
        running=(Running(9, "alice", "research", ("h100-03",), 8, NOW + 100 * HOUR),),
        want="""
        host[h100-03].package[nvidia-driver].version: 590.1-1 -> 580.126.20-1
        [drain-and-reconfigure] (drift) on h100-03
        h100.1: cordon drain configure(base,agent) accept uncordon h100-03
        job 9 stopped on h100-03
        """,
    ),
    Scene(
        "a kernel exchanged on the host",
        old=KERNEL,
        new=KERNEL,
        sights=(
            sight(
                "a100-2", drifted(ItemKind.PACKAGE, "linux-image-amd64", "version", "6.1.99-1", "6.12.1-1")
            ),
        ),
        want="""
        host[a100-2].package[linux-image-amd64].version: 6.12.1-1 -> 6.1.99-1
        [drain-and-reconfigure] (drift) on a100-2
        old.1: cordon drain configure(base,agent) reboot accept uncordon a100-2
        """,
    ),
    Scene(
        "drift and a change of the file",
        new={'sites[hall].system.sysctls["vm.swappiness"]': "1"},
        sights=(sight("a100-1", drifted(ItemKind.UNIT, "chrony.service", "active", "yes", "no")),),
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 1 [in-place] on a100-[1-2],h100-[01-08]
        host[a100-1].unit[chrony.service].active: no -> yes [in-place] (drift) on a100-1
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a reboot that something asks for",
        sights=(sight("h100-03", reboot_needed=True),),
        want="""
        host[h100-03].reboot: needed -> - [drain-and-reconfigure] (drift) on h100-03 deferred
        """,
    ),
    Scene(
        "a reboot along with a drain",
        new={"pools[old].software.driver": "580.200.1"},
        sights=(sight("a100-2", reboot_needed=True),),
        want="""
        pools[old].software.driver: - -> 580.200.1 [drain-and-reconfigure] on a100-[1-2]
        host[a100-2].reboot: needed -> - [drain-and-reconfigure] (drift) on a100-2 deferred
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) reboot accept uncordon a100-2
        """,
    ),
    Scene(
        "another machine under the name",
        sights=(replace(sight("h100-03"), facts=facts("impostor")),),
        want="""
        host[h100-03].machine-id: machine-h100-03 -> machine-impostor
        [replace] (drift) on h100-03 consent host/h100-03
        h100.1: enrol configure(base,agent) accept h100-03
        blocked: host[h100-03].machine-id
        """,
    ),
    Scene(
        "another machine under the name, with consent",
        sights=(replace(sight("h100-03"), facts=facts("reinstalled")),),
        choices=Choices(("host/h100-03",)),
        want="""
        host[h100-03].machine-id: machine-h100-03 -> machine-reinstalled
        [replace] (drift) on h100-03 consent host/h100-03
        h100.1: enrol configure(base,agent) accept h100-03
        """,
    ),
    Scene(
        "a GPU less",
        sights=(
            replace(sight("h100-03"), facts=replace(facts("h100-03"), gpus=("0000:1b:00.0 10de:2330",))),
        ),
        want="""
        host[h100-03].gpus: 2 (0000:1b:00.0 10d… -> 1 (0000:1b:00.0 10d…
        [drain-and-reconfigure] (drift) on h100-03
        h100.1: cordon drain configure(base,agent) accept uncordon h100-03
        """,
    ),
    Scene(
        "a host that does not answer",
        sights=(lost("h100-03"),),
        want="""
        unseen: h100-03: tcp: no answer; check its power
        """,
    ),
    Scene(
        "a change while a host does not answer",
        new={"pools[old].software.driver": "580.200.1"},
        sights=(lost("a100-1"),),
        want="""
        pools[old].software.driver: - -> 580.200.1 [drain-and-reconfigure] on a100-[1-2]
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        blocked: pool old
        unseen: a100-1: tcp: no answer; check its power
        """,
    ),
    Scene(
        "a change while one of two that may be away is away",
        new={"pools[h100].software.driver": "580.200.1"},
        sights=(lost("h100-08", Step.SUDO, "a password is required"),),
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-01
        h100.2: cordon drain configure(base,agent) accept uncordon h100-02
        h100.3: cordon drain configure(base,agent) accept uncordon h100-03
        h100.4: cordon drain configure(base,agent) accept uncordon h100-04
        h100.5: cordon drain configure(base,agent) accept uncordon h100-05
        h100.6: cordon drain configure(base,agent) accept uncordon h100-06
        h100.7: cordon drain configure(base,agent) accept uncordon h100-07
        h100.8: cordon drain configure(base,agent) accept uncordon h100-08
        unseen: h100-08: sudo: a password is required; check its power
        """,
    ),
    Scene(
        "a node that is not ready is changed first",
        new={"pools[h100].software.driver": "580.200.1"},
        nodes={"h100-05": node("h100-05", ready=False)},
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-05
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[06-07]
        h100.5: cordon drain configure(base,agent) accept uncordon h100-08
        """,
    ),
    Scene(
        "a node that never came in",
        nodes={"h100-02": None},
        want="""
        host[h100-02].agent: - -> enrolled [in-place] (drift) on h100-02
        h100.1: enrol configure(base,agent) accept h100-02
        """,
    ),
    Scene(
        "a node that an apply left cordoned",
        nodes={"h100-02": node("h100-02", cordoned=True)},
        want="""
        host[h100-02].cordon: cordoned -> - [in-place] (drift) on h100-02
        h100.1: accept uncordon h100-02
        """,
    ),
    Scene(
        "nodes that an apply owes a drain",
        nodes={"h100-02": node("h100-02", cordoned=True)},
        owed=("h100-02", "h100-04"),
        want="""
        host[h100-02].apply: unfinished -> finished [drain-and-reconfigure] (drift) on h100-02
        host[h100-04].apply: unfinished -> finished [drain-and-reconfigure] (drift) on h100-04
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[02,04]
        """,
    ),
    Scene(
        "another change of the file while an apply owes nodes a drain",
        old={"pools[old].software.driver": "580.200.1"},
        new={"pools[old].software.driver": "580.200.1", 'sites[hall].system.sysctls["vm.swappiness"]': "1"},
        nodes={"a100-1": node("a100-1", cordoned=True)},
        owed=("a100-1", "a100-2"),
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 1 [in-place] on a100-[1-2],h100-[01-08]
        host[a100-1].apply: unfinished -> finished [drain-and-reconfigure] (drift) on a100-1
        host[a100-2].apply: unfinished -> finished [drain-and-reconfigure] (drift) on a100-2
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "the file taken back while an apply owes nodes a drain",
        old={"pools[old].software.driver": "580.200.1"},
        new={},
        nodes={"a100-1": node("a100-1", cordoned=True)},
        owed=("a100-1", "a100-2"),
        want="""
        pools[old].software.driver: 580.200.1 -> - [controller-only]
        host[a100-1].apply: unfinished -> finished [drain-and-reconfigure] (drift) on a100-1
        host[a100-2].apply: unfinished -> finished [drain-and-reconfigure] (drift) on a100-2
        record: record
        old.1: cordon drain configure(base,agent) accept uncordon a100-1
        old.2: cordon drain configure(base,agent) accept uncordon a100-2
        """,
    ),
    Scene(
        "a node that an apply left although no pool names it",
        nodes={"a100-9": node("a100-9")},
        left=("a100-9",),
        want="""
        host[a100-9]: a100-9 -> - [drain-and-reconfigure] (drift) on a100-9
        retire.old.1: cordon drain retire a100-9
        """,
    ),
    Scene(
        "a node that nobody can say anything of",
        nodes={"a100-9": node("a100-9")},
        want="",
    ),
    Scene(
        "a host that is forgotten and was not seen to stop",
        left=("a100-9",),
        want="""
        host[a100-9]: left -> - [in-place] (drift) on a100-9
        retire.old.1: cordon drain retire a100-9
        """,
    ),
    Scene(
        "a host that was left and is wanted again",
        old={"pools[old].nodes": ["a100-1"], "queues[research].guarantee[A100-SXM4-CUSTOM].gpus": 4},
        new={
            "pools[old].nodes": ["a100-1", "a100-2"],
            "queues[research].guarantee[A100-SXM4-CUSTOM].gpus": 4,
        },
        nodes={"a100-2": None},
        left=("a100-2",),
        want="""
        pools[old].nodes[a100-2]: - -> a100-2 [in-place] on a100-2
        record: record
        old.1: enrol configure(base,agent) accept a100-2
        """,
    ),
    Scene(
        "two hosts of one image, at their first look",
        nodes={"h100-02": None, "h100-05": None},
        sights=(_of("h100-02", "image"), _of("h100-05", "image")),
        want="""
        host[h100-02].agent: - -> enrolled [in-place] (drift) on h100-02
        host[h100-05].agent: - -> enrolled [in-place] (drift) on h100-05
        host[h100-05].machine-id: - -> machine-image [refused] (drift) on h100-05
        h100.1: enrol configure(base,agent) accept h100-[02,05]
        blocked: host[h100-05].machine-id
        """,
    ),
    Scene(
        "a new host made from the image of one that works",
        nodes={"h100-02": None},
        sights=(_of("h100-02", "h100-05"),),
        want="""
        host[h100-02].agent: - -> enrolled [in-place] (drift) on h100-02
        host[h100-02].machine-id: - -> machine-h100-05 [refused] (drift) on h100-02
        h100.1: enrol configure(base,agent) accept h100-02
        blocked: host[h100-02].machine-id
        """,
    ),
    Scene(
        "a host under another name",
        old={"pools[old].nodes": ["a100-1"]},
        new={"pools[old].nodes": ["a100-2"]},
        nodes={"a100-2": None},
        sights=(_of("a100-2", "a100-1"),),
        want="""
        pools[old].nodes[a100-1]: a100-1 -> - [drain-and-reconfigure] on a100-1
        pools[old].nodes[a100-2]: - -> a100-2 [in-place] on a100-2
        host[a100-2].machine-id: - -> machine-a100-1 [refused] (drift) on a100-2
        record: record
        old.1: enrol configure(base,agent) accept a100-2
        retire.old.1: cordon drain retire a100-1
        blocked: host[a100-2].machine-id
        """,
    ),
    Scene(
        "an idle node and a busy one go, each in its own time",
        new={"pools[old]": GONE, "queues[research].guarantee[A100-SXM4-CUSTOM]": GONE},
        running=(Running(5, "bob", "research", ("a100-1",), 4, NOW + HOUR),),
        want="""
        pools[old]: {site: hall, nodes:… -> - [drain-and-reconfigure] on a100-[1-2]
        queues[research].guarantee[A100-SXM4-CUSTOM]: {gpus: 4} -> - [controller-only]
        record: record
        retire.old.1: cordon drain retire a100-2
        retire.old.2: cordon drain retire a100-1
        job 5 drained on a100-1
        """,
    ),
)
