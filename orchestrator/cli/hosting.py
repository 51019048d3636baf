"""The controller on a host of its own (`controller.host`): what it must have, bringing it up, and the way to it.

Comes in: a checked spec, the person's state folder of that cluster. Goes out: a controller that answers, and a context
with its address, its authority's certificate and a token. Called by: changing and looking (plans), local_cmd (`up`,
`down`), change_cmd. The rooms that act are imported inside the functions that need them.

The authority's key and the ledger are on that host and stay there. This machine keeps the certificate (in
STATE/tls/ca.pem, as agents pin it), a token of the person's own, and which Python the host had at the last look.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import paths
from orchestrator.cli.session import note
from orchestrator.cli.text import safe
from orchestrator.model.clock import SystemClock
from orchestrator.model.errors import GanglineError, InputError, Refused, Unavailable
from orchestrator.model.host import Sight

if TYPE_CHECKING:
    from orchestrator.cli.contexts import Context
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.provision.metal.ansible import Progress
    from orchestrator.provision.metal.render import Hosted
    from orchestrator.provision.metal.site import MetalHosts
    from orchestrator.provision.metal.wheels import Target

PLACE = "controller.json"  # in the state folder: the host on which a controller has answered, and its ledger
SEEN = "controller-seen.json"  # in the state folder: a host that was looked at, and the Python that it had
# Places that no ledger can be in: what the unit does not see or loses at a boot, and what is the system's own or
# another program's. The folder is made the controller's user's own, with mode 0700.
UNSEEN = ("home", "root", "run", "tmp", "var/tmp", "var/run", "var/lock")
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr")
OTHERS = ("opt/gangline", "var/lib/gangline-agent", "var/cache/gangline")
LEAST_PYTHON = (3, 11)
CA = Path("tls", "ca.pem")
_ODD = re.compile(
    r"[\"\\$\x00-\x1f\x7f]"
)  # in a path: systemd reads them differently from setting to setting
_SECRET = re.compile(r"[!-~]{1,256}")  # of a bearer token
AS_ITSELF = "PATH=$PATH:/usr/sbin:/sbin exec runuser"
MOST_READ = 65536  # bytes of a file that a controller has written
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?![0-9])")
_ARCH = re.compile(r"[A-Za-z0-9_]{1,32}")


def check_place(spec: ClusterSpec) -> None:
    """InputError unless the file says how agents and people reach the host, in a way that nobody can listen to, and has
    the ledger where a unit that sees no homes and has a /tmp of its own can keep it."""
    host, address, state = spec.controller.host, spec.controller.address, spec.controller.state
    if host and state and not _keeps_ledger(state):
        raise InputError(
            "apply.controller-state",
            f"the controller on {host} runs as a unit that can't keep a ledger in {state}",
            "leave controller.state out: it is /var/lib/gangline/CLUSTER then; or name a folder of its own, as "
            "/srv/gangline",
            "controller.state",
        )
    if host and not address.startswith("https://"):
        said = f"{address!r} is not https" if address else "the file does not say"
        raise InputError(
            "apply.controller-address",
            f"the controller is to run on {host}, and agents and people elsewhere must be able to call it: {said}",
            f"add controller: {{address: https://{host}:7443}}, by a name or address that they all reach",
            "controller.address",
        )


def _keeps_ledger(state: str) -> bool:
    """Whether a folder may become the controller's alone: not the system's, none that others share, and written in the
    one way that units, shells and records take alike."""
    parts = state.split("/")[1:]
    if not all(parts) or _ODD.search(state):
        return False
    path = state[1:] + "/"
    shared = len(parts) < (3 if parts[0] == "var" else 2)
    return not shared and not path.startswith(tuple(f"{one}/" for one in (*UNSEEN, *SYSTEM, *OTHERS)))


# --- what the host must have -----------------------------------------------------------------------------------------


def hosted_of(spec: ClusterSpec, state: Path) -> Hosted | Sight:
    """What the host must have, for the Python that it had at the last look, or has now; a sight where it could not be
    looked at. InputError if a controller can't run there."""
    check_place(spec)
    target = _remembered(spec, state)
    if target is None:
        sight = hosts_of(spec, state).facts(spec.controller.host)
        target = target_of(sight)
        if target is None:
            return sight
        remember_target(spec, state, target)
    return hosted_for(spec, target)


