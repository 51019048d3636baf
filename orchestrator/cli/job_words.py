"""A job in words: its columns in lists, its card, how it ended. One place, so that every verb says the same.

Comes in: jobs of `wire.api`. Goes out: columns and texts. Called by: jobs_cmd, act_cmd, run_cmd, explain_cmd,
status_cmd.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from orchestrator.cli import text
from orchestrator.cli.output import Column, Listing
from orchestrator.cli.tables import Cell, Head, render
from orchestrator.model.job import DEFAULT_TIME_LIMIT_S
from orchestrator.wire.api import (
    Attempt,
    GroupSpec,
    Job,
    JobSpec,
    JobSummary,
    PastAttempt,
    Resources,
    Topology,
)

LONGEST_FACT = 40  # characters of a value in the table of a reason
DEFAULT_TIME_LIMITS = tuple((str(workload), limit) for workload, limit in DEFAULT_TIME_LIMIT_S.items())

MOODS = {
    "running": "ok",
    "starting": "ok",
    "waiting": "wait",
    "held": "wait",
    "ending": "wait",
    "failed": "bad",
    "succeeded": "over",
    "cancelled": "over",
}


def state(job: JobSummary) -> Cell:
    """Its state; one out of contact is `lost`, since nobody knows whether it runs."""
    return Cell("lost", "bad") if job.lost else Cell(job.state, MOODS.get(job.state, ""))


def time_spent(job: JobSummary, now: datetime) -> str:
    """How long it ran, runs, or has been waiting."""
    if job.ended_at is not None:
        return text.span((job.ended_at - job.started_at).total_seconds()) if job.started_at else "-"
    if job.state in ("running", "ending", "starting") and job.started_at is not None:
        return text.ago(job.started_at, now)
    return text.ago(job.waiting_since or job.submitted_at, now)


def where_or_why(job: JobSummary) -> str:
    """Its nodes while it has any; in brackets why it waits, or how it ended."""
    if job.ended_at is not None:
        return ended_briefly(job)
    if job.node_names and job.state in ("starting", "running", "ending"):
        return text.fold_names(job.node_names)
    if job.state == "held":
        return f"({job.hold or 'held'})"
    return f"({job.reason.code})" if job.reason is not None else "-"


def ended_briefly(job: JobSummary) -> str:
    """`exit 1`, `(time limit)`, `-`."""
    if job.state == "succeeded":
        return "-"
    return f"exit {job.exit_code}" if job.exit_code else f"({job.why})" if job.why else "-"


def columns(now: datetime) -> tuple[Column[JobSummary], ...]:
    """The columns of `gangline jobs`."""
    return (
        Column("ID", lambda job: job.label, right=True),
        Column("NAME", lambda job: job.name, cut=True),
        Column("USER", lambda job: job.owner, cut=True),
        Column("QUEUE", lambda job: job.queue, cut=True),
        Column("STATE", state),
        Column("GPUS", lambda job: text.thousandths(max(job.gpu_milli, job.gpus * 1000)), right=True),
        Column("RANKS", lambda job: str(job.ranks), right=True),
        Column("PRIORITY", lambda job: str(job.priority), right=True, wide=True),
        Column("TRIES", lambda job: str(job.attempts), right=True, wide=True),
        Column("TIME", lambda job: time_spent(job, now), right=True),
        Column("SUBMITTED", lambda job: text.instant(job.submitted_at), wide=True),
        Column("NODES(WHY)", where_or_why, cut=True),
        Column("REASON", lambda job: job.reason.sentence if job.reason else job.why or "-", wide=True),
    )


def listing(now: datetime, owner: str = "", which: str = "") -> Listing[JobSummary]:
    """The list of jobs as of now; `owner`: whose jobs were asked for, empty for everyone's; `which`: what else was."""
    whose = f" of {text.safe(owner)}" if owner else ""
    others = "-a shows those of all users, --since 7d older ones" if owner else "--since 7d shows older ones"
    return Listing(
        "JobList", columns(now), lambda job: job.label, f"no jobs{whose}{text.safe(which)}; {others}"
    )


# --- one job ----------------------------------------------------------------------------------------------------


def title(job: JobSummary) -> str:
    """`job 12 (train)`, `job 1234_7 (sweep)`."""
    return f"job {job.label} ({text.safe(job.name)})"


def array_title(job: Job) -> str:
    """`array 1234 (sweep)`."""
    return f"array {job.array} ({text.safe(job.name)})"


