"""What a pass decides and says, against everything tried: starts are possible, refusals needed, numbers true.

Worlds are small (at most 6 nodes, about 8 jobs at a time), stories random. See exhaustive.py for the other side.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger.hours import HOURS
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import ClassKey
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec, Owner
from orchestrator.model.reasons import Reason, amount_words, dimension_words
from tests.priced import dollars_on_paper, gang_dollars, passed
from tests.scheduler.exhaustive import Paper
from tests.scheduler.exhaustive_nodes import WHOLE, Ask, Left, ask_of
from tests.scheduler.fuzz import Story, small

pytestmark = pytest.mark.property
SEEDS = st.integers(0, 10**9)
TASKS = "task(s) at a time"
CAPACITY = {
    "wait.gpus",
    "wait.tasks",
    "wait.cores",
    "wait.memory",
    "wait.share",
    "wait.mig",
    "wait.device-memory",
    "wait.domain",
    "wait.alone",
    "wait.kept-for-gpus",
    "wait.software",
    "wait.segments",
    "wait.nodes-closed",
}


def after(story: Story, decisions: tuple[Start, ...]) -> Paper:
    """The world with all starts of the pass, each of which is looked at."""
    paper = Paper(story.state, seconds=story.seconds)
    for start in decisions:
        job = story.state.jobs[start.attempt.job]
        pool = story.state.nodes[start.placements[0].node].pool
        spec = job.spec
        assert pool in paper.pools(spec)
        if spec.request.total_milli() or not ask_of(spec).shares:  # by memory, it depends on the device
            assert paper.over(job, pool) == []
            assert paper.metered(job, pool) == []
            assert paper.lent(job, pool) == []
        paper.start(job, start)
        lit = {part.node: 0 for part in start.placements if part.slots}
        assert not paper.dark(lit), f"{start} passes what power domains may have"
        _is_whole(paper, job, pool, start)
    assert not passed(story.state, dollars_on_paper(story.state, paper.more))
    return paper


def _is_whole(paper: Paper, job: Job, pool: str, start: Start) -> None:
    """All units, each with what it asks for, on nodes of one pool and of one domain."""
    ask, parts = ask_of(job.spec), start.placements
    each = max(job.spec.request.tasks_per_node, 1) if ask.spread else 1
    units = [part.tasks if not ask.spread else 1 for part in parts]
    assert sum(units) == ask.units
    assert len({part.node for part in parts}) == len(parts)
    for part, count in zip(parts, units, strict=True):
        assert part.tasks == count * each
        assert (part.alone is not None) == ask.exclusive
        mine = part.usable
        assert mine.cores == count * ask.cores
        assert mine.memory == count * ask.memory
        if ask.shares:
            assert sum(mine.device_bytes) == count * ask.device_bytes
            assert all(milli > 0 for milli in mine.milli)
            assert not ask.milli or sum(mine.milli) == count * ask.milli
        elif ask.mig:
            assert [one.profile for one in mine.instances] == [ask.mig] * (count * ask.gpus)
            assert set(mine.slots) == {one.slot for one in mine.instances}
        else:
            assert len(mine.slots) == count * ask.gpus
        if ask.exclusive:
            assert set(part.slots) == set(paper.nodes[part.node].slots)
            assert not paper.nodes[part.node].cores
    homes = paper.homes(job.spec, pool).values()
    size, inside = job.spec.topology.segment_nodes, paper.segments(job.spec, pool)
    for at in range(0, ask.units if inside else 0, size or 1):
        names = [part.node for part in parts[at : at + size]]
        assert any(set(names) <= set(home) for home in inside or ()), f"segment {names} is in no one domain"
    here = [paper.nodes[part.node] for part in parts]
    assert len({node.software for node in here}) == 1
    assert any(all(any(one is node for one in home) for node in here) for home in homes)


def waiting(story: Story, decisions: tuple[Start, ...]) -> Iterator[tuple[ClassKey, Job, Reason]]:
    """Each class with somebody left, the first of them, and its reason."""
    started = {start.attempt.job for start in decisions}
    for key, found in story.state.classes.items():
        left = [place.job for place in found.waiting if place.job not in started]
        if left:
            assert story.told.waits is not None
            reason = story.told.waits.get(key)
            assert reason is not None, f"job {left[0]} has no reason"
            assert "{" not in reason.sentence() + reason.action()
            yield key, story.state.jobs[left[0]], reason


def nobody_who_fits_waits(story: Story, decisions: tuple[Start, ...]) -> None:
    """Where no nodes are kept, whoever waits truly can't start."""
    paper = after(story, decisions)
    for _, job, reason in waiting(story, decisions):
        assert not paper.starts(job), f"job {job.id} could start: {reason}"
        assert reason.code in CAPACITY | {
            "wait.limit",
            "wait.lent",
            "wait.never",
            "wait.power",
            "wait.spending",
            "wait.gpu-hours",
        }


