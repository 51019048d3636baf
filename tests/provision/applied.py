"""A cluster on paper for tests of the applier: nodes with work, hosts that obey, fail or are slow, a journal.

Comes in: pools and what should go wrong. Goes out: `Paper`, which plays both `Desk` and `Hosts` of
`provision.applying` on a virtual clock. Called by: test_applying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.change import ChangeSet, PlanStep, StepKind
from orchestrator.model.clock import SECOND, ManualClock
from orchestrator.model.cluster import ClusterSpec, Drain, DrainThen, Pool, Site, SiteKind, Update
from orchestrator.model.errors import Conflict
from orchestrator.model.host import HostFacts
from orchestrator.provision.applying import NodeNow, Seen

OUTAGE = "no route to host"


@dataclass
class PaperNode:
    """One node and its host. `jobs`: job -> seconds that it still runs (0: for ever)."""

    name: str
    joined: bool = True
    marks: dict[str, str] = field(default_factory=dict)
    jobs: dict[int, float] = field(default_factory=dict)
    deadline_us: int = 0
    then: str = "wait"
    ending: float = 0.0  # seconds from a deadline until what the controller ends then is gone
    clean: bool = True
    broken: bool = False  # roles fail on it
    deaf: bool = False  # the roles say that all is well, and nothing has changed
    never_joins: bool = False
    stranger: float = 0.0  # seconds for which something runs that the controller does not know
    boots: int = 1
    called: int = 1  # the boot in which its agent called last

    @property
    def open(self) -> bool:
        return self.joined and not self.marks


class Paper:
    """Everything that one apply meets."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.clock = ManualClock()
        self.nodes_by_name = {name: PaperNode(name) for pool in spec.pools for name in pool.nodes}
        self.journal: list[str] = []
        self.told: list[str] = []
        self.asked = 0  # questions to hosts what runs on them
        self.done: list[str] = []  # what was done to hosts, in order
        self.least_open: dict[str, int] = {pool.name: len(pool.nodes) for pool in spec.pools}
        self.controller_fails = False
        self.lost_after: int = 0  # journal entries after which another holder takes the lease
        self.before: Callable[[str], None] = lambda _: (
            None
        )  # called with each journal entry before it is written

    # --- time -----------------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Time passes: jobs end, the controller ends those that outlive a drain."""
        self.clock.advance(seconds)
        for node in self.nodes_by_name.values():
            node.called = node.boots
            node.stranger = max(0.0, node.stranger - seconds)
            for job, left in list(node.jobs.items()):
                end_us = node.deadline_us + node.ending * SECOND
                late = node.deadline_us and self.clock.monotonic_us() > end_us and node.then != "wait"
                if late or (left and left <= seconds):
                    self.gone(job)
                elif left:
                    node.jobs[job] = left - seconds

    def gone(self, job: int) -> None:
        """A gang leaves all its nodes."""
        for node in self.nodes_by_name.values():
            node.jobs.pop(job, None)

    def count_open(self) -> None:
        """Remember the fewest nodes of each pool that were ever open."""
        for pool in self.spec.pools:
            now = sum(node.open for name in pool.nodes if (node := self.nodes_by_name.get(name)))
            self.least_open[pool.name] = min(self.least_open[pool.name], now)

    # --- the desk -------------------------------------------------------------------------------------------------

    def _write(self, entry: str) -> None:
        self.before(entry)
        if self.lost_after and len(self.journal) >= self.lost_after:
            raise Conflict("apply.not-open", "bob@laptop has apply-2")
        self.journal.append(entry)

    def start(self, digest: str, steps: Sequence[PlanStep]) -> str:
        self._write("start")
        return "apply-1"

    def renew(self, apply: str) -> None:
        """Nothing on paper."""

    def start_step(self, apply: str, step: str) -> None:
        self._write(f"+{step}")

    def end_step(self, apply: str, step: str, ok: bool, hosts: Sequence[HostResult]) -> None:
        self._write(f"-{step}" if ok else f"!{step}")

    def end(self, apply: str, outcome: Outcome, detail: str) -> None:
        self._write(f"end {outcome}")

    def record(self) -> None:
        self.done.append("record")

    def nodes(self) -> dict[str, NodeNow]:
        self.count_open()
        return {
            node.name: NodeNow(
                node.name,
                node.open,
                node.joined,
                tuple(node.jobs),
                tuple(node.marks),
                ", ".join(node.marks) or ("" if node.joined else "never heard of"),
                f"boot {node.called}",
            )
            for node in self.nodes_by_name.values()
        }

    def cordon(self, node: str, why: str, deadline_s: int, then: str) -> None:
        found = self.nodes_by_name[node]
        found.marks["updating"] = why
        found.deadline_us = self.clock.monotonic_us() + deadline_s * SECOND
        found.then = then
        self.count_open()

    def uncordon(self, node: str) -> None:
        self.nodes_by_name[node].marks.pop("updating", None)
        self.nodes_by_name[node].deadline_us = 0

    def agree(self, node: str) -> None:
        self.nodes_by_name[node].marks.pop("changed", None)

    def configured(self, node: str, facts: HostFacts | None) -> None:
        self.done.append(f"configured {node}")

    def configure_controller(self) -> HostResult:
        self.done.append("controller")
        return HostResult(
            "c1", ok=not self.controller_fails, error="no room" if self.controller_fails else ""
        )

    def join_token(self, node: str) -> str:
        return f"token of {node}"

    # --- the hosts ------------------------------------------------------------------------------------------------

    def look(self, names: Sequence[str]) -> list[Seen]:
        return [Seen(name, self.nodes_by_name[name].clean) for name in names]

    def running(self, names: Sequence[str]) -> dict[str, str]:
        self.asked += len(names)
        return {
            name: "gangline-9-1"
            for name in names
            if name in self.nodes_by_name and self.nodes_by_name[name].stranger
        }

    def enrol(self, tokens: dict[str, str]) -> list[HostResult]:
        assert all(token == f"token of {name}" for name, token in tokens.items())
        self.done.append(f"enrol {','.join(tokens)}")
        return [HostResult(name, ok=True) for name in tokens]

    def configure(self, names: Sequence[str], roles: Sequence[str]) -> list[HostResult]:
        self.done.append(f"configure {','.join(names)}")
        return [self._configure(self.nodes_by_name[name]) for name in names]

    def _configure(self, node: PaperNode) -> HostResult:
        if node.broken:
            return HostResult(node.name, ok=False, error=OUTAGE)
        node.clean = not node.deaf
        node.joined = node.joined or not node.never_joins
        return HostResult(node.name, ok=True, changed=1)

    def reboot(self, names: Sequence[str]) -> list[HostResult]:
        for name in names:
            assert not self.nodes_by_name[name].jobs, f"{name} was rebooted under its jobs"
            self.nodes_by_name[name].boots += 1
        self.done.append(f"reboot {','.join(names)}")
        return [HostResult(name, ok=True) for name in names]

    def retire(self, names: Sequence[str]) -> list[HostResult]:
        self.done.append(f"retire {','.join(names)}")
        lost = {name for name in names if name in self.nodes_by_name and self.nodes_by_name[name].broken}
        return [HostResult(name, name not in lost, OUTAGE if name in lost else "") for name in names]


