"""Settings of a pass.

Comes in: what people set for the cluster. Goes out: `Policy`. Called by: controller and simulate (make one), everything
in this room (reads it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from orchestrator.ledger.state import State, time_limit_s
from orchestrator.model.cluster import ClusterSpec, FairShare, Preset, SchedulerSpec
from orchestrator.model.job import DEFAULT_TIME_LIMIT_S, JobSpec, Workload


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a pass. `kept` is how many blocked jobs, first in order, have nodes kept for them."""

    default_time_limit_s: tuple[tuple[Workload, int], ...] = tuple(DEFAULT_TIME_LIMIT_S.items())
    fair_share: FairShare = FairShare.INSTANT
    kept: int = 8
    placement: Preset = Preset.STANDARD
    compiled: bool = True  # score nodes with compiled code where there is some; decisions are the same
    models_ranked: bool = False  # models, as a job names them, are in order of preference

    def time_limit_s(self, state: State, spec: JobSpec) -> int:
        """As `ledger.state.time_limit_s` says."""
        return time_limit_s(state, spec, _usual(self.default_time_limit_s))


@cache
def _usual(limits: tuple[tuple[Workload, int], ...]) -> dict[Workload, int]:
    return dict(limits)


def policy_of(cluster: ClusterSpec | None) -> Policy:
    """As the file wants it."""
    return policy_by(cluster.scheduler) if cluster is not None else Policy()


def policy_by(wanted: SchedulerSpec) -> Policy:
    """As these settings want it."""
    return Policy(fair_share=wanted.fair_share, kept=wanted.kept_jobs, placement=wanted.placement)
