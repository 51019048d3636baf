"""What earlier applies left to be done: nodes that are owed a change, hosts that were not seen to stop.

Comes in: the journal and the records of a controller. Goes out: the parts of `Recorded` that say so. Called by:
changing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.errors import GanglineError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.planning.world import Left, NodeNow
    from orchestrator.wire.api_apply import Apply

MOST_RECORDS = 25  # that are read to find where a host stood: the journal has 20 applies

Past = tuple[PlanStep, bool, bool]  # a step on one node, whether it was done there, whether it failed there


def steps(applies: Sequence[Apply]) -> list[Past]:
    """The steps of the journal, oldest first, node by node. `applies`: newest first, as the controller lists them."""
    known = {str(kind): kind for kind in StepKind}
    found: list[Past] = []
    for apply in reversed(applies):
        for step in apply.steps:
            results = {result.host: result.ok for result in step.hosts}
            for node in step.nodes if step.kind in known else ():
                plain = PlanStep(step.id, known[step.kind], step.why, step.pool, (node,))
                found.append((plain, results.get(node) is True, results.get(node) is False))
    return found


def owed(past: Iterable[Past]) -> tuple[str, ...]:
    """Nodes that the last applies meant to drain and did not give back."""
    from orchestrator.planning.world import owed_by

    return owed_by((step, done) for step, done, _ in past)


def left(
    client: Client, spec: ClusterSpec, past: Iterable[Past], nodes: Iterable[NodeNow]
) -> tuple[Left, ...]:
    """Hosts that were to be let go and were not seen to stop, as they stood in the newest record that has them. One
    that no record has is left out: nobody knows any more how to reach it."""
    from orchestrator.planning.world import left_by

    pools = {name for pool in spec.pools for name in pool.nodes}
    configured = [node.name for node in nodes if node.host is not None]
    wanting = [name for name in dict.fromkeys((*left_by(past), *configured)) if name not in pools]
    found: dict[str, Left] = {}
    for record in client.records()[:MOST_RECORDS] if wanting else ():
        found |= _standing(client, record.record, [name for name in wanting if name not in found])
        if len(found) == len(wanting):
            break
    return tuple(found[name] for name in wanting if name in found)


def spec_in(plain: dict[str, Any]) -> ClusterSpec:
    """A recorded cluster. What it says goes into the files of OpenSSH and Ansible on this machine, so a controller is
    not believed where no file could have said it: GanglineError."""
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.model.codec import decode
    from orchestrator.spec import text_faults

    spec = decode(ClusterSpec, plain)
    fault = next(text_faults(spec), "")
    if fault:
        raise GanglineError(
            "record.unsound",
            f"the controller has recorded a cluster that no file can describe: {fault}",
            "see who applied it (`gangline history`), and what else they have changed",
        )
    return spec


def _standing(client: Client, record: str, names: Iterable[str]) -> dict[str, Left]:
    """Where these hosts stood in a record, as far as it has them on metal."""
    from orchestrator.model.cluster import SiteKind
    from orchestrator.planning.world import Left

    spec = spec_in(client.record(record).spec)
    pools = {
        name: pool for pool in spec.pools if spec.site_of(pool).kind is SiteKind.METAL for name in pool.nodes
    }
    return {name: Left(name, pools[name], spec.site_of(pools[name])) for name in names if name in pools}