def paper(
    nodes: int = 6,
    most_away: int = 2,
    deadline_s: int = 600,
    then: DrainThen = DrainThen.WAIT,
    enough_milli: int = 1000,
) -> Paper:
    """One pool `p` of metal nodes p1.. that all have something to change."""
    update = Update(most_away, Drain(deadline_s, then), enough_milli)
    names = tuple(f"p{number}" for number in range(1, nodes + 1))
    spec = ClusterSpec(
        "test", sites=(Site("hall", SiteKind.METAL),), pools=(Pool("p", "hall", names, update=update),)
    )
    made = Paper(spec)
    for node in made.nodes_by_name.values():
        node.clean = False
    return made


ROLLING = (StepKind.CORDON, StepKind.DRAIN, StepKind.CONFIGURE, StepKind.ACCEPT, StepKind.UNCORDON)


def plan(*batches: tuple[str, ...], kinds: Sequence[StepKind] = ROLLING) -> ChangeSet:
    """The controller first, then each batch through those kinds of steps."""
    steps = [PlanStep("record", StepKind.RECORD, "the file")]
    for number, nodes in enumerate(batches, 1):
        steps += [
            PlanStep(f"p.{number}.{kind}", kind, "a driver", "p", nodes, ("base",), number) for kind in kinds
        ]
    return ChangeSet("test", "wanted", "recorded", "observed", steps=tuple(steps))
