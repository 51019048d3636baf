"""`server`: a controller in the foreground, its backups, their restoring, and recovery after one.

Comes in: options. Goes out: a running controller, files, a report. Called by: the command's table, `up` (as a process
of its own). One of the modules that start a long-running part; server rooms are imported inside the functions that
need them.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import click

from orchestrator.cli import completing, options, paths
from orchestrator.cli.arguments import COUNT, SPAN
from orchestrator.cli.session import note
from orchestrator.cli.verbs import SETTINGS, Example, Verbs, verb
from orchestrator.model.errors import GanglineError, InputError, Refused, Unavailable

SERVER_ROOT = Path("/var/lib/gangline")  # DESIGN section 7: a server's state is in /var/lib/gangline/CLUSTER


@click.group(
    "server",
    cls=Verbs,
    context_settings=SETTINGS,
    examples=[
        Example("gangline server run --cluster atlas", "what a service unit runs"),
        Example("gangline server backup /backup/atlas-$(date +%F).ledger --cluster atlas", "while it runs"),
    ],
)
def server() -> None:
    """Run, back up, restore or recover a controller."""


def _state_options(function: click.decorators.FC) -> click.decorators.FC:
    """Which ledger is meant: by its folder, or by its cluster's name."""
    cluster = click.option("--cluster", default="", metavar="NAME", help="The cluster whose ledger it is.")
    state = click.option(
        "--state",
        type=click.Path(),
        metavar="FOLDER",
        help="Its state folder (default: a person's own of that cluster, else /var/lib/gangline/CLUSTER).",
    )
    return state(cluster(function))


def _state_of_some(state: str | None, cluster: str) -> Path:
    """The folder that is meant; without a word about it, that of the current cluster if it is on this machine."""
    from orchestrator.cli.contexts import Contexts

    if not state and not cluster:
        contexts = Contexts.load()
        found = contexts.known.get(contexts.current)
        state = found.state if found is not None else ""
    return _state(state, cluster)


def _state(state: str | None, cluster: str) -> Path:
    """The folder that is meant. A person's own cluster of that name goes before the machine's."""
    folder = _named(state, cluster)
    _check_owner(folder)
    return folder


def _check_owner(folder: Path) -> None:
    """Refused for root where the ledger is another user's, as on a controller's own host: what root makes there that
    user's controller can't open."""
    place = SERVER_ROOT if folder.parent == SERVER_ROOT and not folder.exists() else folder
    if os.geteuid() != 0 or not place.exists() or place.stat().st_uid == 0:
        return
    uid = place.stat().st_uid
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    raise Refused(
        "server.other-owner",
        f"{place} is {owner}'s, and what root makes there {owner}'s controller can't open",
        f"run it as that user: runuser -u {owner} -- gangline server ... --state {folder}",
        str(place),
    )


def _named(state: str | None, cluster: str) -> Path:
    if state:
        return Path(state).absolute()
    if not cluster:
        raise InputError(
            "server.no-state", "it is not said which ledger is meant", "give --cluster NAME or --state FOLDER"
        )
    own = paths.state_dir(cluster)
    return own if own.is_dir() or paths.home() is not None else SERVER_ROOT / cluster


@verb(
    "run",
    group=server,
    examples=[
        Example("gangline server run --cluster atlas --listen 127.0.0.1:7443", "for this machine only"),
        Example(
            "gangline server run --cluster atlas --listen 0.0.0.0:7443 --tls-cert atlas.pem --tls-key atlas.key",
            "for agents and people elsewhere",
        ),
    ],
)
@_state_options
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="TCP address; `none`: no TCP.",
)
@click.option(
    "--socket", default="", metavar="PATH", help="Unix socket (default: api.sock in the state folder)."
)
@click.option(
    "--tls-cert", default="", metavar="FILE", help="Certificate chain as PEM; needed beyond loopback."
)
@click.option("--tls-key", default="", metavar="FILE", help="Its key as PEM.")
@click.option(
    "--own-ca",
    multiple=True,
    metavar="NAME",
    help="Certificate of an own authority in STATE/tls, for this name or address; once for each.",
)
@click.option(
    "--lease",
    type=SPAN,
    default="3m",
    show_default=True,
    metavar="AGE",
    help="Silence after which a node is suspect.",
)
@click.option(
    "--keep", type=COUNT, default=30, show_default=True, metavar="DAYS", help="How long ledger days are kept."
)
def run(
    state: str | None,
    cluster: str,
    listen: str,
    socket: str,
    tls_cert: str,
    tls_key: str,
    own_ca: tuple[str, ...],
    **numbers: int,
) -> int:
    """Run a controller in the foreground until SIGTERM.

    It makes its ledger if there is none. Where it answers stands in endpoint.json in the state folder, the admin's
    first token in admin.token. A second controller on the same ledger takes it over, and the first one stops.
    """
    try:
        from orchestrator.api.serve import Options, main
        from orchestrator.controller.settings import Settings
    except ModuleNotFoundError as error:
        raise _no_extra(error) from None
    return main(
        Options(
            state=_state(state, cluster),
            address="" if listen == "none" else listen,
            unix_path=socket,
            tls_cert=tls_cert,
            tls_key=tls_key,
            own_ca=own_ca,
            cluster=cluster,
            settings=Settings(lease_s=numbers["lease"], keep_days=numbers["keep"]),
        )
    )


