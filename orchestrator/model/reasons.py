"""Every reason for waiting or refusing, once: its code, its sentence, what to do about it.

Comes in: nothing. Goes out: `Reason` records with numbers, and the sentences that render them. Called by: scheduler
(makes them), controller and api (keep and send them), cli and web (render them). One record, one wording everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits or is refused: `code` names the sentence, `facts` fill it (numbers and names).

    A waiting job's reason belongs to its class. `pool` in the facts is where the best chance was; who holds what is
    there is looked up when somebody asks (controller/explain). `also` is what would still be in the way without it.
    """

    code: str
    facts: tuple[tuple[str, str | int], ...] = ()
    also: Reason | None = None

    def fact(self, name: str) -> str | int | None:
        """One of the facts, or None."""
        return dict(self.facts).get(name)

    def sentence(self) -> str:
        """The reason in people's words, with its numbers."""
        mine = WORDS[self.code].sentence.format(**self._words())
        return f"{mine}; besides, {self.also.sentence()}" if self.also is not None else mine

    def action(self) -> str:
        """What the person can do, with the same numbers."""
        return WORDS[self.code].action.format(**self._words())

    def _words(self) -> dict[str, str | int]:
        """The facts as sentences have them: memory is bytes, and said in a unit for people; `each` is what a node or
        a task needs of GPUs, cores and memory, without what it does not ask for."""
        words = dict(self.facts)
        sizes = {name: words[name] for name in ("memory", "memory_left") if name in words}
        words |= {name: _size(size) for name, size in sizes.items() if isinstance(size, int)}
        asked = {name: words[name] for name in _PARTS if self.fact(name)}
        parts = [_PARTS[name].format(amount) for name, amount in asked.items()]
        return words | {"each": ", ".join(parts) or "nothing of its own"}


_PARTS = {"gpus": "{} GPU(s)", "cores": "{} core(s)", "memory": "{} of memory"}


