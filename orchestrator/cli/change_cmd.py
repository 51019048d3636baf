"""`plan`, `apply`, `render` and `destroy`: what would change, and carrying it out.

Comes in: a cluster file. Goes out: plans for people and programs; changed hosts; exit codes that CI can use. Called by:
the command's table; `up` uses `carry_out`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import hosting, options
from orchestrator.cli.arguments import Span
from orchestrator.cli.session import current, note
from orchestrator.cli.tables import room
from orchestrator.cli.text import fitted, fold_names, plural, safe
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import Conflict, GanglineError, InputError, Refused, Unavailable

if TYPE_CHECKING:
    from orchestrator.cli.changing import Look
    from orchestrator.client import Client
    from orchestrator.model.change import ChangeSet
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.model.host import Sight
    from orchestrator.provision.applying import Report
    from orchestrator.provision.metal.render import Hosted

DIFFERS = 3
PARTLY = 4
NOT_AGREED = "destroy.not-agreed"

_host_keys = click.option(
    "--accept-host-key",
    "host_keys",
    multiple=True,
    metavar="HOST",
    help="Believe the SSH key that this host shows now, and record it; several: repeated, or as in h[1-3].",
)


# --- plan ------------------------------------------------------------------------------------------------------------


@verb(
    "plan",
    examples=[
        Example("gangline plan cluster.yaml", "what would change, for whom, and what it costs"),
        Example("gangline plan cluster.yaml -o markdown", "for a pull request"),
        Example(
            "gangline plan cluster.yaml --detailed-exitcode --out plan.json", "in CI: 3 if there are changes"
        ),
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    metavar="PLAN",
    help="Save the plan for `gangline apply --plan`.",
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit code 3 if there are changes.")
@click.option("--no-look", is_flag=True, help="Do not look at hosts and aws sites: hosts count as recorded.")
@options.limit
@options.consent
@options.defer
@_host_keys
@options.skip
@options.output("text", "json", "markdown")
@options.controller
def plan(
    file: str,
    out: str | None,
    detailed_exitcode: bool,
    no_look: bool,
    limit: str | None,
    **choices: Any,
) -> int:
    """Show what `apply` would change; change nothing.

    The file is compared with what was recorded and with what is on hosts and aws sites now. Without a controller
    everything is new. A saved plan applies only while file, record, hosts and sites are as they were. Exit code 0 also
    where `apply` would refuse the plan: it says so.
    """
    from orchestrator.cli.changing import look

    if out:
        _check_folder(Path(out))
    found = look(file, client_or_none(file), see=not no_look, limit=limit, **choices)
    if out:
        _save(Path(out), json.dumps(as_document(found.plan), indent=1) + "\n")
    show(found.plan)
    return DIFFERS if detailed_exitcode and not found.plan.empty() else 0


def _check_folder(out: Path) -> None:
    """InputError, before any host is asked, unless a plan can be saved there."""
    folder = out.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "can't be written" if folder.is_dir() else "is not there"
        raise InputError(
            "plan.no-folder", f"the folder {folder} {why}", "make it, or name another place", "--out"
        )


def _save(out: Path, text: str) -> None:
    try:
        out.write_text(text)
    except OSError as error:
        raise Unavailable(
            "plan.not-saved", f"the plan can't be saved in {out}: {error.strerror}", "name another place"
        ) from error
    note(f"saved: {out}")


def as_document(found: ChangeSet) -> dict[str, Any]:
    """The plan as a document."""
    from orchestrator.model.codec import encode

    return {"apiVersion": "gangline/v1", "kind": "Plan", **encode(found)}


def show(found: ChangeSet) -> None:
    """Print it in the format that was asked for."""
    from orchestrator.cli import plan_words
    from orchestrator.cli.output import to_json

    form = current().output
    if form == "json":
        sys.stdout.write(to_json(as_document(found)) + "\n")
    else:
        text = plan_words.markdown(found) if form == "markdown" else plan_words.words(found)
        sys.stdout.write((text if form == "markdown" else fitted(text, room(sys.stdout))) + "\n")


def client_or_none(file: str, *, at_its_address: bool = False) -> Client | None:
    """The controller of the file's cluster: the one that the caller has named, one on a host of its own that answers
    (`at_its_address`: at that of the file, not at an older one), or one that runs here."""
    from orchestrator.cli.changing import read, state_of
    from orchestrator.cli.contexts import Context, connect, endpoint, server_of
    from orchestrator.cli.session import current

    if current().server or current().context:
        return connect()
    spec = read(file)
    state = state_of(spec)
    found = hosting.known(spec, state)
    if found is not None:
        moved = spec.controller.host and at_its_address and found.server != spec.controller.address
        return connect(found, patience_s=20.0) if not moved and hosting.works(found) else None
    plain = endpoint(state)
    if plain is not None:
        client = connect(Context(spec.name, server_of(plain), state=str(state)), patience_s=0.5)
        if client.healthy():
            return client
    if (state / "ledger.db").exists():
        note(
            f"the controller of {safe(spec.name)} does not run: what it has recorded is not known here, so "
            "nothing counts as applied; `gangline up` starts it"
        )
    elif spec.controller.host:
        note(f"no way to a controller on {spec.controller.host} is known here: `gangline up` makes one")
    return None


# --- apply -----------------------------------------------------------------------------------------------------------


@verb(
    "apply",
    examples=[
        Example("gangline apply cluster.yaml", "show the plan, ask, carry it out"),
        Example("gangline apply cluster.yaml --yes", "from CI"),
        Example(
            "gangline apply cluster.yaml --plan plan.json --yes", "exactly what was reviewed, or nothing"
        ),
        Example("gangline apply cluster.yaml --limit h100-07", "one host"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option("--plan", "saved", type=click.Path(dir_okay=False), metavar="PLAN", help="A saved plan.")
@click.option(
    "--reboot-wait",
    "reboot_s",
    type=Span(),
    metavar="TIME",
    help="How long a host may take to be back after a reboot; 15m if not given.",
)
@options.limit
@options.consent
@options.defer
@_host_keys
@options.yes
@options.skip
@options.controller
def apply(
    file: str, saved: str | None, limit: str | None, yes: bool, reboot_s: int | None, **choices: Any
) -> int:
    """Make the cluster what its file says.

    Every step is in the controller's journal before and after; a killed apply is run again and goes on. The first batch
    that fails is the last of its pool. Exit code 4: some hosts are not as wanted yet, and running it again converges.
    """
    from orchestrator.cli.changing import commit_of, look

    client = client_or_none(file, at_its_address=True) or _hosted_client(file, yes=yes)
    if client is None:
        raise Unavailable(
            "apply.no-controller",
            "no controller of this cluster is known here",
            "`gangline up` starts one on this machine; for one elsewhere set GANGLINE_SERVER, GANGLINE_TOKEN and "
            "GANGLINE_CA",
        )
    found = look(file, client, limit=limit, **choices)
    if saved:
        _check_saved(saved, found.plan)
    return carry_out(found, client, commit_of(file), yes=yes, reboot_s=reboot_s or 0)


def _hosted_client(file: str, *, yes: bool) -> Client | None:
    """The controller on its own host, brought up first where it does not answer; None for one that has no host."""
    from orchestrator.cli.changing import progress_of, read, state_of
    from orchestrator.cli.contexts import connect
    from orchestrator.model.change import ChangeSet
    from orchestrator.planning.hosted import with_controller

    spec = read(file)
    if not spec.controller.host:
        return None
    hosting.check_place(spec)
    hosting.check_not_moved(spec, state_of(spec))

    def agreed(sight: Sight, hosted: Hosted) -> bool:
        wanted = with_controller(ChangeSet(spec.name, "", "", ""), sight, hosted.desired)
        _tell_plan(wanted)
        return yes or _agreed()

    teller = _teller()
    return connect(hosting.bring(spec, state_of(spec), teller, progress_of(teller), agreed), patience_s=20.0)


def _check_saved(path: str, now: ChangeSet) -> None:
    """Conflict unless the saved plan is the plan of now."""
    from orchestrator.model.change import ChangeSet
    from orchestrator.model.codec import CodecError, decode

    try:
        plain = json.loads(Path(path).read_text())
        if plain.pop("kind", "") != "Plan" or plain.pop("apiVersion", "") != "gangline/v1":
            raise ValueError("not a document of kind Plan")
        saved = decode(ChangeSet, plain)
    except OSError as error:
        again = "name the file that `gangline plan FILE --out PLAN` has saved"
        raise InputError("apply.bad-plan", f"the plan can't be read: {error.strerror}", again, path) from None
    except (ValueError, CodecError) as error:
        again = "`gangline plan FILE --out PLAN` saves one"
        raise InputError("apply.bad-plan", f"this is no saved plan: {error}", again, path) from None
    if saved.only != now.only:
        was = f"--limit {fold_names(list(saved.only))}" if saved.only else "no --limit"
        raise InputError("apply.other-limit", f"the plan was made with {was}", "give the same", path)
    moved = [
        name
        for name, before, after in (
            ("the file", saved.wanted, now.wanted),
            ("what was recorded", saved.recorded, now.recorded),
            ("what is on the hosts", saved.observed, now.observed),
        )
        if before != after
    ]
    if not moved and (saved.changes, saved.desired) != (now.changes, now.desired):
        moved = ["what Gangline makes of them (another version or other options)"]
    if moved:
        raise Conflict(
            "apply.stale-plan",
            f"the plan is stale: {' and '.join(moved)} changed since",
            "plan again and review it",
        )


def carry_out(
    found: Look, client: Client, commit: str, *, yes: bool, quiet: bool = False, reboot_s: int = 0
) -> int:
    """Show, ask, act, report. 0, or 4 if something is left to do. Refused if the plan may not be carried out.

    `commit`: where the file stood; empty if nobody knows."""
    from orchestrator.cli.changing import applier

    wanted = found.plan
    for reason in wanted.unseen:
        note(f"not looked at: {safe(reason)}")
    if wanted.blockers:
        _tell_plan(wanted)
        raise Refused("apply.refused", "; ".join(wanted.blockers), "see the plan above")
    if not wanted.steps and not _unsettled(client):
        note(f"cluster {wanted.cluster}: nothing to change")
        return PARTLY if wanted.unseen else 0
    if not quiet or not yes or wanted.own():
        _tell_plan(wanted)
    if not yes and not _agreed():
        raise Refused("apply.not-agreed", "nothing was changed", "give --yes where nobody can be asked")
    began = time.monotonic()
    report = applier(found, client, commit, _teller(), reboot_s).run(wanted)
    return _tell(report, found, time.monotonic() - began)


def _tell_plan(plan: ChangeSet) -> None:
    """For whoever is asked next, or reads the log."""
    from orchestrator.cli import plan_words

    note(fitted(plan_words.words(plan), room(sys.stderr)))


def _unsettled(client: Client) -> bool:
    """Whether the last apply left something open that a look now finds done: the journal has to say so."""
    applies = client.applies()
    return bool(applies) and applies[0].outcome != "done"


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    note("")
    return click.confirm("Carry this out?", default=False, err=True)


def _teller() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: note(f"{time.monotonic() - began:6.1f} s  {safe(text)}")


def _tell(report: Report, found: Look, seconds: float) -> int:
    from orchestrator.cli.plan_words import lasted

    for host, error in report.failed.items():
        note(f"{host}: {safe(error)}")
    pools = len(found.spec.pools)
    words = f"{report.apply}: {report.outcome} in {lasted(seconds)}"
    only = fold_names(list(found.plan.only))
    words += (
        f"; {pools - len(report.short)} of {plural(pools, 'pool')} as wanted"
        if not only
        else f"; only on {safe(only)}"
    )
    words += f"; not done: {plural(len(report.skipped), 'step')}" if report.skipped else ""
    unseen = len(found.plan.unseen)
    words += f", but for {unseen:,} that could not be looked at" if unseen else ""
    note(words)
    if str(report.outcome) == "done" and not found.plan.unseen:
        return 0
    note("run it again when the reasons above are gone: it goes on from there")
    return PARTLY


# --- render ----------------------------------------------------------------------------------------------------------


@verb(
    "render",
    examples=[
        Example("gangline render cluster.yaml --out atlas.rendered", "what Ansible runs on"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False), metavar="FOLDER", help="Where to write it."
)
@options.skip
def render(file: str, out: str) -> None:
    """Write the folder on which `ansible-playbook` makes hosts what the file says.

    By hand, in that folder: ansible-playbook site.yml --check --limit HOST.
    Needs no controller and no host. The same file gives the same bytes. Secrets are not written: a host that is not yet
    let in needs a join token, given as `-e @FILE`.
    """
    from orchestrator.cli.changing import rendered
    from orchestrator.provision.metal.render import write

    files = rendered(file)
    write(Path(out), files)
    sys.stdout.writelines(f"{Path(out, path)}\n" for path in files)


# --- destroy ---------------------------------------------------------------------------------------------------------


@verb(
    "destroy",
    examples=[
        Example("gangline destroy cluster.yaml", "show what goes, ask for the cluster's name, let it go")
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--yes", "name", default="", metavar="NAME", help="The cluster's name, instead of being asked for it."
)
@options.consent
@options.skip
@options.controller
def destroy(file: str, name: str, consents: tuple[str, ...]) -> int:
    """Let all hosts of a cluster go, and end what was bought; data stays.

    Hosts are drained by the policy of each pool, their agents are stopped, and they are forgotten. Storage that was
    made is kept unless it is named by --consent storage/NAME. The ledger stays. Exit code 4: something is left; run it
    again.
    """
    from orchestrator.cli.changing import commit_of, look_without_nodes, read

    spec: ClusterSpec = read(file)
    client = client_or_none(file)
    if client is None:
        raise Unavailable("destroy.no-controller", "no controller of this cluster is known here")
    asked = not name and sys.stdin.isatty()
    if not asked and name != spec.name:
        raise _not_agreed(spec)
    try:
        if asked:
            _ask_for_name(look_without_nodes(file, client, consents))
        # After the answer: nodes may have been bought meanwhile.
        found = look_without_nodes(file, client, consents)
        code = carry_out(found, client, commit_of(file), yes=True, quiet=asked)
        if spec.controller.host:
            note(
                hosting.how_to_stop(spec.controller.host, "the controller runs on, since it keeps the ledger")
            )
        return code
    except GanglineError as error:
        if error.code != NOT_AGREED:
            note("run it again: it goes on from where it stopped")
        raise


def _ask_for_name(found: Look) -> None:
    """Refused unless a person who has seen the plan types the cluster's name."""
    _tell_plan(found.plan)
    note("")
    if click.prompt(f"Type the name of the cluster ({found.spec.name})", err=True) != found.spec.name:
        raise _not_agreed(found.spec)


def _not_agreed(spec: ClusterSpec) -> Refused:
    return Refused(NOT_AGREED, "nothing was changed", f"give --yes {spec.name}")
