"""One look at a cluster and its plan: what the file says, what was recorded, what hosts have, what runs.

Comes in: a cluster file, a client of its controller if there is one. Goes out: a `ChangeSet`, and the means to carry it
out. Called by: change_cmd (plan, apply, render, destroy), drift_cmd and local_cmd (up). The rooms that plan and act are
imported inside the functions that need them.
"""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli import hosting, options, paths
from orchestrator.cli.choices import chosen_hosts, hosts_in, tell_needless
from orchestrator.cli.known import known_catalog
from orchestrator.cli.session import current, note
from orchestrator.model.clock import SystemClock
from orchestrator.model.errors import InputError, Unavailable
from orchestrator.model.host import Desired, PoolDesired, Sight
from orchestrator.model.installed import CA_FILE

if TYPE_CHECKING:
    from orchestrator.cli.stacking import Account
    from orchestrator.client import Client
    from orchestrator.model.apply import HostResult, Outcome
    from orchestrator.model.change import ChangeSet, PlanStep
    from orchestrator.model.cluster import ClusterSpec, Pool
    from orchestrator.model.host import HostFacts
    from orchestrator.planning.desired import Resolved
    from orchestrator.planning.world import Recorded, Workload
    from orchestrator.provision.applying import Applier, NodeNow
    from orchestrator.provision.metal.ansible import Progress
    from orchestrator.provision.metal.render import Files, Hosted
    from orchestrator.provision.metal.site import MetalHosts


@dataclass(frozen=True, slots=True)
class Means:
    """What a spec does not say and a plan needs: where the controller is, what hosts trust, what the agent is."""

    url: str
    resolved: Resolved
    desired: tuple[PoolDesired, ...]

    @property
    def by_pool(self) -> dict[str, PoolDesired]:
        """The same by pool."""
        return {one.pool: one for one in self.desired}


def state_folder(spec: ClusterSpec) -> Path:
    """The cluster's state folder on this machine; `controller.state` is on the controller's host, if it has one."""
    own = spec.controller.state if not spec.controller.host else ""
    return Path(own) if own else paths.state_dir(spec.name)


def state_of(spec: ClusterSpec) -> Path:
    """The same, made if it is not there."""
    return paths.private_folder(state_folder(spec))


def metal_pools(spec: ClusterSpec) -> list[Pool]:
    """Pools whose hosts are reached over SSH."""
    from orchestrator.provision.metal import render

    return render.metal_pools(spec)


def means_of(spec: ClusterSpec, state: Path, recorded: Recorded | None = None) -> Means:
    """Resolve them; InputError if hosts could not reach the controller. Makes nothing: the CA is that of the controller
    which `up` has started here, else the one that was recorded, so that a plan elsewhere wants no other."""
    from orchestrator import __version__
    from orchestrator.planning.desired import Resolved, desired
    from orchestrator.planning.desired_controller import PORT
    from orchestrator.planning.digest import digest_of
    from orchestrator.planning.stacks import aws_sites
    from orchestrator.provision import certificates
    from orchestrator.provision.metal import archive

    pools = metal_pools(spec)
    if not pools and not aws_sites(spec):
        return Means("", Resolved("", "", "", __version__), ())
    hosting.check_place(spec)
    url = spec.controller.address
    if not url:
        raise InputError(
            "apply.no-address",
            "nodes elsewhere must be able to call the controller, and the file does not say where it is",
            f"add controller: {{address: https://THIS-MACHINE:{PORT}}}",
            "controller.address",
        )
    ca_pem = (certificates.ca_of(state) or _recorded_ca(recorded)) if url.startswith("https:") else ""
    resolved = Resolved(
        archive_sha256=archive.agent_archive().sha256,
        controller_url=url,
        ca_path=CA_FILE if url.startswith("https:") else "",
        gangline_version=__version__,
        ca_pem=ca_pem,
    )
    made = [(pool.name, desired(spec, pool, resolved)) for pool in pools]
    return Means(url, resolved, tuple(PoolDesired(name, digest_of(one), one) for name, one in made))


def _recorded_ca(recorded: Recorded | None) -> str:
    """The CA that hosts have, as the last apply recorded it; empty if none did."""
    items = (
        item
        for one in (recorded.desired if recorded is not None else ())
        for role in one.desired.roles
        for item in role.items
    )
    return next((dict(item.values).get("content", "") for item in items if item.name == CA_FILE), "")


