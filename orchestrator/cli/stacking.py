"""The aws sites of a cluster, as plans and applies meet them: what Pulumi would do, doing it, what differs there.

Comes in: a checked spec, what was recorded, the controller's answers. Goes out: a `StackSight` for each site, and
`Stacks` for `provision.applying`. Called by: changing (plans, applies), looking (drift), change_cmd (destroy).

Pulumi, its engine and AWS are met inside the functions that need them: whoever has no aws site pays for none of it.
A site that left the file is ended by the record alone, as it was recorded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.cli.known import known_catalog
from orchestrator.cli.session import current, note
from orchestrator.cli.text import fold_names
from orchestrator.model.apply import HostResult
from orchestrator.model.errors import GanglineError, InputError, Refused, Unavailable
from orchestrator.model.stack_sight import StackSight, short_kind

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.model.capacity import CloudInstance
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.provision.aws.adopt import Find
    from orchestrator.provision.aws.changes import ResourceChange
    from orchestrator.provision.aws.inputs import SiteInputs
    from orchestrator.provision.aws.stack import SiteStack

UNNAMED = "0" * 12  # the uid in plans of a cluster that no controller has named yet: nothing has that mark
CONSENT = "storage/"
T = TypeVar("T")
GIVEN_BACK_S = 900  # for the controller to have given back what it bought: large instances end slowly
# What EC2 still tells of after its end, or has for its own accounting: no such thing is billed.
PASSING = ("fleet", "instance", "network-interface", "spot-instances-request")
LOOK_S = 2.0  # between two looks at what is still there


@dataclass(frozen=True, slots=True)
class Account:
    """What all sites of one plan share. `before`: the recorded spec, which has sites that leave. `client`: who is asked
    for the cluster's uid and authority, each time anew: the first apply makes them. None: there is no controller."""

    spec: ClusterSpec
    before: ClusterSpec | None
    state: Path
    client: Client | None = None
    commit: str = ""
    consents: tuple[str, ...] = ()


def sites_of(account: Account) -> tuple[str, ...]:
    """The aws sites of the file, and those that it had and has no more."""
    from orchestrator.planning.stacks import aws_sites

    before = aws_sites(account.before) if account.before is not None else ()
    return tuple(dict.fromkeys((*aws_sites(account.spec), *before)))


@dataclass(frozen=True, slots=True)
class Named:
    """What marks the cluster's things, and the SHA-256 of the authority that its nodes trust (empty: the system's)."""

    uid: str = UNNAMED
    ca_sha256: str = ""


def named(account: Account) -> Named:
    """What the controller says; UNNAMED where there is none yet."""
    if account.client is None:
        return Named()
    found = account.client.recorded()
    return Named(found.uid or UNNAMED, found.ca_sha256)


# --- looking ---------------------------------------------------------------------------------------------------------


def sights(account: Account) -> tuple[StackSight, ...]:
    """What Pulumi would do on each site, what somebody else did there, what live checks say. Changes nothing. One after
    the other: the engine's programs run in this very process."""
    return tuple(_sight(account, name) for name in sites_of(account))


def drifts(account: Account) -> tuple[StackSight, ...]:
    """What somebody else did on each site of the file to what its stack has."""
    return tuple(_drift(account, name) for name in sites_of(account) if _stays(account, name))


def _tell_wait(name: str) -> None:
    """For a person at a terminal: Pulumi and AWS take ten seconds and more, in which nothing else is printed."""
    if sys.stderr.isatty():
        note(f"looking at site {name}, by Pulumi and AWS")


def _drift(account: Account, name: str) -> StackSight:
    _tell_wait(name)
    try:
        with _installed():
            found = _stack(account, name, named(account), leased=False).drift()
    except GanglineError as error:
        return StackSight(name, error=_words(error), hint=error.hint)
    return StackSight(name, drift=tuple(one.row() for one in found))


def _sight(account: Account, name: str) -> StackSight:
    """A place in the file that means nothing is a fault; what can't be reached now is only not seen."""
    _tell_wait(name)
    try:
        with _installed():
            return _looked(account, name)
    except (InputError, Refused) as error:
        return StackSight(name, faults=("; ".join(filter(None, (_words(error), error.hint))),))
    except GanglineError as error:
        return StackSight(name, error=_words(error), hint=error.hint)


