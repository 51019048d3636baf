"""The pass on one page: whose turn it is, round by round, until nobody is left who fits.

Comes in: State, `Policy`, the time in UTC microseconds, a work budget in probes (a probe is one look at one class of
jobs). Goes out: the decisions in order, the reasons through the Reporter, State unchanged but for `State.memory`, which
is derived from the rest. Called by: controller/loop and simulate.
"""

from __future__ import annotations

from orchestrator.ledger.state import State
from orchestrator.model.base import Word
from orchestrator.model.decisions import Decision, Reporter
from orchestrator.scheduler import refuse
from orchestrator.scheduler.memory import memory_of
from orchestrator.scheduler.one_pass import Pass, open_pass
from orchestrator.scheduler.order import Line, Turn
from orchestrator.scheduler.policy import Policy
from orchestrator.scheduler.starting import open_pools, try_start
from orchestrator.scheduler.waits import NOBODY, Stopped, Waits


class Round(Word):
    """Who may start in it."""

    GUARANTEED = "guaranteed"
    EVERYBODY = "everybody"


# The order is the policy. Within a round, turns go by fair share between queues and people, then by priority and age;
# the first blocked jobs have nodes kept for them, so that nobody behind them, of whatever round, lives on their nodes.
ROUNDS = (
    Round.GUARANTEED,  # what stays within its queue's guarantee goes first: no borrower may keep it waiting
    Round.EVERYBODY,  # then whatever fits: no device stays idle for a queue that asks for nothing
)


def decide(
    state: State, policy: Policy, now_us: int, work_budget: int, reporter: Reporter
) -> tuple[Decision, ...]:
    """What to start now. State is the same when this returns, whatever happens inside."""
    stop = refuse.stop_reason(state)
    if stop is not None:
        reporter.waiting(Stopped(stop))
        return ()
    memory = memory_of(state, policy)  # 1 take in what has changed since the last pass
    if memory.nothing_new(state, policy):
        return ()
    if not memory.lines.waiting:
        memory.leave(state)
        memory.settle(state, policy, idle=True)
        reporter.waiting(NOBODY)
        return ()
    run = open_pass(state, memory, policy, now_us, work_budget)
    try:
        for which in ROUNDS:  # 2 everybody's turn
            _play(run, which)
        somebody = memory.leave(state)  # 3 remember what is left
        reporter.waiting(Waits(run) if somebody else NOBODY)
    finally:
        run.statement.rollback(0)  # 4 State as before; the controller records what was decided
        memory.settle(state, policy, idle=not (run.decisions or run.bought or state.hours) and run.probes > 0)
    return tuple(run.decisions)


def _play(run: Pass, which: Round) -> None:
    """One round. While nodes are kept for blocked jobs, whoever is first is tried for real; after that, shapes that are
    closed are left out, since nothing has come that could hold them."""
    memory, guaranteed = run.memory, which is Round.GUARANTEED
    if guaranteed and not memory.lines.guarantees:
        return
    memory.doubt_hopeless(run.state)
    memory.lines.recall(run.state, run.now_us)
    memory.hopeless[run.awaited] = False  # what comes for a job is kept for it, whatever hope there is
    turn = Turn(memory.lines, run.policy, memory.hopeless, guaranteed)
    passed: list[tuple[Line, int]] = []  # those who may go to other pools when it is not about guarantees
    while run.probes > 0:
        if not run.keeps and turn.closed is memory.hopeless:
            memory.wake(run.state)
            memory.closed[run.awaited] = False
            turn.closed = memory.closed
        found = turn.next()
        if found is None:
            break
        run.probes -= 1
        line, cell = found
        pools = open_pools(run, line, cell, guaranteed)
        again = guaranteed and len(pools) < len(line.shapes[cell].pools)
        if not try_start(run, line, cell, pools, may_keep=not again) and again:
            passed.append(found)
    for line, cell in passed:
        line.stopped[cell] = False
