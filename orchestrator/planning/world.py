"""What a plan is made from, besides the wanted file: what was recorded, what was seen, what runs.

Comes in: nothing. Goes out: the arguments of `plan`. Called by: whoever plans fills them in (controller from the
ledger, cli and provision from probes); plan reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.cluster import ClusterSpec, Pool, Site
from orchestrator.model.host import HostFacts, PoolDesired, Sight

MOST_RETIREMENTS = 3  # tries to let a host go; one that was silent each time is asked no more


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node that has come in once. `ready`: it takes work or could. `cordoned`: by an apply, not by a person.

    `host` is what the host was when it was last seen to be as wanted; `pool` is empty where nobody asked for it.
    """

    name: str
    ready: bool = True
    cordoned: bool = False
    host: HostFacts | None = None
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """A host that no pool names any more and whose agent was not seen to stop, with the pool that it was in and its
    site, whose hosts have its address."""

    name: str
    pool: Pool
    site: Site


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the ledger says. `spec` None: nothing was ever applied.

    `nodes` None: nobody asked the controller; then all nodes of the recorded spec count as ready. `owed` are nodes that
    an apply meant to drain and reconfigure and did not finish (`owed_by`); `left` hosts that it did not let go
    (`left_by`).
    """

    spec: ClusterSpec | None = None
    desired: tuple[PoolDesired, ...] = ()
    nodes: tuple[NodeNow, ...] | None = None
    owed: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of hosts; their `drift` is against the recorded `Desired`. A host without a sight counts as being
    what was recorded. `looked` False: nobody looked at any."""

    sights: tuple[Sight, ...] = ()
    looked: bool = True


@dataclass(frozen=True, slots=True)
class Running:
    """A job that holds nodes. `until_us`: when it ends at the latest, 0 if nobody knows."""

    job: int
    owner: str
    queue: str
    nodes: tuple[str, ...]
    gpus: int = 0
    until_us: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits for `gpus` at once, in `pool` or anywhere (empty)."""

    job: int
    owner: str
    queue: str
    gpus: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """All jobs that are not over."""

    running: tuple[Running, ...] = ()
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person says about a plan: `consents` are names of what may be lost or exchanged; `defer` puts off what
    this version of Gangline wants by itself; `only` names the hosts that may be acted on, all if empty."""

    consents: tuple[str, ...] = ()
    defer: bool = False
    only: frozenset[str] = frozenset()

    def about(self, names: Iterable[str]) -> bool:
        """Whether it may act on one of them."""
        return not self.only or not self.only.isdisjoint(names)


NO_CHOICE = Choices()


def owed_by(steps: Iterable[tuple[PlanStep, bool]]) -> tuple[str, ...]:
    """The nodes that an apply has cordoned or meant to, and has not given back: steps with whether they were done."""
    taken: dict[str, None] = {}
    for step, done in steps:
        if step.kind is StepKind.CORDON:
            taken.update(dict.fromkeys(step.nodes))
        elif step.kind in (StepKind.UNCORDON, StepKind.RETIRE) and done:
            for name in step.nodes:
                taken.pop(name, None)
    return tuple(taken)


def left_by(steps: Iterable[tuple[PlanStep, bool, bool]]) -> tuple[str, ...]:
    """The nodes that applies meant to let go and did not: steps, oldest first, with whether they were done and whether
    they failed. A host that failed MOST_RETIREMENTS times is given up: the dead are taken out, too."""
    tries: dict[str, int] = {}
    for step, done, failed in steps:
        for name in step.nodes:
            if step.kind is StepKind.RETIRE and not done:
                tries[name] = tries.get(name, 0) + failed
            elif step.kind in (StepKind.RETIRE, StepKind.ENROL) and done:
                tries.pop(name, None)
    return tuple(name for name, count in tries.items() if count < MOST_RETIREMENTS)


def with_left(spec: ClusterSpec, left: Iterable[Left]) -> ClusterSpec:
    """The recorded cluster as if the hosts that were left still stood in it, so that they can be reached."""
    pools = {pool.name: pool for pool in spec.pools}
    sites = {site.name: site for site in spec.sites}
    for one in left:
        pool = pools.get(one.pool.name) or replace(one.pool, nodes=())
        pools[pool.name] = replace(pool, nodes=(*pool.nodes, one.name))
        site = sites.get(one.site.name) or replace(one.site, hosts=())
        known = {host.name for host in site.hosts}
        again = tuple(host for host in one.site.hosts if host.name == one.name and host.name not in known)
        sites[site.name] = replace(site, hosts=site.hosts + again)
    return replace(spec, pools=tuple(pools.values()), sites=tuple(sites.values()))
