"""Looks at the account before anything is made in it: is there room, and does what the file names exist?

Comes in: a spec, the name of one of its aws sites, the facts of an earlier run, the catalog, boto3 clients. Goes out:
`Finding`s, each with the place in the file that it is about. Called by: the command (`plan`, `apply`). Nothing is ever
changed: requests that would are sent with DryRun.

A check that may not look says so and names the right that it lacks; it never counts as passed. All checks run at once,
and none is waited for longer than `DEADLINE_S`. Only the wanted spec is looked at: what an older one named and is gone
by now (a reservation, an image) blocks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.findings import LIVE_CHECKS, Finding, Severity
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.aws import live_room, live_things
from orchestrator.provision.aws.live_asks import Account, Clients, Question, unanswered

DEADLINE_S = 60  # of all checks together; one request takes 25 s at most
AT_ONCE = 8

Check = Callable[[Question], Iterator[Finding]]
# The names are those of `model.findings.LIVE_CHECKS`. The first one says whether there is an account at all: without it
# no other is made.
CHECKS: dict[str, Check] = {
    "credentials": live_things.credentials,
    "types": live_room.types,
    "quota": live_room.quota,
    "addresses": live_room.addresses,
    "reservations": live_room.reservations,
    "images": live_things.images,
    "network": live_things.network,
    "launch": live_things.launch,
}


def check(
    spec: ClusterSpec,
    site: str,
    facts: StackFacts | None,
    catalog: Catalog,
    clients: Clients,
    now_us: int,
    skip: frozenset[str] = frozenset(),
    deadline_s: float = DEADLINE_S,
) -> tuple[Finding, ...]:
    """What speaks against the wanted site, errors first. `skip`: codes of LIVE_CHECKS; `facts`: None before the first
    apply. Raises nothing that AWS or the way to it causes."""
    question = Question(
        spec, spec.site(site), facts, catalog, Account(clients, spec.site(site).region), now_us
    )
    wanted = {name: one for name, one in CHECKS.items() if LIVE_CHECKS[name] not in skip}
    found = _first(wanted, question)
    if any(one.severity is not Severity.WARNING for one in found):
        return found
    found += _at_once(wanted, question, deadline_s)
    order = list(Severity)
    return tuple(sorted(found, key=lambda one: (order.index(one.severity), one.place)))


def clients() -> Clients:
    """Clients of boto3, bounded in time; retried where the account is asked too much. Raises InputError where boto3 is
    not installed."""
    from orchestrator.catalog.refresh import clients as bounded

    return bounded()


def _first(wanted: dict[str, Check], question: Question) -> tuple[Finding, ...]:
    first = wanted.pop("credentials", None)
    return tuple(_findings("credentials", first, question)) if first is not None else ()


def _at_once(wanted: dict[str, Check], question: Question, deadline_s: float) -> tuple[Finding, ...]:
    """The others, side by side. Threads that are late end by their clients' own bounds; nobody waits for them."""
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="live")
    begun = {name: pool.submit(_findings, name, one, question) for name, one in wanted.items()}
    wait(begun.values(), deadline_s)
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(one for name, future in begun.items() for one in _of(name, future, question, deadline_s))


def _of(name: str, future: Future[list[Finding]], question: Question, deadline_s: float) -> list[Finding]:
    if future.done() and not future.cancelled():
        return future.result()
    words = f"AWS did not answer within {deadline_s:g} s"
    return [question.unchecked(name, words)]


def _findings(name: str, one: Check, question: Question) -> list[Finding]:
    """What one check finds; what it could not ask is a finding too."""
    found: list[Finding] = []
    try:
        found.extend(one(question))
    except Exception as error:
        words = unanswered(error)
        if words is None:
            raise
        found.append(question.unchecked(name, words))
    return found