def hosted_for(spec: ClusterSpec, target: Target) -> Hosted:
    """The same for a known Python."""
    from orchestrator.planning.desired_controller import desired_controller, host_of
    from orchestrator.provision.metal.controller_archive import controller_archive
    from orchestrator.provision.metal.render import Hosted

    host = host_of(spec)
    assert host is not None, "the spec's checks know it"
    site = next(site for site in spec.sites if host in site.hosts)
    archive = controller_archive(target, paths.cache_dir(), note)
    return Hosted(host, site, desired_controller(spec, archive.sha256), archive)


def renewed(spec: ClusterSpec, state: Path, sight: Sight) -> Hosted | None:
    """What the host must have if its Python is another one than was thought; None if it is not."""
    target = target_of(sight)
    if target is None or target == _remembered(spec, state):
        return None
    remember_target(spec, state, target)
    return hosted_for(spec, target)


def target_of(sight: Sight) -> Target | None:
    """The host's Python, if it was seen. InputError if it is too old."""
    from orchestrator.provision.metal.wheels import Target

    if sight.facts is None:
        return None
    version = _VERSION.match(sight.facts.python)
    if version is None or not _ARCH.fullmatch(sight.facts.arch):
        said = f"Python {sight.facts.python!r} on {sight.facts.arch!r}"
        raise Unavailable(
            "up.controller-host", f"{sight.host} says that it has {said}, which is nothing known"
        )
    major, minor = int(version[1]), int(version[2])
    if (major, minor) < LEAST_PYTHON:
        raise InputError(
            "controller.python",
            f"{sight.host} has Python {sight.facts.python}, and a controller needs 3.11 or newer",
            "name a host with Debian 12 or newer or Ubuntu 24.04",
            "controller.host",
        )
    return Target(f"{major}.{minor}", sight.facts.arch)


def _remembered(spec: ClusterSpec, state: Path) -> Target | None:
    from orchestrator.provision.metal.wheels import Target

    plain = _texts(state / SEEN, ("host", "python", "arch"))
    if plain.get("host") != spec.controller.host:
        return None
    return Target(plain["python"], plain["arch"])


def placed(state: Path) -> dict[str, str]:
    """On which `host` a controller has answered, and in which folder it keeps its `ledger`; empty where it runs on the
    machine that runs `up`."""
    return _texts(state / PLACE, ("host", "ledger"))


def _texts(path: Path, keys: tuple[str, ...]) -> dict[str, str]:
    """What a file of ours says; nothing if it is not there or is none."""
    try:
        plain = json.loads(path.read_text())
        return {key: str(plain[key]) for key in keys}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def check_not_moved(spec: ClusterSpec, state: Path) -> None:
    """Refused if the cluster has a ledger in another place than its file now says: what would be brought up there is
    another, empty cluster."""
    was = placed(state)
    if was:
        before, mend = f"on {was['host']} in {was['ledger']}", f"remove {state / PLACE}"
    elif spec.controller.host and (state / "ledger.db").exists():
        before, mend = f"on this machine in {state}", f"move {state / 'ledger.db'} away"
    else:
        return
    if (was.get("host", ""), was.get("ledger", "")) != _place(spec):
        raise Refused(
            "up.controller-moved",
            f"the controller of {spec.name} keeps its ledger {before}, and no file moves a running controller",
            f"`gangline server backup` there, `gangline server restore` in the new place, then {mend}",
            path="controller.host",
        )


def _place(spec: ClusterSpec) -> tuple[str, str]:
    from orchestrator.planning.desired_controller import state_of

    return (spec.controller.host, state_of(spec)) if spec.controller.host else ("", "")


def remember_target(spec: ClusterSpec, state: Path, target: Target) -> None:
    """For the next look, which then is one look only."""
    plain = {"host": spec.controller.host, "python": target.python, "arch": target.arch}
    paths.write_private(state / SEEN, json.dumps(plain) + "\n")


