"""Submitting: once per key, never what can never run, never more than a queue takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.controller.inbox import Item
from orchestrator.model.attempt import JobState
from orchestrator.model.cluster import Pool, Queue, QueueLimits, Share
from orchestrator.model.errors import Conflict, Refused, Unavailable
from orchestrator.model.job import JobSpec
from tests.builders import ALICE, BOB, GPU, cluster, job, pool, queue
from tests.controller.scenes import finish, kinds, running, small, why, world_of
from tests.controller.world import Answered, World

DAY_S = 24 * 3600


def put(world: World, spec: JobSpec, key: str = "", digest: str = "", owner: Any = ALICE) -> Any:
    return world.do(commands.Submit(spec, owner, f"user:{owner.name}", key, digest))


# --- keys -------------------------------------------------------------------------------------------------------


def test_one_key_and_one_document_make_one_job(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = put(world, job(), "k", "d1")
    assert first == commands.Submitted(1, repeated=False)
    seq = world.state.seq
    assert put(world, job(), "k", "d1") == commands.Submitted(1, repeated=True)
    assert "job.submitted" not in kinds(world, seq)
    assert put(world, job(), "k2", "d1") == commands.Submitted(2, repeated=False)
    assert put(world, job()) == commands.Submitted(3, repeated=False)


def test_submits_of_one_cycle_are_told_apart_by_their_keys(tmp_path: Path) -> None:
    """Old keys, new keys and the same new one twice, all taken from the inbox together."""
    world = small(tmp_path)
    old = put(world, job(), key="old", digest="d").job
    asked = {"old": [old], "new": [], "other": []}
    for _ in range(2):
        replies = [(key, Answered()) for key in ("new", "old", "other", "new")]
        for key, reply in replies:
            command = commands.Submit(job(), ALICE, "user:alice", key, "d")
            world.inbox.put(Item(command, reply))  # type: ignore[arg-type]
        world.cycle()
        for key, reply in replies:
            asked[key].append(reply.result.job)
    assert [len(set(jobs)) for jobs in asked.values()] == [1, 1, 1]
    assert len(world.state.jobs) == 3


def test_a_key_still_answers_when_its_job_has_ended(tmp_path: Path) -> None:
    world = small(tmp_path)
    put(world, job(), "k", "d1")
    world.settle(3)
    finish(world, 1)
    assert put(world, job(), "k", "d1") == commands.Submitted(1, repeated=True)


def test_a_key_with_another_document_is_a_conflict(tmp_path: Path) -> None:
    world = small(tmp_path)
    put(world, job(), "k", "d1")
    error = put(world, job(), "k", "d2")
    assert isinstance(error, Conflict)
    assert (error.code, "as job 1" in error.message) == ("submit.key-reused", True)
    assert list(world.state.jobs) == [1]


def test_keys_outlive_a_restart(tmp_path: Path) -> None:
    world = small(tmp_path)
    put(world, job(), "k", "d1")
    world.kill_controller()
    world.start_controller()
    assert put(world, job(), "k", "d1") == commands.Submitted(1, repeated=True)


@pytest.mark.parametrize("after_s", [DAY_S - 1, DAY_S, DAY_S + 1])
def test_a_key_is_good_for_a_day(tmp_path: Path, after_s: int) -> None:
    world = small(tmp_path)
    put(world, job(), "k", "d1")
    world.clock.advance(after_s)
    again, other = put(world, job(), "k", "d1"), put(world, job(), "k", "d2")
    if after_s < DAY_S:
        assert again == commands.Submitted(1, repeated=True)
    else:
        assert again == commands.Submitted(2, repeated=False)
    assert isinstance(other, Conflict)


def test_old_keys_are_forgotten_with_the_next_snapshot(tmp_path: Path) -> None:
    world = small(tmp_path)
    for number in range(3):
        put(world, job(), f"old-{number}", "d")
    world.clock.advance(DAY_S)
    put(world, job(), "new", "d")
    world.core._snapshot()
    assert [name for name in ("old-0", "old-1", "old-2", "new") if world.store.key(name)] == ["new"]


def test_a_key_that_was_not_written_makes_no_job_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses the batch: the same key, sent again, makes the job then, once."""
    world = small(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(world.store, "append", _full)
        assert isinstance(put(world, job(), "k", "d1"), Unavailable)
    assert put(world, job(), "k", "d1") == commands.Submitted(1)
    assert put(world, job(), "k", "d1") == commands.Submitted(1, repeated=True)


def _full(*_: object, **__: object) -> None:
    raise Unavailable("ledger.disk-full", "no space left")


# --- what can never run -----------------------------------------------------------------------------------------

BIG = pool("big", nodes=2, gpus=8, cores=64)
L40 = pool("l40", nodes=4, gpus=2, cores=8, model="L40S-48GB")
CPU = pool("cpu", nodes=1, gpus=0, cores=4)
QUEUES = (
    queue("default"),
    queue("short", max_time_limit_s=3600),
    queue("tiny", max_gpus_per_job=4, max_gpus_per_user=6),
    Queue("child", parent="top"),
    Queue("top", limits=QueueLimits(), borrow_limit=(Share(2, pool="big"),)),
)
NEVER: list[tuple[str, JobSpec, str, str]] = [
    ("a queue", job(queue="nope"), "never.queue", "there is no queue nope"),
    ("a model", job(models=("B200",)), "never.model", "no pool has GPUs of model B200"),
    (
        "GPUs a node",
        job(nodes=1, gpus=9),
        "never.nodes",
        "it needs 1 node(s) with 9 GPU(s) each",
    ),
    ("nodes", job(nodes=5, gpus=2), "never.nodes", "the best pool has 4 such node(s)"),
    ("nodes with so many", job(nodes=3, gpus=8), "never.nodes", "the best pool has 2 such node(s)"),
    (
        "cores",
        job(nodes=1, gpus=1, cores=65),
        "never.nodes",
        "with 1 GPU(s), 65 core(s) each; the best pool has 0",
    ),
    (
        "tasks",
        job(tasks=17, gpus=1),
        "never.tasks",
        "it needs 17 task(s) with 1 GPU(s) each in one pool",
    ),
    (
        "tasks of the model",
        job(tasks=9, gpus=1, models=("L40S-48GB",)),
        "never.tasks",
        "the best pool takes 8",
    ),
    ("cores without a GPU", job(tasks=1, gpus=0, cores=65), "never.tasks", "the best pool takes 0"),
    (
        "memory of a node",
        job(nodes=1, gpus=1, memory=65 << 30),
        "never.nodes",
        "with 1 GPU(s), 65GiB of memory each; the best pool has 0",
    ),
    (
        "memory of tasks",
        job(tasks=2, gpus=1, memory=(64 << 30) + 1),
        "never.tasks",
        "2 task(s) with 1 GPU(s), 64GiB of memory each in one pool",
    ),
    (
        "time",
        job(queue="short", time_limit_s=3601),
        "never.time-limit",
        "allows 3600 s, and the job asks for 3601 s",
    ),
    (
        "GPUs a job",
        job(queue="tiny", tasks=5),
        "never.limit",
        "a job in queue tiny may have 4 GPU(s) at most",
    ),
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world_of(tmp_path_factory.mktemp("wide"), cluster(BIG, L40, CPU, queues=QUEUES))


@pytest.mark.parametrize(("spec", "code", "words"), [row[1:] for row in NEVER], ids=[row[0] for row in NEVER])
def test_what_can_never_run_is_refused_in_words(wide: World, spec: JobSpec, code: str, words: str) -> None:
    seq = wide.state.seq
    error = put(wide, spec)
    assert isinstance(error, Refused)
    assert error.code == code
    assert words in error.message
    assert error.hint
    assert "job.submitted" not in kinds(wide, seq)


FITS: list[tuple[str, JobSpec]] = [
    ("all of the best pool", job(nodes=2, gpus=8)),
    ("all of the model", job(tasks=8, gpus=1, models=("L40S-48GB",))),
    ("either model", job(nodes=4, gpus=2, models=(GPU, "L40S-48GB"))),
    ("no GPU", job(tasks=1, gpus=0, cores=4)),
    ("all the time there is", job(queue="short", time_limit_s=3600)),
    ("all that a person may have at once", job(queue="tiny", tasks=4)),
]


@pytest.mark.parametrize("spec", [row[1] for row in FITS], ids=[row[0] for row in FITS])
def test_what_just_fits_is_taken(wide: World, spec: JobSpec) -> None:
    assert isinstance(put(wide, spec), commands.Submitted)


def test_a_person_s_ceiling_that_the_job_alone_passes_is_named(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(), queues=(queue("default", max_gpus_per_user=6),)))
    error = put(world, job(tasks=7))
    assert (error.code, error.message) == (
        "never.limit",
        "alice in queue default may have 6 GPU(s) at most, and the job alone needs 7",
    )


def test_without_a_cluster_a_job_waits_for_one(tmp_path: Path) -> None:
    spec: Pool = pool(nodes=1)
    world = World(tmp_path / "state", cluster(spec))
    world.kill_controller()
    bare = World.__new__(World)
    bare.path, bare.settings, bare.clock, bare.agents = tmp_path / "bare", world.settings, world.clock, {}
    bare.start_controller()
    number = bare.submit(job())
    view = bare.job(number)
    assert view is not None
    assert bare.view.reason_of(view).code == "wait.no-cluster"
    bare.do(commands.ApplyCluster(cluster(spec), "user:root"))
    assert bare.view.reason_of(bare.view.jobs[number]).code == "wait.nodes-closed"
    bare.kill_controller()


# --- a full queue -----------------------------------------------------------------------------------------------


def test_a_full_queue_takes_no_more_until_one_has_started(tmp_path: Path) -> None:
    world = world_of(
        tmp_path,
        cluster(pool(nodes=1, gpus=2), queues=(queue("default", max_waiting_jobs=2), queue("other"))),
    )
    first = running(world, job(gpus=2))
    put(world, job(gpus=2))
    put(world, job(gpus=1), owner=BOB)
    error = put(world, job(gpus=1))
    assert isinstance(error, Unavailable)
    assert (error.code, error.message) == (
        "submit.queue-full",
        "queue default has 2 waiting job(s), and allows 2",
    )
    assert isinstance(put(world, job(queue="other")), commands.Submitted)
    finish(world, first)
    assert isinstance(put(world, job(gpus=1)), commands.Submitted)


def test_held_jobs_do_not_fill_a_queue_and_a_repeat_is_never_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=2), queues=(queue("default", max_waiting_jobs=1),)))
    running(world, job(gpus=2))
    put(world, job(hold=True))
    assert put(world, job(gpus=1), "k", "d").job == 3
    assert isinstance(put(world, job(gpus=1)), Unavailable)
    assert put(world, job(gpus=1), "k", "d") == commands.Submitted(3, repeated=True)


