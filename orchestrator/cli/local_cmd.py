"""`up` and `down`: a cluster of this machine, brought to what its file says, and taken down again.

Comes in: a cluster file. Goes out: a controller and agents that run, nodes that are ready; progress on stderr. Called
by: the command's table, demo_cmd. Every step looks first and does only what is missing, so that a killed `up` is run
again.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import hosting, options, paths
from orchestrator.cli.arguments import PATIENCE
from orchestrator.cli.session import note
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import GanglineError, InputError, NotFound, Unavailable

if TYPE_CHECKING:
    from orchestrator.cli.contexts import Context
    from orchestrator.client import Client
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.provision.local import LocalNode, LocalSite
    from orchestrator.wire.api_cluster import Node

PARTLY = 4
SERVER_S = 60.0  # for a controller to answer: it reads its whole ledger first
STOP_S = 20.0  # for a controller or an agent to end by itself
JOIN_S = 3600  # seconds that a join token is good for; `up` makes a new one when it needs one
TICK_S = 0.1  # between two looks at the nodes


# --- up -----------------------------------------------------------------------------------------------------------


@verb(
    "up",
    examples=[
        Example("gangline up cluster.yaml", "controller, nodes, ready"),
        Example("gangline up cluster.yaml", "again, after the file has changed or something has died"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--timeout",
    type=PATIENCE,
    default="1m",
    show_default=True,
    metavar="AGE",
    help="How long to wait for the nodes.",
)
@click.option(
    "--full", is_flag=True, help="Run the roles on all hosts of metal sites, whether they differ or not."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before work is drained.")
@options.defer
@options.skip
def up(file: str, timeout: int, yes: bool, **choices: Any) -> int:
    """Bring a cluster up: controller, nodes, ready.

    Nodes of `local` sites are played by this machine: one agent each, GPUs real where there are any, else emulated.
    Hosts of `metal` sites are looked at over SSH, `aws` sites by Pulumi, and what differs from the file is put right,
    as by `gangline apply`.
    The controller and local agents run on in the background; `gangline down` stops them. Running it again changes what
    differs and starts what has died. Exit code 4: some nodes are not ready yet; run it again.
    """
    from orchestrator.cli.changing import read
    from orchestrator.cli.contexts import Contexts, remember

    spec = read(file)
    Contexts.load()  # what can't be read ends this before anything is started
    if spec.controller.host:
        return _metal(spec, file, hosting.up(spec), yes=yes, **choices)
    bringing = Bringing(spec)
    hosting.check_not_moved(spec, bringing.state)
    context = bringing.controller()
    remember(context)
    code = _metal(spec, file, context, yes=yes, **choices) if bringing.hosts else 0
    return max(code, bringing.nodes(context, timeout)) if bringing.plays or not bringing.hosts else code


def _metal(spec: ClusterSpec, file: str, context: Context, *, yes: bool, **choices: Any) -> int:
    """The hosts of metal sites, put right where they differ; `choices` as `up` has them (full, defer)."""
    from orchestrator.cli.change_cmd import carry_out
    from orchestrator.cli.changing import commit_of, look_at
    from orchestrator.cli.contexts import connect

    with connect(context, patience_s=20.0) as client:
        found = look_at(spec, client, **choices)
        bought = any(sight.rows for sight in found.plan.stacks)  # costs money
        calm = not (found.plan.work or found.plan.blockers or bought)
        return carry_out(found, client, commit_of(file), yes=yes or calm, quiet=True)


class Bringing:
    """One `up`: the controller first, then the nodes."""

    def __init__(self, spec: ClusterSpec, tell: Callable[[str], None] = note) -> None:
        from orchestrator.cli.changing import state_folder
        from orchestrator.model.cluster import SiteKind
        from orchestrator.provision.local import LocalSite

        self._spec = spec
        self._tell = tell
        self._began = time.monotonic()
        self.state = paths.private_folder(state_folder(spec))
        self._site: LocalSite = LocalSite(self.state)
        self.hosts = any(spec.site_of(pool).kind is not SiteKind.LOCAL for pool in spec.pools)
        self.plays = any(spec.site_of(pool).kind is SiteKind.LOCAL for pool in spec.pools)

    def _say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began:5.1f} s  {text}")

    # --- the controller -----------------------------------------------------------------------------------------

    def controller(self) -> Context:
        """One that answers on the cluster's state folder, started if there is none."""
        from orchestrator.cli.contexts import connect

        with self._site.alone():
            context = _context(self._spec.name, self._site.state)
            if context is not None and connect(context, patience_s=0.0, timeout_s=5.0).healthy():
                self._say(f"controller: runs ({context.server})")
                return context
            return self._start()

    def _start(self) -> Context:
        from orchestrator.cli.contexts import connect
        from orchestrator.provision.daemons import last_lines, wait_for

        if self._site.server() is not None:
            self._site.stop_server(STOP_S)  # it runs and does not answer
        (self._site.state / paths.ENDPOINT).unlink(missing_ok=True)
        server = self._site.start_server(server_arguments(self._spec, self._site.state))
        found: list[Context] = []

        def answers() -> bool:
            context = _context(self._spec.name, self._site.state)
            if context is not None and connect(context, patience_s=0.0, timeout_s=5.0).healthy():
                found.append(context)
            return bool(found)

        if not wait_for(server, answers, SERVER_S):
            raise Unavailable(
                "up.no-controller",
                f"the controller does not answer; its log ends with:\n{last_lines(self._site.server_log)}",
                f"see {self._site.server_log}, then run `gangline up` again",
            )
        self._say(f"controller: started, process {server.pid}, {found[0].server}")
        return found[0]

    # --- the nodes ----------------------------------------------------------------------------------------------

    def nodes(self, context: Context, timeout_s: float) -> int:
        """The spec applied, an agent for each node, and all of them ready; 0, or 4 if some are not."""
        from orchestrator.cli.contexts import connect
        from orchestrator.provision.local import nodes_of

        wanted = nodes_of(self._spec)
        with self._site.alone(), connect(context, patience_s=20.0) as client:
            if not self.hosts:  # else the plan has recorded it, with what its hosts are to have
                client.apply_cluster(self._spec)
            self._say(f"cluster {self._spec.name}: applied")
            known = client.nodes()
            self._let_go({node.name for node in wanted}, known)
            strangers = {node.name for node in known if node.contact == "never"}
            started = [node.name for node in wanted if self._agent(node, context, client, strangers)]
            if started:
                self._say(f"agents: started {len(started)} of {len(wanted)}")
            missing = self._wait([node.name for node in wanted], client, timeout_s)
        if not missing:
            self._say(f"{len(wanted)} of {len(wanted)} nodes are ready")
            return 0
        self._tell_missing(missing)
        return PARTLY

    def _let_go(self, wanted: set[str], known: list[Node]) -> None:
        """Stop agents of nodes that the spec has no more, once nothing runs on them."""
        busy = {node.name for node in known if node.jobs}
        for name in self._site.agents():
            if name in wanted:
                continue
            if name in busy:
                self._say(f"node {name}: not in the file any more; its agent stays until its jobs have ended")
            else:
                self._site.stop_agent(name, STOP_S)
                self._say(f"node {name}: not in the file any more, stopped")

    def _agent(self, node: LocalNode, context: Context, client: Client, strangers: set[str]) -> bool:
        """Make sure that the node's agent runs with its present config; True if it was started.

        A node that the ledger has never heard of needs to be let in, even if an older ledger once let it in.
        """
        changed = self._site.configure(node, context.server)
        if node.name in strangers or not self._site.joined(node.name):
            self._site.write_join(node.name, client.create_token("join", node.name, JOIN_S).secret)
        running = self._site.agents().get(node.name)
        if running is not None and not changed:
            return False
        if running is not None:
            self._site.stop_agent(node.name, STOP_S)
        self._site.start_agent(node.name)
        return True

    def _wait(self, names: list[str], client: Client, timeout_s: float) -> list[str]:
        """Tell each node when it is ready; those that are not when the time is up."""
        waiting = dict.fromkeys(names)
        deadline = time.monotonic() + timeout_s
        while True:
            for found in client.nodes():
                if found.name in waiting and _ready(found) and self._site.listening(found.name):
                    del waiting[found.name]
                    self._say(f"node {found.name}: {_describe(found)}")
            if not waiting or time.monotonic() > deadline:
                return list(waiting)
            if all(self._site.agents().get(name) is None for name in waiting):
                return list(waiting)  # nobody is left who could become ready
            time.sleep(TICK_S)

    def _tell_missing(self, missing: list[str]) -> None:
        from orchestrator.provision.daemons import last_lines

        for name in missing:
            state = "runs, and is not ready" if self._site.agents().get(name) else "has ended"
            log = self._site.agent_log(name)
            last = last_lines(log, 1)
            self._say(f"node {name}: its agent {state}" + (f": {last}" if last else f"; see {log}"))
        logs = self._site.state / "nodes"
        self._tell(f"{len(missing)} node(s) not ready; run `gangline up` again, or see the logs below {logs}")


