"""MIG instances: legal places, which of them a pass takes, and what it says when there is none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from orchestrator import catalog
from orchestrator.ledger.capacity import WHOLE
from orchestrator.ledger.slices import Slices
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.ledger.state import State
from orchestrator.ledger.statement import Statement
from orchestrator.model.attempt import JobState, Placement
from orchestrator.model.job import JobSpec
from orchestrator.model.mig import MigInstance, MigLayout, MigProfile
from orchestrator.model.need import need_of
from orchestrator.scheduler import decide, mig, refuse
from orchestrator.scheduler.policy import Policy
from orchestrator.scheduler.waste import NO_FIT
from tests.builders import cluster, job, pool, queue
from tests.controller.invariants import check_state
from tests.scheduler.scenes import STARTS, Stage, share

LAYOUTS = {name: gpu.mig for name, gpu in catalog.load().gpus.items() if gpu.mig is not None}
H100 = LAYOUTS["H100-SXM5-80GB"]
NO_WEIGHTS: mig.Weights = ()


def divided(nodes: int = 1, gpus: int = 1, **rest: object) -> Stage:
    """Nodes whose GPUs are all in MIG mode."""
    return Stage(cluster(pool(nodes=nodes, gpus=gpus, mig=True, **rest)))  # type: ignore[arg-type]


def ask(profile: str, gpus: int = 1, **rest: object) -> JobSpec:
    return job(mig=profile, gpus=gpus, **rest)  # type: ignore[arg-type]


def placed(stage: Stage, number: int) -> tuple[str, ...]:
    """The instances of a running job."""
    attempt = stage.state.jobs[number].attempt
    assert attempt is not None
    return tuple(str(one) for part in attempt.parts for one in part.placement.instances)


def reached(layout: MigLayout, gpus: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every state of some GPUs that any order of starts leads to: held slices, and compute slices in use, of each."""
    seen, left = {((0,) * gpus, (0,) * gpus)}, [((0,) * gpus, (0,) * gpus)]
    while left:
        held, used = left.pop()
        yield held, used
        for gpu, one in product(range(gpus), layout.profiles):
            for start in one.starts:
                if held[gpu] & one.bits(start):
                    continue
                after = tuple(mask | one.bits(start) if at == gpu else mask for at, mask in enumerate(held))
                compute = tuple(sum_ + one.compute if at == gpu else sum_ for at, sum_ in enumerate(used))
                if (after, compute) not in seen:
                    seen.add((after, compute))
                    left.append((after, compute))


# --- the layouts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
def test_instances_that_share_no_memory_slice_never_need_more_compute_than_there_is(name: str) -> None:
    layout = LAYOUTS[name]
    most = max(one.compute for one in layout.profiles)
    assert max(sum(used) for _, used in reached(layout, 1)) == most


@pytest.mark.parametrize("name", LAYOUTS)
def test_places_of_one_profile_never_meet_and_stay_on_the_gpu(name: str) -> None:
    """So the number that fit does not hang on their order."""
    layout = LAYOUTS[name]
    assert len(set(layout.names())) == len(layout.profiles)
    for one in layout.profiles:
        held = 0
        for start in one.starts:
            assert not held & one.bits(start)
            held |= one.bits(start)
        assert 0 < held < 1 << layout.slices
        assert layout.milli(one) * layout.slices == one.size * 1000


def fewest(layout: MigLayout, profile: MigProfile, held: int) -> int:
    """How many fit, by trying all orders."""
    free = [start for start in profile.starts if not held & profile.bits(start)]
    return max((1 + fewest(layout, profile, held | profile.bits(start)) for start in free), default=0)


@pytest.mark.parametrize("name", ["A30-PCIE-24GB", "H100-SXM5-80GB"])
def test_tables_say_what_trying_everything_says(name: str) -> None:
    layout = LAYOUTS[name]
    for profile in layout.profiles:
        found = mig.table(layout, profile, NO_WEIGHTS)
        for held in range(1 << layout.slices):
            able = [start for start in profile.starts if not held & profile.bits(start)]
            assert profile.count(held) == fewest(layout, profile, held) == len(able)
            assert (found.start[held] in able) if able else found.start[held] == -1
            assert (found.cost[held] < mig.NO_PLACE) == bool(able)


