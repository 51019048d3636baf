"""`gangline server run`: the controller and its HTTP side in one process.

Comes in: options. Goes out: an exit code, or the GanglineError that ended it (Fenced: a newer controller took the
ledger). Called by: cli server_cmd.

Order at start: limits, TLS, sockets, ledger, nodes' authority, controller, admin token, listen, endpoint file. At the
end: waits are answered, connections end, the core finishes its cycle and closes the ledger; at most three seconds in
all.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
import uvloop

from orchestrator import __version__
from orchestrator.api import bootstrap, listen
from orchestrator.api.app import make_app
from orchestrator.api.gate import Gate
from orchestrator.api.hub import Hub
from orchestrator.api.people import People, name_of
from orchestrator.api.protocol import Protocol
from orchestrator.controller import notify
from orchestrator.controller.backups import Backups
from orchestrator.controller.service import Controller
from orchestrator.controller.settings import Settings
from orchestrator.model.clock import SystemClock
from orchestrator.model.cluster import Backup, Site
from orchestrator.model.errors import InputError
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.aws import fleet
from orchestrator.provision.aws.known import Accounts
from orchestrator.provision.cloud import Clouds, Facts
from orchestrator.store.open import open_store

log = logging.getLogger("gangline.server")

CONNECTIONS_S = 1  # at the end, for connections to end by themselves
CORE_S = 1.5  # at the end, for the core to finish its cycle
KEEP_ALIVE_S = 150  # idle polls are 120 s at most: a kept connection outlives the pause between two
# The core gives the interpreter away at each statement and each fsync, and waits as long to have it back from a busy
# event loop. Python's own 5 ms made the time from a job's end to the next start a third longer under load (make
# bench-kueue); a tenth of it costs no processor time that can be measured.
SWITCH_S = 0.0005
# Objects that are kept between two looks for circles among the youngest, and so many of those looks for one at the next
# older ones. Python's own 700, 10, 10 cost a tenth of the processor time, and stop both threads for 50 ms every few
# seconds; all of it is looked through when nobody asks for anything (controller/upkeep).
COLLECT = (10_000, 20, 200)
SOCKET = "api.sock"


@dataclass(frozen=True, slots=True)
class Options:
    """What `server run` was told. `address` empty: no TCP. `unix_path` empty: STATE/api.sock."""

    state: Path
    address: str = "127.0.0.1:0"
    unix_path: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    own_ca: tuple[str, ...] = ()  # names for a certificate that an authority of its own in STATE/tls signs
    cluster: str = ""
    settings: Settings = field(default_factory=Settings)


def main(options: Options) -> int:
    """Serve until a signal says stop (0). Raises the GanglineError that kept it from starting or ended it."""
    _log_to_stderr()
    os.umask(0o077)  # of folders above the state as well: whoever may write there may replace it
    listen.raise_file_limit()
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*COLLECT)
    tls = _tls(options)
    with contextlib.ExitStack() as stack:
        tcp = None
        if options.address:
            tcp = stack.enter_context(listen.bind_tcp(*listen.parse_listen(options.address), tls))
        store = open_store(options.state, cluster=options.cluster)
        settings = replace(
            options.settings,
            version=options.settings.version or __version__,
            host=options.settings.host or socket.gethostname(),
        )
        systemd = notify.of_this_process()
        accounts = Accounts(options.state)
        controller = Controller(store, SystemClock(), settings, systemd, _clouds(accounts))
        if tls is not None:
            tls = _with_authority(tls, options.state)
        unix_path = Path(options.unix_path) if options.unix_path else options.state.absolute() / SOCKET
        uvloop.run(_serve(controller, options.state, tcp, unix_path, tls, systemd, accounts))
    return 0


def _clouds(accounts: Accounts) -> tuple[Clouds, Facts]:
    """The clouds of aws sites. What their stacks have written is kept for the joins of fixed nodes."""
    clouds, facts = fleet.access()

    def kept(cluster: str, uid: str, site: Site) -> StackFacts | None:
        found = facts(cluster, uid, site)
        if found is not None:
            accounts.keep(found)
        return found

    return clouds, kept


def _tls(options: Options) -> listen.Tls | None:
    """The pair that was given, or that of the controller's own authority, made or renewed where it has to be."""
    if not options.own_ca:
        return listen.check_tls(options.tls_cert, options.tls_key)
    if options.tls_cert or options.tls_key:
        raise InputError(
            "server.tls", "a certificate of one's own and --own-ca exclude each other", "give one of the two"
        )
    from orchestrator.provision import certificates  # only whoever needs it pays for its libraries

    made = certificates.ensure(options.state, options.own_ca, datetime.now(UTC))
    return listen.check_tls(str(made.cert), str(made.key))


