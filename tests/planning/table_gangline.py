"""What another version of Gangline wants for the same file: never more than changes in place (promise 11).

Comes in: nothing. Goes out: `SCENES`, for test_table.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.host import Item, ItemKind
from orchestrator.model.installed import (
    LIMITS_FILE,
)
from orchestrator.planning.world import Choices
from tests.planning.scene import RESOLVED, Scene

FILE = Item(
    ItemKind.FILE,
    LIMITS_FILE,
    (("content", "older\n"), ("group", "root"), ("mode", "0644"), ("owner", "root")),
)
PACKAGE = Item(ItemKind.PACKAGE, "ntpdate", (("version", ""),))
HEAVY = Item(ItemKind.PACKAGE, "chrony", (("version", "4.3"),), disturbs=True)

SCENES = (
    Scene(
        "the agent of another version",
        resolved=replace(RESOLVED, archive_sha256="bb" * 32),
        want="""
        pool[h100].archive[/opt/gangline/agent.pyz].sha256: aaaaaaaaaaaa -> bbbbbbbbbbbb
        [in-place] (gangline) on h100-[01-08]
        pool[old].archive[/opt/gangline/agent.pyz].sha256: aaaaaaaaaaaa -> bbbbbbbbbbbb
        [in-place] (gangline) on a100-[1-2]
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        old.1: configure(agent) a100-1
        old.2: configure(agent) a100-2
        """,
    ),
    Scene(
        "the agent of another version, put off",
        resolved=replace(RESOLVED, archive_sha256="bb" * 32),
        choices=Choices(defer=True),
        want="""
        pool[h100].archive[/opt/gangline/agent.pyz].sha256: aaaaaaaaaaaa -> bbbbbbbbbbbb
        [in-place] (gangline) on h100-[01-08] deferred
        pool[old].archive[/opt/gangline/agent.pyz].sha256: aaaaaaaaaaaa -> bbbbbbbbbbbb
        [in-place] (gangline) on a100-[1-2] deferred
        """,
    ),
    Scene(
        "a file that another version writes otherwise",
        recorded_items=(FILE,),
        want="""
        pool[h100].file[/etc/security/limits.d/gangline.conf].content: 1 line, sha256 f585… -> 3 lines, sha256 2b2…
        [in-place] (gangline) on h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        """,
    ),
    Scene(
        "a unit that another version hardens, and a change of the file",
        recorded_items=(FILE,),
        new={'sites[hall].system.sysctls["vm.swappiness"]': "1"},
        want="""
        sites[hall].system.sysctls["vm.swappiness"]: 10 -> 1 [in-place] on a100-[1-2],h100-[01-08]
        pool[h100].file[/etc/security/limits.d/gangline.conf].content: 1 line, sha256 f585… -> 3 lines, sha256 2b2…
        [in-place] (gangline) on h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        old.1: configure(base) a100-1
        old.2: configure(base) a100-2
        """,
    ),
    Scene(
        "a package that another version no longer wants",
        recorded_items=(PACKAGE,),
        want="""
        pool[h100].package[ntpdate].version: any -> - [in-place] (gangline) on h100-[01-08]
        record: record
        h100.1: configure(base) h100-[01-02]
        h100.2: configure(base) h100-[03-08]
        """,
    ),
    Scene(
        "something that work would notice",
        recorded_items=(HEAVY,),
        want="""
        pool[h100].package[chrony].version: 4.3 -> any [in-place] (gangline) on h100-[01-08] deferred
        """,
    ),
    Scene(
        "something that work would notice, along with a drain",
        recorded_items=(HEAVY,),
        new={"pools[h100].software.driver": "580.200.1"},
        want="""
        pools[h100].software.driver: 580.126.20 -> 580.200.1 [drain-and-reconfigure] on h100-[01-08]
        pool[h100].package[chrony].version: 4.3 -> any [in-place] (gangline) on h100-[01-08]
        record: record
        h100.1: cordon drain configure(base,agent) accept uncordon h100-[01-02]
        h100.2: cordon drain configure(base,agent) accept uncordon h100-[03-04]
        h100.3: cordon drain configure(base,agent) accept uncordon h100-[05-06]
        h100.4: cordon drain configure(base,agent) accept uncordon h100-[07-08]
        """,
    ),
    Scene(
        "another version, and a file changed under put off",
        resolved=replace(RESOLVED, archive_sha256="bb" * 32),
        choices=Choices(defer=True),
        new={"identity.min_uid": 1500},
        want="""
        identity.min_uid: 2000 -> 1500 [in-place] on a100-[1-2],h100-[01-08]
        pool[h100].archive[/opt/gangline/agent.pyz].sha256: aaaaaaaaaaaa -> bbbbbbbbbbbb
        [in-place] (gangline) on h100-[01-08] deferred
        pool[old].archive[/opt/gangline/agent.pyz].sha256: aaaaaaaaaaaa -> bbbbbbbbbbbb
        [in-place] (gangline) on a100-[1-2] deferred
        record: record
        h100.1: configure(agent) h100-[01-02]
        h100.2: configure(agent) h100-[03-08]
        old.1: configure(agent) a100-1
        old.2: configure(agent) a100-2
        """,
    ),
)