# --- choosing ---------------------------------------------------------------------------------------------------


def test_small_instances_leave_the_wide_places_free() -> None:
    """Four 1g in slices 4 to 6 and 3g beside, where the lowest slices first would have left no place for 4g or 3g."""
    stage = divided()
    small = [stage.submit(ask("1g.10gb")) for _ in range(3)]
    stage.look()
    assert [placed(stage, one) for one in small] == [
        ("0:1g.10gb@6",),
        ("0:1g.10gb@4",),
        ("0:1g.10gb@5",),
    ]
    wide = stage.submit(ask("4g.40gb"))
    stage.look()
    assert placed(stage, wide) == ("0:4g.40gb@0",)


def test_gpus_that_are_begun_come_before_empty_ones() -> None:
    stage = divided(nodes=2, gpus=2)
    jobs = [stage.submit(ask("1g.10gb")) for _ in range(7)]
    whole = [stage.submit(ask("7g.80gb")) for _ in range(3)]
    stage.look()
    assert len({placed(stage, one)[0][:2] for one in jobs}) == 1
    assert [stage.outcome(one) for one in whole] == [STARTS] * 3


def test_the_mix_decides_which_places_are_worth_keeping() -> None:
    """Where people ask for 2g, a 1g with twice the memory takes slices 6 and 7, which no 2g can have."""
    found = mig.table(H100, H100.profiles[1], (("2g.20gb", 9),))
    assert found.start[0] == 6


def test_a_unit_of_several_instances_may_have_them_on_several_gpus() -> None:
    stage = divided(gpus=2)
    number = stage.submit(ask("3g.40gb", 3, nodes=1))
    stage.look()
    assert len(placed(stage, number)) == len(set(placed(stage, number))) == 3
    part = stage.state.jobs[number].attempt.parts[0].placement  # type: ignore[union-attr]
    assert (part.slots, sorted(part.milli)) == ((0, 1), [500, 1000])


def test_tasks_share_a_gpu_and_the_gang_starts_whole() -> None:
    stage = divided(nodes=2, gpus=1)
    fits, none = stage.submit(ask("1g.10gb", tasks=14)), stage.submit(ask("1g.10gb", tasks=1))
    stage.look()
    assert (stage.outcome(fits), stage.outcome(none)) == (STARTS, "wait.mig")
    assert len(placed(stage, fits)) == 14


# --- who goes where ---------------------------------------------------------------------------------------------


def test_divided_gpus_are_for_instances_alone_and_instances_are_nowhere_else() -> None:
    spec = cluster(pool("m", 1, 1, mig=True), pool("w", 1, 1))
    stage = Stage(spec)
    asks = [job(gpus=1), share(500), ask("7g.80gb"), ask("1g.10gb"), job(gpus=0, cores=1)]
    numbers = [stage.submit(one) for one in asks]
    stage.look()
    nodes = [
        [part.placement.node for part in one.attempt.parts] if one.attempt else []
        for one in (stage.state.jobs[number] for number in numbers)
    ]
    assert nodes[:4] == [["w-1"], [], ["m-1"], []]
    stage.end(numbers[2])
    stage.look()
    assert placed(stage, numbers[3]) == ("0:1g.10gb@6",)
    assert stage.outcome(numbers[1]) == "wait.share"


def test_a_profile_name_is_another_size_on_another_model() -> None:
    """1g.10gb is one slice of an 80 GB board and two of a 40 GB one; limits count what it is where it runs."""
    spec = cluster(pool("a", 1, 1, model="A100-SXM4-40GB", mig=True), pool("b", 1, 1, mig=True))
    stage = Stage(spec)
    numbers = [stage.submit(ask("1g.10gb")) for _ in range(11)]
    assert len(stage.look()) == 11
    held = {one.split("@")[0] for number in numbers for one in placed(stage, number)}
    assert held == {"0:1g.10gb"}
    assert stage.state.limits.scopes["cluster"].used["gpus"] == 4 * 250 + 7 * 125


