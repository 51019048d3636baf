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
    there is looked up when somebody asks (controller/explain).
    """

    code: str
    facts: tuple[tuple[str, str | int], ...] = ()

    def fact(self, name: str) -> str | int | None:
        """One of the facts, or None."""
        return dict(self.facts).get(name)

    def sentence(self) -> str:
        """The reason in people's words, with its numbers."""
        return WORDS[self.code].sentence.format(**self._words())

    def action(self) -> str:
        """What the person can do, with the same numbers."""
        return WORDS[self.code].action.format(**self._words())

    def _words(self) -> dict[str, str | int]:
        """The facts as sentences have them: memory is bytes, and said in a unit for people."""
        words = dict(self.facts)
        memory = words.get("memory")
        return words | ({"memory": _size(memory)} if isinstance(memory, int) else {})


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
    "wait.gpus": Wording(
        "capacity",
        "it needs {nodes} node(s) with {gpus} free GPU(s) each; {fit} of {open} open node(s) in pool {pool} have them "
        "({free} GPU(s) free in all, {taken} taken)",
        "wait for the jobs named as blockers, ask for fewer GPUs, or cancel what is not needed",
    ),
    "wait.tasks": Wording(
        "capacity",
        "its {tasks} tasks of {gpus} GPU(s), {cores} core(s), {memory} of memory start together; {fit} would fit now "
        "in pool {pool} ({free} GPU(s) free in all, {taken} taken)",
        "wait for the jobs named as blockers, ask for fewer tasks, or cancel what is not needed",
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
    "wait.nodes-closed": Wording(
        "nodes",
        "it would fit, but {closed} of {all} node(s) in pool {pool} may not be given work: {why}",
        "`gangline nodes` shows each node's reason",
    ),
    "wait.order": Wording(
        "order",
        "job {ahead}, before it in order, waits for nodes of the same pool {pool}",
        "nothing: it is next when job {ahead} has started; a higher priority would go first",
    ),
    "wait.limit": Wording(
        "limit",
        "{scope} may have {ceiling} {what} and has {used}: this job would pass that by {over}",
        "wait for jobs of the same scope to end, or ask for a higher limit",
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
        "it needs {nodes} node(s) with {gpus} GPU(s), {cores} core(s), {memory} of memory each; the best pool has "
        "{most} such node(s)",
        "ask for less, or add nodes to the cluster's spec",
    ),
    "never.tasks": Wording(
        "refusal",
        "it needs {tasks} tasks of {gpus} GPU(s), {cores} core(s), {memory} of memory in one pool; the best pool "
        "takes {most}",
        "ask for fewer tasks, or add nodes to the cluster's spec",
    ),
    "never.limit": Wording(
        "refusal",
        "{scope} may have {ceiling} {what} at most, and the job alone needs {need}",
        "ask for less, use another queue, or ask for a higher limit",
    ),
    "never.time-limit": Wording(
        "refusal",
        "queue {queue} allows {max_s} s, and the job asks for {asked_s} s",
        "set a shorter `time_limit`, or use another queue",
    ),
}

# What dimensions of the limit tree are called in sentences.
DIMENSIONS: dict[str, str] = {"jobs": "running job(s)", "gpus": "GPU(s)"}


def dimension_words(dimension: str) -> str:
    """`gpus@h100` -> `GPU(s) of pool h100`."""
    name, _, pool = dimension.partition("@")
    return f"{DIMENSIONS[name]} of pool {pool}" if pool else DIMENSIONS[name]


def reason(code: str, **facts: str | int) -> Reason:
    """A reason with its numbers; KeyError for a code that has no words."""
    if code not in WORDS:
        raise KeyError(code)
    return Reason(code, tuple(facts.items()))
