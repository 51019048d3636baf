"""The document of a policy: settings of the scheduler that a simulation tries, over those of the cluster's file.

Comes in: the plain value of a `kind: Policy` file. Goes out: `PolicyDocument`. Called by: spec (reads files),
`schemas`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from orchestrator.wire.cluster import FairShareWord, Kept, PresetWord
from orchestrator.wire.common import Duration, Flag
from orchestrator.wire.leaf import Strict

KIND = "Policy"


class TimeLimitsDocument(Strict):
    """Time limits by class of work, of jobs that name none and whose queue has none; `0s`: none."""

    serving: Duration | None = Field(None, description="Of serving work.", examples=["0s"])
    training: Duration | None = Field(None, description="Of training work.", examples=["1d"])
    batch: Duration | None = Field(None, description="Of batch work.", examples=["4h"])
    interactive: Duration | None = Field(None, description="Of interactive work.", examples=["2h"])


class PolicyDocument(Strict):
    """Settings of the scheduler for `gangline simulate`; what is absent is as the cluster's file has it."""

    model_config = ConfigDict(title="Gangline policy")

    api_version: Literal["gangline/v1"] = Field(alias="apiVersion", description="Version of this format.")
    kind: Literal["Policy"] = Field(description="What this file describes.")
    fair_share: FairShareWord | None = Field(
        None, description="What decides between queues, and between people of one queue at the same priority."
    )
    half_life: Duration | None = Field(
        None, description="After so long a GPU-hour counts half, with `decay`.", examples=["7d"]
    )
    placement: PresetWord | None = Field(None, description="How nodes are weighed against each other.")
    kept_jobs: Kept | None = Field(
        None,
        description="Blocked jobs, first in order, that nodes are kept for; 0: small jobs may pass large ones.",
    )
    models_ranked: Flag | None = Field(
        None, description="GPU models, as a job names them, are in order of preference."
    )
    compiled: Flag | None = Field(
        None, description="Score nodes with compiled code where there is some; decisions are the same."
    )
    default_time_limit: TimeLimitsDocument | None = Field(
        None, description="Time limits of jobs that name none, and whose queue has none."
    )
