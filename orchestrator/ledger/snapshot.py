"""State as plain JSON and back: the records only, since the indexes follow from them.

Comes in: a State, or the body of a snapshot. Goes out: the other. Called by: controller (keeps and loads
snapshots), replay.

The plain form of a hundred thousand jobs takes seconds. `freeze` takes a fifth of that, and what it has kept becomes
plain record by record, whenever there is time: what is folded meanwhile does not change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.ledger import demand
from orchestrator.ledger.copies import copy_of
from orchestrator.ledger.hours import Month
from orchestrator.ledger.records import Account, Apply, Fleet, Job, Node, Orphan, TaskArray, Token
from orchestrator.ledger.state import State
from orchestrator.ledger.usage import Used
from orchestrator.model.capacity import Circuit, Halt
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.host import PoolDesired
from orchestrator.model.job import JobSpec, Owner, Request
from orchestrator.model.power import PoolWatts
from orchestrator.model.standing import PoolPrice

VERSION = 2  # of this format; version 1 had the keys of submits as well, which the store keeps now


# In the place of what tasks of an array have in common.
_NO_SPEC, _NO_OWNER = JobSpec("-", Request(), ()), Owner("-", 0, 0)
_NOTHING = {"spec": encode(_NO_SPEC), "owner": encode(_NO_OWNER)}


@dataclass(frozen=True, slots=True)
class Frozen:
    """The records at one moment. `rest`: the plain form of all but nodes and jobs."""

    rest: dict[str, Any]
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]

    def sections(self) -> dict[str, Iterator[dict[str, Any]]]:
        """What `rest` leaves out, by its key in the whole; each record becomes plain when it is asked for."""
        return {"nodes": map(encode, self.nodes), "jobs": map(_job, self.jobs)}


def freeze(state: State) -> Frozen:
    """The records as they are now, whatever is folded from now on."""
    nodes = tuple(copy_of(node) for node in state.nodes.values())
    return Frozen(_rest(state), nodes, tuple(copy_of(job) for job in state.jobs.values()))


def to_plain(state: State) -> dict[str, Any]:
    """The records as plain JSON."""
    whole = Frozen(_rest(state), tuple(state.nodes.values()), tuple(state.jobs.values()))
    return {**whole.rest, **{key: list(items) for key, items in whole.sections().items()}}


def _rest(state: State) -> dict[str, Any]:
    return {
        "seq": state.seq,
        "t_us": state.t_us,
        "epoch": state.epoch,
        "next_job": state.next_job,
        "recovering": state.recovering,
        "forgotten_from": state.forgotten_from,
        "cluster": encode(state.cluster) if state.cluster is not None else None,
        "digest": state.digest,
        "tokens": [encode(token) for token in state.tokens.values()],
        "orphans": [encode(orphan) for orphan in state.orphans.values()],
        **({"arrays": [encode(array) for array in state.arrays.values()]} if state.arrays else {}),
        **_changes(state),
        **_bought(state),
        **_used(state),
    }


def _job(job: Job) -> dict[str, Any]:
    """Tasks of an array leave out what its record has once: a hundred thousand may be there."""
    if not job.array:
        plain: dict[str, Any] = encode(job)
        return plain
    plain = encode(replace(job, spec=_NO_SPEC, owner=_NO_OWNER))
    del plain["spec"], plain["owner"]
    return plain


def _jobs(plain: dict[str, Any], arrays: dict[int, TaskArray]) -> dict[int, Job]:
    found: dict[int, Job] = {}
    for item in plain["jobs"]:
        if "spec" in item:
            job = decode(Job, item)
        else:
            job = decode(Job, {**item, **_NOTHING})
            job.spec, job.owner = arrays[job.array].spec, arrays[job.array].owner
        found[job.id] = job
    return found


def _changes(state: State) -> dict[str, Any]:
    """What applies leave behind; a cluster that none has changed keeps nothing of it."""
    plain = {
        "desired": [encode(one) for one in state.desired.values()],
        "commit": state.commit,
        "watts": [encode(one) for one in state.watts],
        "prices": [encode(one) for one in state.prices],
        "recorded": dict(state.recorded),
        "applies": [encode(one) for one in state.applies],
        "leases": [state.lease_s, state.lease_before_s, state.started_us] if _leased(state) else [],
    }
    return {name: value for name, value in plain.items() if value}


def _bought(state: State) -> dict[str, Any]:
    """Elastic capacity; a cluster that never bought anything keeps nothing of it."""
    plain = {
        "uid": state.uid,
        "fleets": [encode(one) for one in state.fleets.values()],
        "circuits": [encode(one) for one in state.circuits.values()],
        "halts": [encode(one) for one in state.halts.values()],
        "boot_failures": dict(state.boot_failures),
        "accounts": [encode(one) for one in state.accounts.values()],
    }
    return {name: value for name, value in plain.items() if value}


def _used(state: State) -> dict[str, Any]:
    """What was used of late and in the month, where the file shares by it or limits it, and what was asked for."""
    plain = {
        "used": {name: encode(one) for name, one in state.used.items()},
        "demand": demand.to_plain(state.demand),
        "month": list(state.month or ()),
        "spent": dict(state.spent),
    }
    return {name: value for name, value in plain.items() if value}


def _take_bought(state: State, plain: dict[str, Any]) -> None:
    state.uid = plain.get("uid", "")
    state.boot_failures = dict(plain.get("boot_failures", {}))
    fleets = (decode(Fleet, each) for each in plain.get("fleets", ()))
    state.fleets = {one.intent.id: one for one in fleets}
    circuits = (decode(Circuit, each) for each in plain.get("circuits", ()))
    state.circuits = {one.key: one for one in circuits}
    halts = (decode(Halt, each) for each in plain.get("halts", ()))
    state.halts = {one.site: one for one in halts}
    accounts = (decode(Account, each) for each in plain.get("accounts", ()))
    state.accounts = {(one.pool, one.queue): one for one in accounts}


def _leased(state: State) -> bool:
    return bool(state.lease_s or state.lease_before_s)


def from_plain(plain: dict[str, Any]) -> State:
    """The State that `to_plain` described; CodecError or KeyError if it did not."""
    state = State(
        seq=plain["seq"],
        t_us=plain["t_us"],
        epoch=plain["epoch"],
        next_job=plain["next_job"],
        recovering=plain["recovering"],
        forgotten_from=plain["forgotten_from"],
        cluster=decode(ClusterSpec, plain["cluster"]) if plain["cluster"] is not None else None,
        digest=plain["digest"],
        orphans={
            (found.attempt, found.node): found
            for found in (decode(Orphan, item) for item in plain["orphans"])
        },
        commit=plain.get("commit", ""),
        watts=tuple(decode(PoolWatts, one) for one in plain.get("watts", ())),
        prices=tuple(decode(PoolPrice, one) for one in plain.get("prices", ())),
        recorded=plain.get("recorded", {}),
        applies=[decode(Apply, item) for item in plain.get("applies", ())],
    )
    state.lease_s, state.lease_before_s, state.started_us = plain.get("leases", (0, 0, 0))
    state.nodes = {node.name: node for node in (decode(Node, item) for item in plain["nodes"])}
    arrays = (decode(TaskArray, item) for item in plain.get("arrays", ()))
    state.arrays = {array.id: array for array in arrays}
    state.jobs = _jobs(plain, state.arrays)
    state.tokens = {token.id: token for token in (decode(Token, item) for item in plain["tokens"])}
    state.desired = {
        one.digest: one for one in (decode(PoolDesired, each) for each in plain.get("desired", ()))
    }
    _take_bought(state, plain)
    state.demand = demand.from_plain(plain.get("demand", {}))
    state.used = {name: decode(Used, each) for name, each in plain.get("used", {}).items()}
    state.month, state.spent = Month(*plain["month"]) if "month" in plain else None, plain.get("spent", {})
    state.rebuild()
    return state