def what_is_said_is_so(story: Story, decisions: tuple[Start, ...]) -> None:
    """The kind of each reason, and its numbers, counted again."""
    paper, empty = after(story, decisions), Paper(story.state, empty=True)
    first = {job.id for _, job, _ in waiting(story, decisions)}
    for _, job, reason in waiting(story, decisions):
        pools = empty.ever(job.spec) or paper.pools(job.spec)  # the others are no way out
        may = [pool for pool in paper.may(job) if pool in pools]
        sure = [pool for pool in may if gang_dollars(story.state, job.spec, pool)[1]]
        if reason.code == "wait.limit":
            assert not sure, f"limits let job {job.id} start: {reason}"
            _limit_is_true(paper, job, reason, pools)
        elif reason.code == "wait.gpu-hours":
            assert not sure, f"there are hours enough for job {job.id}: {reason}"
            _hours_are_true(paper, job, reason, pools)
        elif reason.code == "wait.spending":
            _spending_is_true(story, paper, job, reason, pools)
        elif reason.code == "wait.lent":
            assert not sure, f"queues leave enough for job {job.id}: {reason}"
            _lent_is_true(paper, job, reason, pools)
        elif reason.code == "wait.power":
            assert any(paper.fits(job.spec, pool) for pool in may), f"{reason} of job {job.id}"
            assert not any(paper.goes(job.spec, pool) for pool in sure), f"{reason} of job {job.id}"
        elif reason.code in CAPACITY:
            assert not any(paper.fits(job.spec, pool) for pool in sure), f"{reason} of job {job.id}"
            (_places_are_true if reason.code == "wait.mig" else _numbers_are_true)(paper, job, reason)
        elif reason.code == "wait.never":
            assert not empty.ever(job.spec), f"{reason} of job {job.id}"
        else:
            assert reason.code == "wait.order", f"{reason} of job {job.id}"
            assert story.policy.kept
            assert any(paper.fits(job.spec, pool) for pool in may), f"{reason} of job {job.id}"
            names = {story.state.jobs[one].label for one in first - {job.id}}
            assert str(reason.fact("ahead")) in names


def _limit_is_true(paper: Paper, job: Job, reason: Reason, pools: list[str]) -> None:
    told = tuple(reason.fact(name) for name in ("scope", "what", "ceiling", "used", "over"))
    found = [one for pool in pools for one in paper.over(job, pool)]
    true = [
        (
            one.scope,
            TASKS if one.dimension == "tasks" else dimension_words(one.dimension),
            amount_words(one.dimension, one.ceiling),
            amount_words(one.dimension, one.used),
            amount_words(one.dimension, one.used + one.need - one.ceiling),
        )
        for one in found
    ]
    by_memory = ask_of(job.spec).shares and not ask_of(job.spec).milli  # how much it is depends on the device
    assert told in true or (by_memory and told[:4] in [one[:4] for one in true]), f"{told} is none of {true}"