def holder() -> str:
    """Who applies, the same when run again on this machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def commit_of(file: str) -> str:
    """The commit of the file's folder, with `+` if the file differs from it; empty where there is no repository."""
    folder = Path(file).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    if not head:
        return ""
    return f"{head}+" if git("status", "--porcelain", "--", ".") else head


# --- what is recorded, seen, running ---------------------------------------------------------------------------------


def recorded_of(client: Client | None) -> Recorded:
    """What the ledger says; nothing without a controller."""
    from orchestrator.model.codec import decode
    from orchestrator.model.host import HostFacts
    from orchestrator.planning.world import NodeNow as Node
    from orchestrator.planning.world import Recorded

    if client is None:
        return Recorded()
    from orchestrator.cli import past

    found = client.recorded()
    if found.spec is None:
        return Recorded()
    nodes = [
        Node(
            node.name,
            ready=node.open,
            cordoned=any(mark.kind == "updating" for mark in node.marks),
            host=decode(HostFacts, found.hosts[node.name]) if node.name in found.hosts else None,
            pool=node.pool,
        )
        for node in client.nodes()
        if node.contact != "never"
    ]
    wanted = set(found.pools.values())
    desired = [decode(PoolDesired, each) for each in found.desired]
    spec = past.spec_in(found.spec)
    steps = past.steps(client.applies())
    return Recorded(
        spec,
        tuple(one for one in desired if one.digest in wanted),
        tuple(nodes),
        owed=past.owed(steps),
        left=past.left(client, spec, steps, nodes),
    )


def workload_of(client: Client | None) -> Workload:
    """All jobs that are not over."""
    from orchestrator.planning.world import Running, Waiting, Workload
    from orchestrator.wire.api import micros_of

    if client is None:
        return Workload()
    running: list[Running] = []
    waiting: list[Waiting] = []
    for job in client.jobs(states=("waiting", "starting", "running", "ending")):
        if job.state == "waiting":
            waiting.append(Waiting(job.id, job.owner, job.queue, job.gpus))
            continue
        until = (
            micros_of(job.started_at) + job.time_limit_s * 1_000_000
            if job.started_at and job.time_limit_s
            else 0
        )
        running.append(Running(job.id, job.owner, job.queue, tuple(job.node_names), job.gpus, until))
    return Workload(tuple(running), tuple(waiting))


class ClientDesk:
    """The controller as `provision.applying` wants it."""

    def __init__(
        self, client: Client, spec: ClusterSpec, desired: Sequence[PoolDesired], commit: str
    ) -> None:
        self._client = client
        self._spec = spec
        self._desired = tuple(desired)
        self._commit = commit
        self._digest = {name: one.digest for one in desired for name in spec.pool(one.pool).nodes}

    def start(self, digest: str, steps: Sequence[PlanStep]) -> str:
        """Take the lease."""
        from orchestrator.provision.applying import LEASE_S

        return self._client.start_apply(holder(), digest, steps, LEASE_S, self._commit).id

    def renew(self, apply: str) -> None:
        """Keep it."""
        from orchestrator.provision.applying import LEASE_S

        self._client.renew_apply(apply, LEASE_S)

    def start_step(self, apply: str, step: str) -> None:
        """Before."""
        self._client.start_step(apply, step)

    def end_step(self, apply: str, step: str, ok: bool, hosts: Sequence[HostResult]) -> None:
        """After."""
        self._client.end_step(apply, step, ok, hosts)

    def end(self, apply: str, outcome: Outcome, detail: str) -> None:
        """Over."""
        self._client.end_apply(apply, outcome, detail)

    def record(self) -> None:
        """The wanted cluster from now on."""
        self._client.apply_cluster(self._spec, self._desired, self._commit)

    def nodes(self) -> dict[str, NodeNow]:
        """All nodes."""
        from orchestrator.cli.nodes_cmd import why_closed
        from orchestrator.provision.applying import NodeNow

        return {
            node.name: NodeNow(
                node.name,
                node.open,
                node.contact == "ok",
                tuple(node.jobs),
                tuple(mark.kind for mark in node.marks),
                "" if node.open else why_closed(node),
                node.boot_id,
            )
            for node in self._client.nodes()
        }

    def cordon(self, node: str, why: str, deadline_s: int, then: str) -> None:
        """Close it for this apply."""
        self._client.cordon(node, why, kind="updating", deadline_s=deadline_s, then=then)

    def uncordon(self, node: str) -> None:
        """Give it back."""
        self._client.uncordon(node, "updating")

    def agree(self, node: str) -> None:
        """Its hardware is as the plan said."""
        self._client.uncordon(node, "changed")

    def configured(self, node: str, facts: HostFacts | None) -> None:
        """It was seen to have all it should."""
        if node in self._digest:
            self._client.configured(node, self._digest[node], facts)

    def join_token(self, node: str) -> str:
        """What lets it in, once, at this controller alone."""
        from orchestrator.cli.local_cmd import JOIN_S

        made = self._client.create_token("join", node, JOIN_S)
        return made.join_line or made.secret