def _with_authority(tls: listen.Tls, state: Path) -> listen.Tls:
    """The same with what signs nodes' keys, made at the first start, and what its own chain is trusted by."""
    from orchestrator.provision import node_keys  # only what is called by others needs it

    nodes = node_keys.ensure(state, datetime.now(UTC))
    return replace(tls, nodes=nodes, anchor=node_keys.anchor_of(state, Path(tls.cert)))


async def _serve(
    controller: Controller,
    state: Path,
    tcp: socket.socket | None,
    unix_path: Path,
    tls: listen.Tls | None,
    systemd: notify.Notify,
    accounts: Accounts,
) -> None:
    await controller.start()
    epoch = controller.view.epoch
    try:
        own_name = name_of(os.geteuid()) or str(os.geteuid())
        made = await bootstrap.ensure_admin(controller, state, own_name)
        unix = listen.bind_unix(unix_path)
        inode = listen.inode_of(unix_path)
        url = listen.url_of(tcp, tls) if tcp is not None else ""

        backups = Backups(state, lambda: _backup_of(controller), SystemClock())
        copying = asyncio.create_task(backups.run())

        def ready() -> None:
            bootstrap.write_endpoint(state, url, str(unix_path), epoch)
            log.info("epoch %d answers at %s and unix://%s", epoch, url or "no TCP address", unix_path)
            systemd.ready(f"epoch {epoch} answers at {url or unix_path}")
            if made:
                log.info("the admin's token is in %s", state / bootstrap.ADMIN_TOKEN)

        try:
            await run_server(controller, tcp, unix, tls, ready, accounts)
        finally:
            copying.cancel()
            bootstrap.remove_endpoint(state, epoch)
            listen.unlink_if_mine(unix_path, inode)
    finally:
        systemd.stopping()
        controller.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CORE_S):
                await controller.stopped()


def _backup_of(controller: Controller) -> Backup | None:
    """What the wanted cluster says about copies of its ledger."""
    cluster = controller.view.cluster
    return cluster.controller.backup if cluster is not None else None


async def run_server(
    controller: Controller,
    tcp: socket.socket | None,
    unix: socket.socket | None,
    tls: listen.Tls | None = None,
    ready: Callable[[], None] = lambda: None,
    accounts: Accounts | None = None,
) -> None:
    """Serve a started controller on bound sockets until a signal, or until its core ends (raises what ended it)."""
    hub = Hub(controller, SystemClock(), People(SystemClock()), __version__, tls, accounts)
    app = make_app(hub)
    servers = []
    if tcp is not None:
        servers.append((_server(app, hub, tls), tcp))
    if unix is not None:
        servers.append((_server(app, hub, None), unix))
    stop = asyncio.Event()
    with _signals(stop):
        tasks = [asyncio.create_task(server.serve([sock])) for server, sock in servers]
        core = asyncio.create_task(controller.stopped())
        asked = asyncio.create_task(stop.wait())
        try:
            await _started([server for server, _ in servers], tasks)
            ready()
            await asyncio.wait({core, asked, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            log.info("stopping")
            asked.cancel()
            await _stop(hub, [server for server, _ in servers], tasks)
        if core.done():
            core.result()
        core.cancel()


async def _started(servers: list[_Server], tasks: list[asyncio.Task[None]]) -> None:
    """When every server listens; raises what kept one from it."""
    while not all(server.started for server in servers):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.005)


async def _stop(hub: Hub, servers: list[_Server], tasks: list[asyncio.Task[None]]) -> None:
    for server in servers:
        server.should_exit = True
    await asyncio.wait(tasks, timeout=CONNECTIONS_S + 0.5)
    hub.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    hub.close()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, since two of them share one loop, and with an end for long polls."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let no connection be kept, then answer those who wait: they must not ask again here."""
        for connection in list(self.server_state.connections):
            connection.shutdown()
        self._hub.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `run_server`'s."""
        yield


def _server(app: Gate, hub: Hub, tls: listen.Tls | None) -> _Server:
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=listen.BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CONNECTIONS_S,
        headers=[("cache-control", "no-store"), ("x-content-type-options", "nosniff")],
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ssl_ca_certs=str(tls.nodes.trusted) if tls and tls.nodes else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if tls and tls.nodes else ssl.CERT_NONE,  # people have none
    )
    return _Server(config, hub)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask for a graceful end; only a process's main thread gets them."""
    loop = asyncio.get_running_loop()
    main = threading.current_thread() is threading.main_thread()
    kinds = (signal.SIGTERM, signal.SIGINT) if main else ()
    for kind in kinds:
        loop.add_signal_handler(kind, stop.set)
    try:
        yield
    finally:
        for kind in kinds:
            loop.remove_signal_handler(kind)


def _log_to_stderr() -> None:
    """Lines for the journal; whoever embeds the server keeps its own handlers."""
    if not logging.getLogger().handlers:
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of each request that is no HTTP
