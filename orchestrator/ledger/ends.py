"""How attempts end and what follows: the rules alone, without anybody who acts on them.

Comes in: an attempt whose parts have ended, a job. Goes out: what broke the gang, its exit code, the record's sentence,
whether another attempt follows; which events a pass need not look at. Called by: controller/outcome and
controller/writer, simulate.
"""

from __future__ import annotations

from orchestrator.ledger import events
from orchestrator.ledger.apply_jobs import first_failure
from orchestrator.ledger.records import Attempt, Job
from orchestrator.model.attempt import EndCause, PartState

TIMED_OUT_CODE = 124  # of a job that its time limit ended, whatever its ranks said; as timeout(1) has it
CANCELLED_CODE = 143  # of a cancelled job whose ranks left with 0: 128 + SIGTERM
RETRY_CLASS = {
    EndCause.RANK_FAILED: "job_failure",
    EndCause.NODE_FAILED: "node_failure",
    EndCause.FENCED: "node_failure",
}
WORDS = {EndCause.TIME_LIMIT: "its time limit was reached"}  # where the cause's own name says too little

# Facts that free nothing, bring nothing and close nothing: after these alone a pass would decide as the last one did.
CALM = (
    events.ApplyLeased,
    events.ApplyStarted,
    events.ApplyStepStarted,
    events.ApplyStepEnded,
    events.ApplyEnded,
    events.AttemptAllocated,
    events.AttemptCommitted,
    events.AttemptEnding,
    events.AttemptPrepared,
    events.AttemptRankFailed,
    events.AttemptStarted,
    events.CapacityIntended,
    events.CapacityLaunched,
    events.CapacityReleasing,
    events.ClusterNamed,
    events.TokenCreated,
    events.TokenRevoked,
)


def breaking_cause(attempt: Attempt) -> EndCause | None:
    """What breaks the gang while others still run; None while every part that ended did so well."""
    for part in attempt.parts:
        if part.state is not PartState.ENDED:
            continue
        if part.code:
            return EndCause.PREPARE_FAILED
        if part.cause:
            return EndCause(part.cause)
        if not part.results:
            return EndCause.NODE_FAILED  # gone without being told to, and without a word about its ranks
        if any(not result.ok for result in part.results):
            return EndCause.RANK_FAILED
    return None


def exit_code(attempt: Attempt, cause: EndCause) -> int:
    """The code of an attempt that has ended everywhere, as shells count."""
    if cause is EndCause.TIME_LIMIT:
        return TIMED_OUT_CODE
    failure = first_failure(attempt)
    if failure is not None:
        return failure.result.exit_code
    codes = [result.exit_code for part in attempt.parts for result in part.results]
    code = next((code for code in codes if code), 0)
    if code or cause is EndCause.COMPLETED:
        return code
    return CANCELLED_CODE if cause is EndCause.CANCELLED else 1


def detail_of(attempt: Attempt, cause: EndCause) -> str:
    """The record's sentence: who failed first, where, and what the node said."""
    failure = first_failure(attempt)
    if cause is EndCause.RANK_FAILED and failure is not None:
        how = f"by signal {failure.result.signal}" if failure.result.signal else f"with {failure.result.code}"
        return f"rank {failure.result.rank} on {failure.node} failed first, {how}"
    for part in attempt.parts:
        if part.error:
            return f"{part.placement.node}: {part.error}"
    return ""


def may_retry(job: Job, cause: EndCause) -> bool:
    """Whether the job bears one more failure of this class; its counts include the one just recorded."""
    retry_class = RETRY_CLASS.get(cause)
    if retry_class is None:
        return False
    allowed = job.spec.retries.job_failure if retry_class == "job_failure" else job.spec.retries.node_failure
    return job.failures.get(retry_class, 0) <= allowed
