"""Divided GPUs beside whole ones in random stories: what holds for all that jobs ask for holds for MIG instances too.

Scenes of MIG alone are in test_mig. Where instances stand is judged by exhaustive_nodes: at legal places of GPUs in
MIG mode, never on each other, and nobody has such a GPU whole beside them.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.fuzz import Story
from tests.scheduler.fuzz_divided import (
    a_divided_cluster,
    a_job_of_any,
    jobs_or_groups_of_any,
    small_and_divided,
)
from tests.scheduler.test_counterfactual import reasons_are_true
from tests.scheduler.test_exhaustive import nobody_who_fits_waits, what_is_said_is_so
from tests.scheduler.test_groups import all_that_holds_for_equal_gangs, whoever_waits_can_not_start
from tests.scheduler.test_properties import all_that_holds_always

pytestmark = pytest.mark.property
SEEDS = st.integers(0, 10**9)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_what_holds_for_whole_gpus_holds_for_instances(seed: int) -> None:
    Story(random.Random(seed), all_that_holds_always, a_divided_cluster, asks=a_job_of_any).play(10)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_whoever_waits_truly_can_not_start(seed: int) -> None:
    Story(random.Random(seed), nobody_who_fits_waits, small_and_divided, kept=0, asks=a_job_of_any).play(8)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_what_is_said_is_so(seed: int) -> None:
    Story(random.Random(seed), what_is_said_is_so, small_and_divided, asks=a_job_of_any).play(8)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_without_what_a_reason_names_the_job_starts(seed: int) -> None:
    Story(random.Random(seed), reasons_are_true, small_and_divided, asks=a_job_of_any).play(8)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_groups_of_instances_and_others_start_whole(seed: int) -> None:
    story = Story(
        random.Random(seed), all_that_holds_for_equal_gangs, a_divided_cluster, asks=jobs_or_groups_of_any
    )
    story.play(8)


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_groups_of_instances_that_wait_truly_can_not_start(seed: int) -> None:
    checks = whoever_waits_can_not_start, reasons_are_true
    for kept, check in zip((0, None), checks, strict=True):
        Story(random.Random(seed), check, small_and_divided, kept, asks=jobs_or_groups_of_any).play(6)
