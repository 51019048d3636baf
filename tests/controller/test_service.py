"""The controller as HTTP has it: the real core thread on a real ledger, and those who wait on the event loop."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.controller.reads import LogChunk
from orchestrator.controller.service import Controller
from orchestrator.controller.settings import Settings
from orchestrator.ledger.events import StoredEvent
from orchestrator.model.attempt import RankResult
from orchestrator.model.clock import SystemClock
from orchestrator.model.errors import Conflict, Fenced, GanglineError, NotFound, Unavailable
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import LaunchKind
from orchestrator.model.protocol import AgentEvent, EventKind, Phase, SyncAnswer, SyncRequest
from orchestrator.store.base import Snapshot
from tests.builders import ALICE, cluster, facts, job, pool
from tests.ledgers import open_quickly

POOL = pool(nodes=2, gpus=2, cores=4)
PATIENCE_S = 60  # of a test for what must happen; nothing here waits for it to pass


def on_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Run an async test, and fail it rather than wait for ever."""

    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), PATIENCE_S))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@asynccontextmanager
async def controller(path: Path, **rest: Any) -> AsyncIterator[Controller]:
    """One that serves a cluster of two accepted nodes."""
    clock = SystemClock()
    served = Controller(open_quickly(path / "state", clock), clock, Settings(**rest))
    await served.start()
    try:
        await served.do(commands.ApplyCluster(cluster(POOL), "user:root"))
        await until(lambda: served.view.nodes)
        for name in POOL.nodes:
            await served.sync(SyncRequest(name, "outbox", "boot-1", facts=facts(POOL)))
        await until(lambda: all(node.open for node in served.view.nodes.values()))
        yield served
    finally:
        served.beats.close()
        served.stop()
        await served.stopped()


async def submit(served: Controller, **rest: Any) -> int:
    answer = await served.do(commands.Submit(job(**rest), ALICE, "user:alice"))
    return int(answer.job)


