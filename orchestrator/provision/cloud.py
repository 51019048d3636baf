"""What launches and ends instances, as the controller sees it; and the jobs for the thread that asks it.

Comes in: tasks of the controller. Goes out: what a cloud said, as answers. Called by: the controller's
capacity_tasks (makes tasks), hands (performs them) and capacity_answers; provision.aws.fleet is the real `Cloud`.

A call is refused (`LaunchError`: nothing exists for it, and nothing will) or it is unknown what became of it
(`Unanswered`): then the cloud is asked what exists, by the mark of the intent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orchestrator.model.capacity import CloudInstance, ErrorClass, Intent, Reserved
from orchestrator.model.cluster import Site
from orchestrator.model.stack_facts import StackFacts


class LaunchError(Exception):
    """The cloud refused: `fault` is its class, the text is for people."""

    def __init__(self, fault: ErrorClass, words: str) -> None:
        super().__init__(words)
        self.fault = fault
        self.words = words


class Unanswered(Exception):
    """No answer came, or none that can be understood: it may have happened or not."""


class Cloud(Protocol):
    """One region of one account. Every call may raise LaunchError or Unanswered."""

    def launch(self, intent: Intent, facts: StackFacts) -> tuple[CloudInstance, ...]:
        """All nodes of an intent, or none: repeated for the same intent it finds the same instances."""

    def terminate(self, ids: tuple[str, ...]) -> None:
        """End instances; those that are gone already are no error."""

    def describe(self, uid: str, site: str) -> tuple[CloudInstance, ...]:
        """All instances that carry the cluster's uid, the site's mark and an intent, also those that end, while it
        tells of them. Two sites may have one region: what the other one launched is no stranger there."""

    def reserved(self, ids: tuple[str, ...]) -> tuple[Reserved, ...]:
        """Capacity reservations and blocks by their ids, each once; those that nobody knows have no slots."""


Clouds = Callable[[Site], Cloud]
Facts = Callable[[str, str, Site], StackFacts | None]  # cluster, uid, site -> what its stack resolved


@dataclass(frozen=True, slots=True)
class Ask:
    """Read a site's facts."""

    cluster: str
    uid: str
    site: Site


@dataclass(frozen=True, slots=True)
class Launch:
    """Carry an intent out, by facts that are of the wanted cluster `spec`."""

    cluster: str
    uid: str
    site: Site
    intent: Intent


@dataclass(frozen=True, slots=True)
class End:
    """End instances."""

    site: Site
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Ask what exists. `asked_us`: when, so that an older answer settles nothing newer; `reservations`: those to ask
    about, by id."""

    uid: str
    site: Site
    asked_us: int
    reservations: tuple[str, ...] = ()


Task = Ask | Launch | End | Look