LONGEST_SOCKET = 90  # bytes of a Unix socket's path: 107 (unix(7)) less what the server adds for a draft


def server_arguments(spec: ClusterSpec, state: Path) -> list[str]:
    """How the controller of a local cluster is started. Agents and commands use its Unix socket: it needs no token."""
    arguments = ["--state", str(state), "--cluster", spec.name, *_listening(spec, state)]
    if len(os.fsencode(state / "api.sock")) > LONGEST_SOCKET:
        arguments += ["--socket", str(_short_socket(state))]
    return arguments


def _listening(spec: ClusterSpec, state: Path) -> list[str]:
    """Where hosts of metal sites call it, with a certificate that they trust; nothing for local sites alone."""
    from orchestrator.cli.changing import means_of
    from orchestrator.planning.desired_controller import names_of, place_of

    if not (url := means_of(spec, state).url):
        return []
    host, port = place_of(url)
    if not url.startswith("https:"):
        return ["--listen", f"127.0.0.1:{port}"]
    names = [word for name in names_of(url) for word in ("--own-ca", name)]
    return ["--listen", f"{_own_address(host)}:{port}", *names]


def _own_address(host: str) -> str:
    """The address that hosts call, if it is this machine's own; else all of them, since something is in between."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return "0.0.0.0"  # noqa: S104 - with TLS and tokens; a NAT or a balancer stands before it
    return f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0])


def _short_socket(state: Path) -> Path:
    """A socket's path for a state folder whose own is too long: in a folder of ours below the temporary one."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = paths.private_folder(Path(base) / f"gangline-{os.geteuid()}")
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise Unavailable("up.socket", f"{folder} is not ours alone", "choose a shorter GANGLINE_HOME")
    return folder / f"{zlib.crc32(os.fsencode(state)):08x}.sock"