def _hours_are_true(paper: Paper, job: Job, reason: Reason, pools: list[str]) -> None:
    told = tuple(reason.fact(name) for name in ("scope", "ceiling", "used", "need"))
    found = [one for pool in pools for one in paper.metered(job, pool)]
    true = [(one.scope, *(amount_words(HOURS, each) for each in one[2:])) for one in found]
    by_memory = ask_of(job.spec).shares and not ask_of(job.spec).milli
    assert told in true or (by_memory and told[:3] in [one[:3] for one in true]), f"{told} is none of {true}"


def _spending_is_true(story: Story, paper: Paper, job: Job, reason: Reason, pools: list[str]) -> None:
    certain = [pool for pool in pools if gang_dollars(story.state, job.spec, pool)[1]]
    assert not any(paper.fits(job.spec, pool) and pool in paper.may(job) for pool in certain), f"{reason}"
    told = tuple(reason.fact(name) for name in ("scope", "ceiling", "used", "need"))
    found = [one for pool in pools for one in paper.dear(job, pool)]
    true = [(one.scope, *(amount_words("usd", each) for each in one[2:])) for one in found]
    assert told in true or len(certain) < len(pools), f"{told} is none of {true}"


def _lent_is_true(paper: Paper, job: Job, reason: Reason, pools: list[str]) -> None:
    """By how much too little is left, as counted in whichever pool is told of: beyond what there is, or, where more
    than that is taken, beyond what the queue, or one around it, keeps itself."""
    found = [one for pool in pools for one in paper.lent(job, pool)]
    own = paper.kept_on_path(job.spec.queue)
    over = [one.need for one in found]
    over += [one.used + one.need - most for one in found for most in (one.ceiling, *own)]
    by_memory = ask_of(job.spec).shares and not ask_of(job.spec).milli
    assert found
    assert by_memory or reason.fact("over") in [amount_words("gpus", milli) for milli in over], (
        f"{reason}: {over}"
    )


