"""The thread that talks to clouds, so that the core never waits for one.

Comes in: tasks, from the core thread. Goes out: one command for each task, into the inbox. Called by: service (makes
one), capacity_tasks (gives it tasks). Tests have hands of their own that do what a scenario says.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Protocol

from orchestrator.controller import commands
from orchestrator.controller.inbox import Inbox, Item
from orchestrator.model.capacity import UNBOUNDED, Reserved
from orchestrator.model.cluster import Site
from orchestrator.model.errors import GanglineError
from orchestrator.model.failpoints import failpoint
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.cloud import (
    Ask,
    Cloud,
    Clouds,
    End,
    Facts,
    Launch,
    LaunchError,
    Look,
    Task,
    Unanswered,
)

log = logging.getLogger("gangline.capacity")


class Hands(Protocol):
    """Whoever performs tasks, in order, and answers each once; never in the caller's thread."""

    def put(self, task: Task) -> None:
        """Take a task."""


class Nobody:
    """Who waits for the answer to a command of the controller's own."""

    def done(self) -> bool:
        """Nobody does."""
        return True


def perform(task: Task, clouds: Clouds, facts: Facts) -> commands.Command:
    """The answer to a task. Errors are answers, too."""
    if isinstance(task, Ask):
        return _ask(task, facts)
    if isinstance(task, Launch):
        return _launch(task, clouds, facts)
    if isinstance(task, End):
        return _end(task, clouds)
    return _look(task, clouds)


def _ask(task: Ask, facts: Facts) -> commands.FactsRead:
    found = error = None
    try:
        found = facts(task.cluster, task.uid, task.site)
    except Exception as caught:  # noqa: BLE001 - any error is the answer
        error = words_of(caught)
    if found is None:
        return commands.FactsRead(task.site.name, error or "its stack has written no facts yet")
    return commands.FactsRead(task.site.name, "", found)


def _launch(task: Launch, clouds: Clouds, facts: Facts) -> commands.LaunchAnswered:
    intent = task.intent.id
    try:
        found = _facts_for(task, facts)
        failpoint("capacity.call.before")
        instances = clouds(task.site).launch(task.intent, found)
        failpoint("capacity.call.after")
    except _NotNow as error:
        return commands.LaunchAnswered(intent, words=str(error))
    except LaunchError as error:
        return commands.LaunchAnswered(intent, fault=error.fault, words=error.words)
    except Unanswered as error:
        return commands.LaunchAnswered(intent, words=str(error), unanswered=True)
    except Exception as error:
        log.exception("launching %s failed as nobody had foreseen", intent)
        return commands.LaunchAnswered(intent, words=words_of(error), unanswered=True)
    return commands.LaunchAnswered(intent, instances)


class _NotNow(Exception):
    """Nothing was called: there is nothing to launch by."""


def _facts_for(task: Launch, facts: Facts) -> StackFacts:
    """The facts that the launch goes by; _NotNow without."""
    try:
        found = facts(task.cluster, task.uid, task.site)
    except Exception as error:
        raise _NotNow(f"its stack's facts can't be read: {words_of(error)}") from error
    if found is None or found.spec != task.intent.spec:
        raise _NotNow("its stack's facts are of another file")
    return found


def _end(task: End, clouds: Clouds) -> commands.EndAnswered:
    try:
        failpoint("capacity.end.before")
        clouds(task.site).terminate(task.ids)
        failpoint("capacity.end.after")
    except Exception as error:  # noqa: BLE001 - any error is the answer
        return commands.EndAnswered(task.site.name, task.ids, words_of(error))
    return commands.EndAnswered(task.site.name, task.ids)


def _look(task: Look, clouds: Clouds) -> commands.Looked:
    try:
        found = clouds(task.site).describe(task.uid, task.site.name)
    except Exception as error:  # noqa: BLE001 - any error is the answer
        return commands.Looked(task.site.name, task.asked_us, error=words_of(error))
    return commands.Looked(task.site.name, task.asked_us, found, reserved=_reserved(task, clouds))


def _reserved(task: Look, clouds: Clouds) -> tuple[Reserved, ...]:
    """Without bounds where nobody may look: what exists is known all the same, and a launch finds out what is full."""
    try:
        return clouds(task.site).reserved(task.reservations) if task.reservations else ()
    except Exception as error:  # noqa: BLE001 - any error is the answer
        log.info("reservations of %s can't be looked at: %s", task.site.name, words_of(error))
        return tuple(Reserved(name, UNBOUNDED) for name in task.reservations)


def words_of(error: Exception) -> str:
    """An error for people: of a foreseen one its own words, else its kind as well."""
    if isinstance(error, LaunchError | Unanswered):
        return str(error)
    if isinstance(error, GanglineError):
        return error.message
    return f"{type(error).__name__}: {error}"


class CloudHands:
    """One thread that performs tasks one after the other, from the first one until `stop`."""

    def __init__(self, inbox: Inbox, clouds: Clouds, facts: Facts) -> None:
        self._inbox = inbox
        self._clouds, self._facts = clouds, facts
        self._cached: dict[str, tuple[str, Cloud]] = {}  # by site: its region and cloud
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="clouds", daemon=True)
        self._started = False

    def put(self, task: Task) -> None:
        """Take a task. Only the core thread calls it."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._tasks.put(task)

    def stop(self) -> None:
        """No task after the present one; what was not done is found again by the next controller."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            answer = perform(task, self._cloud, self._facts)
            self._inbox.put(Item(answer, Nobody()))  # type: ignore[arg-type]

    def _cloud(self, site: Site) -> Cloud:
        known = self._cached.get(site.name)
        if known is None or known[0] != site.region:
            known = self._cached[site.name] = (site.region, self._clouds(site))
        return known[1]
