"""State as plain JSON and back: the records only, since the indexes follow from them.

Comes in: a State, or the body of a snapshot. Goes out: the other. Called by: controller (keeps and loads
snapshots), replay.
"""

from __future__ import annotations

from typing import Any

from orchestrator.ledger.records import Apply, Job, Node, Orphan, Token
from orchestrator.ledger.state import State
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
    state.rebuild()
    return state
