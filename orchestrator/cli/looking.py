"""Looking at the hosts of a cluster: its nodes, and its controller's own host if it has one, each once.

Comes in: a checked spec, what was recorded, which hosts are meant. Goes out: a `View`, the sights of a drift report and
how to adopt what one tells, or what hosts are in words. Called by: changing (plans), drift_cmd, doctor_cmd.
Nothing here acts on a host.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import hosting
from orchestrator.cli.changing import Means, hosts_for, means_of, metal_pools, read, recorded_of, state_of
from orchestrator.cli.choices import chosen_hosts
from orchestrator.model.host import Sight

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.model.stack_sight import StackSight
    from orchestrator.planning.world import Recorded
    from orchestrator.provision.metal.render import Hosted


@dataclass(frozen=True, slots=True)
class View:
    """What was seen of nodes, and of the controller's own host as that, if it has one."""

    nodes: tuple[Sight, ...] = ()
    controller: Sight | None = None
    hosted: Hosted | None = None


def view_of(spec: ClusterSpec, state: Path, means: Means, recorded: Recorded, only: frozenset[str]) -> View:
    """Every host against what was recorded for it; new pools and the controller's host against what they are to have.
    One look at each, also at a host that is both."""
    from orchestrator.planning.hosted import apart

    against = means.by_pool | {one.pool: one for one in recorded.desired}
    names = [name for pool in metal_pools(spec) for name in pool.nodes if not only or name in only]
    own = spec.controller.host if not only or spec.controller.host in only else ""
    hosted = hosting.hosted_of(spec, state) if own else None
    if hosted is None or isinstance(hosted, Sight):
        return View(tuple(hosts_for(spec, state, means, against).sights(names)) if names else (), hosted)
    sights = hosts_for(spec, state, means, against, hosted=hosted).sights_of_all(names)
    parts = {sight.host: apart(sight) for sight in sights}
    controller = parts[own][1]
    again = hosting.renewed(spec, state, controller)
    if again is not None:
        hosted, controller = again, hosts_for(spec, state, means, {}, hosted=again).controller_sight()
    return View(tuple(parts[name][0] for name in names), controller, hosted)


def drift_of(file: str, client: Client | None, limit: str | None) -> list[Sight]:
    """Every host against what was recorded; the controller's own host in one sight with what it has as a node."""
    spec = read(file)
    state = state_of(spec)
    recorded = recorded_of(client)
    means = means_of(spec, state, recorded)
    view = view_of(spec, state, means, recorded, chosen_hosts(metal_pools(spec), limit, spec.controller.host))
    own = view.controller
    if own is None:
        return list(view.nodes)
    both = [
        replace(one, drift=(*own.drift, *one.drift)) if one.host == own.host else one for one in view.nodes
    ]
    return both if any(one.host == own.host for one in both) else [own, *both]


def stack_drift_of(file: str, client: Client | None) -> tuple[StackSight, ...]:
    """What differs on aws sites from what their stacks have recorded."""
    from orchestrator.cli.stacking import Account, drifts

    spec = read(file)
    return drifts(Account(spec, None, state_of(spec), client))


def probed(file: str) -> list[tuple[Sight, str, bool]]:
    """Every host that the file has work for, with what it is in words (of one that can't be used, why and at which
    step), and whether there is something to see to."""
    from orchestrator.provision.metal.probe import words, worth_saying

    spec = read(file)
    nodes = [name for pool in metal_pools(spec) for name in pool.nodes]
    names = list(dict.fromkeys(filter(None, (spec.controller.host, *nodes))))
    sights = hosting.hosts_of(spec, state_of(spec)).probed(names) if names else []
    return [(one, words(one), one.facts is not None and bool(worth_saying(one.facts))) for one in sights]


ADOPT = "to adopt it, in the host's site (below its `system`, if there is one):"


def adopt_advice(kind: str, name: str, value: str, found: str) -> list[str]:
    """How the file would say what a host has, as a patch to its `system`; nothing where the file can't say it."""
    if kind == "sysctl" and found:
        return [ADOPT, f"+  system: {{sysctls: {{{name}: {json.dumps(found)}}}}}"]
    if kind == "package" and value == "version" and found:
        return [ADOPT, f"+  system: {{packages: {{{name}: {json.dumps(found)}}}}}"]
    return []