def acted(job: Job) -> str:
    """What became of a job that something was done to; of an array, how many of its tasks that was."""
    if job.acted is None or job.spec.array is None:
        return f"{title(job)}: {job.state}"
    return f"{array_title(job)}: done to {job.acted} of its {text.plural(job.spec.array.count, 'task')}"


def ending(job: Job) -> str:
    """How it ended, in one sentence."""
    took = f" after {time_spent(job, text.now())}" if job.started_at else ""
    if job.state == "succeeded":
        return f"{title(job)} succeeded{took}"
    last = job.past[-1] if job.past else None
    detail = failure(last) if last is not None and job.state == "failed" else ""
    why = detail or text.safe(job.why)
    return f"{title(job)} {job.state}{took}" + (f": {why}" if why else "")


def failure(attempt: PastAttempt) -> str:
    """Which rank failed first, where and how; empty if none did."""
    first = attempt.first_failed
    if first is None:
        return text.safe(attempt.detail)
    how = (
        f"was killed by signal {first.signal} ({signal_name(first.signal)})"
        if first.signal
        else f"exited with {first.code}"
    )
    return f"rank {first.rank} on {first.node} failed first: it {how}"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def request(job: Job) -> str:
    """What it asks for: `2 nodes x 8 GPUs`, `16 tasks x 1 GPU`."""
    spec = job.spec
    alone = ", nobody else on its nodes" if spec.exclusive else ""
    if spec.groups:
        return "; ".join(f"{one.name}: {_gang(one)}" for one in spec.groups) + alone
    return _gang(spec) + alone


def _gang(asked: JobSpec | GroupSpec) -> str:
    if asked.tasks:
        return f"{text.plural(asked.tasks, 'task')}{_each(asked.per_task)}"
    ranks = f", {asked.tasks_per_node} tasks on each" if asked.tasks_per_node != 1 else ""
    return f"{text.plural(asked.nodes, 'node')}{_each(asked.per_node)}{ranks}"


def _each(asked: Resources | None) -> str:
    if asked is None:
        return ""
    parts = []
    if asked.gpus:
        models = f" ({', '.join(asked.gpu_models)})" if asked.gpu_models else ""
        parts.append(text.plural(asked.gpus, f"{asked.mig} instance" if asked.mig else "GPU") + models)
    if asked.gpu_milli:
        parts.append(f"{asked.gpu_milli / 1000:g} of a GPU")
    if asked.gpu_memory_bytes:
        parts.append(f"{text.size(asked.gpu_memory_bytes)} of GPU memory")
    if asked.cores:
        parts.append(text.plural(asked.cores, "core"))
    if asked.memory_bytes:
        parts.append(text.size(asked.memory_bytes))
    parts += [f"label {name}={value}" for name, value in asked.labels.items()]
    return f" with {', '.join(parts)} each" if parts else ""


def card(job: Job) -> str:
    """Everything that is known of a job; of an array as a whole, how its tasks stand."""
    spec = job.spec
    whole = job.tasks is not None
    rows = [
        ("state", "" if whole else state(job).text),
        ("tasks", _tasks(job)),
        ("user", job.owner),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("each asks for" if whole else "asks for", request(job)),
        ("after", ", ".join(f"{one.job} ({one.on})" for one in spec.depends_on)),
        ("singleton", "one of its name and user at a time" if spec.singleton else ""),
        ("topology", _topology(spec.topology)),
        ("command", _command(spec.command) if spec.command else ""),
        *((f"command of {one.name}", _command(one.command)) for one in spec.groups),
        ("workdir", spec.workdir or "a folder of its own"),
        ("output", spec.output),
        ("time limit", _time_limit(job)),
        ("labels", ", ".join(f"{name}={value}" for name, value in spec.labels.items())),
        ("submitted", text.instant(job.submitted_at)),
    ]
    if whole:
        return "\n".join([array_title(job), *fields(rows)])
    rows += [
        ("started", text.instant(job.started_at) if job.started_at else ""),
        ("ended", text.instant(job.ended_at) if job.ended_at else ""),
        ("exit code", str(job.exit_code) if job.exit_code is not None else ""),
        ("why", job.why),
        ("held", job.hold),
        ("waits", f"{job.reason.sentence} [{job.reason.code}]" if job.reason else ""),
    ]
    lines = [title(job), *fields(rows)]
    if job.attempt is not None:
        lines += ["", *_attempt(job.attempt)]
    for past in reversed(job.past):
        lines += ["", *_past(past)]
    if job.faults:
        lines += ["", "could not be prepared on:", *(f"  {text.safe(fault)}" for fault in job.faults)]
    return "\n".join(lines)


