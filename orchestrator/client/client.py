"""The client: one method for each thing that can be asked of a controller.

Comes in: documents, ids, filters. Goes out: models of `wire.api` and `wire.api_cluster`; every failure as a
GanglineError. Called by: cli, SDK users. Safe to use from several threads.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from orchestrator.client.transport import Asked, Transport
from orchestrator.model.errors import Conflict, GanglineError, TimedOut
from orchestrator.wire import api as wire

if TYPE_CHECKING:
    from orchestrator.model.apply import HostResult, Outcome
    from orchestrator.model.change import PlanStep
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.model.host import HostFacts, PoolDesired
    from orchestrator.wire import api_apply, api_cluster

M = TypeVar("M", bound=BaseModel)

Params = dict[str, str | int]
JobName = int | str  # 1234, or "1234_7" for a task of an array; an array's own number means all of its tasks


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one rank's output from `offset`. `size`: bytes that there are now; `ended`: no more will come."""

    data: bytes
    offset: int
    size: int
    ended: bool
    node: str
    attempt: int

    @property
    def next(self) -> int:
        """Where the next read goes on."""
        return self.offset + len(self.data)


class Client:
    """A controller, as a person with a token sees it.

    `url`: `https://host:port`, `http://127.0.0.1:port`, or `unix:///path` (no token needed: the kernel tells who asks).
    `timeout_s`: for each answer. `patience_s`: how long to try again while nothing answers.
    `transport` replaces all of these (tests).
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        ca_file: str = "",
        timeout_s: float = 30.0,
        patience_s: float = 5.0,
        transport: Transport | None = None,
    ) -> None:
        self._transport = transport or Transport(
            url, token, ca_file=ca_file, timeout_s=timeout_s, patience_s=patience_s
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    # --- jobs -----------------------------------------------------------------------------------------------

    def submit(
        self, document: Mapping[str, Any], key: str | None = None, *, force: bool = False
    ) -> wire.JobCreated:
        """Submit a job document. The same `key` and document again gives the same job; a key is made if none is given.
        `force`: also if no node or domain of the cluster could ever hold it.

        Raises InvalidInput (every fault with its place), Refused (it can never run, or access), Conflict (the key was
        used for another document).
        """
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(16)}
        document = {**document, "force": True} if force else document
        return self._ask(wire.JobCreated, Asked("POST", "/jobs", json=document, headers=headers, again=True))

    def jobs_page(
        self,
        *,
        states: Iterable[str] = (),
        queue: str = "",
        owner: str = "",
        name: str = "",
        since_us: int = 0,
        array: int = 0,
        limit: int = 100,
        cursor: str = "",
    ) -> wire.JobList:
        """One page of jobs, newest first. No `states`: all. `since_us`: live, or ended since (UTC microseconds)."""
        params: Params = {"limit": limit, "queue": queue, "owner": owner, "name": name, "cursor": cursor}
        params["state"] = ",".join(states)
        params["since"] = _since(since_us)
        params["array"] = array or ""
        return self._get(
            wire.JobList, "/jobs", {name: value for name, value in params.items() if value != ""}
        )

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        queue: str = "",
        owner: str = "",
        name: str = "",
        since_us: int = 0,
        array: int = 0,
        most: int = 0,
    ) -> Iterator[wire.JobSummary]:
        """Jobs, newest first, page by page as they are taken; at most so many (0: all). `array`: its tasks."""
        states, left, cursor = tuple(states), most or 2**62, ""
        while left > 0:
            limit = min(left, wire.MOST_ITEMS)
            page = self.jobs_page(
                states=states,
                queue=queue,
                owner=owner,
                name=name,
                since_us=since_us,
                array=array,
                limit=limit,
                cursor=cursor,
            )
            yield from page.items
            left -= len(page.items)
            if page.next is None:
                return
            cursor = page.next

    def job(self, job: JobName) -> wire.Job:
        """One job, live or ended; of an array its first task, with how all of them stand. NotFound."""
        return self._get(wire.Job, f"/jobs/{job}")

    def explain(self, job: JobName) -> wire.Explanation:
        """Why it does not run, or how it ended. NotFound."""
        return self._get(wire.Explanation, f"/jobs/{job}/explain")

    def what_if(self, document: Mapping[str, Any]) -> api_cluster.WhatIf:
        """What would come of a job document if it were submitted now. Raises as `submit` does for faults and access."""
        from orchestrator.wire.api_cluster import WhatIf

        return self._post(WhatIf, "/what-if", document)

    def cancel(self, job: JobName, why: str = "", *, now: bool = False) -> wire.Job:
        """End it, or all tasks of an array; `now` without grace. Conflict if it has ended."""
        return self._act(job, "cancel", {"why": why, "now": now})

    def hold(self, job: JobName, why: str = "") -> wire.Job:
        """Keep a waiting job from starting. Conflict if it has an attempt."""
        return self._act(job, "hold", {"why": why})

    def release(self, job: JobName) -> wire.Job:
        """Let a held job wait again. Conflict if it is not held."""
        return self._act(job, "release", {})

    def requeue(self, job: JobName, why: str = "") -> wire.Job:
        """End its attempt and let it wait again. Conflict if it has none."""
        return self._act(job, "requeue", {"why": why})

    def prioritize(self, job: JobName, priority: int) -> wire.Job:
        """Give a job that has not started another priority, or all such tasks of an array. Conflict if it has an
        attempt."""
        return self._act(job, "prioritize", {"priority": priority})

    def _act(self, job: JobName, verb: str, body: dict[str, Any]) -> wire.Job:
        """Ask again for a large array until it was done to all of its tasks. Conflict if it could be done to none."""
        answer = self._post(wire.Job, f"/jobs/{job}/{verb}", body)
        below, acted = answer.next, answer.acted or 0
        if below is None:
            return answer
        while below is not None:
            part = self._post(wire.Job, f"/jobs/{job}/{verb}", {**body, "below": below})
            below, acted = part.next, acted + (part.acted or 0)
            answer = part if part.acted else answer
        if not acted:
            raise Conflict(
                "job.no-task-left",
                f"{verb} fits none of the tasks of array {job}",
                f"`gangline job show {job}`",
            )
        return answer.model_copy(update={"acted": acted, "next": None})

    def throttle(self, array: int, at_most: int) -> wire.Job:
        """Let so many tasks of an array have an attempt at a time; 0: any number. NotFound if it is no array."""
        return self._post(wire.Job, f"/jobs/{array}/set", {"at_most": at_most})

    def wait(self, job: JobName, timeout_s: float | None = None) -> wire.Job:
        """The job once it has ended. TimedOut after `timeout_s` seconds (None: waits without limit)."""
        for seen in self.watch(job, timeout_s):
            if seen.ended:
                return seen
        raise TimedOut(
            "client.wait", f"job {job} has not ended within {timeout_s:g} s", "it goes on; wait again"
        )

    def watch(self, job: JobName, timeout_s: float | None = None) -> Iterator[wire.Job]:
        """The job now, and after each change until it has ended or `timeout_s` seconds have passed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        seen = self.job(job)
        yield seen
        while not seen.ended:
            left = wire.MOST_WAIT_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return
            found = self.wait_once(job, min(left, wire.MOST_WAIT_S), seen.revision)
            if found.revision != seen.revision:
                yield found
            seen = found

    def wait_once(self, job: JobName, timeout_s: float, seen: str = "") -> wire.Job:
        """One long poll: the job when it differs from the revision `seen` (empty: when it has ended), or at the end."""
        params: Params = {"timeout": max(0, min(round(timeout_s + 0.5), wire.MOST_WAIT_S))}
        if seen:
            params["seen"] = seen
        return self._get(wire.Job, f"/jobs/{job}/wait", params, wait_s=timeout_s)

    def logs(
        self,
        job: JobName,
        rank: int = 0,
        *,
        offset: int = 0,
        limit: int = 262_144,
        wait_s: int = 0,
        attempt: int | None = None,
    ) -> LogChunk:
        """Bytes of a rank's output; waits up to `wait_s` for some to appear. `attempt` None: the newest.

        NotFound if there is no such attempt or rank, or its node keeps nothing of it any more; Unavailable if the node
        does not answer.
        """
        params: Params = {"rank": rank, "offset": offset, "limit": limit, "wait": wait_s}
        if attempt is not None:
            params["attempt"] = attempt
        asked = Asked("GET", f"/jobs/{job}/logs", params, again=True, wait_s=wait_s)
        answer = self._transport.send(asked)
        headers = answer.headers
        try:
            return LogChunk(
                data=answer.content,
                offset=offset,
                size=int(headers[wire.SIZE_HEADER]),
                ended=headers[wire.ENDED_HEADER] == "1",
                node=headers[wire.NODE_HEADER],
                attempt=int(headers[wire.ATTEMPT_HEADER]),
            )
        except (KeyError, ValueError) as error:
            raise _unreadable(error) from error

    # --- nodes and capacity ---------------------------------------------------------------------------------

    def nodes(self) -> list[api_cluster.Node]:
        """All nodes by name."""
        from orchestrator.wire.api_cluster import NodeList

        return self._get(NodeList, "/nodes").items

    def node(self, name: str) -> api_cluster.Node:
        """One node. NotFound."""
        from orchestrator.wire.api_cluster import Node

        return self._get(Node, f"/nodes/{_segment(name)}")

    def cordon(
        self, name: str, why: str = "", *, kind: str = "cordoned", deadline_s: int = 0, then: str = "wait"
    ) -> api_cluster.Node:
        """Give a node no new work. With a deadline (seconds) it is drained: `then` is done to what still runs."""
        from orchestrator.wire.api_cluster import Node

        body = {"why": why, "kind": kind, "deadline_s": deadline_s, "then": then}
        return self._post(Node, f"/nodes/{_segment(name)}/cordon", body)

    def uncordon(self, name: str, kind: str = "") -> api_cluster.Node:
        """Withdraw every mark of a node but those that only it can clear; or those of one kind."""
        from orchestrator.wire.api_cluster import Node

        return self._post(Node, f"/nodes/{_segment(name)}/uncordon", {"kind": kind} if kind else {})

    def gpus(self) -> list[api_cluster.GpuPool]:
        """GPUs by model and pool."""
        from orchestrator.wire.api_cluster import GpuList

        return self._get(GpuList, "/gpus").items

    def topology(self) -> list[api_cluster.TopologyDomain]:
        """The domains of each level of each site."""
        from orchestrator.wire.api_cluster import TopologyList

        return self._get(TopologyList, "/topology").items

    def queues(self) -> list[api_cluster.Queue]:
        """All queues by name."""
        from orchestrator.wire.api_cluster import QueueList

        return self._get(QueueList, "/queues").items

    # --- cluster --------------------------------------------------------------------------------------------

    def status(self) -> api_cluster.Status:
        """The cluster at a glance."""
        from orchestrator.wire.api_cluster import Status

        return self._get(Status, "/status")

    def cluster(self) -> api_cluster.Cluster:
        """The wanted cluster. NotFound before the first apply."""
        from orchestrator.wire.api_cluster import Cluster

        return self._get(Cluster, "/cluster")

    def apply_cluster(
        self,
        cluster: ClusterSpec | str | Mapping[str, Any],
        desired: Sequence[PoolDesired] = (),
        commit: str = "",
    ) -> api_cluster.Cluster:
        """The cluster that is wanted from now on: a checked spec (what `gangline up` sends), or a document of `kind:
        Cluster` as YAML or JSON text or as a value, which the server checks (its inventory, if any, must lie there).
        With a checked spec go `desired`, what the hosts of each pool are to have, and `commit`, where it stood."""
        from orchestrator.wire.api_cluster import Cluster

        headers, json, content = {}, None, None
        if isinstance(cluster, str):
            headers, content = {"Content-Type": "application/yaml"}, cluster.encode()
        elif isinstance(cluster, Mapping):
            json = cluster
        else:
            from orchestrator.model.codec import encode

            json = {
                "apiVersion": wire.API_VERSION,
                "kind": "ClusterSpec",
                "spec": encode(cluster),
                "desired": [encode(one) for one in desired],
                "commit": commit,
            }
        return self._ask(
            Cluster, Asked("PUT", "/cluster", json=json, content=content, headers=headers, again=True)
        )

    def recorded(self) -> api_apply.Recorded:
        """What was applied last, and what each host was last seen to have."""
        from orchestrator.wire.api_apply import Recorded

        return self._get(Recorded, "/recorded")

    def records(self) -> list[api_apply.Record]:
        """What was applied, newest first."""
        from orchestrator.wire.api_apply import RecordList

        return self._get(RecordList, "/records").items

    def record(self, name: str) -> api_apply.RecordedSpec:
        """What was applied at one time, with its cluster. NotFound."""
        from orchestrator.wire.api_apply import RecordedSpec

        return self._get(RecordedSpec, f"/records/{_segment(name)}")

    def orphans(self) -> list[api_cluster.Orphan]:
        """Attempts on nodes that the ledger does not know."""
        from orchestrator.wire.api_cluster import OrphanList

        return self._get(OrphanList, "/orphans").items

    def recover(self, without: Iterable[str] = ()) -> api_cluster.Recovered:
        """Take orphans back and let starts go on; `without`: nodes that need not have told what they hold."""
        from orchestrator.wire.api_cluster import Recovered

        return self._post(Recovered, "/recover", {"without": list(without)})

    def version(self) -> api_cluster.Version:
        """What answers there."""
        from orchestrator.wire.api_cluster import Version

        return self._get(Version, "/version")

    def healthy(self) -> bool:
        """Whether a controller answers and works; needs no token."""
        try:
            self._transport.send(Asked("GET", "/healthz", again=True))
        except GanglineError:
            return False
        return True

    # --- applies --------------------------------------------------------------------------------------------

    def applies(self) -> list[api_apply.Apply]:
        """The last applies, newest first."""
        from orchestrator.wire.api_apply import ApplyList

        return self._get(ApplyList, "/applies").items

    def start_apply(
        self, holder: str, digest: str, steps: Sequence[PlanStep], lease_s: int, commit: str = ""
    ) -> api_apply.Apply:
        """Begin to carry a plan out. Conflict while another holder's lease lasts."""
        from orchestrator.model.codec import encode
        from orchestrator.wire.api_apply import Apply

        body = {
            "holder": holder,
            "digest": digest,
            "steps": [encode(step) for step in steps],
            "lease_s": lease_s,
            "commit": commit,
        }
        return self._post(Apply, "/applies", body)

    def renew_apply(self, apply: str, lease_s: int) -> api_apply.Apply:
        """Keep the lease. Conflict if the apply is under way no longer, here and below."""
        from orchestrator.wire.api_apply import Apply

        return self._post(Apply, f"/applies/{_segment(apply)}/lease", {"lease_s": lease_s})

    def start_step(self, apply: str, step: str) -> api_apply.Apply:
        """A step is about to touch hosts."""
        from orchestrator.wire.api_apply import Apply

        path = f"/applies/{_segment(apply)}/steps/{_segment(step)}/start"
        return self._ask(Apply, Asked("POST", path, json={}, again=True))

    def end_step(self, apply: str, step: str, ok: bool, hosts: Sequence[HostResult]) -> api_apply.Apply:
        """What a step came to, host by host."""
        from orchestrator.model.codec import encode
        from orchestrator.wire.api_apply import Apply

        body = {"ok": ok, "hosts": [encode(one) for one in hosts]}
        path = f"/applies/{_segment(apply)}/steps/{_segment(step)}/end"
        return self._ask(Apply, Asked("POST", path, json=body, again=True))

    def end_apply(self, apply: str, outcome: Outcome, detail: str = "") -> api_apply.Apply:
        """It is over."""
        from orchestrator.wire.api_apply import Apply

        body = {"outcome": str(outcome), "detail": detail}
        return self._post(Apply, f"/applies/{_segment(apply)}/end", body)

    def configured(self, node: str, desired: str, host: HostFacts | None = None) -> api_cluster.Node:
        """A host was seen to have all of the `Desired` of that digest."""
        from orchestrator.model.codec import encode
        from orchestrator.wire.api_cluster import Node

        body = {"desired": desired, "host": encode(host) if host is not None else None}
        return self._ask(Node, Asked("POST", f"/nodes/{_segment(node)}/configured", json=body, again=True))

    # --- tokens ---------------------------------------------------------------------------------------------

    def tokens(self) -> list[api_cluster.Token]:
        """Tokens without their secrets: one's own, or all for operators."""
        from orchestrator.wire.api_cluster import TokenList

        return self._get(TokenList, "/tokens").items

    def create_token(self, role: str, name: str, expires_s: int = 0) -> api_cluster.TokenCreated:
        """A new token; its secret is in the answer and nowhere else."""
        from orchestrator.wire.api_cluster import TokenCreated

        return self._post(TokenCreated, "/tokens", {"role": role, "name": name, "expires_s": expires_s})

    def revoke_token(self, token_id: str) -> None:
        """A token is worth nothing from now on. NotFound."""
        self._transport.send(Asked("DELETE", f"/tokens/{_segment(token_id)}"))

    # --- inside ---------------------------------------------------------------------------------------------

    def _get(self, model: type[M], path: str, params: Params | None = None, wait_s: float = 0.0) -> M:
        return self._ask(model, Asked("GET", path, params or {}, again=True, wait_s=wait_s))

    def _post(self, model: type[M], path: str, body: Mapping[str, Any]) -> M:
        return self._ask(model, Asked("POST", path, json=body))

    def _ask(self, model: type[M], asked: Asked) -> M:
        answer = self._transport.send(asked)
        try:
            return model.model_validate_json(answer.content)
        except ValidationError as error:
            raise _unreadable(error) from error


def _segment(text: str) -> str:
    return quote(text, safe="")


def _since(t_us: int) -> str:
    time_at = wire.time_of(t_us)
    return time_at.isoformat().replace("+00:00", "Z") if time_at else ""


def _unreadable(error: Exception) -> GanglineError:
    return GanglineError(
        "client.bad-answer",
        f"the answer can't be read: {str(error).splitlines()[0]}",
        "`gangline version` shows whether client and server are of like age",
    )