def _context(name: str, state: Path) -> Context | None:
    """How the controller of that folder is reached, if it has said so."""
    from orchestrator.cli.contexts import Context, endpoint, server_of

    plain = endpoint(state)
    server = server_of(plain) if plain else ""
    return Context(name, server, state=str(state)) if server else None


def _ready(node: Node) -> bool:
    """It answers, and nothing but people keeps work from it."""
    return node.open or (
        node.contact == "ok" and bool(node.marks) and all(mark.kind != "unproved" for mark in node.marks)
    )


def _describe(node: Node) -> str:
    from orchestrator.cli.nodes_cmd import models, why_closed
    from orchestrator.cli.text import plural

    gpus = f"{len(node.devices)} x {models(node)}" if node.devices else "no GPUs"
    parts = f"{gpus}, {plural(node.cores, 'core')}"
    return f"ready, {parts}" if node.open else f"up, {parts}, but gets no work: {why_closed(node)}"


# --- down ---------------------------------------------------------------------------------------------------------


@verb(
    "down",
    examples=[
        Example("gangline down", "stop the current cluster's agents and controller"),
        Example("gangline down lab --cancel-jobs", "end its jobs first"),
    ],
)
@click.argument("cluster", required=False, metavar="[CLUSTER|FILE]")
@click.option("--cancel-jobs", is_flag=True, help="Cancel all jobs first and wait for their end.")
@click.option(
    "--timeout",
    type=PATIENCE,
    default="2m",
    show_default=True,
    metavar="AGE",
    help="How long to wait for jobs to end.",
)
@options.controller
def down(cluster: str | None, cancel_jobs: bool, timeout: int) -> int:
    """Stop this machine's controller and agents; delete nothing.

    Running jobs run on: each has a shepherd of its own, and the next `gangline up` takes them back. Waiting jobs wait
    in the ledger. --cancel-jobs ends all of them first.
    """
    name, state = _which(cluster)
    if host := hosting.placed(state).get("host"):
        raise InputError(
            "down.hosted",
            f"the controller of {name} runs on {host} as a unit of systemd, and not on this machine",
            hosting.how_to_stop(host, "jobs run on without it"),
        )
    if cancel_jobs:
        _check_that_jobs_can_be_cancelled(name, state)
    code = take_down(name, state, cancel_jobs=cancel_jobs, timeout_s=timeout)
    if code == 0:
        note(f"nothing was deleted: the ledger and the logs are in {state}")
    return code