def _numbers_are_true(paper: Paper, job: Job, reason: Reason) -> None:
    spec, ask = job.spec, ask_of(job.spec)
    name = str(reason.fact("pool"))
    nodes = [node for node in paper.nodes.values() if node.pool == name]
    here = [node for home in paper.homes(spec, name).values() for node in home]
    room = paper.room(spec, name)
    opened = [node for node in nodes if node.open]
    facts = dict(reason.facts)
    if "free" in facts:
        whole = [slot.milli == WHOLE for node in opened for slot in node.slots.values()]
        assert (facts["free"], facts["taken"]) == (sum(whole), len(whole) - sum(whole))
    if "open" in facts:
        assert facts["open"] == len(opened)
    if reason.code == "wait.nodes-closed":
        assert (facts["closed"], facts["all"]) == (len(nodes) - len(opened), len(nodes))
        assert facts["closed"], f"no node is closed: {reason} of job {job.id}"
    elif reason.code == "wait.domain":
        assert facts["fit"] == max(room.values()) == room[str(facts["domain"])]
        assert facts["all"] == sum(room.values())
        assert int(str(facts["fit"])) < ask.units <= int(str(facts["all"]))
    elif reason.code == "wait.segments":
        size = spec.topology.segment_nodes
        assert (facts["segments"], facts["fit"]) == (ask.units // size, max(room.values()) // size)
        where = str(facts["domain"]).partition(" ")[2]
        assert max(room.values()) == room.get(where if spec.topology.required else "", 0)
        assert (
            max(room.values()) < ask.units <= int(str(facts["all"])) == sum(node.units(ask) for node in here)
        )
    elif reason.code == "wait.software":
        assert facts["fit"] == paper.alike(spec, name) < ask.units
        assert facts["all"] == sum(node.units(ask) for node in here)
    elif reason.code == "wait.kept-for-gpus":
        pool = next(one for one in paper.cluster.pools if one.name == name)
        assert (facts["cores"], facts["memory"]) == (pool.keep_cores_per_gpu, pool.keep_memory_per_gpu)
        assert facts["fit"] == sum(node.units(ask) for node in here)
    elif reason.code == "wait.alone":
        assert facts["fit"] == sum(node.units(ask, kept=False) for node in here) < ask.units
        assert facts["empty"] == sum(not node.parts for node in opened)
    elif reason.code == "wait.tasks":
        assert facts["fit"] == sum(node.units(ask, kept=False) for node in here)
    elif reason.code == "wait.device-memory":
        left = [
            slot.free_bytes for node in here if node.open for slot in node.slots.values() if slot.milli > 0
        ]
        assert facts["memory_left"] == max(left, default=0) < ask.device_bytes
    elif reason.code == "wait.share":
        left = [slot.milli for node in here if node.open for slot in node.slots.values()]
        assert facts["largest"] == amount_words("gpus", max(left, default=0))
    else:
        assert facts["fit"] == _nodes_with(reason.code, here, ask)
        assert int(str(facts["fit"])) < ask.units


def _places_are_true(paper: Paper, job: Job, reason: Reason) -> None:
    """Places of the profile on open nodes, units that these make, and GPUs with as many slices free, but not there."""
    ask, facts = ask_of(job.spec), dict(reason.facts)
    homes = paper.homes(job.spec, str(facts["pool"])).values()
    opened = [node for nodes in homes for node in nodes if node.open]
    places = [node.places(ask.mig) for node in opened]
    most = 1 if ask.spread else ask.units
    fit = sum(min(sum(one.values()) // ask.gpus, most) for one in places)
    assert facts["fit"] == fit < ask.units
    assert (facts["profile"], facts["count"], facts["free"]) == (
        ask.mig,
        ask.gpus,
        sum(sum(one.values()) for one in places),
    )
    scattered = 0
    for node, one in zip(opened, places, strict=True):
        assert node.layout is not None
        profile = node.layout.find(ask.mig)
        assert profile is not None
        scattered += sum(
            not one[slot] and left.milli * node.layout.slices >= profile.size * WHOLE
            for slot, left in node.slots.items()
        )
    assert facts["scattered"] == scattered


def _nodes_with(code: str, nodes: list[Left], ask: Ask) -> int:
    """Open nodes that have GPUs; GPUs and cores; GPUs, cores and memory."""
    asked = ask._replace(memory=0) if code != "wait.memory" else ask
    asked = asked._replace(cores=0) if code == "wait.gpus" else asked
    return sum(node.units(asked, kept=False) for node in nodes)


def whoever_is_refused_can_never_start(story: Story, spec: JobSpec, owner: Owner, why: Reason) -> None:
    """Not even if nothing ran, no node were closed, and all had the GPUs that the file keeps cores for. A node that has
    lost all of its GPUs is no place for anybody."""
    paper = Paper(story.state, empty=True)
    for node in paper.nodes.values():
        pool = next(one for one in paper.cluster.pools if one.name == node.pool)
        gpus = pool.gpu.count if pool.gpu is not None else 0
        node.open = bool(node.slots) or not gpus
        node.plain_cores = max(node.cores - gpus * pool.keep_cores_per_gpu, 0)
        node.plain_memory = max(node.memory - gpus * pool.keep_memory_per_gpu, 0)
    limit_s = spec.time_limit_s or story.state.queues[spec.queue].limits.default_time_limit_s
    paper.seconds = lambda _: min(limit_s, 28 * 86400)
    assert not paper.starts(Job(0, spec, owner, 0, 0)), f"{why} of {spec}"


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_whoever_is_refused_can_never_start(seed: int) -> None:
    Story(random.Random(seed), _nothing, small, refused=whoever_is_refused_can_never_start).play(8)


def _nothing(_: Story, __: tuple[Start, ...]) -> None:
    """What passes do is of no matter."""


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_whoever_waits_truly_can_not_start(seed: int) -> None:
    Story(random.Random(seed), nobody_who_fits_waits, small, kept=0).play(8)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_what_is_said_is_so(seed: int) -> None:
    Story(random.Random(seed), what_is_said_is_so, small).play(8)