def _tasks(job: Job) -> str:
    """`0-99, at most 4 at a time: 4 running, 96 waiting`; of one task nothing."""
    array = job.spec.array
    if job.tasks is None or array is None:
        return ""
    throttle = f", at most {array.at_most} at a time" if array.at_most else ""
    known = ", ".join(f"{count} {word}" for word, count in sorted(job.tasks.states.items()))
    return f"{array.tasks}{throttle}: {known}"


def _topology(asked: Topology | None) -> str:
    if asked is None:
        return ""
    parts = [
        f"within one {asked.required}" if asked.required else "",
        f"within one {asked.preferred} if it can be" if asked.preferred else "",
        f"each {asked.segment_nodes} nodes within one {asked.segment_level}" if asked.segment_nodes else "",
    ]
    return ", ".join(part for part in parts if part)


def fields(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Name and value, aligned; empty values are left out."""
    shown = [(name, value) for name, value in rows if value]
    wide = max((len(name) for name, _ in shown), default=0)
    return [f"  {name:{wide}}  {text.safe(value)}" for name, value in shown]


def _time_limit(job: Job) -> str:
    if job.time_limit_s:
        return text.span(job.time_limit_s)
    usual = dict(DEFAULT_TIME_LIMITS).get(job.workload)
    default = text.span(usual) if usual else "none"
    return f"none of its own: its queue's, else {default} for {job.workload} work"


def _command(argv: Sequence[str]) -> str:
    import shlex

    if len(argv) == 3 and tuple(argv[:2]) == ("/bin/sh", "-c"):
        return argv[2]
    return shlex.join(argv)


def _attempt(attempt: Attempt) -> list[str]:
    lost = ", lost: a node of it can't be reached" if attempt.lost else ""
    limit = f", until {text.instant(attempt.deadline_at)}" if attempt.deadline_at else ""
    head = f"attempt {attempt.id}: {attempt.state}{limit}{lost}"
    heads = [
        Head("NODE"),
        Head("STATE"),
        Head("RANKS", right=True),
        Head("SLOTS"),
        Head("PIDS"),
        Head("ERROR"),
    ]
    named = any(part.group for part in attempt.parts)
    heads[1:1] = [Head("GROUP")] if named else []
    rows = [
        [
            Cell(part.node),
            *([Cell(part.group)] if named else []),
            Cell(part.state),
            Cell(_ranks(part.first_rank, part.tasks)),
            Cell(",".join(part.instances) or text.fold(part.slots) or "-"),
            Cell(_pids(part.pids)),
            Cell(part.error or "-"),
        ]
        for part in attempt.parts
    ]
    return [head, *(f"  {line}" for line in render(heads, rows))]


def _pids(pids: list[int]) -> str:
    """In the order of ranks; as ranges where that is their own order too."""
    return (text.fold(pids) if pids == sorted(pids) else ",".join(map(str, pids))) or "-"


def _past(past: PastAttempt) -> list[str]:
    ran = "never started"
    if past.started_at and past.ended_at:
        ran = f"ran {text.span((past.ended_at - past.started_at).total_seconds())}"
    nodes = text.fold_names([placement.node for placement in past.placements])
    head = f"attempt {past.id}: {past.cause}, {ran} on {nodes}, exit {past.exit_code}"
    lines = [head]
    said = failure(past)
    if said:
        lines.append(f"  {said}")
    if past.first_failed is not None and past.first_failed.tail.strip():
        tail = text.safe_lines(past.first_failed.tail.rstrip())
        lines += ["  the end of its output:", text.indent(tail, "  | ")]
    return lines


def _ranks(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def numbers(facts: dict[str, Any]) -> list[str]:
    """The facts of a reason as a small table; nothing if there is none. Long texts are in its sentence, and would make
    each line as wide."""
    heads = [Head("NUMBER"), Head("VALUE", right=True)]
    short = {name: str(value) for name, value in facts.items() if len(str(value)) <= LONGEST_FACT}
    if not short:
        return []
    return render(heads, [[Cell(name.replace("_", " ")), Cell(value)] for name, value in short.items()])
