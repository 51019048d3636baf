"""Policy files: what a simulation tries of the scheduler's settings.

Comes in: a path, the settings of the cluster's own file. Goes out: `LoadedPolicy`: those settings with what the file
says, or every fault with its place. Called by: cli (simulate).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.model.cluster import SchedulerSpec
from orchestrator.model.job import Workload
from orchestrator.spec.kinds import kind_of
from orchestrator.spec.places import Page, sorted_errors, unplaced
from orchestrator.spec.reading import read_document
from orchestrator.spec.report import SpecError
from orchestrator.spec.source import Unreadable, read_text
from orchestrator.spec.tree import read_tree
from orchestrator.wire.policy import KIND, PolicyDocument

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """What the file says. `scheduler` is complete; of the rest None, or no entry, is what the file does not say."""

    scheduler: SchedulerSpec
    models_ranked: bool | None = None
    compiled: bool | None = None
    default_time_limit_s: dict[Workload, int] = field(default_factory=dict)  # seconds, 0: none


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """`policy` is None exactly if there are errors."""

    policy: PolicyFile | None
    errors: tuple[SpecError, ...]


def load_policy(path: str, wanted: SchedulerSpec) -> LoadedPolicy:
    """What the file says over what the cluster's file wants. Raises nothing."""
    try:
        text = read_text(path)
    except Unreadable as error:
        return LoadedPolicy(None, (unplaced(path, error.problem, error.line, error.column),))
    page = Page(path, text, read_tree(text))
    errors = [page.of_text(fault) for fault in page.tree.faults]
    root, document, more = page.tree.root, None, 0
    if root is not None:
        kind, strange = kind_of(root, (KIND,))
        if kind is None:
            errors += [page.error(one) for one in strange]
        else:
            reading = read_document(PolicyDocument, root.value)
            document, more = reading.document, reading.more
            errors += [page.error(one) for one in reading.found]
    if errors or document is None:
        return LoadedPolicy(None, sorted_errors(errors, path, more))
    return LoadedPolicy(_over(document, wanted), ())


def _over(document: PolicyDocument, wanted: SchedulerSpec) -> PolicyFile:
    limits = document.default_time_limit
    by_work = {work: getattr(limits, work.value) for work in Workload} if limits is not None else {}
    return PolicyFile(
        SchedulerSpec(
            fair_share=_or(document.fair_share, wanted.fair_share),
            half_life_s=_or(document.half_life, wanted.half_life_s),
            placement=_or(document.placement, wanted.placement),
            kept_jobs=_or(document.kept_jobs, wanted.kept_jobs),
        ),
        document.models_ranked,
        document.compiled,
        {work: limit for work, limit in by_work.items() if limit is not None},
    )


def _or(said: T | None, wanted: T) -> T:
    return wanted if said is None else said