def _check_that_jobs_can_be_cancelled(name: str, state: Path) -> None:
    """It takes a controller, and without one they run on: whoever wants them gone must not believe that they are."""
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.demo_cmd import processes_of

    context = _context(name, state)
    if context is not None and connect(context, patience_s=0.0, timeout_s=5.0).healthy():
        return
    if processes_of(state):
        raise Unavailable(
            "down.no-controller",
            f"no controller of {name} answers, so its jobs can't be cancelled; some of its processes run",
            "`gangline up` starts one, then run this again; without --cancel-jobs the rest is stopped and jobs run on",
        )
    note("jobs: none runs; those that wait are in the ledger, for the next `gangline up`")


def _which(cluster: str | None) -> tuple[str, Path]:
    """The name and state folder that are meant: a name, a file, or the current context."""
    from orchestrator.cli.changing import state_folder
    from orchestrator.cli.contexts import Contexts, chosen

    if cluster is None:
        context = chosen()
        if not context.state and hosting.placed(paths.state_dir(context.name)):
            return context.name, paths.state_dir(context.name)
        if not context.state:
            raise InputError(
                "down.not-local", "the cluster was not brought up on this machine", "name one that was"
            )
        return context.name, Path(context.state)
    if "/" in cluster or Path(cluster).is_file():
        from orchestrator.cli.changing import read

        spec = read(cluster)
        return spec.name, state_folder(spec)
    known = Contexts.load().known.get(cluster)
    state = Path(known.state) if known is not None and known.state else paths.state_dir(cluster)
    if not state.is_dir():
        raise NotFound(
            "down.no-cluster",
            f"no cluster '{cluster}' was brought up on this machine",
            f"there is no {state}",
        )
    return cluster, state


def take_down(
    name: str, state: Path, *, cancel_jobs: bool, timeout_s: float, tell: Callable[[str], None] = note
) -> int:
    """Stop what `up` has started. 0; 4 if jobs did not end in time (then nothing is stopped)."""
    from orchestrator.cli.contexts import connect
    from orchestrator.provision.local import LocalSite

    site: LocalSite = LocalSite(state)
    with site.alone():
        context = _context(name, state)
        if context is not None and site.server() is not None:
            with connect(context, patience_s=0.0) as client:
                left = _settle(client, cancel_jobs, timeout_s, tell)
            if left and cancel_jobs:
                named = ", ".join(map(str, left))
                tell(f"not ended within {timeout_s:.0f} s: job(s) {named}; nothing was stopped")
                return PARTLY
            if left:
                tell(f"{len(left)} job(s) run on without them; `gangline up` takes them back")
        _stop(site, tell)
    return 0


def _settle(client: Client, cancel: bool, timeout_s: float, tell: Callable[[str], None]) -> list[int]:
    """Jobs that hold something when all is said and done; all are cancelled first if wanted."""
    try:
        if not cancel:
            return [job.id for job in client.jobs(states=("starting", "running", "ending"))]
        deadline = time.monotonic() + timeout_s
        live = [job.id for job in client.jobs(states=("held", "waiting", "starting", "running", "ending"))]
        for job_id in live:
            _cancel(client, job_id)
        if live:
            tell(f"jobs: cancelling {len(live)}")
        while live and time.monotonic() < deadline:
            if client.wait_once(live[0], min(5.0, max(0.1, deadline - time.monotonic()))).ended:
                live.pop(0)
        return live
    except Unavailable:
        return []  # it runs and does not answer: stopping it is what is left


def _cancel(client: Client, job_id: int) -> None:
    try:
        client.cancel(job_id, "the cluster is taken down")
    except GanglineError as error:
        if error.http_status != 409:
            raise


def _stop(site: LocalSite, tell: Callable[[str], None]) -> None:
    """Agents first, so that what they know is in the ledger; then the controller."""
    agents = site.agents()
    for name in agents:
        if not site.stop_agent(name, STOP_S):
            tell(
                f"node {name}: its agent did not end within {STOP_S:.0f} s and was killed; what it runs is not touched"
            )
    if agents:
        tell(f"agents: stopped {sum(1 for found in agents.values() if found)}")
    if site.server() is None:
        tell("controller: none runs")
        return
    if not site.stop_server(STOP_S):
        tell(
            f"controller: did not end within {STOP_S:.0f} s and was killed; the ledger is whole all the same"
        )
    tell("controller: stopped")