def hosts_of(
    spec: ClusterSpec,
    state: Path,
    hosted: Hosted | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> MetalHosts:
    """The hosts of a spec, of which none is to have anything but the controller's own."""
    from orchestrator.provision.metal.site import MetalHosts, Wishes

    return MetalHosts(spec, state, Wishes({}, hosted=hosted), os.environ, SystemClock(), tell)


# --- the way to it ---------------------------------------------------------------------------------------------------


def known(spec: ClusterSpec, state: Path) -> Context | None:
    """The context of the controller on a host of its own, if this person has one; its address may be an older one."""
    from orchestrator.cli.contexts import Contexts

    context = Contexts.load().known.get(spec.name)
    return context if context is not None and placed(state) and (state / CA).is_file() else None


def answers(spec: ClusterSpec, state: Path) -> bool:
    """Whether it can be reached, and is the one whose authority was pinned: here, or by the environment as in CI."""
    from orchestrator.client import Client

    ca = str(state / CA) if (state / CA).is_file() else os.environ.get("GANGLINE_CA", "")
    with Client(spec.controller.address, ca_file=ca, timeout_s=5.0, patience_s=0.0) as client:
        return client.healthy()


def works(context: Context) -> bool:
    """Whether it answers, and takes this person's token."""
    from orchestrator.cli.contexts import connect

    try:
        with connect(context, patience_s=1.0, timeout_s=5.0) as client:
            client.status()
    except GanglineError:
        return False
    return True


def enter(spec: ClusterSpec, state: Path, hosts: MetalHosts, patience_s: float = 20.0) -> Context:
    """Pin the authority and make this person a token, with what lies on the host: both come over SSH, whose host key is
    known. Unavailable if it is not there."""
    from orchestrator.cli.contexts import Context
    from orchestrator.client import Client
    from orchestrator.planning.desired_controller import state_of

    folder = state_of(spec)
    ca = _read(hosts, spec.controller.host, f"{folder}/tls/ca.pem")
    secret = _read(hosts, spec.controller.host, f"{folder}/admin.token").strip()
    if not _SECRET.fullmatch(secret):
        raise Unavailable(
            "up.controller-host",
            f"{spec.controller.host}: {folder}/admin.token holds no token",
            "remove it there and restart the controller: it makes another one",
        )
    paths.write_private(state / CA, ca)
    old = known(spec, state)
    context = Context(
        spec.name, spec.controller.address, old.token if old is not None else "", str(state / CA)
    )
    if not context.token or not works(context):
        with Client(context.server, secret, ca_file=context.ca, patience_s=patience_s) as client:
            context = replace(context, token=client.create_token("admin", getpass.getuser()).secret)
    paths.write_private(state / PLACE, json.dumps({"host": spec.controller.host, "ledger": folder}) + "\n")
    return context


def _read(hosts: MetalHosts, host: str, path: str) -> str:
    """A file of the controller's, with its user's own rights: a controller that is somebody else's by now could put a
    link to a file of root's there, and gets what is read as a token."""
    from orchestrator.planning.desired_controller import USER
    from orchestrator.provision.metal.diagnosis import Unreached

    found = hosts.ask(host, f"{AS_ITSELF} -u {USER} -- head -c {MOST_READ} -- {shlex.quote(path)}")
    if isinstance(found, InputError):
        raise found
    if isinstance(found, Unreached):
        raise Unavailable("up.controller-host", f"{host}: {found.message}", found.hint)
    if found.code != 0:
        words = found.stderr.decode(errors="replace").strip()
        raise Unavailable(
            "up.controller-host", f"{host}: {path} can't be read: {words}", "see journalctl there"
        )
    return found.stdout.decode(errors="replace")


def how_to_stop(host: str, why: str) -> str:
    """A sentence for people: nothing here stops it."""
    from orchestrator.planning.desired_controller import UNIT

    return f"{host}: {why}; to stop it, on that host: sudo systemctl disable --now {UNIT}"


# --- bringing it up --------------------------------------------------------------------------------------------------


def up(spec: ClusterSpec) -> Context:
    """What `gangline up` needs first: a controller that answers. InputError where the file can't be brought up so."""
    from orchestrator.cli.changing import progress_of, state_of
    from orchestrator.model.cluster import SiteKind
    from orchestrator.provision.local import LocalSite

    check_place(spec)
    local = [pool.name for pool in spec.pools if spec.site_of(pool).kind is SiteKind.LOCAL]
    if local:
        raise InputError(
            "up.local-pools",
            f"pool {local[0]} is played by the machine that the controller runs on, and that is another one here",
            "leave controller.host out, or give the pool a metal site",
            f"pools[{local[0]}].site",
        )
    began = time.monotonic()

    def tell(text: str) -> None:
        note(f"{time.monotonic() - began:5.1f} s  {safe(text)}")

    state = state_of(spec)
    check_not_moved(spec, state)
    with LocalSite(state).alone():
        return bring(spec, state, tell, progress_of(tell))


def bring(
    spec: ClusterSpec,
    state: Path,
    tell: Callable[[str], None],
    progress: Callable[[Progress], None],
    agreed: Callable[[Sight, Hosted], bool] = lambda *_: True,
) -> Context:
    """A controller that answers, on its host; nothing is changed there if all is as wanted.

    `agreed` is asked before anything is changed. Unavailable with the reason if it can't be brought up.
    """
    from orchestrator.cli.contexts import remember

    context = known(spec, state)
    if context is not None and context.server == spec.controller.address and works(context):
        tell(f"controller: runs on {spec.controller.host} ({context.server})")
        return context
    hosted, sight = seen(spec, state)
    hosts = hosts_of(spec, state, hosted, progress)
    context = _entered(spec, state, hosts, sight)
    if context is None:
        _check_same_ledger(spec, hosts)
        if sight.drift and not agreed(sight, hosted):
            raise Refused("apply.not-agreed", "nothing was changed", "give --yes where nobody can be asked")
        tell(f"controller: {spec.controller.host} is made what the file says")
        result = hosts.configure_controller()
        if not result.ok:
            raise Unavailable(
                "up.controller-host",
                f"{result.host}: {result.error}",
                "see `journalctl -u gangline-controller` on that host, then run it again",
            )
        context = enter(spec, state, hosts)
    remember(context)
    tell(f"controller: answers on {spec.controller.host} ({context.server})")
    return context


def _entered(spec: ClusterSpec, state: Path, hosts: MetalHosts, sight: Sight) -> Context | None:
    """The way to a controller that runs there already: what else differs on its host is then a step of the plan, which
    may be refused. None if its unit does not run, or does not answer at the file's address."""
    from orchestrator.planning.desired_controller import UNIT

    if any(one.name == UNIT and one.value in ("present", "active", "masked") for one in sight.drift):
        return None
    try:
        return enter(spec, state, hosts, patience_s=1.0)
    except GanglineError:
        return None


def _check_same_ledger(spec: ClusterSpec, hosts: MetalHosts) -> None:
    """Refused if the host has a unit that keeps its ledger elsewhere: it would go on with an empty one."""
    from orchestrator.planning.desired_controller import UNIT_FILE, state_of

    found = hosts.ask(spec.controller.host, f"cat {UNIT_FILE}")
    text = getattr(found, "stdout", b"").decode(errors="replace")
    kept = [_state_in(line) for line in text.splitlines() if line.startswith("ExecStart=")]
    if kept and kept[0] not in ("", state_of(spec)):
        raise Refused(
            "up.controller-moved",
            f"the controller on {spec.controller.host} keeps its ledger in {kept[0]}, and no file moves it",
            "put controller.state back, or stop that controller and move its folder by hand",
            path="controller.state",
        )


def _state_in(start: str) -> str:
    """The ledger's folder in the line of a unit that starts a controller; the line itself if it can't be told."""
    try:
        words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(start)]
    except ValueError:
        return start
    return dict(pairwise(words)).get("--state", "")


def seen(spec: ClusterSpec, state: Path) -> tuple[Hosted, Sight]:
    """What the host must have and what differs there. Unavailable if it can't be looked at."""
    hosted = hosted_of(spec, state)
    if isinstance(hosted, Sight):
        raise _unreached(hosted)
    sight = hosts_of(spec, state, hosted).controller_sight()
    again = renewed(spec, state, sight)
    if again is not None:
        hosted, sight = again, hosts_of(spec, state, again).controller_sight()
    if not sight.checked:
        raise _unreached(sight)
    return hosted, sight


def _unreached(sight: Sight) -> Unavailable:
    return Unavailable("up.controller-host", f"{sight.host}: {sight.error}", sight.hint)