async def settled(*tasks: asyncio.Task[Any]) -> list[bool]:
    """Which of the tasks are done when everything that is ready to run has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def idle(
    served: Controller, seen: str = "0", node: str = "p-1", held: tuple[AttemptId, ...] = ()
) -> asyncio.Task[SyncAnswer]:
    """A sync that has nothing to say and is held."""
    request = SyncRequest(node, "outbox", "boot-1", wait_s=PATIENCE_S, seen=seen, held=held)
    task = asyncio.create_task(served.sync(request))
    await until(lambda: served.beats._waiting.get(node) or task.done())
    return task


async def until(happened: Callable[[], Any]) -> None:
    """What the core thread does comes when it comes."""
    while not happened():  # noqa: ASYNC110 - another thread makes it happen, and tells nobody
        await asyncio.sleep(0.001)


# --- beats ------------------------------------------------------------------------------------------------------


@on_loop
async def test_an_idle_sync_is_held_until_something_is_wanted(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        waits = await idle(served)
        assert await settled(waits) == [False]
        job_id = await submit(served)
        answer = await waits
        assert [(wish.attempt, wish.phase) for wish in answer.desired] == [(AttemptId(job_id, 1), Phase.RUN)]
        assert answer.desired[0].launch is not None
        assert (answer.epoch, answer.revision != "0") == (served.view.epoch, True)

        again = await idle(served, answer.revision)
        assert await settled(again) == [False], "it has seen that"
        await served.do(commands.CancelJob(job_id, "user:alice"))
        assert (await again).desired[0].phase is Phase.END


@on_loop
async def test_an_agent_that_has_not_seen_the_wish_is_told_at_once(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        await submit(served)
        await until(lambda: served.beats.desired("p-1"))
        for seen in ("", "0", "1.1"):
            answer = await served.sync(SyncRequest("p-1", "outbox", "boot-1", wait_s=PATIENCE_S, seen=seen))
            assert len(answer.desired) == 1


@on_loop
async def test_a_poll_is_not_answered_for_what_its_own_node_has_told(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        attempt = AttemptId(await submit(served), 1)
        await until(lambda: served.beats.desired("p-1"))
        seen = (await served.sync(SyncRequest("p-1", "outbox", "boot-1", wait_s=PATIENCE_S))).revision
        poll = await idle(served, seen, held=(attempt,))
        assert await settled(poll) == [False], "that it holds what it was told to run says nothing new"
        started = AgentEvent(1, 0, EventKind.STARTED, attempt, started=True)
        await served.sync(
            SyncRequest("p-1", "outbox", "boot-1", events=(started,), held=(attempt,), seen=seen)
        )
        await until(lambda: served.beats.desired("p-1")[attempt].started)
        ended = AgentEvent(2, 0, EventKind.ENDED, attempt, started=True, results=(RankResult(0),))
        await served.sync(SyncRequest("p-1", "outbox", "boot-1", events=(ended,), seen=seen))
        await until(lambda: not served.beats.desired("p-1"))
        assert await settled(poll) == [False]

        other = AttemptId(await submit(served), 1)
        answer = await poll
        assert [wish.attempt for wish in answer.desired] == [other], (
            "what it was not told comes with the next"
        )
        assert answer.revision != seen


@on_loop
async def test_a_node_that_gives_back_devices_hears_of_the_next_job_with_that_answer(tmp_path: Path) -> None:
    """Its poll is not answered for it as well, and is for what comes later."""
    async with controller(tmp_path) as served:
        first = AttemptId(await submit(served, gpus=2, nodes=2, launch=LaunchKind.LAUNCHER), 1)
        await until(lambda: served.beats.desired("p-2"))
        seen: dict[str, str] = {}
        for n, kind in enumerate((EventKind.PREPARED, EventKind.STARTED), 1):
            for node in POOL.nodes:
                event = AgentEvent(n, 0, kind, first, started=kind is EventKind.STARTED)
                told = SyncRequest(node, "outbox", "boot-1", events=(event,), held=(first,))
                seen[node] = (await served.sync(told)).revision
        second = AttemptId(await submit(served, gpus=2), 1)
        poll = await idle(served, seen["p-2"], "p-2", (first,))

        ended = AgentEvent(3, 0, EventKind.ENDED, first, started=True, results=(RankResult(0),))
        answer = await served.sync(SyncRequest("p-2", "outbox", "boot-1", events=(ended,), seen=seen["p-2"]))

        assert [(wish.attempt, wish.phase) for wish in answer.desired] == [(second, Phase.RUN)]
        assert await settled(poll) == [False]
        await served.do(commands.CancelJob(second.job, "user:alice"))
        assert [wish.phase for wish in (await poll).desired] == [Phase.END]


@on_loop
async def test_a_node_that_lost_its_journal_is_told_what_it_has_started(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        attempt = AttemptId(await submit(served), 1)
        await until(lambda: served.beats.desired("p-1"))
        started = AgentEvent(1, 0, EventKind.STARTED, attempt, started=True)
        await served.sync(SyncRequest("p-1", "outbox", "boot-1", events=(started,), held=(attempt,)))
        await until(lambda: served.beats.desired("p-1")[attempt].started)
        answer = await served.sync(SyncRequest("p-1", "another", "boot-2", wait_s=PATIENCE_S))
        assert [(wish.attempt, wish.started) for wish in answer.desired] == [(attempt, True)]


@on_loop
async def test_an_attempt_that_nobody_wanted_of_the_node_is_news(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        seen = (await served.sync(SyncRequest("p-1", "outbox", "boot-1"))).revision
        held = SyncRequest("p-1", "outbox", "boot-1", held=(AttemptId(77, 1),), seen=seen, wait_s=PATIENCE_S)
        assert (await served.sync(held)).want_inventory


@on_loop
async def test_only_the_node_that_is_wanted_something_of_is_woken(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        first, second = await idle(served, node="p-1"), await idle(served, node="p-2")
        await submit(served, gpus=2)
        await first
        assert await settled(second) == [False]
        await submit(served, gpus=2)
        assert len((await second).desired) == 1


@on_loop
async def test_several_waiters_of_one_node_are_all_woken(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        waiters = [asyncio.create_task(_with_seen(served)) for _ in range(3)]
        await until(lambda: len(served.beats._waiting.get("p-1", ())) == 3)
        await submit(served)
        assert [len((await waiter).desired) for waiter in waiters] == [1, 1, 1]
        assert not served.beats._waiting.get("p-1")


async def _with_seen(served: Controller) -> SyncAnswer:
    return await served.sync(SyncRequest("p-1", "outbox", "boot-1", wait_s=PATIENCE_S, seen="0"))


@on_loop
async def test_a_waiter_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        waits = await idle(served)
        waits.cancel()
        await asyncio.wait({waits})
        assert not served.beats._waiting.get("p-1")


@on_loop
async def test_close_answers_everyone_and_holds_nobody_any_more(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        waiters = [await idle(served, node=name) for name in POOL.nodes]
        assert await settled(*waiters) == [False, False]
        served.beats.close()
        assert [(await waiter).desired for waiter in waiters] == [(), ()]
        assert (await _with_seen(served)).desired == ()


@on_loop
async def test_what_an_agent_waits_is_the_most_that_it_is_held(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        answer = await served.sync(SyncRequest("p-1", "outbox", "boot-1", wait_s=0, seen="0"))
        assert (answer.desired, answer.revision) == ((), "0")


@on_loop
async def test_held_attempts_come_without_their_launch(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        attempt = AttemptId(await submit(served), 1)
        await until(lambda: served.beats.desired("p-1"))
        request = SyncRequest("p-1", "outbox", "boot-1", held=(attempt,))
        answer = await served.sync(request)
        assert [(wish.attempt, wish.launch) for wish in answer.desired] == [(attempt, None)]
        assert not answer.want_inventory


@on_loop
async def test_events_are_acknowledged_when_they_are_on_the_disk(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        attempt = AttemptId(await submit(served), 1)
        await until(lambda: served.beats.desired("p-1"))
        told = AgentEvent(4, 0, EventKind.STARTED, attempt, True, (77,))
        answer = await served.sync(SyncRequest("p-1", "outbox", "boot-1", events=(told,), held=(attempt,)))
        assert answer.acked == 4
        await until(lambda: str(served.view.jobs[attempt.job].state) == "running")
        reader = open_quickly(tmp_path / "state", SystemClock())
        assert [stored.type for stored in reader.tail(0)][-1] == "attempt.started"
        reader.close()


@on_loop
async def test_a_node_that_is_not_in_the_cluster_is_told_so(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        with pytest.raises(NotFound, match="the cluster has no node x"):
            await served.sync(SyncRequest("x", "outbox", "boot-1"))


@on_loop
async def test_an_agent_of_a_newer_controller_ends_this_one(tmp_path: Path) -> None:
    served = Controller(open_quickly(tmp_path / "state", SystemClock()), SystemClock(), Settings())
    await served.start()
    await served.do(commands.ApplyCluster(cluster(POOL), "user:root"))
    newer = open_quickly(tmp_path / "state", SystemClock())
    epoch = newer.claim(0)
    with pytest.raises(Conflict, match="epoch"):
        await served.sync(SyncRequest("p-1", "outbox", "boot-1", epoch=epoch))
    with pytest.raises(Fenced):
        await served.stopped()
    newer.close()
    with pytest.raises(Unavailable, match="stopping"):
        await submit(served)


# --- people -----------------------------------------------------------------------------------------------------


@on_loop
async def test_who_waits_for_a_job_is_woken_by_its_change_and_its_end(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        job_id = await submit(served, hold=True)
        await until(lambda: job_id in served.view.jobs)
        seen = served.view.jobs[job_id]
        waits = [asyncio.create_task(served.job_changed(job_id, seen, PATIENCE_S)) for _ in range(2)]
        assert await settled(*waits) == [False, False]
        other = await submit(served, hold=True)
        await until(lambda: other in served.view.jobs)
        assert await settled(*waits) == [False, False], "another job's change"
        await served.do(commands.ReleaseJob(job_id, "user:alice"))
        found = [await wait for wait in waits]
        assert all(view is not None and view is not seen and view.hold == "" for view in found)

        seen = served.view.jobs[job_id]
        assert await served.job_changed(job_id, None, PATIENCE_S) is seen, (
            "who has seen nothing is told at once"
        )
        ended = asyncio.create_task(served.job_changed(other, served.view.jobs[other], PATIENCE_S))
        await served.do(commands.CancelJob(other, "user:alice"))
        assert await ended is None
        row = served.history.job(other)
        assert row is not None
        assert row.state == "cancelled"


@on_loop
async def test_a_wait_that_times_out_tells_what_there_is(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        job_id = await submit(served, hold=True)
        await until(lambda: job_id in served.view.jobs)
        seen = served.view.jobs[job_id]
        assert await served.job_changed(job_id, seen, 0.01) is seen
        assert not served._watchers.get(job_id)


@on_loop
async def test_refusals_are_raised_where_they_were_asked(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        results = await asyncio.gather(
            served.do(commands.HoldJob(9, "user:alice")),
            submit(served),
            served.do(commands.CreateToken("t", "aa", "read", "bob", "user:root")),
            served.do(commands.CreateToken("t", "aa", "read", "bob", "user:root")),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [NotFound, int, type(None), Conflict]


@on_loop
async def test_tokens_are_known_by_their_hash_until_they_expire(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        digest = hashlib.sha256(b"secret").hexdigest()
        now_us = SystemClock().now_us()
        assert served.token("secret") is None
        await served.do(commands.CreateToken("t", digest, "read", "bob", "user:root", now_us + 3_600_000_000))
        await until(lambda: served.token("secret"))
        await served.do(
            commands.CreateToken(
                "old", hashlib.sha256(b"old").hexdigest(), "read", "bob", "user:root", now_us
            )
        )
        await until(lambda: len(served.view.tokens) == 2)
        assert served.token("old") is None
        await served.do(commands.RevokeToken("t", "user:root"))
        await until(lambda: served.token("secret") is None)


@on_loop
async def test_who_goes_away_leaves_no_error_behind(tmp_path: Path) -> None:
    """A client that hung up must not fill the log with errors that nobody asked for."""
    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
    async with controller(tmp_path) as served:
        task = asyncio.create_task(served.do(commands.HoldJob(9, "user:alice")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await served.do(commands.Query(lambda state: state.seq))
        del task
        gc.collect()
        await settled()
    assert said == []


# --- logs -------------------------------------------------------------------------------------------------------

ATTEMPT = AttemptId(1, 1)


async def reading(served: Controller, wait_s: int = 0) -> asyncio.Task[LogChunk]:
    task = asyncio.create_task(served.read_log("p-1", ATTEMPT, 0, 10, 100, wait_s))
    await until(lambda: served._reads.of("p-1"))
    return task


@on_loop
async def test_a_read_rides_on_the_next_sync_until_it_is_answered(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        waits = await idle(served)
        read = await reading(served)
        (request,) = (await waits).reads
        assert (request.attempt, request.rank, request.offset, request.limit) == (ATTEMPT, 0, 10, 100)
        assert (await _with_seen(served)).reads == (request,), "the first answer may have been lost"
        assert await settled(read) == [False]
        assert served.read_arrived("p-1", request.id, LogChunk(b"x", 11, ended=False))
        assert (await read).data == b"x"
        assert not served.read_arrived("p-1", request.id, LogChunk(b"x", 11, ended=False)), "answered twice"
        assert served._reads.of("p-1") == ()
        assert not (await idle(served)).done()


@on_loop
async def test_what_a_node_no_longer_keeps_is_gone(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        read = await reading(served)
        (request,) = served._reads.of("p-1")
        served.read_arrived("p-1", request.id, LogChunk(b"", -1, ended=True))
        with pytest.raises(NotFound, match="node p-1 keeps no output of 1/1"):
            await read


@on_loop
async def test_a_read_that_nobody_answers_names_the_node(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orchestrator.controller.reads.ANSWER_S", 0.01)
            with pytest.raises(Unavailable, match="node p-1 did not answer a read of 1/1's output") as caught:
                await served.read_log("p-1", ATTEMPT, 0, 0, 1, 0)
        assert caught.value.code == "logs.no-answer"
        assert served._reads.of("p-1") == ()


# --- start and stop ---------------------------------------------------------------------------------------------


@on_loop
async def test_stop_answers_or_refuses_everyone(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        asked = [asyncio.create_task(submit(served)) for _ in range(50)]
        await asyncio.sleep(0)
        served.stop()
        await served.stopped()
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(result, (int, Unavailable)) for result in results), results
        with pytest.raises(Unavailable) as caught:
            await submit(served)
        assert caught.value.code == "controller.stopping"
        acknowledged = {result for result in results if isinstance(result, int)}
    async with controller(tmp_path) as again:
        assert acknowledged <= set(again.view.jobs)


@on_loop
async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with controller(tmp_path) as served:
        job_id = await submit(served)
        epoch = served.view.epoch
    async with controller(tmp_path) as again:
        assert job_id in again.view.jobs
        assert again.view.epoch > epoch


async def start(path: Path) -> None:
    served = Controller(open_quickly(path / "state", SystemClock()), SystemClock(), Settings())
    await served.start()
    served.stop()
    await served.stopped()


def event(name: str, body: dict[str, Any], v: int = 1) -> StoredEvent:
    return StoredEvent(0, 0, 0, name, v, "x", 0, "x", body)


UNREADABLE = [
    (event("job.released", {"job": 9}), r"\(job.released, x\): nothing is known of 9"),
    (event("job.released", {"job": "x"}), r"job: expected int, got str"),
    (event("job.frozen", {}), r"job.frozen version 1 was written by a newer Gangline"),
    (event("job.released", {"job": 9}, v=2), r"job.released version 2 was written by a newer Gangline"),
]


@pytest.mark.parametrize(("wrong", "words"), UNREADABLE)
def test_a_ledger_that_can_not_be_read_is_told_at_the_start(
    tmp_path: Path, wrong: StoredEvent, words: str
) -> None:
    asyncio.run(start(tmp_path))
    store = open_quickly(tmp_path / "state", SystemClock())
    epoch = store.claim(0)
    seq, t_us = store.last()
    store.append([wrong._replace(seq=seq + 1, t_us=t_us, epoch=epoch, batch=seq + 1)])
    store.close()
    with pytest.raises(GanglineError, match=words) as caught:
        asyncio.run(asyncio.wait_for(start(tmp_path), PATIENCE_S))
    assert caught.value.code == "ledger.unreadable"
    assert caught.value.hint


def test_a_snapshot_of_a_newer_version_is_not_guessed_at(tmp_path: Path) -> None:
    asyncio.run(start(tmp_path))
    store = open_quickly(tmp_path / "state", SystemClock())
    store.claim(0)
    seq, t_us = store.last()
    store.save_snapshot(Snapshot(seq, t_us, 99, {}))
    store.close()
    with pytest.raises(GanglineError, match="snapshot version 99 was written by a newer Gangline"):
        asyncio.run(asyncio.wait_for(start(tmp_path), PATIENCE_S))


def test_an_error_of_the_disk_at_the_start_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_quickly(tmp_path / "state", SystemClock())

    def full(*_: Any, **__: Any) -> None:
        raise Unavailable("ledger.disk-full", "no space left")

    monkeypatch.setattr(store, "append", full)
    served = Controller(store, SystemClock(), Settings())

    async def begin() -> None:
        await served.start()

    with pytest.raises(Unavailable, match="no space left"):
        asyncio.run(asyncio.wait_for(begin(), PATIENCE_S))