def test_a_job_submitted_with_hold_waits_for_a_person(tmp_path: Path) -> None:
    world = small(tmp_path)
    number = put(world, job(hold=True)).job
    world.settle()
    view = world.view.jobs[number]
    assert (view.state, view.hold, view.hold_code) == (JobState.HELD, "submitted with hold", "held")
    world.do(commands.ReleaseJob(number, "user:alice"))
    world.settle()
    assert world.view.jobs[number].state is JobState.RUNNING


# --- queued against the refusal -----------------------------------------------------------------------------------


def test_what_can_never_run_is_queued_by_force_and_says_why_it_waits(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=2)))
    asked = job(nodes=3)

    number = world.do(commands.Submit(asked, ALICE, "user:alice", force=True)).job

    said = "it needs 3 node(s) with 1 GPU(s) each; the best pool has 2 such node(s)"
    found = why(world, number).reason
    assert found is not None
    assert (found.code, found.fact("why")) == ("wait.never", said)
    world.do(commands.ApplyCluster(cluster(pool(nodes=3)), "user:root"))
    found = why(world, number).reason
    assert found is not None
    assert found.code == "wait.nodes-closed"


@pytest.mark.parametrize(
    "asked", [job(queue="nope"), job(tasks=5, queue="tiny"), job(queue="short", time_limit_s=9999)]
)
def test_force_is_none_against_a_queue_s_rules(tmp_path: Path, asked: JobSpec) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=2), queues=QUEUES))
    refused = world.do(commands.Submit(asked, ALICE, "user:alice", force=True))
    assert isinstance(refused, Refused)
    assert "queue" in refused.message
