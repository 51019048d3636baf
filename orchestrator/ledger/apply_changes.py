"""Folding the journal of applies.

Comes in: a State and an event of an apply. Goes out: the State changed. Called by: apply.
"""

from __future__ import annotations

from orchestrator.ledger import events
from orchestrator.ledger.events import Event
from orchestrator.ledger.records import Apply, ApplyStep
from orchestrator.ledger.state import State
from orchestrator.model.apply import StepState

APPLIES_KEPT = 20


def started(state: State, event: Event, body: events.ApplyStarted) -> None:
    """A new one; the one before it must be over."""
    if open_apply(state) is not None:
        raise ValueError(f"{state.applies[-1].id} is under way")
    if body.id != f"apply-{event.seq}":
        raise ValueError(f"{body.id} does not name its event")
    steps = [ApplyStep(step) for step in body.steps]
    new = Apply(
        body.id, body.holder, event.by, body.digest, event.t_us, body.lease_us, body.commit, steps=steps
    )
    state.applies = [*state.applies[1 - APPLIES_KEPT :], new]


def leased(state: State, event: Event, body: events.ApplyLeased) -> None:
    """Its holder is still at it."""
    _open(state, body.id).lease_us = body.lease_us


def step_started(state: State, event: Event, body: events.ApplyStepStarted) -> None:
    """One that was begun and has not ended may begin again: its holder looked again."""
    step = _step(state, body.id, body.step)
    if step.state is StepState.DONE:
        raise ValueError(f"step {body.step} is done")
    step.state, step.started_us = StepState.STARTED, event.t_us


def step_ended(state: State, event: Event, body: events.ApplyStepEnded) -> None:
    """It has done what it could."""
    step = _step(state, body.id, body.step)
    if step.state is not StepState.STARTED:
        raise ValueError(f"step {body.step} is {step.state}, not started")
    step.state = StepState.DONE if body.ok else StepState.FAILED
    step.ended_us, step.hosts = event.t_us, body.hosts


def ended(state: State, event: Event, body: events.ApplyEnded) -> None:
    """Over; what is left to do the next plan finds by looking."""
    apply = _open(state, body.id)
    apply.outcome, apply.detail, apply.ended_us = body.outcome, body.detail, event.t_us


def configured(state: State, event: Event, body: events.NodeConfigured) -> None:
    """What the host was seen to have."""
    if body.desired and body.desired not in state.desired:
        raise ValueError(f"nothing recorded has the digest {body.desired}")
    node = state.nodes[body.node]
    node.configured = body.desired
    node.host = body.host if body.host is not None else node.host
    if node.name in state.capacity.index:
        state.index_software(node)


def open_apply(state: State) -> Apply | None:
    """The one under way, or None."""
    newest = state.applies[-1] if state.applies else None
    return newest if newest is not None and newest.outcome is None else None


def _open(state: State, name: str) -> Apply:
    found = open_apply(state)
    if found is None or found.id != name:
        raise ValueError(f"{name} is not under way")
    return found


def _step(state: State, name: str, step: str) -> ApplyStep:
    for found in _open(state, name).steps:
        if found.step.id == step:
            return found
    raise ValueError(f"{name} has no step {step}")
