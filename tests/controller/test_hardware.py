"""A node that is another machine than the one that was let in gets no work until a person agrees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.controller import commands
from orchestrator.model.node import Device, MarkKind
from tests.builders import GPU, job
from tests.controller.invariants import check_world
from tests.controller.scenes import running, small
from tests.controller.world import World


def machine(world: World, *uuids: str, machine_id: str = "m1", boot: str = "boot-1") -> None:
    """What p-1 tells of itself from now on."""
    agent = world.agents["p-1"]
    devices = tuple(Device(slot, GPU, uuid=uuid) for slot, uuid in enumerate(uuids))
    agent.facts = replace(agent.facts, devices=devices, machine_id=machine_id, boot_id=boot)
    agent.tell_facts = True
    world.settle(2)


def why(world: World) -> str:
    """Of the mark `changed`, or empty."""
    return next((mark.why for mark in world.view.nodes["p-1"].marks if mark.kind is MarkKind.CHANGED), "")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = small(tmp_path, nodes=1, gpus=2)
    machine(made, "GPU-a", "GPU-b")
    assert made.view.nodes["p-1"].open
    return made


def test_a_reboot_is_no_change(world: World) -> None:
    machine(world, "GPU-a", "GPU-b", boot="boot-2")
    assert world.view.nodes["p-1"].open


def test_another_machine_under_the_same_name(world: World) -> None:
    machine(world, "GPU-a", "GPU-b", machine_id="m2")
    assert "its machine id was m1 and is m2" in why(world)
    assert not world.view.nodes["p-1"].open
    waiting = world.submit(job(gpus=1))
    world.settle(3)
    assert str(world.view.jobs[waiting].state) == "waiting"
    world.do(commands.UncordonNode("p-1", "user:root"))
    world.settle(3)
    assert str(world.view.jobs[waiting].state) == "running"
    machine(world, "GPU-a", "GPU-b", machine_id="m2", boot="boot-3")
    assert why(world) == "", "a person has agreed to it"
    check_world(world)


def test_a_replaced_gpu(world: World) -> None:
    machine(world, "GPU-a", "GPU-c")
    assert why(world) == "other GPUs: GPU-c in place of GPU-b"


def test_a_gpu_that_falls_off_and_comes_back_needs_nobody(world: World) -> None:
    machine(world, "GPU-a")
    assert why(world) == ""
    assert [mark.kind for mark in world.view.nodes["p-1"].marks] == [MarkKind.UNPROVED]
    machine(world, "GPU-a", "GPU-b")
    assert world.view.nodes["p-1"].open


def test_a_change_undone_needs_nobody(world: World) -> None:
    machine(world, "GPU-a", "GPU-c")
    machine(world, "GPU-b", "GPU-a")
    assert (why(world), world.view.nodes["p-1"].open) == ("", True)


def test_work_there_goes_on(world: World) -> None:
    job_id = running(world, job(gpus=1))
    machine(world, "GPU-a", "GPU-c")
    assert str(world.view.jobs[job_id].state) == "running"
    world.kill_controller()
    world.start_controller()
    assert why(world)
    check_world(world)
