"""What a plan is made from, besides the wanted file: what was recorded, what was seen, what runs.

Comes in: nothing. Goes out: the arguments of `plan`. Called by: whoever plans fills them in (controller from the
ledger, cli and provision from probes); plan reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.host import HostFacts, PoolDesired, Sight


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node that has come in once. `ready`: it takes work or could. `cordoned`: by an apply, not by a person.

    `host` is what the host was when it was last seen to be as wanted.
    """

    name: str
    ready: bool = True
    cordoned: bool = False
    host: HostFacts | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the ledger says. `spec` None: nothing was ever applied.

    `nodes` None: nobody asked the controller; then all nodes of the recorded spec count as ready. `owed` are nodes that
    an apply meant to drain and reconfigure and did not finish (`owed_by`).
    """

    spec: ClusterSpec | None = None
    desired: tuple[PoolDesired, ...] = ()
    nodes: tuple[NodeNow, ...] | None = None
    owed: tuple[str, ...] = ()


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
    this version of Gangline wants by itself."""

    consents: tuple[str, ...] = ()
    defer: bool = False


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
