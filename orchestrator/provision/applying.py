"""Carrying a plan out: step by step, each in the journal before it touches anything and after.

Comes in: a `ChangeSet`, what asks the controller (`Desk`), what acts on hosts (`Hosts`) and on the lasting things of
aws sites (`Stacks`). Goes out: an `Outcome` with what became of each host and site. Called by: cli `apply` and `up`, on
whichever machine has the credentials.

It may be killed at any point: every step compares before it acts, a later run plans from what it sees, and the journal
tells people meanwhile what was begun. Rules that hold whatever a plan says: a host with work on it is neither rebooted
nor reconfigured when the change disturbs work; no more nodes of a pool are away at once than its `max_unavailable`;
the first batch that fails is the last of its pool (the brake).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.change import ChangeSet, PlanStep, StepKind
from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.cluster import ClusterSpec, DrainThen, Pool, SiteKind
from orchestrator.model.errors import Conflict, GanglineError, Unavailable
from orchestrator.model.failpoints import failpoint
from orchestrator.model.host import HostFacts
from orchestrator.model.units import fold
from orchestrator.provision.lease import Lease

CHANGED = "changed"  # the mark of a node that is another machine, or has other GPUs, than was let in
LEASE_S = 60  # nobody else may apply for so long after a sign of life of this process
ACCEPT_S = 180  # for a configured host to join and be accepted
BOUGHT_S = 1500  # the same for a node that is bought: large instances take up to 25 minutes to boot
ENDING_S = 120  # for what the controller ended at a deadline to be gone: its grace, and its epilog
TICK_S = 0.2  # between two looks at nodes that are waited for
ASK_S = 3.0  # between two questions to a host that still runs what the controller does not know


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node as the controller has it. `why`: what keeps work from it, empty if nothing does; `boot_id`: of the boot in
    which its agent called last."""

    name: str
    open: bool
    answers: bool
    jobs: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()  # kinds
    why: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a host found: empty `error` and `clean` mean that it has all it should."""

    host: str
    clean: bool
    error: str = ""
    facts: HostFacts | None = None


class Desk(Protocol):
    """What an apply asks of the controller; each call is safe to repeat. GanglineError."""

    def start(self, digest: str, steps: Sequence[PlanStep]) -> str: ...
    def renew(self, apply: str) -> None: ...
    def start_step(self, apply: str, step: str) -> None: ...
    def end_step(self, apply: str, step: str, ok: bool, hosts: Sequence[HostResult]) -> None: ...
    def end(self, apply: str, outcome: Outcome, detail: str) -> None: ...
    def record(self) -> None: ...
    def nodes(self) -> dict[str, NodeNow]: ...
    def cordon(self, node: str, why: str, deadline_s: int, then: str) -> None: ...
    def uncordon(self, node: str) -> None: ...
    def agree(self, node: str) -> None: ...
    def configured(self, node: str, facts: HostFacts | None) -> None: ...
    def join_token(self, node: str) -> str: ...


class Hosts(Protocol):
    """What an apply does to hosts, each call over many of them at once. Nothing is raised for a single host.

    `running`: what of Gangline's lives on them, in words, whatever the controller knows of it; only hosts that say so.
    """

    def look(self, names: Sequence[str]) -> list[Seen]: ...
    def running(self, names: Sequence[str]) -> dict[str, str]: ...
    def enrol(self, tokens: dict[str, str]) -> list[HostResult]: ...
    def configure(self, names: Sequence[str], roles: Sequence[str]) -> list[HostResult]: ...
    def configure_controller(self) -> HostResult: ...
    def reboot(self, names: Sequence[str]) -> list[HostResult]: ...
    def retire(self, names: Sequence[str]) -> list[HostResult]: ...


class Stacks(Protocol):
    """What an apply does to aws sites. `held`: fixed nodes that are left as they are, since their turn comes later."""

    def bring(self, site: str, held: frozenset[str]) -> HostResult: ...


@dataclass(frozen=True, slots=True)
class Sites:
    """What acts. `stacks`: for plans that have aws sites."""

    hosts: Hosts
    stacks: Stacks | None = None


@dataclass(slots=True)
class Report:
    """What became of a plan. `failed`: the first failure of each host; `skipped`: steps that the brake kept back."""

    apply: str = ""
    outcome: Outcome = Outcome.DONE
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)  # pools with too few good hosts

    @property
    def detail(self) -> str:
        """The failures in one line, for the journal."""
        shown = [f"{host}: {error}" for host, error in list(self.failed.items())[:5]]
        more = len(self.failed) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


class Applier:
    """One apply."""

    def __init__(
        self,
        spec: ClusterSpec,
        desk: Desk,
        sites: Sites,
        tell: Callable[[str], None],
        clock: Clock,
        pause: Callable[[float], None] = time.sleep,
        only: frozenset[str] = frozenset(),
        before: ClusterSpec | None = None,
    ) -> None:
        """`only` empty: all hosts. `before`: the recorded spec, which has the pools of hosts that leave."""
        self._spec = spec
        self._stacks = sites.stacks
        specs = [each for each in (before, spec) if each is not None]
        self._pools = {pool.name: pool for each in specs for pool in each.pools}
        self._clouds = frozenset(name for each in specs for name in _of_clouds(each))
        self._desk = desk
        self._hosts = sites.hosts
        self._tell = tell
        self._clock = clock
        self._pause = pause
        self._only = only
        self._report = Report()
        self._turns: list[PlanStep] = []  # those of aws sites, in order
        self._braked: dict[str, int] = {}  # pool -> the batch that failed
        self._new: set[tuple[str, int]] = set()  # (pool, batch) of hosts that come in
        self._drained: dict[str, int] = {}  # node -> when its drain's deadline is, monotonic microseconds
        self._booted: dict[str, str] = {}  # node -> the boot that a reboot has ended

    def run(self, plan: ChangeSet) -> Report:
        """Carry it out. Raises what keeps it from beginning, and Conflict when another took the lease meanwhile."""
        report = self._report
        self._turns = [step for step in plan.steps if step.kind is StepKind.STACK]
        self._new = {(step.pool, step.batch) for step in plan.steps if step.kind is StepKind.ENROL}
        report.apply = self._desk.start(plan.wanted, plan.steps)
        failpoint("apply.start.after")
        with Lease(self._desk, report.apply, LEASE_S / 3) as lease:
            for step in plan.steps:
                lease.check()
                self._step(step)
            self._agree(plan)
            self._let_back(plan)
        report.short = [pool.name for pool in self._spec.pools if not self._good_enough(pool)]
        behind = report.short or report.skipped or self._left_behind(plan)
        report.outcome = Outcome.PARTIAL if behind else Outcome.DONE
        failpoint("apply.end.before")
        self._desk.end(report.apply, report.outcome, report.detail)
        return report

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self, step: PlanStep) -> None:
        names = [name for name in step.nodes if name not in self._report.failed and self._meant(name)]
        kept_back = step.batch > self._braked.get(step.pool, step.batch) or self._of_failed_site(step)
        if kept_back or (step.nodes and not names):
            self._report.skipped.append(step.id)
            return
        self._desk.start_step(self._report.apply, step.id)
        failpoint("apply.step.started")
        results = self._act(step, names)
        failpoint("apply.step.acted")
        ok = all(result.ok for result in results)
        for result in results:  # told first: the desk may be what has failed
            if not result.ok:
                self._report.failed.setdefault(result.host, result.error)
                self._tell(f"{result.host}: {step.kind} failed: {result.error}")
        self._desk.end_step(self._report.apply, step.id, ok, results)
        failpoint("apply.step.ended")
        if not ok and step.kind in (StepKind.CONTROLLER, StepKind.STACK):
            self._report.skipped.append(step.id)
        elif not ok:
            self._brake(step)

    def _of_failed_site(self, step: PlanStep) -> bool:
        """Whether Pulumi has failed on the site that it is about: what is there now only another plan will know."""
        failed = [one for one in self._turns if one.id in self._report.skipped]
        return any(
            step.id.startswith(f"stack.{one.site}.") or step.id == f"stack.{one.site}" for one in failed
        )

    def _meant(self, name: str) -> bool:
        """Whether the person who applies has not left it out by a limit."""
        return not self._only or name in self._only

    def _act(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """One result per host; an error that concerns all of them is each one's."""
        try:
            return ACTIONS[step.kind](self, step, names)
        except Conflict:
            raise
        except GanglineError as error:
            if not names:
                raise
            return [HostResult(name, ok=False, error=error.message) for name in names]

    def _brake(self, step: PlanStep) -> None:
        """No further batch of this pool; the good hosts of this one go on. New hosts serve nobody yet, and those that
        go serve nobody any more: their failure keeps no other from its change."""
        place = (step.pool, step.batch)
        serves = place not in self._new and step.kind is not StepKind.RETIRE
        if step.pool and step.pool not in self._braked and serves:
            self._braked[step.pool] = step.batch
            self._tell(f"pool {step.pool}: stopped after batch {step.batch}, since a host of it failed")

    def _controller(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """The controller's own host. It restarts meanwhile: the desk is asked again until it answers."""
        return [self._hosts.configure_controller()]

    def _record(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        self._desk.record()
        return []

    def _stack(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """The site, but for fixed nodes whose turn comes later or that could not be drained."""
        if self._stacks is None:
            raise Unavailable("apply.no-stacks", f"site {step.site} can't be changed from here")
        later = self._turns[self._turns.index(step) + 1 :]
        held = {name for one in later if one.site == step.site for name in one.nodes}
        return [self._stacks.bring(step.site, frozenset(held | (set(step.nodes) - set(names))))]

    def _enrol(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        return self._hosts.enrol({name: self._desk.join_token(name) for name in names})

    def _cordon(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        pool = self._pools[step.pool]
        self._check_away(pool, names)
        drain = pool.update.drain
        now = self._desk.nodes()
        for name in [name for name in names if name in now]:  # an idle node that leaves is forgotten already
            self._desk.cordon(name, f"{self._report.apply}: {step.why}", drain.deadline_s, str(drain.then))
            self._drained[name] = self._clock.monotonic_us() + drain.deadline_s * SECOND
        return [HostResult(name, ok=True) for name in names]

    def _check_away(self, pool: Pool, names: list[str]) -> None:
        """Unavailable if closing these nodes would leave fewer of the pool than promised: of those that stay in it."""
        now = self._desk.nodes()
        stays = {name for each in self._spec.pools for name in each.nodes}
        others = [
            name for name in pool.nodes if name in stays and name not in names and not _serves(now.get(name))
        ]
        closing = [name for name in names if name in stays and _serves(now.get(name))]
        most = pool.update.max_unavailable
        if closing and len(others) + len(closing) > most:
            gone = ", ".join(f"{name} ({now[name].why or 'silent'})" for name in others[:3] if name in now)
            raise Unavailable(
                "apply.too-few",
                f"{len(others)} node(s) of pool {pool.name} are away already: {gone}; "
                f"max_unavailable is {most}",
            )

    def _drain(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """Until nothing runs on them: by the controller, and then by the hosts themselves, since a host may hold what
        no ledger knows. The controller deals with what outlives the deadline, if the policy says so."""
        left = dict.fromkeys(names)
        strangers = _Strangers(None if step.pool in self._clouds else self._hosts, self._clock)
        results: list[HostResult] = []
        told = False
        while left:
            now = self._desk.nodes()
            idle = [name for name in left if not _busy(now.get(name))]
            for name in strangers.free(idle):
                del left[name]
                results.append(HostResult(name, ok=True))
            for name in [name for name in left if self._late(step, name)]:
                why = strangers.found.get(name) or f"job(s) {', '.join(map(str, now[name].jobs))}"
                results.append(HostResult(name, ok=False, error=f"{why} outlived the drain's deadline"))
                if name in now:
                    self._desk.uncordon(name)  # nothing was changed on it
                del left[name]
            if left and not told:
                told = True
                self._tell(f"draining {', '.join(left)}: waiting for {strangers.words() or 'running jobs'}")
            if left:
                self._pause(TICK_S)
        return results

    def _late(self, step: PlanStep, name: str) -> bool:
        """Whether a node's work has outlived the deadline, and the policy's own grace if it ends work."""
        drain = self._pools[step.pool].update.drain
        now_us = self._clock.monotonic_us()
        deadline_us = self._drained.setdefault(name, now_us + drain.deadline_s * SECOND)
        grace_s = 0 if drain.then is DrainThen.WAIT else ENDING_S
        return now_us > deadline_us + grace_s * SECOND

    def _configure(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """The roles, then a look: what counts is what the host has, not what Ansible says."""
        ran = {result.host: result for result in self._hosts.configure(names, step.roles)}
        failed = [result for result in ran.values() if not result.ok]
        well = [name for name in names if ran[name].ok]
        results = [self._proved(ran[seen.host], seen) for seen in self._hosts.look(well)]
        return failed + results

    def _proved(self, ran: HostResult, seen: Seen) -> HostResult:
        if seen.error or not seen.clean:
            error = seen.error or "it still differs after the roles have run: `gangline drift` shows where"
            return HostResult(ran.host, ok=False, error=error, changed=ran.changed)
        self._desk.configured(seen.host, seen.facts)
        return ran

    def _reboot(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """Then a look: what was set right must be so after the boot as well. The host itself refuses while anything of
        Gangline's runs on it."""
        now = self._desk.nodes()
        busy = [name for name in names if _busy(now.get(name)) or _serves(now.get(name))]
        refused = [
            HostResult(name, ok=False, error="work may run on it; it was not rebooted") for name in busy
        ]
        ran = {one.host: one for one in self._hosts.reboot([name for name in names if name not in busy])}
        well = [name for name, one in ran.items() if one.ok]
        self._booted |= {name: now[name].boot_id for name in well if name in now}
        failed = [one for one in ran.values() if not one.ok]
        return refused + failed + [self._proved(ran[seen.host], seen) for seen in self._hosts.look(well)]

    def _accept(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        """Until each answers and is what its pool says."""
        bought = step.pool in self._clouds
        within_s = BOUGHT_S if bought else ACCEPT_S
        deadline_us = self._clock.monotonic_us() + within_s * SECOND
        results: dict[str, HostResult] = {}
        if bought:
            self._tell(f"waiting for {fold(names)} to boot and join, {within_s // 60} minutes at most")
        while True:
            now = self._desk.nodes()
            for name in names:
                node = now.get(name)
                if node is not None and self._is_back(node) and "unproved" not in node.marks:
                    results[name] = HostResult(name, ok=True)
            if len(results) == len(names) or self._clock.monotonic_us() > deadline_us:
                break
            self._pause(TICK_S)
        for name in names:
            if name not in results:
                why = now[name].why if name in now else "the controller does not know it"
                late = f"{why or 'its agent does not answer'}, {within_s} s after it was set up; it may still come"
                results[name] = HostResult(name, ok=False, error=late)
        return list(results.values())

    def _is_back(self, node: NodeNow) -> bool:
        """Whether its agent answers, and not only has answered before the reboot."""
        return node.answers and node.boot_id != self._booted.get(node.name, "never")

    def _uncordon(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        for name in names:
            self._desk.uncordon(name)
        return [HostResult(name, ok=True) for name in names]

    def _retire(self, step: PlanStep, names: list[str]) -> list[HostResult]:
        return self._hosts.retire(names)

    # --- at the end -----------------------------------------------------------------------------------------------

    def _agree(self, plan: ChangeSet) -> None:
        """Nodes whose other machine or GPUs stood in the plan that a person has agreed to, and that were proved since:
        their mark is withdrawn. What a node shows later that was in no plan keeps it closed."""
        shown = {
            name
            for change in plan.changes
            for name in change.nodes
            if not change.deferred and change.path in (f"host[{name}].machine-id", f"host[{name}].gpus")
        }
        touched = {name for step in plan.steps if step.kind is StepKind.CONFIGURE for name in step.nodes}
        now = self._desk.nodes() if shown else {}
        for name in sorted((shown & touched) - set(self._report.failed)):
            if self._meant(name) and name in now and CHANGED in now[name].marks:
                self._desk.agree(name)
                self._tell(f"{name}: agreed to as it is now")

    def _let_back(self, plan: ChangeSet) -> None:
        """Nodes that an apply which was killed had closed, and that are as they should be."""
        planned = {name for step in plan.steps if step.kind is StepKind.UNCORDON for name in step.nodes}
        others = planned | set(self._report.failed)
        now = self._desk.nodes()
        closed = [
            (pool.name, name)
            for pool in self._spec.pools
            if self._spec.site_of(pool).kind is not SiteKind.LOCAL
            for name in pool.nodes
            if name in now and "updating" in now[name].marks and name not in others
        ]
        metal = [name for pool, name in closed if pool not in self._clouds]
        looked = self._hosts.look(metal) if metal else []
        for seen in [*looked, *(Seen(name, clean=True) for pool, name in closed if pool in self._clouds)]:
            if seen.clean and not seen.error:
                self._desk.uncordon(seen.host)
                self._tell(f"{seen.host}: open again")

    def _left_behind(self, plan: ChangeSet) -> list[str]:
        """Hosts that were to go and were not seen to: no pool counts them any more."""
        leaving = {name for step in plan.steps if step.kind is StepKind.RETIRE for name in step.nodes}
        return [name for name in self._report.failed if name in leaving]

    def _good_enough(self, pool: Pool) -> bool:
        """Whether enough hosts of the pool are as they should be."""
        bad = [name for name in pool.nodes if name in self._report.failed]
        return (len(pool.nodes) - len(bad)) * 1000 >= pool.update.enough_milli * len(pool.nodes)


Action = Callable[[Applier, PlanStep, list[str]], list[HostResult]]
ACTIONS: dict[StepKind, Action] = {
    StepKind.CONTROLLER: Applier._controller,
    StepKind.RECORD: Applier._record,
    StepKind.STACK: Applier._stack,
    StepKind.ENROL: Applier._enrol,
    StepKind.CORDON: Applier._cordon,
    StepKind.DRAIN: Applier._drain,
    StepKind.CONFIGURE: Applier._configure,
    StepKind.REBOOT: Applier._reboot,
    StepKind.ACCEPT: Applier._accept,
    StepKind.UNCORDON: Applier._uncordon,
    StepKind.RETIRE: Applier._retire,
}


class _Strangers:
    """What hosts that are idle by the ledger still run, asked of each now and then. `found`: in words, by host."""

    def __init__(self, hosts: Hosts | None, clock: Clock) -> None:
        """`hosts` None: the nodes are a cloud's and not reached over SSH; what the controller says of them counts."""
        self._hosts = hosts
        self._clock = clock
        self._asked: dict[str, int] = {}
        self.found: dict[str, str] = {}

    def free(self, idle: Sequence[str]) -> list[str]:
        """Those of them that say now that they run nothing."""
        now_us = self._clock.monotonic_us()
        due = [name for name in idle if now_us >= self._asked.get(name, 0)]
        running = self._hosts.running(due) if due and self._hosts is not None else {}
        self._asked |= {name: now_us + int(ASK_S * SECOND) for name in due}
        self.found |= running
        return [name for name in due if name not in running]

    def words(self) -> str:
        """For people who wonder why it takes so long."""
        return "; ".join(f"{words} on {name}" for name, words in self.found.items())


def _of_clouds(spec: ClusterSpec) -> list[str]:
    """Pools of aws sites; those that are bought have nodes that no file names."""
    return [pool.name for pool in spec.pools if spec.site_of(pool).kind is SiteKind.AWS]


def _serves(node: NodeNow | None) -> bool:
    return node is not None and node.open


def _busy(node: NodeNow | None) -> bool:
    return node is not None and bool(node.jobs)