def _no_extra(error: ModuleNotFoundError) -> GanglineError:
    return Unavailable(
        "server.not-installed",
        f"this installation has no server part ({error.name} is missing)",
        "pip install 'gangline[server]'",
    )


@verb(
    "backup",
    group=server,
    examples=[
        Example(
            "gangline server backup /backup/atlas.ledger --cluster atlas", "a consistent copy, while it runs"
        )
    ],
)
@click.argument("file", metavar="FILE", type=click.Path())
@_state_options
def backup(file: str, state: str | None, cluster: str) -> None:
    """Copy a ledger into one new file, whoever works on it.

    The copy is consistent and proved to be readable. FILE must not exist. Without --cluster or --state it is the
    ledger of the current cluster, if that is on this machine. Keys are not in it: the controller's own, and those of
    the authorities behind them, are in the folder tls of its state.
    """
    try:
        from orchestrator.store import backup as store
    except ModuleNotFoundError as error:
        raise _no_extra(error) from None
    folder = _state_of_some(state, cluster)
    store.backup(folder, Path(file).absolute())
    contents = store.verify(Path(file).absolute())
    sys.stdout.write(f"{file}\n")
    note(f"{contents.last:,} events of cluster {contents.cluster or '(no name yet)'}")
    if (folder / "tls").is_dir():
        note(
            f"the keys in {folder / 'tls'} are not in it: keep a copy of them, or every host has to be let in anew"
        )


@verb(
    "restore",
    group=server,
    examples=[
        Example(
            "gangline server restore /backup/atlas.ledger --cluster atlas",
            "with the controller stopped; then run it",
        ),
    ],
)
@click.argument("file", metavar="FILE", type=click.Path())
@_state_options
def restore(file: str, state: str | None, cluster: str) -> None:
    """Put a backup in the place of a ledger.

    The controller must be stopped. The ledger that was there is kept beside it under a dated name. A restored
    controller starts nothing and ends nothing until `gangline server recover` has taken back what runs. Without
    --cluster or --state it is the ledger of the current cluster, if that is on this machine.
    """
    from orchestrator.model.clock import SystemClock

    try:
        from orchestrator.store.restore import restore as put_back
    except ModuleNotFoundError as error:
        raise _no_extra(error) from None
    folder = _state_of_some(state, cluster)
    aside = put_back(Path(file), folder, SystemClock().now_us())
    note(f"restored into {folder}" + (f"; the ledger before it is {aside}" if aside else ""))
    note("next: start the controller, then `gangline server recover`")


@verb(
    "recover",
    group=server,
    examples=[
        Example("gangline server recover", "take running jobs back after a restore"),
        Example("gangline server recover --without n7", "n7 is gone for good and can't tell what it held"),
    ],
)
@click.option(
    "--without",
    multiple=True,
    metavar="NODE",
    shell_complete=completing.node,
    help="A node that need not have told.",
)
@options.output("text", "json", "yaml")
@options.controller
def recover(without: tuple[str, ...]) -> int:
    """Take back what runs and the ledger does not know; let starts go on.

    After a restore the controller waits until every node has told what it holds. What it does not know is listed as an
    orphan, and taken back here. Exit code 4: something was left.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.output import record

    with connect() as client:
        done = client.recover(without)

    def words() -> str:
        lines = [f"taken back: {', '.join(done.recovered) or 'nothing'}"]
        lines += [f"left: {left.attempt}: {left.why}" for left in done.left]
        lines += [f"not waited for: {', '.join(done.without)}"] if done.without else []
        return "\n".join(lines)

    record("Recovered", done, words)
    return 4 if done.left else 0