def test_an_instance_counts_in_limits_as_its_part_of_a_gpu() -> None:
    spec = cluster(pool(nodes=1, gpus=2, mig=True), queues=(queue(max_gpus_per_user=1),))
    stage = Stage(spec)
    first, second = stage.submit(ask("4g.40gb")), stage.submit(ask("3g.40gb"))
    third = stage.submit(ask("1g.10gb"))
    stage.look()
    assert [stage.outcome(one) for one in (first, second, third)] == [STARTS, STARTS, "wait.limit"]
    assert "has 1: this job would pass that by 0.125" in stage.why(third).sentence()
    never = refuse.never(stage.state, ask("1g.10gb", 9), "alice")
    assert never is not None
    assert never.code == "never.limit"


# --- what it says -----------------------------------------------------------------------------------------------


def test_free_slices_that_no_place_has_together_are_told_as_such() -> None:
    """HAMi #1054: memory is free, and no place for the profile is."""
    stage = divided(gpus=5)
    small = [stage.submit(ask("1g.10gb", 7, nodes=1)) for _ in range(5)]
    stage.look()
    wide = stage.submit(ask("3g.40gb"))
    for number in small:
        stage.end(number)
    held = [Placement("p-1", (slot,), 0, 0, 0, (250,), (), _at(slot, 0, 4)) for slot in range(5)]
    statement = Statement(stage.state)
    statement.take("cluster", tuple(held), ())
    stage.look()
    assert stage.why(wide).sentence() == (
        "its 1 task(s) take 1 MIG instance(s) of 3g.40gb each, in slices 0-3 or 4-7 of a GPU; 0 would fit now in pool "
        "p: 0 such place(s) are free, and 5 GPU(s) have as many slices free, but not there"
    )
    statement.rollback(0)
    stage.look()
    assert stage.outcome(wide) == STARTS


def _at(slot: int, *starts: int) -> tuple[MigInstance, ...]:
    return tuple(MigInstance(slot, "1g.10gb", start, 1) for start in starts)


def test_a_profile_that_no_pool_has_is_refused_with_those_there_are() -> None:
    stage = Stage(cluster(pool("m", 1, 1, model="A30-PCIE-24GB", mig=True), pool("w", 1, 8)))
    found = refuse.never(stage.state, ask("1g.10gb"), "alice")
    assert found is not None
    assert found.sentence() == "no pool that suits it has MIG instances of profile 1g.10gb"
    assert found.action().endswith("there are 1g.6gb, 2g.12gb, 4g.24gb in pool m")


@pytest.mark.parametrize(
    ("spec", "most"),
    [(ask("3g.40gb", 5, nodes=1), 0), (ask("1g.10gb", tasks=29), 28), (ask("7g.80gb", 2, nodes=3), 2)],
)
def test_more_than_empty_nodes_take_is_refused(spec: JobSpec, most: int) -> None:
    found = refuse.never(divided(nodes=2, gpus=2).state, spec, "alice")
    assert found is not None
    assert (found.code, found.fact("most")) == ("never.instances", most)


def test_cores_are_told_where_places_are_free() -> None:
    stage = divided(cores=8)
    stage.submit(ask("1g.10gb", cores=8))
    stage.look()
    waits = stage.submit(ask("1g.10gb", nodes=1, cores=1))
    stage.look()
    assert stage.outcome(waits) == "wait.cores"


# --- promises ---------------------------------------------------------------------------------------------------

ASKS = st.lists(
    st.tuples(
        st.sampled_from(H100.names()), st.integers(1, 3), st.booleans(), st.integers(1, 3), st.integers(0, 9)
    ),
    min_size=1,
    max_size=25,
)


