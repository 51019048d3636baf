"""A controller that is a dict: what the command's unit tests talk to instead of a real one.

In come the calls of `Client`; out come models of `wire.api`, made by the builders below with the few fields that a test
is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.client import LogChunk
from orchestrator.model.errors import Conflict, NotFound
from orchestrator.wire import api, api_cluster

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def reason(code: str = "wait.gpus", **facts: str | int) -> api.Reason:
    return api.Reason(
        code=code,
        category="capacity",
        sentence="it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 have them",
        action="wait for the jobs named as blockers",
        facts=facts,
    )


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def summary(number: int = 1, state: str = "running", **fields: Any) -> api.JobSummary:
    return api.JobSummary(**(_summary(number, state) | fields))


def _summary(number: int, state: str) -> dict[str, Any]:
    return {
        "id": number,
        "name": "train",
        "owner": "alice",
        "queue": "default",
        "workload": "batch",
        "priority": 0,
        "state": state,
        "nodes": 2,
        "ranks": 16,
        "gpus": 16,
        "submitted_at": ago(600),
        "waiting_since": ago(600),
        "started_at": ago(185) if state == "running" else None,
        "ended_at": None,
        "time_limit_s": 0,
        "exit_code": None,
        "attempts": 1,
        "node_names": ["n1", "n2"] if state == "running" else [],
    }


def job(number: int = 1, state: str = "running", **fields: Any) -> api.Job:
    spec = api.JobSpec(
        nodes=0,
        tasks=16,
        tasks_per_node=1,
        per_node=None,
        per_task=api.Resources(gpus=1, cores=0, memory_bytes=0),
        launch="ranks",
        command=["python", "train.py", "a b"],
        workdir="/home/alice",
        output="",
        stop=api.Stop(signal="SIGTERM", to="all", grace_s=30),
        on_lost="wait_for_proof",
        node_failure_retries=5,
        job_failure_retries=0,
        needs=[],
        labels={},
    )
    return api.Job(**(_summary(number, state) | {"revision": "r1", "spec": spec} | fields))


def ended(number: int, state: str, code: int, **fields: Any) -> api.Job:
    times = {"started_at": ago(185), "ended_at": ago(0)}
    return job(number, state, exit_code=code, **(times | fields))


def first_failed(rank: int = 3, code: int = 1, signal: int = 0, tail: str = "") -> api.PastAttempt:
    failed = api.FirstFailed(
        node="n1",
        rank=rank,
        code=code,
        signal=signal,
        exit_code=code or 128 + signal,
        ended_at=ago(0),
        tail=tail,
    )
    return api.PastAttempt(
        id="1/1",
        number=1,
        cause="rank_failed",
        detail="",
        exit_code=code or 128 + signal,
        placements=[api.Placement(node="n1", slots=[0, 1, 2], first_rank=0, tasks=16)],
        allocated_at=ago(190),
        started_at=ago(185),
        ended_at=ago(0),
        first_failed=failed,
    )


def node(name: str = "n1", **fields: Any) -> api_cluster.Node:
    plain: dict[str, Any] = {
        "name": name,
        "pool": "h100",
        "site": "hall",
        "contact": "ok",
        "contact_at": ago(4),
        "open": True,
        "marks": [],
        "address": "10.0.0.1",
        "hostname": name,
        "boot_id": "b",
        "agent_version": "0.1",
        "supervisor": "cgroup2",
        "run_as": "root",
        "can_switch_user": True,
        "cores": 96,
        "free_cores": 90,
        "memory_bytes": 1 << 40,
        "free_memory_bytes": 1 << 39,
        "devices": [device(0, job=7), device(1)],
        "jobs": [7],
    }
    return api_cluster.Node(**(plain | fields))


def device(slot: int, *, emulated: bool = False, job: int | None = None) -> api_cluster.Device:
    return api_cluster.Device(
        slot=slot, model="H100", memory_bytes=80 << 30, uuid=f"GPU-{slot}", pci="", emulated=emulated, job=job
    )


class FakeClient:
    """Jobs by id; output by (job, rank). `cancelled` and `submitted` tell what was asked for."""

    def __init__(self, *jobs: api.Job) -> None:
        self.known = {each.id: each for each in jobs}
        self.output: dict[tuple[int, int], bytes] = {}
        self.cancelled: list[tuple[int, bool]] = []
        self.whys: list[str] = []
        self.submitted: list[Mapping[str, Any]] = []
        self.asked_what_if: list[Mapping[str, Any]] = []
        self.asked: dict[str, Any] = {}
        self.explanations: dict[int, api.Explanation] = {}
        self.found_nodes: list[api_cluster.Node] = []
        self.changes: list[api.Job] = []

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(
        self, document: Mapping[str, Any], key: str | None = None, *, force: bool = False
    ) -> api.JobCreated:
        self.submitted.append({**document, "force": True} if force else document)
        return api.JobCreated(id=1)

    def what_if(self, document: Mapping[str, Any]) -> api_cluster.WhatIf:
        self.asked_what_if.append(document)
        return api_cluster.WhatIf(starts=True)

    def jobs(self, **filters: Any) -> Iterator[api.JobSummary]:
        self.asked = filters
        states = tuple(filters.get("states", ()))
        yield from (each for each in self.known.values() if not states or each.state in states)

    def job(self, number: int) -> api.Job:
        if number not in self.known:
            raise NotFound(
                "job.not-found", f"there is no job {number}", "`gangline jobs -a` lists those there are"
            )
        return self.known[number]

    def explain(self, number: int) -> api.Explanation:
        return self.explanations.get(number) or api.Explanation(
            job=number, state=self.job(number).state, reason=None
        )

    def cancel(self, number: int, why: str = "", *, now: bool = False) -> api.Job:
        found = self.job(number)
        if found.ended:
            raise Conflict("job.ended", f"job {number} has ended", "`gangline job show` tells how")
        self.cancelled.append((number, now))
        self.whys.append(why)
        return found.model_copy(update={"state": "ending"})

    def release(self, number: int) -> api.Job:
        found = self.job(number)
        if found.ended:
            raise Conflict("job.ended", f"job {number} has ended", "`gangline job show` tells how")
        if found.state != "held":
            raise Conflict("job.not-held", f"job {number} is {found.state}, not held")
        return found.model_copy(update={"state": "waiting"})

    def prioritize(self, number: int, priority: int) -> api.Job:
        found = self.job(number)
        if found.state not in ("waiting", "held"):
            raise Conflict("job.has-attempt", f"job {number} is {found.state}: priority decides about starts")
        return found.model_copy(update={"priority": priority})

    def requeue(self, number: int, why: str = "") -> api.Job:
        found = self.job(number)
        if found.state in ("waiting", "held"):
            raise Conflict("job.no-attempt", f"job {number} is {found.state}: there is no attempt to requeue")
        return found.model_copy(update={"state": "ending"})

    def wait_once(self, number: int, timeout_s: float, seen: str = "") -> api.Job:
        if self.changes:
            self.known[number] = self.changes.pop(0)
        return self.job(number)

    def wait(self, number: int, timeout_s: float | None = None) -> api.Job:
        return self.job(number)

    def watch(self, number: int, timeout_s: float | None = None) -> Iterator[api.Job]:
        yield self.job(number)

    def logs(
        self,
        number: int,
        rank: int = 0,
        *,
        offset: int = 0,
        limit: int = 1 << 18,
        wait_s: int = 0,
        attempt: int | None = None,
    ) -> LogChunk:
        data = self.output.get((number, rank), b"")
        return LogChunk(data[offset : offset + limit], offset, len(data), True, "n1", attempt or 1)

    def nodes(self) -> list[api_cluster.Node]:
        return self.found_nodes

    def create_token(self, role: str, name: str, expires_s: int = 0) -> api_cluster.TokenCreated:
        return api_cluster.TokenCreated(
            id="t1", role=role, name=name, created_at=NOW, expires_at=None, secret="gln_secret"
        )

    def jobs_page(self, *, states: Iterable[str] = (), limit: int = 100) -> api.JobList:
        return api.JobList(items=list(self.jobs(states=states)))
