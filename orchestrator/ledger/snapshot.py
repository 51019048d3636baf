"""State as plain JSON and back: the records only, since the indexes follow from them.

Comes in: a State, or the body of a snapshot. Goes out: the other. Called by: controller (keeps and loads
snapshots), replay.
"""

from __future__ import annotations

from typing import Any

from orchestrator.ledger.records import Account, Apply, Fleet, Job, Node, Orphan, Token
from orchestrator.ledger.state import State
from orchestrator.model.capacity import Circuit, Halt
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.host import PoolDesired

VERSION = 2  # of this format; version 1 had the keys of submits as well, which the store keeps now


def to_plain(state: State) -> dict[str, Any]:
    """The records as plain JSON."""
    return {
        "seq": state.seq,
        "t_us": state.t_us,
        "epoch": state.epoch,
        "next_job": state.next_job,
        "recovering": state.recovering,
        "forgotten_from": state.forgotten_from,
        "cluster": encode(state.cluster) if state.cluster is not None else None,
        "digest": state.digest,
        "nodes": [encode(node) for node in state.nodes.values()],
        "jobs": [encode(job) for job in state.jobs.values()],
        "tokens": [encode(token) for token in state.tokens.values()],
        "orphans": [encode(orphan) for orphan in state.orphans.values()],
        **_changes(state),
        **_bought(state),
    }


def _changes(state: State) -> dict[str, Any]:
    """What applies leave behind; a cluster that none has changed keeps nothing of it."""
    plain = {
        "desired": [encode(one) for one in state.desired.values()],
        "commit": state.commit,
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
        recorded=plain.get("recorded", {}),
        applies=[decode(Apply, item) for item in plain.get("applies", ())],
    )
    state.lease_s, state.lease_before_s, state.started_us = plain.get("leases", (0, 0, 0))
    state.nodes = {node.name: node for node in (decode(Node, item) for item in plain["nodes"])}
    state.jobs = {job.id: job for job in (decode(Job, item) for item in plain["jobs"])}
    state.tokens = {token.id: token for token in (decode(Token, item) for item in plain["tokens"])}
    state.desired = {
        one.digest: one for one in (decode(PoolDesired, each) for each in plain.get("desired", ()))
    }
    _take_bought(state, plain)
    state.rebuild()
    return state