@given(ASKS, st.integers(0, 1 << 30))
def test_instances_stand_at_legal_places_and_never_on_each_other(
    asks: list[tuple[str, int, bool, int, int]], seed: int
) -> None:
    """Also: what is refused fits nowhere, and a State read back from a snapshot decides alike."""
    stage, dice = divided(nodes=2, gpus=2, cores=16), random.Random(seed)
    for profile, gpus, spread, units, cores in asks:
        size = {"nodes": units} if spread else {"tasks": units}
        stage.submit(ask(profile, gpus, cores=cores, **size))
        again = from_plain(to_plain(stage.state))
        masks = stage.state.capacity.slices.held.copy()
        expected = decide(again, stage.policy, stage.now_us, 100_000, stage)
        got = decide(stage.state, stage.policy, stage.now_us, 100_000, stage)
        assert got == expected
        now = stage.state.capacity.slices.held
        assert (now[: len(masks), : masks.shape[1]] == masks).all()
        assert now.sum() == masks.sum()
        stage.look()
        held = taken(stage.state)
        _refusals_are_needed(stage, held)
        check_state(stage.state)
        running = [one.id for one in stage.state.jobs.values() if one.attempt is not None]
        for number in dice.sample(running, len(running) // 3):
            stage.end(number)


def taken(state: State) -> dict[tuple[str, int], int]:
    """The held slices of each GPU, by records alone; fails where two instances meet or one stands where none may."""
    found: dict[tuple[str, int], int] = {}
    for one in state.jobs.values():
        for part in one.attempt.parts if one.attempt is not None else ():
            for each in part.placement.instances:
                profile = H100.find(each.profile)
                assert profile is not None
                assert (each.size, each.start in profile.starts) == (profile.size, True)
                at = part.placement.node, each.slot
                assert not found.get(at, 0) & each.bits
                found[at] = found.get(at, 0) | each.bits
    return found


def _refusals_are_needed(stage: Stage, held: dict[tuple[str, int], int]) -> None:
    """The first that waits could not start: whatever is kept is kept for it."""
    waiting = sorted(one.id for one in stage.state.jobs.values() if one.state is JobState.WAITING)
    for number in waiting[:1]:
        request = stage.state.jobs[number].spec.request
        share_ = request.per_node if request.nodes else request.per_task
        profile = H100.find(share_.mig)
        assert profile is not None
        units = 0
        for node in ("p-1", "p-2"):
            places = sum(profile.count(held.get((node, slot), 0)) for slot in range(2))
            here = places // share_.gpus
            if share_.cores:
                here = min(here, stage.state.capacity.at(node).free_cores // share_.cores)
            units += min(here, 1) if request.nodes else here
        assert units < (request.nodes or request.tasks)


@given(st.lists(st.sampled_from(H100.names()), max_size=12), st.integers(0, 1 << 30))
def test_taking_and_giving_back_leaves_the_masks_as_they_were(profiles: list[str], seed: int) -> None:
    stage, dice = divided(gpus=2), random.Random(seed)
    capacity = stage.state.capacity
    statement, before = Statement(stage.state), [0, 0]
    for name in profiles:
        profile, slot = H100.find(name), dice.randrange(2)
        assert profile is not None
        start = dice.choice(profile.starts)
        milli = H100.milli(profile)
        part = Placement(
            "p-1", (slot,), 1, 0, 0, (milli,), (), (MigInstance(slot, name, start, profile.size),)
        )
        if before[slot] & profile.bits(start):
            with pytest.raises(ValueError, match=r"not free|milli free"):
                statement.take("cluster", (part,), ())
            continue
        statement.take("cluster", (part,), ())
        before[slot] |= profile.bits(start)
        assert capacity.slices.of(np.array([0]), 2)[0].tolist() == before
        assert capacity.milli[0, :2].tolist() == [1000 - 125 * mask.bit_count() for mask in before]
    statement.rollback(0)
    assert not capacity.slices.held.any()
    assert capacity.milli[0, :2].tolist() == [1000, 1000]


def test_two_gpus_take_what_trying_everything_takes() -> None:
    """From every state of two GPUs, one more instance starts exactly where some place is free on either."""
    stage = divided(nodes=64, gpus=2)
    capacity, cluster_ = stage.state.capacity, stage.state.cluster
    assert cluster_ is not None
    masks = sorted({held for (held,), _ in reached(H100, 1)})
    pairs = np.array(list(product(masks, masks)), np.uint8)
    every = np.arange(64, dtype=np.int64)
    for profile in H100.profiles:
        need = need_of(ask(profile.name, tasks=99))
        shape = mig.Instances(need, [cluster_.pools[0]], capacity, {"p": every})
        for part in (pairs[at : at + 64] for at in range(0, len(pairs), 64)):
            rows, free = every[: len(part)], _Held(part)
            places = [profile.count(first) + profile.count(second) for first, second in part.tolist()]
            assert shape.units_on(free, rows).tolist() == places
            assert (shape.costs(free, rows, NO_WEIGHTS) < NO_FIT).tolist() == [one > 0 for one in places]


class _Held:
    """What is free where these slices are held."""

    def __init__(self, masks: NDArray[np.uint8]) -> None:
        self.slices = Slices()
        self.slices.held = masks
        self.milli = WHOLE - 125 * np.bitwise_count(masks).astype(np.int32)


def test_what_cores_save_beside_it_makes_no_place_where_there_is_none() -> None:
    """A unit may cost less than nothing, where nothing else could use the cores that it takes."""
    stage = divided(gpus=1)
    assert stage.state.cluster is not None
    rows = np.array([0], np.int64)
    shape = mig.Instances(
        need_of(ask("7g.80gb")), [stage.state.cluster.pools[0]], stage.state.capacity, {"p": rows}
    )
    full = _Held(np.array([[1]], np.uint8))
    assert shape.costs(full, rows, NO_WEIGHTS)[0] - NO_FIT > NO_FIT


def test_an_instance_that_ends_wakes_who_waits_for_its_place() -> None:
    """Also where as many slices are held as before, only elsewhere."""
    stage = divided(gpus=1)
    low = stage.submit(ask("4g.40gb"))
    high = stage.submit(ask("1g.10gb"))
    stage.look()
    waits = stage.submit(ask("3g.40gb", priority=-1))
    stage.look()
    assert stage.outcome(waits) == "wait.mig"
    stage.end(low)
    again = stage.submit(ask("3g.40gb", priority=9))
    stage.look()
    assert (placed(stage, again), stage.outcome(waits)) == (("0:3g.40gb@0",), "wait.mig")
    stage.end(high)
    stage.look()
    assert placed(stage, waits) == ("0:3g.40gb@4",)


def test_a_wide_instance_is_not_starved_by_small_ones() -> None:
    """The GPU that is kept for it empties, although small ones wait for every slice that is free."""
    stage = divided(nodes=2, gpus=2)
    running = [stage.submit(ask("1g.10gb")) for _ in range(28)]
    stage.look()
    wide = stage.submit(ask("7g.80gb", priority=1))
    dice = random.Random(3)
    for _ in range(40):
        stage.end(running.pop(dice.randrange(len(running))))
        stage.submit(ask("1g.10gb"))
        started = stage.look()
        running += [number for number in started if number != wide]
        if wide in started:
            break
    assert stage.outcome(wide) == STARTS


def test_compiled_code_and_numpy_decide_alike() -> None:
    """Instances have one code: what cores and memory cost beside them comes from either."""
    pytest.importorskip("numba")
    spec = cluster(pool(nodes=300, gpus=2, cores=8, mig=True))
    found = []
    for compiled in (True, False):
        stage = Stage(spec)
        dice = random.Random(7)
        for _ in range(300):
            stage.submit(ask(dice.choice(H100.names()), cores=dice.randrange(4)))
        stage.policy = Policy(compiled=compiled)
        found.append(stage.look())
    assert found[0] == found[1]
    assert len(found[0]) == 300