def _size(count: int) -> str:
    """Bytes as `960GiB`, `1.5GiB`, `300MiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return f"{count} bytes"


class Wording(NamedTuple):
    """The sentence of a reason and what to do; braces name its facts. `category` groups reasons for people."""

    category: str
    sentence: str
    action: str


WORDS: dict[str, Wording] = {
    "wait.next-pass": Wording(
        "order", "the next pass will look at it", "nothing: it takes less than a second"
    ),
    "wait.starting": Wording(
        "capacity",
        "nodes are allocated and being prepared: {ready} of {nodes} ready",
        "nothing: it starts soon",
    ),
    "wait.held": Wording("hold", "it is held: {why}", "`gangline release {job}` lets it wait again"),
    "wait.dependency": Wording(
        "dependency",
        "it waits for {jobs}",
        "nothing: it starts after that; `gangline jobs -a` shows how far they are",
    ),
    "end.dependency": Wording(
        "dependency",
        "{why}",
        "depend on another job, or leave the dependency out: a job with one that can't be met is cancelled at once",
    ),
    "wait.gpus": Wording(
        "capacity",
        "it needs {nodes} node(s) with {gpus} free GPU(s) each; {fit} of {open} open node(s) in pool {pool} have them "
        "({free} GPU(s) free in all, {taken} taken)",
        "wait for the jobs named as blockers, ask for fewer GPUs, or cancel what is not needed",
    ),
    "wait.tasks": Wording(
        "capacity",
        "it needs {tasks} task(s) with {each} each at once; {fit} would fit now "
        "in pool {pool} ({free} GPU(s) free in all, {taken} taken)",
        "wait for the jobs named as blockers, ask for fewer or smaller tasks, or cancel what is not needed",
    ),
    "wait.cores": Wording(
        "capacity",
        "it needs {nodes} node(s) with {cores} free core(s) each; {fit} of {open} open node(s) in pool {pool} "
        "have them",
        "ask for fewer cores, or wait for running jobs to end",
    ),
    "wait.memory": Wording(
        "capacity",
        "it needs {nodes} node(s) with {memory} of free memory each; {fit} of {open} open node(s) in pool {pool} "
        "have them",
        "ask for less memory, or wait for running jobs to end",
    ),
    "wait.domain": Wording(
        "capacity",
        "its {units} {what} must stay within one {level}: {domain} comes closest and takes {fit} of them now "
        "({all} would fit in pool {pool} in all)",
        "wait for the jobs named as blockers, or prefer the level instead of requiring it",
    ),
    "wait.segments": Wording(
        "capacity",
        "it needs {segments} segments of {nodes} node(s) at once, each within one {level}: {domain} comes closest and "
        "has {fit} of them free ({all} nodes would fit in pool {pool} in all)",
        "wait for the jobs named as blockers, or ask for smaller segments",
    ),
    "wait.software": Wording(
        "capacity",
        "its nodes must have the same software, and those of pool {pool} differ at present: nodes that are alike take "
        "{fit} of its {units} {what} now, all together {all}",
        "wait until the change of the pool is through, or for the jobs named as blockers",
    ),
    "wait.kept-for-gpus": Wording(
        "capacity",
        "work without GPUs leaves {cores} core(s) and {memory} of memory for each GPU of pool {pool}; of its "
        "{units} {what} {fit} fit(s) on what is left beside that",
        "wait for the jobs named as blockers, or ask for less; `keep_cores_per_gpu` of the pool is the rule",
    ),
    "wait.alone": Wording(
        "capacity",
        "its nodes must be nobody else's: {empty} of {open} open node(s) in pool {pool} are empty, and they take "
        "{fit} of its {units} {what}",
        "wait for the jobs named as blockers, or leave `exclusive` out",
    ),
    "wait.groups": Wording(
        "capacity",
        "its groups start together, each on nodes of its own{place}, and fit now is: {words}",
        "wait for the jobs named as blockers, or ask for less in that group",
    ),
    "wait.share": Wording(
        "capacity",
        "it needs {share} of a GPU for each of {tasks} task(s) at once; the largest free share in pool {pool} "
        "is {largest}",
        "wait for the jobs named as blockers, or ask for a smaller share",
    ),
    "wait.device-memory": Wording(
        "capacity",
        "it needs {memory} of a GPU's memory; the most that one in pool {pool} has left is {memory_left}",
        "wait for the jobs named as blockers, or ask for less memory",
    ),
    "wait.mig": Wording(
        "capacity",
        "its {units} {what} take {count} MIG instance(s) of {profile} each, in slices {places} of a GPU; {fit} would "
        "fit now in pool {pool}: {free} such place(s) are free, and {scattered} GPU(s) have as many slices free, but "
        "not there",
        "wait for the jobs named as blockers, or ask for a smaller profile",
    ),
    "wait.nodes-closed": Wording(
        "nodes",
        "it would fit, but {closed} of {all} node(s) in pool {pool} may not be given work: {why}",
        "`gangline nodes` shows each node's reason",
    ),
    "wait.few-nodes": Wording(
        "nodes",
        "pool {pool} suits it and has {all} of the {most} node(s) that it may have, too few for it",
        "nothing, if they come by themselves; `gangline nodes` and `gangline status` show what comes",
    ),
    "wait.never": Wording(
        "capacity",
        "it can't run on the cluster as its file wants it, and was queued all the same: {why}",
        "change the cluster's file, or cancel the job and ask for what there is",
    ),
    "wait.order": Wording(
        "order",
        "job {ahead}, before it in order, waits for nodes of the same pool {pool}",
        "nothing: it is next when job {ahead} has started; a higher priority would go first",
    ),
    "wait.limit": Wording(
        "limit",
        "{scope} may have {ceiling} {what} and has {used}: this job would pass that by {over}",
        "wait for jobs of the same scope to end, or ask for a higher limit (of an array: "
        "`gangline job set ID --at-most N`)",
    ),
    "wait.lent": Wording(
        "limit",
        "queue(s) {queues} keep {kept} {what} free for their own work: {left} are left for others, and this job "
        "would pass that by {over}",
        "wait for jobs outside of these queues to end, or ask for a higher `lending_limit` of theirs",
    ),
    "wait.power": Wording(
        "limit",
        "power domain {domain} may have {ceiling} W committed and has {used}: the {gpus} GPU(s) that this job would "
        "light pass that by {over}",
        "wait for work on the same power to end, ask for fewer GPUs, or have the domain's limit raised",
    ),
    "wait.spending": Wording(
        "limit",
        "by budget {budget} {scope} may cost {ceiling} an hour and {used} is committed: this job would add {need}",
        "wait for jobs of the same queue to end or its bought nodes to be given back, ask for fewer GPUs, or ask for "
        "a higher budget",
    ),
    "wait.gpu-hours": Wording(
        "limit",
        "{scope} may use {ceiling} GPU-hours a month, and {used} are used or may still be by what runs: this job may "
        "need {need}",
        "wait for jobs of the same queue to end sooner than they may, or for the next month; give it a shorter time "
        "limit or fewer GPUs, or ask for a higher limit",
    ),
    "wait.booting": Wording(
        "capacity",
        "{nodes} node(s) of pool {pool} come for it: {words}",
        "nothing: it starts when all are ready; `gangline nodes` shows how far they are",
    ),
    "wait.capacity": Wording(
        "capacity",
        "{nodes} node(s) of pool {pool} are needed and none could be bought: {tried}; tried again {at}",
        "nothing, if it can wait; more types, zones or markets in the pool's `offerings` widen the choice",
    ),
    "wait.budget": Wording(
        "limit",
        "budget {budget} allows {ceiling} a {period} and {used} is committed: {nodes} node(s) of pool {pool} "
        "({offering}) would take {need} more",
        "wait for bought nodes to be given back, shorten the job's `time_limit`, or ask for a higher budget",
    ),
    "wait.pool-full": Wording(
        "capacity",
        "pool {pool} may have {most} node(s) and has {has}: {nodes} more are needed",
        "wait for work there to end, or raise the pool's `size.max`",
    ),
    "wait.cloud": Wording(
        "nodes",
        "nothing is bought for pool {pool}: {why}",
        "`gangline status` shows the pool; once the cause is gone, `gangline apply` tries again at once",
    ),
    "wait.ports": Wording(
        "nodes",
        "no rendezvous port is free on {address} in {first}-{last}",
        "wait for gangs there to end, or widen the site's `network.ports`",
    ),
    "wait.recovering": Wording(
        "controller",
        "the ledger was restored from a backup: nothing starts before what runs has been taken back "
        "({silent} node(s) have not told yet what they hold)",
        "`gangline server recover` takes running jobs back and lets starts go on",
    ),
    "wait.no-cluster": Wording(
        "nodes",
        "no cluster has been applied yet",
        "`gangline up cluster.yaml` gives the controller its nodes",
    ),
    "lost.nodes": Wording(
        "nodes",
        "attempt {attempt} is lost: {nodes} can't be reached, and may run it or not",
        "nothing starts in its place until there is proof of its end; bring the node back, or cancel and wait",
    ),
    "end.stuck": Wording(
        "nodes",
        "its processes on {node} can't be ended: {error}",
        "the devices stay taken and the node drains; reboot it, or end the processes by hand",
    ),
    "never.queue": Wording(
        "refusal", "there is no queue {queue}", "`gangline queues` lists those there are: {known}"
    ),
    "never.model": Wording(
        "refusal",
        "no pool has GPUs of model {models}",
        "pools have {known}; leave `gpu_model` out to take any",
    ),
    "never.storage": Wording(
        "refusal",
        "it needs storage {needs}, and no pool has all of it: the nearest one lacks {lacking}",
        "leave away what it can do without, or give the storage to the pool's site (`storage[].sites`)",
    ),
    "never.nodes": Wording(
        "refusal",
        "it needs {nodes} node(s) with {each} each; the best pool has {most} such node(s)",
        "ask for less, or add nodes to the cluster's spec",
    ),
    "never.tasks": Wording(
        "refusal",
        "it needs {tasks} task(s) with {each} each in one pool; the best pool takes {most}",
        "ask for fewer or smaller tasks, or add nodes to the cluster's spec",
    ),
    "never.shares": Wording(
        "refusal",
        "it needs {tasks} tasks with {share} of a GPU each in one pool; the best pool takes {most}",
        "ask for fewer tasks or smaller shares, or add nodes to the cluster's spec",
    ),
    "never.share": Wording(
        "refusal",
        "it needs {share} of one GPU, and a share is at most a whole one",
        "ask for whole GPUs with `gpus`",
    ),
    "never.device-memory": Wording(
        "refusal",
        "it needs {memory} of one GPU's memory; the largest GPU that suits it, in pool {pool}, has {memory_left}",
        "ask for less `gpu_memory`, or for other GPU models",
    ),
    "never.labels": Wording(
        "refusal",
        "no pool has the label(s) {labels}",
        "pools have {known}; leave `labels` out to take any",
    ),
    "never.mig": Wording(
        "refusal",
        "no pool that suits it has MIG instances of profile {profile}",
        "instances are of pools with `gpu.mig: true`: there are {known}",
    ),
    "never.instances": Wording(
        "refusal",
        "it needs {units} {what} with {count} MIG instance(s) of {profile}, {cores} core(s), {memory} of memory each "
        "in one pool; the best pool takes {most}",
        "ask for less, or add nodes to the cluster's spec",
    ),
    "never.level": Wording(
        "refusal",
        "no site has a topology level {level}",
        "there are {known}; `gangline topology` shows them",
    ),
    "never.together": Wording(
        "refusal",
        "no single pool has all that it names: {named}",
        "leave one of them out; `gangline gpus` and `gangline topology` show what each pool has",
    ),
    "never.domain": Wording(
        "refusal",
        "its {units} {what} must stay within one {level}, and the largest, {domain}, takes {most} of them in pool "
        "{pool}",
        "ask for fewer, require a level further out, or prefer the level instead of requiring it",
    ),
    "never.segments": Wording(
        "refusal",
        "it needs {segments} segments of {nodes} node(s), each within one {level}, and the best place for it, "
        "{domain}, has room for {most} of them in pool {pool}",
        "ask for fewer or smaller segments, or for segments within a level further out",
    ),
    "never.group": Wording(
        "refusal",
        "group {group}: {why} [{rule}]",
        "ask for what there is in that group, or add it to the cluster's spec",
    ),
    "never.groups-apart": Wording(
        "refusal",
        "its groups talk to each other, so one site must hold them all, and none has pools for each: {words}",
        "ask in each group for what one site has",
    ),
    "never.groups": Wording(
        "refusal",
        "each of its groups has nodes of its own, in all {nodes} of pool {pool} at least, which has {most}",
        "make some groups one, ask for less, or add nodes to the cluster's spec",
    ),
    "never.limit": Wording(
        "refusal",
        "{scope} may have {ceiling} {what} at most, and the job alone needs {need}",
        "ask for less, use another queue, or ask for a higher limit",
    ),
    "never.power": Wording(
        "refusal",
        "power domain {domain} carries {left} W beside idle nodes, and the {gpus} GPU(s) of the job need {need} there",
        "ask for fewer GPUs, or have the domain's limit raised",
    ),
    "never.spending": Wording(
        "refusal",
        "by budget {budget} {scope} may cost {ceiling} an hour, and the job alone costs {need} at least",
        "ask for fewer GPUs, use another queue, or ask for a higher budget",
    ),
    "never.gpu-hours": Wording(
        "refusal",
        "{scope} may use {ceiling} GPU-hours a month, and the job alone may need {need}",
        "give it a shorter time limit or fewer GPUs, use another queue, or ask for a higher limit",
    ),
    "never.lent": Wording(
        "refusal",
        "queue(s) {queues} keep {kept} {what} free for their own work: {left} are left for others at most, and the job "
        "alone needs {need}",
        "ask for less, use one of these queues, or ask for a higher `lending_limit` of theirs",
    ),
    "never.time-limit": Wording(
        "refusal",
        "queue {queue} allows {max_s} s, and the job asks for {asked_s} s",
        "set a shorter `time_limit`, or use another queue",
    ),
}

# What dimensions of the limit tree are called in sentences.
DIMENSIONS: dict[str, str] = {"jobs": "running job(s)", "gpus": "GPU(s)", "usd": "an hour"}


def dimension_words(dimension: str) -> str:
    """`gpus@h100` -> `GPU(s) of pool h100`, `gpus~H100` -> `GPU(s) of model H100`."""
    name, _, pool = dimension.partition("@")
    if pool:
        return f"{DIMENSIONS[name]} of pool {pool}"
    name, _, model = dimension.partition("~")
    return f"{DIMENSIONS[name]} of model {model}" if model else DIMENSIONS[name]


def amount_words(dimension: str, amount: int) -> int | str:
    """An amount of a dimension for people: GPUs are counted in thousandths, and said whole where they are."""
    if dimension == "usd":
        return dollars(amount)
    if dimension == "gpu_hours":
        return f"{-(-amount // 360_000) / 10:,.1f}".removesuffix(".0")
    if not dimension.startswith("gpus"):
        return amount
    return f"{amount / 1000:.3f}".rstrip("0") if amount % 1000 else amount // 1000


def dollars(microusd: int) -> str:
    """`$400.00`, from micro-dollars; rounded up to the cent."""
    cents = -(-microusd // 10_000)
    return f"${cents // 100:,}.{cents % 100:02d}"


def reason(code: str, **facts: str | int) -> Reason:
    """A reason with its numbers; KeyError for a code that has no words."""
    if code not in WORDS:
        raise KeyError(code)
    return Reason(code, tuple(facts.items()))
