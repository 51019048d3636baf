"""What would come of a job, where it is not the pass alone that decides: other jobs, full queues."""

from __future__ import annotations

from pathlib import Path

from orchestrator.controller import commands
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.dependency import Dependency, On
from orchestrator.model.errors import NotFound, Refused, Unavailable
from orchestrator.model.job import JobSpec
from orchestrator.scheduler.what_if import Outlook
from tests.builders import ALICE, BOB, cluster, job, pool, queue
from tests.controller.scenes import ending_of, finish, running, small, world_of
from tests.controller.world import World

BY = "user:alice"


def asked(world: World, spec: JobSpec) -> Outlook:
    seq = world.state.seq
    found = world.do(commands.WhatIf(spec, ALICE))
    assert isinstance(found, Outlook), found
    assert world.state.seq == seq, "nothing is recorded"
    return found


def why(found: Outlook) -> tuple[str, str]:
    assert found.why is not None
    return found.why.code, found.why.sentence()


def test_a_job_that_depends_on_another_waits_for_it(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    before = running(world, job(gpus=1))
    spec = job(gpus=1, depends_on=(Dependency(before),))
    found = asked(world, spec)
    assert found.starts == ()
    assert why(found) == ("wait.dependency", f"it waits for job {before} to succeed (it is running)")
    finish(world, before)
    assert len(asked(world, spec).starts) == 1


def test_one_whose_dependency_cannot_be_met_would_be_cancelled(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    before = running(world, job(gpus=1))
    finish(world, before)
    spec = job(gpus=1, depends_on=(Dependency(before, on=On.FAILED),))
    assert why(asked(world, spec))[0] == "end.dependency"
    number = world.submit(spec)
    world.settle()
    assert ending_of(world, number) == ("cancelled", 0, why(asked(world, spec))[1])


def test_a_dependency_that_nobody_knows_is_refused_as_at_submit(tmp_path: Path) -> None:
    answer = small(tmp_path).do(commands.WhatIf(job(depends_on=(Dependency(77),)), ALICE))
    assert isinstance(answer, NotFound)
    assert answer.code == "depends.not-found"


def test_a_singleton_waits_for_those_of_its_name(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    running(world, job("train", gpus=1), owner=ALICE)
    world.submit(job("other", gpus=1), owner=BOB)
    assert why(asked(world, job("train", gpus=0, singleton=True))) == (
        "wait.dependency",
        "it waits for earlier jobs of alice named train to end",
    )
    assert len(asked(world, job("other", gpus=0, singleton=True)).starts) == 1


def test_tasks_of_a_singleton_array_go_one_after_the_other(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    found = asked(world, job("sweep", gpus=1, singleton=True, array=Array(read_tasks("0-4"))))
    assert (len(found.starts), found.tasks) == (1, 5)
    assert why(found)[1] == "it waits for earlier jobs of alice named sweep to end"


def test_a_full_queue_refuses_it_as_at_submit(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=1), queues=(queue(max_waiting_jobs=2),)))
    running(world, job(gpus=1))
    world.submit(job(gpus=1))
    assert asked(world, job(gpus=1)).why is not None
    full = world.do(commands.WhatIf(job(gpus=1, array=Array(read_tasks("0-1"))), ALICE))
    assert isinstance(full, Unavailable)
    large = world.do(commands.WhatIf(job(gpus=1, array=Array(read_tasks("0-2"))), ALICE))
    assert isinstance(large, Refused)