@dataclass(frozen=True, slots=True)
class Acting:
    """What it takes to change hosts, besides looking at them. `letting_go`: by pool, what they are to have no more;
    `before`: the spec with the hosts that may leave; `reboot_s`: for a host to be back, 0: as long as usual."""

    tell: Callable[[Any], None] = lambda _: None
    letting_go: Mapping[str, Desired] = field(default_factory=dict)
    before: ClusterSpec | None = None
    reboot_s: int = 0


LOOKING = Acting()


def hosts_for(
    spec: ClusterSpec,
    state: Path,
    means: Means,
    desired: Mapping[str, PoolDesired],
    acting: Acting = LOOKING,
    *,
    hosted: Hosted | None = None,
) -> MetalHosts:
    """The hosts of the spec's metal sites, which are to have `desired`; the controller's own host, which is to have
    `hosted`."""
    from orchestrator.provision.metal.site import REBOOT_S, MetalHosts, Wishes

    resolved = means.resolved
    wishes = Wishes(
        desired,
        acting.letting_go,
        means.url,
        resolved.ca_pem,
        resolved.ca_path,
        hosted,
        lambda: hosting.answers(spec, state),
    )
    return MetalHosts(
        spec,
        state,
        wishes,
        os.environ,
        SystemClock(),
        acting.tell,
        acting.before,
        acting.reboot_s or REBOOT_S,
    )


# --- the plan --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that one plan was made from, and the plan. `only` empty: all hosts."""

    spec: ClusterSpec
    state: Path
    means: Means
    recorded: Recorded
    plan: ChangeSet
    only: frozenset[str] = frozenset()
    hosted: Hosted | None = None
    account: Account | None = None


def read(file: str) -> ClusterSpec:
    """The checked spec in a file; InvalidDocument with every fault."""
    from orchestrator.spec import InvalidDocument, load_cluster

    loaded = load_cluster(file, current().skip, known_catalog())
    if loaded.cluster is None:
        raise InvalidDocument(loaded.errors)
    return loaded.cluster


def look(file: str, client: Client | None, **how: Any) -> Look:
    """Look at everything and plan; `how` as in `look_at`."""
    return look_at(read(file), client, **how)


def look_without_nodes(file: str, client: Client, consents: Sequence[str] = ()) -> Look:
    """The plan of a cluster that lets all its hosts go, and ends all that it has in the cloud; nothing else of it
    changes."""
    from orchestrator.cli.stacking import Account, sites_of
    from orchestrator.planning.stacks import ending

    spec = read(file)
    gone = ending(spec)
    found = look_at(gone.kept, client, see=False)
    account = Account(gone.rest, spec, found.state, client, consents=options.listed(consents))
    bought: dict[str, list[str]] = {}
    for node in client.nodes():
        bought.setdefault(node.pool, []).append(node.name)
    made = replace(found.plan, steps=(*found.plan.steps, *gone.steps(sites_of(account), bought)))
    return replace(found, plan=made, account=account)


def look_at(
    spec: ClusterSpec,
    client: Client | None,
    *,
    see: bool = True,
    limit: str | None = None,
    consents: Sequence[str] = (),
    defer: bool = False,
    full: bool = False,
    host_keys: Sequence[str] = (),
) -> Look:
    """The same for a spec that was read already. `host_keys`: hosts whose present key is to be believed; `defer`: put
    off what only this version of Gangline wants."""
    from orchestrator.cli import stacking
    from orchestrator.cli.looking import View, view_of
    from orchestrator.cli.stacking import Account
    from orchestrator.planning.hosted import with_controller
    from orchestrator.planning.plan import plan
    from orchestrator.planning.renewals import with_renewals
    from orchestrator.planning.stacks import Around, with_stacks
    from orchestrator.planning.world import Choices, Observed

    state = state_of(spec)
    recorded = recorded_of(client)
    means = means_of(spec, state, recorded)
    only = chosen_hosts(metal_pools(spec), limit, spec.controller.host)
    agreed = options.listed(consents)
    for accepted in (
        hosts_for(spec, state, means, means.by_pool).accept_host_keys(
            hosts_in(host_keys, "--accept-host-key")
        )
        if host_keys
        else ()
    ):
        note(f"{accepted.host}: its key is {accepted.now} from now on; before: {accepted.before or 'none'}")
    seen = view_of(spec, state, means, recorded, only) if see else View()
    workload, now_us = workload_of(client), SystemClock().now_us()
    choices = Choices(agreed, defer, only=only)
    made = plan(
        spec,
        recorded,
        Observed(seen.nodes, looked=see),
        known_catalog(),
        workload,
        now_us,
        means.resolved,
        choices,
    )
    account = Account(spec, recorded.spec, state, client, consents=agreed)
    if see and not only:
        around = Around(spec, recorded, workload, choices, now_us)
        made = with_stacks(made, around, stacking.sights(account))
    made = with_renewals(made, spec, recorded.nodes or (), workload, now_us)
    if seen.controller is not None:
        made = with_controller(made, seen.controller, seen.hosted.desired if seen.hosted else Desired(()))
    tell_needless(agreed, made)
    if full:
        made = replace(made, steps=_with_full_run(spec, made, only))
    return Look(spec, state, means, recorded, made, only, seen.hosted, account)


