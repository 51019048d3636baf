"""`make fuzz ROUNDS=100000 SEED=0`: the properties of passes over so many random passes, one after the other.

Comes in: ROUNDS (passes) and SEED (of the first story; each story of 12 passes has the next one). Goes out: a line now
and then, figures at the end; a failure with its traceback, the seed, how to play that story again, and code 1.
Called by: make.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Callable

from orchestrator.model.decisions import Start
from tests.scheduler import fuzz, fuzz_divided
from tests.scheduler.fuzz import Story
from tests.scheduler.test_counterfactual import reasons_are_true
from tests.scheduler.test_exhaustive import (
    nobody_who_fits_waits,
    what_is_said_is_so,
    whoever_is_refused_can_never_start,
)
from tests.scheduler.test_groups import all_that_holds_for_equal_gangs, whoever_waits_can_not_start
from tests.scheduler.test_order import nobody_is_overtaken_in_line
from tests.scheduler.test_properties import all_that_holds_always

PASSES = 12  # of a story
GROUPS = 5  # one story in so many has gangs of groups
DIVIDED = 3  # one in so many has divided GPUs
Check = Callable[[Story, tuple[Start, ...]], None]
ALWAYS: tuple[Check, ...] = (all_that_holds_always,)
IN_SMALL_WORLDS: tuple[Check, ...] = (what_is_said_is_so, reasons_are_true)
WITH_NOTHING_KEPT: tuple[Check, ...] = (nobody_who_fits_waits, nobody_is_overtaken_in_line)


def story_of(seed: int) -> Story:
    """The story of a seed: every other one in a small world, where everything can be tried; of those every other one
    without kept nodes. Every fifth one has gangs of groups, every third one divided GPUs."""
    tries, kept = seed % 2 == 0, 0 if seed % 4 == 0 else None
    groups, divided = seed % GROUPS == 0, seed % DIVIDED == 0
    checks = _of_groups(tries, kept) if groups else _of_equals(tries, kept)

    def check(story: Story, decisions: tuple[Start, ...]) -> None:
        for one in checks:
            one(story, decisions)

    worlds = (
        (fuzz_divided.a_divided_cluster, fuzz_divided.small_and_divided)
        if divided
        else (fuzz.a_cluster, fuzz.small)
    )
    asks = (
        (fuzz_divided.a_job_of_any, fuzz_divided.jobs_or_groups_of_any)
        if divided
        else (fuzz.a_job, fuzz.a_job_or_groups)
    )
    refused = whoever_is_refused_can_never_start if tries else None
    return Story(random.Random(seed), check, worlds[tries], kept if tries else None, asks[groups], refused)


def _of_equals(tries: bool, kept: int | None) -> tuple[Check, ...]:
    if not tries:
        return ALWAYS
    return (*ALWAYS, *IN_SMALL_WORLDS, *(WITH_NOTHING_KEPT if kept == 0 else ()))


def _of_groups(tries: bool, kept: int | None) -> tuple[Check, ...]:
    if not tries:
        return (all_that_holds_for_equal_gangs,)
    return (whoever_waits_can_not_start,) if kept == 0 else (reasons_are_true,)


def main() -> int:
    """Play stories until so many passes are done, or one fails."""
    rounds, first = int(os.environ.get("BENCH_ROUNDS", "1000")), int(os.environ.get("BENCH_SEED", "0"))
    begun, done, seed = time.process_time(), 0, first
    while done < rounds:
        try:
            story_of(seed).play(PASSES)
        except Exception:  # noqa: BLE001 - whatever a pass may do
            traceback.print_exc()
            _say(f"the story of seed {seed} fails; again: make fuzz SEED={seed} ROUNDS=1")
            return 1
        done, seed = done + PASSES, seed + 1
        if done // 5_000 != (done - PASSES) // 5_000:
            _say(f"{done} passes, {time.process_time() - begun:.0f} s of processor time")
    _say(
        f"{done} passes of {seed - first} stories hold, {time.process_time() - begun:.0f} s of processor time"
    )
    return 0


def _say(words: str) -> None:
    sys.stdout.write(f"fuzz: {words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
