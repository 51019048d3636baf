"""`history` and `rollback` on a cluster of this machine: what was applied, and the way back to it."""

from __future__ import annotations

import pytest

from tests.cli.lab import Lab

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def records(lab: Lab) -> list[tuple[str, bool]]:
    items = lab.json("history")["items"]
    assert isinstance(items, list)
    return [(item["record"], item["current"]) for item in items]


def queues(lab: Lab) -> list[str]:
    return lab("queues", "-o", "name").stdout.split()


def test_a_change_is_taken_back_by_a_plan_like_any_other(lab: Lab) -> None:
    lab("up", str(lab.file)).check_returncode()
    ((first, _),) = records(lab)
    alone = lab("rollback", "--yes")
    assert (alone.returncode, "no record before the present one" in alone.stderr) == (2, True)

    lab.file.write_text(lab.file.read_text().replace("{name: default}", "{name: default}, {name: night}"))
    lab("up", str(lab.file)).check_returncode()
    assert queues(lab) == ["default", "night"]
    assert [current for _, current in records(lab)] == [True, False]

    shown = lab("rollback", "--dry-run")
    assert "- queues[night]" in shown.stdout
    assert lab("rollback").returncode == 5, "nobody can be asked"
    assert queues(lab) == ["default", "night"]

    done = lab("rollback", first, "--yes")
    assert done.returncode == 0, done.stderr
    assert queues(lab) == ["default"]
    assert f"the cluster is to be what {first} says" in done.stderr
    again = lab("rollback", first, "--yes")
    assert (again.returncode, "nothing to change" in again.stderr) == (0, True)
    assert len(records(lab)) == 3
    missing = lab("rollback", "r9999", "--dry-run")
    assert (missing.returncode, "gangline history" in missing.stderr) == (1, True), missing.stderr
