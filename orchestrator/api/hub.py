"""What every handler works with: the controller, access, and the looks that need a thread or a second look.

Comes in: the controller. Goes out: job views live or ended, waits that end when the server stops. Called by:
the routes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import Scope

from orchestrator.api.access import Access
from orchestrator.api.listen import Tls
from orchestrator.api.people import People
from orchestrator.api.sparing import Sparing
from orchestrator.api.specs import Specs
from orchestrator.controller.commands import Query
from orchestrator.controller.service import Controller
from orchestrator.controller.view import JobView, View, from_history
from orchestrator.controller.waiting_for import place_in
from orchestrator.model.clock import Clock
from orchestrator.model.errors import NotFound, Unavailable
from orchestrator.model.ids import JobRef, parse_job
from orchestrator.provision.aws.known import Accounts
from orchestrator.store.base import AppliedRow, HistoryQuery, HistoryRow

T = TypeVar("T")

POLL = "gangline.poll"  # where the task of a long poll is in the scope, for the protocol to end it with its connection


class Hub:
    """One controller's HTTP side."""

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        people: People,
        version: str,
        tls: Tls | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.controller = controller
        self.clock = clock
        self.people = people
        self.access = Access(controller, people)
        self.version = version
        self.tls = tls
        self.accounts = accounts if accounts is not None else Accounts(Path("/nonexistent"))
        self.refusals = Sparing(clock)
        self.specs = Specs()
        self.stopping = False
        self._polls: dict[asyncio.Task[Any], bool] = {}
        self._history = ThreadPoolExecutor(1, "history")

    @property
    def view(self) -> View:
        """The published view."""
        return self.controller.view

    def stop(self) -> None:
        """Answer everyone who only waits, now; from now on nobody is made to wait."""
        self.stopping = True
        for task in list(self._polls):
            task.cancel()

    def close(self) -> None:
        """Let the threads end."""
        self._history.shutdown(wait=False, cancel_futures=True)
        self.people.close()

    @contextmanager
    def poll(self, scope: Scope) -> Iterator[None]:
        """Around a wait that may be cut short: by the server's stop (Unavailable), or by its client's leaving."""
        if self.stopping:
            raise stopping()
        task = asyncio.current_task()
        assert task is not None
        self._polls[task] = True
        scope[POLL] = task
        try:
            yield
        except asyncio.CancelledError:
            self._turn_into_answer(task)
            raise
        finally:
            scope.pop(POLL, None)
            self._polls.pop(task, None)

    def _turn_into_answer(self, task: asyncio.Task[Any]) -> None:
        """A wait that the server's stop has cut short is answered; others stay cancelled."""
        if self.stopping:
            task.uncancel()
            raise stopping() from None

    # --- looks ----------------------------------------------------------------------------------------------

    async def caught_up(self) -> None:
        """When this returns, the view shows at least everything that was answered before the call."""
        await self.controller.do(Query(_nothing))

    async def job(self, job_id: int) -> JobView:
        """A job, live or ended. NotFound. A job that was just acknowledged is there."""
        found = await self._job(job_id)
        if found is None:
            await self.caught_up()
            found = await self._job(job_id)
        if found is None:
            raise NotFound(
                "job.not-found", f"there is no job {job_id}", "`gangline jobs -a` lists those there are"
            )
        return found

    async def named(self, text: str) -> JobView:
        """The job that people call `1234`, or the task `1234_7` of an array. NotFound."""
        ref = parse_job(text)
        try:
            found = await self.job(ref.job)
        except NotFound:
            if ref.task is None:
                raise
            return self._left_of_array(ref)
        if ref.task is None:
            return found
        place = place_in(found.whole, ref)
        return await self.job(ref.job + place) if place else found

    def _left_of_array(self, ref: JobRef) -> JobView:
        """A task that is known although the array's first one is not: nodes have told of it after a restore."""
        for job in list(self.view.jobs.values()):
            if (job.array, job.index) == (ref.job, ref.task):
                return job
        raise NotFound("job.not-found", f"there is no job {ref}", "`gangline jobs -a` lists those there are")

    async def tasks(self, first: JobView) -> dict[str, int]:
        """The tasks of the array of which this is the first, by state; the highest exit code under an empty name."""
        assert first.whole is not None
        return await self._in_history(self._count, first.id, first.id + first.whole.count() - 1)

    def _count(self, first: int, last: int) -> dict[str, int]:
        live = {job_id: job for job_id in range(first, last + 1) if (job := self.view.jobs.get(job_id))}
        counts = Counter(str(job.state) for job in live.values())
        ended = [each for each in self.controller.history.outcomes(first, last) if each[0] not in live]
        counts.update(state for _, state, _ in ended)
        return {**counts, "": max((code for _, _, code in ended), default=0)}

    async def _job(self, job_id: int) -> JobView | None:
        live = self.view.jobs.get(job_id)
        return live if live is not None else await self.ended_job(job_id)

    async def ended_job(self, job_id: int) -> JobView | None:
        """A job from the history, or None."""
        return await self._in_history(self._read_job, job_id)

    async def ended_page(self, query: HistoryQuery) -> list[JobView]:
        """Ended jobs, newest first."""
        return await self._in_history(self._read_page, query)

    def _read_job(self, job_id: int) -> JobView | None:
        row = self.controller.history.job(job_id)
        return from_history(row) if row is not None else None

    def _read_page(self, query: HistoryQuery) -> list[JobView]:
        rows: list[HistoryRow] = self.controller.history.page(query)
        return [from_history(row) for row in rows]

    async def applied(self) -> list[AppliedRow]:
        """What was applied, newest first, without bodies."""
        return await self._in_history(self.controller.history.applied)

    async def applied_at(self, seq: int) -> AppliedRow | None:
        """What the event of that seq has applied, or None."""
        return await self._in_history(self.controller.history.applied_at, seq)

    async def _in_history(self, read: Callable[..., T], *args: Any) -> T:
        """The reader has one connection: its thread is the only one that uses it."""
        return await asyncio.get_running_loop().run_in_executor(self._history, read, *args)


def stopping() -> Unavailable:
    """The error for those who waited."""
    return Unavailable("controller.stopping", "the controller is stopping", "ask again when it is back")


def _nothing(_: object) -> None:
    return None