@contextmanager
def _installed() -> Iterator[None]:
    """Unavailable where the packages for aws sites are not installed."""
    try:
        yield
    except ImportError as error:
        raise Unavailable(
            "aws.not-installed",
            f"the packages for aws sites are not installed here: {error.name} is missing",
            "pip install 'gangline[aws]'",
        ) from error


def _words(error: GanglineError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message


def _looked(account: Account, name: str) -> StackSight:
    cluster = named(account)
    if not _stays(account, name):
        rows = _stack(account, name, cluster, leased=False).preview_destroy(_released(account))
        return StackSight(name, tuple(one.row() for one in rows))
    inputs = _inputs(account, name, cluster)
    warnings, faults = _live(account, name, inputs)
    found = _stack(account, name, cluster, leased=False).sight(inputs)
    return replace(found, warnings=(*_unbuilt(account.spec, name), *warnings), faults=faults)


def _unbuilt(spec: ClusterSpec, site: str) -> Iterator[str]:
    """What the file asks for and Gangline does not do yet."""
    instance = spec.controller.instance
    if instance is not None and instance.site == site:
        yield (
            "controller.instance: the instance, its disk and its rights are made; nothing of Gangline is installed "
            "there yet, and the disk is not mounted"
        )


def _stays(account: Account, name: str) -> bool:
    return any(site.name == name for site in account.spec.sites)


def _live(account: Account, name: str, inputs: SiteInputs) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings and faults of the live checks."""
    from orchestrator.model.clock import SystemClock
    from orchestrator.model.findings import Severity
    from orchestrator.provision.aws import live

    found = live.check(
        account.spec,
        name,
        inputs.facts,
        inputs.catalog,
        live.clients(),
        SystemClock().now_us(),
        current().skip,
    )
    said = [(one.severity is Severity.ERROR, _finding(one)) for one in found]
    return tuple(text for fault, text in said if not fault), tuple(text for fault, text in said if fault)


def _finding(found: Any) -> str:
    hint = f"; {found.hint}" if found.hint else ""
    return f"{found.place}: {found.words}{hint} [{found.name}]"


# --- what a run is made of -------------------------------------------------------------------------------------------


def _inputs(account: Account, name: str, cluster: Named) -> SiteInputs:
    from orchestrator.provision.aws.lookups import run_inputs

    return run_inputs(
        account.spec,
        name,
        cluster.uid,
        known_catalog(),
        authority=cluster.ca_sha256,
        commit=account.commit,
        released=_released(account),
    )


def _released(account: Account) -> frozenset[str]:
    """Names of storages that people let go."""
    return frozenset(one.removeprefix(CONSENT) for one in account.consents if one.startswith(CONSENT))


def _spec_with(account: Account, site: str) -> ClusterSpec:
    """The spec that has the site: the recorded one, where it has left the file."""
    return account.spec if _stays(account, site) or account.before is None else account.before


def _stack(account: Account, name: str, cluster: Named, *, leased: bool) -> SiteStack:
    """The stack of a site. Pulumi's own files are the person's, unless GANGLINE_HOME moves all."""
    from orchestrator.provision.aws import engine
    from orchestrator.provision.aws.stack import SiteStack

    home = account.state / "pulumi" if os.environ.get("GANGLINE_HOME") else None
    known = "" if cluster.uid == UNNAMED else cluster.uid
    return SiteStack(_spec_with(account, name), name, account.state, engine.find(home), leased, known)


# --- acting ----------------------------------------------------------------------------------------------------------


class Stacks:
    """`provision.applying.Stacks`: brings one site to what the file says, or ends one that left it."""

    def __init__(self, account: Account, tell: Callable[[str], None]) -> None:
        self._account = account
        self._tell = tell

    def bring(self, site: str, held: frozenset[str]) -> HostResult:
        """One result for the site; what failed is told in words."""
        try:
            with _installed():
                changed = self._bring(site, held)
        except GanglineError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return HostResult(site, ok=False, error=_words(error) + hint)
        return HostResult(site, ok=True, changed=changed)

    def _bring(self, site: str, held: frozenset[str]) -> int:
        account = self._account
        cluster = named(account)
        stack = _stack(account, site, cluster, leased=True)
        if not _stays(account, site):
            return self._end(site, stack, cluster.uid, held)
        inputs = replace(_inputs(account, site, cluster), held=held)
        if inputs.uid == UNNAMED:
            raise Unavailable(
                "apply.no-uid", "the controller has not named the cluster", "run it again, with this version"
            )
        stack.refresh(self._progress(site))
        done = stack.up(inputs, self._progress(site), _found_again(account.spec, site, inputs.uid))
        for name in done.adopted:
            self._tell(f"{site}: {name} was made by a run that was killed, and is taken over")
        return len(done.changes)

    def _end(self, site: str, stack: SiteStack, uid: str, held: frozenset[str]) -> int:
        """By the record and the marks: first what the controller gives back, then the stack with what a killed run was
        making, then what nobody knows of."""
        if held:
            raise Refused(
                "destroy.work",
                f"work has not left {fold_names(sorted(held))}",
                "run it again when it is over",
            )
        seen = _Seen(_cloud(self._account, site), uid, site)
        self._given_back(seen)
        find = _found_again(_spec_with(self._account, site), site, uid)
        done = stack.destroy(self._progress(site), _released(self._account), find)
        for name in done.adopted:
            self._tell(f"{site}: {name} was made by a run that was killed, and is ended too")
        for one in stack.left():
            self._tell(f"{site}: {short_kind(one.type)} {one.name} is kept: {one.why_kept()}")
        kept = stack.ids()
        _swept(seen, kept)
        for kind, name in seen.others(kept):
            self._tell(f"{site}: {kind} {name} is left: it has the site's marks and is in no record")
        return len(done.changes)

    def _given_back(self, seen: _Seen) -> None:
        """Until the controller has given back what it bought: what it keeps may have work, and is not ended from
        here."""
        end, told = time.monotonic() + GIVEN_BACK_S, False
        while left := seen.bought():
            if not told:
                told = True
                self._tell(f"{seen.site}: waiting until the controller has given back {', '.join(left)}")
            if time.monotonic() > end:
                raise Unavailable(
                    "destroy.not-given-back",
                    f"the controller still keeps {', '.join(left)}",
                    "`gangline nodes` shows what runs there, or who has cordoned it; run it again after that",
                )
            time.sleep(LOOK_S)

    def _progress(self, site: str) -> Callable[[ResourceChange, bool], None]:
        def one(change: ResourceChange, done: bool) -> None:
            if done:
                self._tell(f"{site}: {change.op} {short_kind(change.type)} {change.name}")

        return one


def _found_again(spec: ClusterSpec, site: str, uid: str) -> Find:
    """What a killed run had begun to make, by its marks in the account."""
    from orchestrator.provision.aws.adopt import of_site

    return of_site(spec, site, uid)


def _cloud(account: Account, site: str) -> Any:
    from orchestrator.provision.aws import fleet

    return fleet.cloud_of(_spec_with(account, site).site(site))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a site's account has of a cluster, asked anew each time; nothing where the cluster was never named."""

    cloud: Any
    uid: str
    site: str

    def bought(self) -> list[str]:
        """Instances that the controller has launched and that are not gone; those of the stack are not among them."""
        return _not_gone(self._ask(self.cloud.describe))

    def marked(self, kept: frozenset[str]) -> list[str]:
        """All instances with the site's marks that are not gone, but for `kept`."""
        return [name for name in _not_gone(self._ask(self.cloud.marked)) if name not in kept]

    def others(self, kept: frozenset[str]) -> list[tuple[str, str]]:
        """Kind and id of what else has the site's marks: nobody here made it, so nobody here ends it."""
        found = self._ask(self.cloud.tagged)
        return [(kind, name) for kind, name in found if kind not in PASSING and name not in kept]

    def _ask(self, ask: Callable[[str, str], Iterable[T]]) -> Iterable[T]:
        return ask(self.uid, self.site) if self.uid != UNNAMED else ()


def _swept(seen: _Seen, kept: frozenset[str]) -> None:
    """Instances with the site's marks that are still there: nothing of it is to run on that the record does not
    keep."""
    left = seen.marked(kept)
    if not left:
        return
    seen.cloud.terminate(tuple(left))
    end = time.monotonic() + GIVEN_BACK_S
    while (left := seen.marked(kept)) and time.monotonic() < end:
        time.sleep(LOOK_S)
    if left:
        raise Unavailable(
            "destroy.left", f"{', '.join(left)} would not end", "run it again, and look into the account"
        )


def _not_gone(found: Iterable[CloudInstance]) -> list[str]:
    from orchestrator.model.capacity import CloudState

    return [one.id for one in found if one.state is not CloudState.GONE]