def _with_full_run(spec: ClusterSpec, made: ChangeSet, only: frozenset[str]) -> tuple[PlanStep, ...]:
    """The roles on all hosts that no step of the plan configures: what they change is what a look can't see."""
    from orchestrator.model.change import StepKind
    from orchestrator.planning.hosted import step_of

    own = spec.controller.host
    missing = own and not any(step.kind is StepKind.CONTROLLER for step in made.steps)
    first = (step_of(own),) if missing and (not only or own in only) else ()
    return (*first, *made.steps, *_full_run(spec, made, only))


def _full_run(spec: ClusterSpec, made: ChangeSet, only: frozenset[str]) -> list[PlanStep]:
    from orchestrator.model.change import PlanStep, StepKind

    done = {name for step in made.steps if step.kind is StepKind.CONFIGURE for name in step.nodes}
    return [
        PlanStep(f"{pool.name}.full", StepKind.CONFIGURE, "asked for", pool.name, left)
        for pool in metal_pools(spec)
        if (left := tuple(name for name in pool.nodes if name not in done and (not only or name in only)))
    ]


def applier(
    found: Look, client: Client, commit: str, tell: Callable[[str], None], reboot_s: int = 0
) -> Applier:
    """What carries the plan out. `reboot_s`: for a host to be back after a reboot, if not as long as usual."""
    from orchestrator.cli import stacking
    from orchestrator.model.cluster import Identity
    from orchestrator.planning.desired import let_go
    from orchestrator.planning.world import with_left
    from orchestrator.provision.applying import Applier, Sites

    desired = {one.pool: one for one in found.plan.desired}
    before = {one.pool: one for one in found.recorded.desired}
    recorded = found.recorded
    identity = recorded.spec.identity if recorded.spec is not None else Identity()
    leaving = {
        pool: let_go(before[pool].desired, one.desired, identity)
        for pool, one in desired.items()
        if pool in before
    }
    old = with_left(recorded.spec, recorded.left) if recorded.spec is not None else None
    acting = Acting(progress_of(tell), leaving, old, reboot_s)
    hosts = hosts_for(found.spec, found.state, found.means, desired, acting, hosted=found.hosted)
    desk = ClientDesk(client, found.spec, found.plan.desired, commit)
    account = replace(found.account, commit=commit) if found.account is not None else None
    stacks = stacking.Stacks(account, tell) if account is not None else None
    return Applier(found.spec, desk, Sites(hosts, stacks), tell, SystemClock(), only=found.only, before=old)


def progress_of(tell: Callable[[str], None]) -> Callable[[Progress], None]:
    """Ansible's progress in words: what changes and what fails, host by host."""

    def one(progress: Progress) -> None:
        if str(progress.doing) in ("changed", "failed", "unreachable"):
            tell(f"{progress.host}: {progress.role}: {progress.message or progress.task} ({progress.doing})")

    return one


def rendered(file: str) -> Files:
    """The folder for `ansible-playbook`."""
    spec = read(file)
    state = state_of(spec)
    means = means_of(spec, state)
    hosted = hosting.hosted_of(spec, state) if spec.controller.host else None
    if isinstance(hosted, Sight):
        raise Unavailable(
            "render.controller-host",
            f"what {hosted.host} needs depends on its Python, and it could not be looked at: {hosted.error}",
            hosted.hint,
        )
    return hosts_for(spec, state, means, means.by_pool, hosted=hosted).rendered()
