"""The job document: what `gangline submit job.yaml`, `gangline run` and the API send.

Comes in: the plain value of a `kind: Job` file or request body. Goes out: `JobDocument`, whose leaves are in base
units. Called by: spec (checks it and builds `JobSpec`), client and SDK (build it), `schemas`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WrapValidator

from orchestrator.model.array import LONGEST_TEXT, MOST_TASKS, Array, Range, read_tasks
from orchestrator.model.base import Word
from orchestrator.model.dependency import On
from orchestrator.model.ids import JOB_FORM, MOST_JOB, JobRef, parse_job
from orchestrator.model.job import (
    DEFAULT_TIME_LIMIT_S,
    HIGHEST_PRIORITY,
    OUTPUT_PLACEHOLDERS,
    LaunchKind,
    OnLost,
    Workload,
)
from orchestrator.wire.common import (
    AbsolutePath,
    Count,
    Duration,
    Flag,
    Name,
    Positive,
    Reference,
    Rows,
    Size,
    Span,
    Table,
    Watts,
    choice_leaf,
    free_text_leaf,
    pattern_leaf,
    scaled_leaf,
    texts_leaf,
    whole_leaf,
    within,
)
from orchestrator.wire.faults import plain, refuse, shown
from orchestrator.wire.leaf import QUOTE_IT, Leaf, Strict, key_leaf, read_present, text_of, wrong_type

MOST_COMMAND = 1_000_000  # characters; Linux takes 2 MiB of arguments and environment in all
PLACEHOLDERS = ", ".join(f"%{letter} {word}" for letter, word in OUTPUT_PLACEHOLDERS)
_LETTERS = "".join(letter for letter, _ in OUTPUT_PLACEHOLDERS)
DEFAULT_TIME_LIMITS = ", ".join(
    f"{f'{limit // 3600}h' if limit else 'none'} for {workload} work"
    for workload, limit in DEFAULT_TIME_LIMIT_S.items()
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class ElasticMode(Word):
    """When a gang may change its size."""

    AT_START = "at_start"
    RESTART = "restart"
    LIVE = "live"


class CheckpointBy(Word):
    """Who writes checkpoints: the job by itself, or the job when it gets the signal."""

    JOB = "job"
    SIGNAL = "signal"


class StopTo(Word):
    """Which processes get the signal."""

    ALL = "all"
    LAUNCHER = "launcher"


class Compat(Word):
    """Whose variables the job finds in its environment besides."""

    SLURM = "slurm"


class StopSignal(Word):
    """Signals that ask a process to end; SIGKILL comes by itself after the grace."""

    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"
    SIGHUP = "SIGHUP"
    SIGQUIT = "SIGQUIT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"
    SIGALRM = "SIGALRM"
    SIGCONT = "SIGCONT"


LaunchWord = Annotated[LaunchKind, choice_leaf(LaunchKind)]
WorkloadWord = Annotated[Workload, choice_leaf(Workload)]
OnLostWord = Annotated[OnLost, choice_leaf(OnLost)]
ElasticWord = Annotated[ElasticMode, choice_leaf(ElasticMode)]
CheckpointWord = Annotated[CheckpointBy, choice_leaf(CheckpointBy)]
StopToWord = Annotated[StopTo, choice_leaf(StopTo)]
CompatWord = Annotated[Compat, choice_leaf(Compat)]
SignalWord = Annotated[StopSignal, choice_leaf(StopSignal)]
JobName = Annotated[
    str,
    pattern_leaf(
        r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$",
        "spec.bad-name",
        "a text: a name",
        "use letters, digits, '.', '-' and '_', at most 128, with a letter or digit at both ends",
    ),
]
LabelText = Annotated[str, free_text_leaf("a text", 256, empty=True)]
Priority = Annotated[int, whole_leaf(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)]
GpuCount = Annotated[int, whole_leaf(0, 64)]
Retry = Annotated[int, whole_leaf(0, 1000)]
RanksPerNode = Annotated[int, whole_leaf(1, 4096)]
GpuModels = Annotated[tuple[str, ...], texts_leaf(free_text_leaf("a text: a GPU model", 63), "GPU models")]


def _read_word(value: Any) -> str:
    """Any text that can be an argument or the value of a variable."""
    text = text_of(value, "a text")
    if not _sendable(text) or len(text) > MOST_COMMAND:
        advice = "leave out NUL, and keep it under a million characters"
        raise refuse("spec.bad-text", got=shown(text), advice=advice)
    return text


def _sendable(text: str) -> bool:
    """Whether a process can get it: no NUL, and no half of a surrogate pair (which JSON can carry)."""
    return "\0" not in text and not _SURROGATE.search(text)


def _read_command(value: Any) -> tuple[str, ...]:
    """A shell line becomes ("/bin/sh", "-c", line); a list is the argument vector itself."""
    if isinstance(value, str):
        if not value.strip():
            raise refuse("job.empty-command")
        return ("/bin/sh", "-c", _read_word(value))
    if not isinstance(value, list):
        raise wrong_type(value, "a text (a shell line) or a list of texts")
    for index, word in enumerate(value):
        if not isinstance(word, str):
            raise wrong_type(word, "a text", (index,), QUOTE_IT)
        _read_word(word)
    if not value or not value[0]:
        raise refuse("job.empty-command")
    return tuple(value)


def _write_command(argv: tuple[str, ...]) -> str | list[str]:
    return argv[2] if len(argv) == 3 and argv[:2] == ("/bin/sh", "-c") else list(argv)


def _read_array(value: Any) -> tuple[Range, ...]:
    """`0-99:2`."""
    text = text_of(value, "a text: the indices of an array")
    try:
        return read_tasks(text)
    except ValueError as error:
        raise refuse("job.bad-array", got=shown(text), why=plain(str(error), 200)) from None


def _read_reference(value: Any) -> JobRef:
    """1234, or 1234_7."""
    if isinstance(value, int) and not isinstance(value, bool):
        within(value, shown(value), 1, MOST_JOB)
        return JobRef(value)
    text = text_of(value, "the number of a job, or a text: a task of an array", "")
    try:
        return parse_job(text)
    except ValueError:
        raise refuse("job.bad-reference", got=shown(value)) from None


def _write_reference(ref: JobRef) -> int | str:
    return ref.job if ref.task is None else str(ref)


def _read_output(value: Any) -> str:
    text = text_of(value, "a text: a path")
    if plain(text, len(text)) != text or not 0 < len(text) <= 4000:
        raise refuse(
            "spec.bad-text", got=shown(text), advice="write a path, in the working directory or absolute"
        )
    for found in re.finditer(r"%(.?)", text):
        if found.group(1) not in (*_LETTERS, "%"):
            raise refuse("job.bad-placeholder", got=shown(found.group()), known=PLACEHOLDERS)
    return text


CommandText = Annotated[
    tuple[str, ...],
    Leaf(
        _read_command,
        {
            "oneOf": [
                {"type": "string", "pattern": r"\S"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        },
        _write_command,
    ),
]
ArrayTasks = Annotated[
    tuple[Range, ...],
    Leaf(
        _read_array,
        {"type": "string", "pattern": r"^[0-9 ,:-]+$", "maxLength": LONGEST_TEXT},
        lambda tasks: Array(tasks).text(),
    ),
]
JobReference = Annotated[
    JobRef,
    Leaf(
        _read_reference,
        {
            "oneOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST_JOB},
                {"type": "string", "pattern": f"^{JOB_FORM}$"},
            ]
        },
        _write_reference,
    ),
]
OnWord = Annotated[On, choice_leaf(On)]
GpuShare = Annotated[int, scaled_leaf(1000, 0.999, "0.001", 0.001)]
MigProfile = Annotated[
    str,
    pattern_leaf(
        r"^[1-9]g\.[1-9][0-9]{0,2}gb(\+[a-z]+(\.[a-z]+)?)?$",
        "spec.bad-name",
        "a text: a MIG profile",
        "write it as nvidia-smi does, as in 1g.10gb",
        "1g.10gb",
    ),
]
VariableName = Annotated[
    str,
    key_leaf(
        pattern_leaf(
            r"^(?!GANGLINE_)[A-Za-z_][A-Za-z0-9_]{0,254}$",
            "spec.bad-name",
            "a text: the name of a variable",
            "use letters, digits and '_'; names starting with GANGLINE_ are Gangline's own",
        )
    ),
]
VariableText = Annotated[str, Leaf(_read_word, {"type": "string"})]
Environment = dict[VariableName, Annotated[VariableText, WrapValidator(read_present)]]
Output = Annotated[
    str,
    Leaf(
        _read_output,
        {
            "type": "string",
            "minLength": 1,
            "pattern": f"^([^%]|%[{_LETTERS}%])+$",
            "examples": ["logs/%j-%t.out"],
        },
    ),
]


class JobMetadata(Strict):
    """What names the job."""

    name: JobName = Field(description="Name of the job; need not be unique.", examples=["pretrain-7b"])
    labels: Table[LabelText] = Field(
        {}, description="Free labels, to find jobs by.", examples=[{"project": "lm"}]
    )


class LaunchDocument(Strict):
    """How the processes start."""

    kind: LaunchWord = Field(
        description="`launcher`: the command once per node (torchrun); `ranks`: once per task; `batch`: once in all."
    )


class ResourcesDocument(Strict):
    """What each node, or each task, gets."""

    gpus: GpuCount | None = Field(
        None, description="Whole GPUs; with `mig`, so many instances (absent: 1).", examples=[8]
    )
    gpu_share: GpuShare | None = Field(
        None, description="Share of one GPU that others may use as well.", examples=[0.5]
    )
    gpu_memory: Size | None = Field(
        None,
        description="Memory of each GPU: a whole one has at least so much; with `gpu_share`, or alone, so much is kept "
        "on a shared one.",
        examples=["20GiB"],
    )
    mig: MigProfile | None = Field(None, description="Profile of MIG instances, instead of whole GPUs.")
    cores: Count = Field(0, description="Processor cores; 0: whatever comes with the GPUs.", examples=[96])
    memory: Size | None = Field(None, description="Memory.", examples=["960GiB"])
    gpu_model: GpuModels | None = Field(None, description="GPU models that will do; absent: any.")
    labels: Table[LabelText] = Field(
        {}, description="Labels that the pool of its nodes must have.", examples=[{"network": "fast"}]
    )


class GroupDocument(Strict):
    """A part of the gang with needs of its own: nodes or tasks, as in the job itself."""

    name: Name = Field(
        description="Name of the group, as its processes and reasons call it.", examples=["workers"]
    )
    nodes: Positive | None = Field(
        None, description="Nodes of the group; absent, with `tasks` absent too: 1."
    )
    per_node: ResourcesDocument | None = Field(None, description="What each of its nodes gives.")
    tasks_per_node: RanksPerNode | None = Field(
        None, description="Processes that start on each of its nodes; absent: 1."
    )
    tasks: Positive | None = Field(None, description="Tasks of the group, instead of `nodes`.")
    per_task: ResourcesDocument | None = Field(None, description="What each of its tasks gets.")
    command: CommandText | None = Field(None, description="What it runs; absent: the job's command.")


class ElasticDocument(Strict):
    """A gang that may run smaller."""

    min_nodes: Positive = Field(description="Fewest nodes it can run on.")
    mode: ElasticWord = Field(description="When it may change: at its start, by a restart, or while it runs.")


class SegmentDocument(Strict):
    """Parts of the gang that are close together in themselves."""

    nodes: Positive = Field(description="Nodes of each segment; the gang has a multiple of it.", examples=[4])
    level: Name = Field(description="Level inside which each segment must be.", examples=["unit"])


class TopologyDocument(Strict):
    """How close together the gang must be."""

    required: Name | None = Field(None, description="Level inside which it must be.", examples=["spine"])
    preferred: Name | None = Field(None, description="Level inside which it should be.", examples=["unit"])
    segment: SegmentDocument | None = Field(None, description="Parts of it that must be closer together.")


class ArrayDocument(Strict):
    """Many jobs from one submit, alike but for their index."""

    tasks: ArrayTasks = Field(
        description=f"Indices of its tasks, a job each; at most {MOST_TASKS}.", examples=["0-99:2"]
    )
    at_most: Positive | None = Field(
        None, description="So many of them have an attempt at a time; absent: any number.", examples=[4]
    )


class DependencyDocument(Strict):
    """What another job has to do first."""

    job: JobReference = Field(
        description="Number of the job; of an array, all of its tasks, or one as `1234_7`.", examples=[1234]
    )
    on: OnWord = Field(
        On.OK,
        description="`start`: it has started; `ok`: it has succeeded; `failed`: it has failed; `end`: it is over.",
    )


class StopDocument(Strict):
    """How work is asked to end."""

    signal: SignalWord = Field(StopSignal.SIGTERM, description="Signal that it gets first.")
    to: StopToWord = Field(StopTo.ALL, description="All processes, or only the launcher (rank 0).")
    grace: Duration = Field(30, description="How long it may take before it is killed.", examples=["10m"])


class ReportDocument(Strict):
    """Where the job says how far its checkpoints are."""

    path: AbsolutePath = Field(description="File whose changes mark finished checkpoints.")


class CheckpointDocument(Strict):
    """Who writes checkpoints, and how often."""

    by: CheckpointWord = Field(description="`job`: by itself; `signal`: when it gets the stop signal.")
    every: Span | None = Field(None, description="Usual time between two.", examples=["30m"])
    stop: StopDocument | None = Field(
        None, description="How it is asked to write one and end, instead of `spec.stop`."
    )
    report: ReportDocument | None = Field(None, description="Where it reports finished ones.")


class RetriesDocument(Strict):
    """How often it starts again, by what ended it."""

    node_failure: Retry = Field(5, description="After a node failed under it.")
    job_failure: Retry = Field(0, description="After it ended by itself with an error.")


class GpuPowerDocument(Strict):
    """Power caps per GPU that the job accepts."""

    min_watts: Watts | None = Field(None, description="Lowest cap in watts.", examples=[500])
    max_watts: Watts | None = Field(None, description="Highest cap in watts.", examples=[700])


class JobSpecDocument(Strict):
    """What is to run, on what, by which rules."""

    queue: Reference = Field("default", description="Queue that it is counted in.")
    workload: WorkloadWord = Field(
        Workload.BATCH, description="Class of work; sets defaults, such as the time limit."
    )
    priority: Priority = Field(0, description="Higher starts first within the queue.")
    hold: Flag = Field(False, description="Submit it held: it starts after `gangline release`.")
    nodes: Positive | None = Field(None, description="Nodes of the gang; absent, with `tasks` absent too: 1.")
    per_node: ResourcesDocument | None = Field(None, description="What each node gives.")
    tasks_per_node: RanksPerNode | None = Field(
        None, description="Processes that start on each node; absent: 1."
    )
    tasks: Positive | None = Field(None, description="Tasks of the gang, instead of `nodes`.")
    per_task: ResourcesDocument | None = Field(None, description="What each task gets.")
    groups: Rows[GroupDocument] = Field(
        [],
        description="Groups of unlike nodes or tasks, instead of `nodes` and `tasks`: all start together, in the order "
        "of their ranks.",
    )
    launch: LaunchDocument = Field(
        LaunchDocument(kind=LaunchKind.RANKS), description="How the processes start."
    )
    exclusive: Flag = Field(False, description="Nobody else on its nodes, whatever it takes of them.")
    array: ArrayDocument | None = Field(None, description="Makes a job for each of these indices.")
    depends_on: Rows[DependencyDocument] = Field(
        [], description="All of it must hold before the job starts; what can't hold any more cancels it."
    )
    singleton: Flag = Field(
        False, description="It starts when no earlier job of its name and user is left, one after the other."
    )
    elastic: ElasticDocument | None = Field(None, description="How it may run smaller.")
    topology: TopologyDocument = Field(TopologyDocument(), description="How close together it must be.")
    needs: Rows[Reference] = Field([], description="Storage that must be there, by name.")
    env: Environment = Field(
        {}, description="Variables of its environment.", examples=[{"OMP_NUM_THREADS": "8"}]
    )
    compat: CompatWord | None = Field(None, description="`slurm`: SLURM_* variables too.")
    workdir: AbsolutePath | None = Field(None, description="Where it runs; absent: a folder of its own.")
    output: Output | None = Field(None, description=f"File of its output; {PLACEHOLDERS}.")
    time_limit: Span | None = Field(
        None,
        description=f"It is stopped after so long; absent: its queue's default, else {DEFAULT_TIME_LIMITS}.",
        examples=["3d"],
    )
    stop: StopDocument = Field(StopDocument(), description="How it is asked to end.")
    checkpoint: CheckpointDocument | None = Field(None, description="Who writes checkpoints.")
    retries: RetriesDocument = Field(RetriesDocument(), description="How often it starts again.")
    on_lost: OnLostWord = Field(
        OnLost.WAIT_FOR_PROOF, description="What lets it start again when its node is lost."
    )
    gpu_power: GpuPowerDocument = Field(GpuPowerDocument(), description="Power caps per GPU that it accepts.")
    command: CommandText = Field(description="A shell line, or a list of words that is run as it is.")


class JobDocument(Strict):
    """One job: a gang and its command."""

    model_config = ConfigDict(title="Gangline job")

    api_version: Literal["gangline/v1"] = Field(alias="apiVersion", description="Version of this format.")
    kind: Literal["Job"] = Field(description="What this file describes.")
    metadata: JobMetadata = Field(description="What names the job.")
    spec: JobSpecDocument = Field(description="What is to run, on what, by which rules.")
