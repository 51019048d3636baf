"""`gangline run` while its controller is killed and started again: all output, in order, the job's own exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.harness import Cluster
from tests.system.processes import until

pytestmark = pytest.mark.system

RANKS = 4
SCRIPT = f"""
for i in $(seq 1 60); do echo "$GANGLINE_RANK line $i"; sleep 0.05; done
touch said-all.$GANGLINE_RANK
while [ $(ls | grep -c said-all) -lt {RANKS} ]; do sleep 0.05; done
exit 7
"""  # the first exit ends the whole gang: nobody leaves before all have said all


def more_than(output: Path, lines: int) -> None:
    """Wait until so much has been printed."""
    until(lambda: output.read_text().count("\n") > lines, f"more than {lines} lines of output")


def test_run_stays_with_its_job_through_kills(cluster: Cluster) -> None:
    command = [sys.executable, "-P", "-m", "orchestrator.cli", "run", "--server", cluster.url]
    command += ["-n", str(RANKS), "--workdir", str(cluster.folder), "--", "/bin/sh", "-c", SCRIPT]
    env = {"PATH": "/usr/bin:/bin", "GANGLINE_HOME": str(cluster.folder / "h")}
    output = cluster.folder / "run.out"
    with output.open("wb") as file:
        person = subprocess.Popen(
            command, stdout=file, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env
        )
    try:
        for seen in (0, 40, 80):
            more_than(output, seen)
            cluster.controller.process.kill()
            cluster.restart()
        _, words = person.communicate(timeout=60)
    finally:
        person.kill()
        person.wait()
    assert person.returncode == 7, words.decode()
    assert "Traceback" not in words.decode()
    lines = output.read_text().splitlines()
    for rank in range(RANKS):
        mine = [line for line in lines if line.startswith(f"{rank} ")]
        assert mine == [f"{rank} line {number}" for number in range(1, 61)]
    assert len(lines) == RANKS * 60
    cluster.finish()
