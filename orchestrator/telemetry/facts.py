"""`NodeFacts` of this machine.

Comes in: devices, the supervisor's name, whether jobs run as the agent's own user only. Goes out: the facts that
the agent reports when they change. Called by: the agent's daemon.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from orchestrator import __version__
from orchestrator.model.node import NodeFacts
from orchestrator.telemetry import host
from orchestrator.telemetry.devices import Found


def node_facts(
    found: Sequence[Found],
    *,
    supervisor: str,
    run_as_self: bool,
    unenforced: tuple[str, ...] = (),
    cores: int = 0,
    memory: int = 0,
) -> NodeFacts:
    """What this node is now; `cores` and `memory` (bytes) other than 0 stand for what is measured."""
    return NodeFacts(
        boot_id=host.boot_id(),
        cores=cores or host.cores(),
        memory=memory or host.memory_bytes(),
        devices=tuple(each.device for each in found),
        machine_id=host.machine_id(),
        hostname=host.hostname(),
        agent_version=__version__,
        run_as=host.user_name(),
        can_switch_user=os.geteuid() == 0 and not run_as_self,
        supervisor=supervisor,
        unenforced=unenforced,
    )
