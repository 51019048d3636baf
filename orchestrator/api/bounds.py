"""Bounds of what agents send: a node that lies, or whose memory is spoilt, must not spoil the ledger for all.

Comes in: a decoded message of an agent. Goes out: nothing, or an InputError with the place of the first value that no
node can mean. Called by: agents, before the message reaches the controller.

What passes is folded, stored, added up and shown to everyone, for as long as the ledger lives. So every number fits
SQLite's integers and JSON's (below 2**53), ids count from 1, amounts are not negative, a device's slot is one that a
machine can have. The bounds lie far above what an agent of this version sends: a message that is refused comes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from orchestrator.model.errors import InputError
from orchestrator.model.ids import AttemptId
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import AgentEvent, Holding, InstanceJoin, JoinRequest, Launch, SyncRequest

MOST = 2**53 - 1  # of any number, also of a negative one: the largest that every JSON reader keeps
MOST_SLOT = 1023  # a machine with more devices is not known; masks of devices have a bit for each slot
MOST_SLICES = 8  # memory slices of a GPU in MIG mode
MOST_TEXT = 64 * 1024  # characters of what a node tells: an agent's tails are 4 KiB, its errors a line
MOST_LAUNCH_TEXT = 2 * 1024 * 1024  # of what it got from a controller and tells again: a job's command
MOST_HELD = 4096  # attempts that one node runs at a time
# A JSON text without such a thing holds no number above MOST: 17 digits, 16 from 9 on, digits written otherwise.
_DOUBTFUL = re.compile(rb"\d{17}|9\d{15}|\\u")


def check(message: SyncRequest | JoinRequest | InstanceJoin, body: bytes) -> None:
    """InputError `protocol.out-of-bounds` for the first value that no node can mean. `body`: the JSON text that the
    message was read from. Every beat of every node comes through here, and most are told to be sound by their text."""
    if len(body) > MOST_TEXT or _DOUBTFUL.search(body):
        _walk(message, "", MOST_TEXT)
    if message.facts is not None:
        _facts(message.facts)
    if isinstance(message, SyncRequest):
        _sync(message)


def _sync(message: SyncRequest) -> None:
    if message.ending is not None:
        _require(min(message.ending.ends_us, message.ending.told_us) >= 0, "ending", "times not below 0")
    _require(len(message.held) <= MOST_HELD, "held", f"at most {MOST_HELD} attempts")
    for attempt in message.held:
        _attempt(attempt, "held")
    for event in message.events:
        _event(event, "events")
    running = 0
    for holding in message.inventory or ():
        _holding(holding)
        running += holding.ended is None
    _require(running <= MOST_HELD, "inventory", f"at most {MOST_HELD} attempts that have not ended")


def _facts(facts: NodeFacts) -> None:
    _require(facts.cores >= 0, "facts.cores", "not below 0")
    _require(facts.memory >= 0, "facts.memory", "not below 0")
    _slots((device.slot for device in facts.devices), "facts.devices")
    _require(all(device.memory >= 0 for device in facts.devices), "facts.devices", "memory not below 0")


def _event(event: AgentEvent, path: str) -> None:
    _attempt(event.attempt, f"{path}.attempt")
    _require(event.n >= 0, f"{path}.n", "not below 0")
    for result in event.results:
        _require(min(result.rank, result.code, result.signal) >= 0, f"{path}.results", "not below 0")


def _holding(holding: Holding) -> None:
    _attempt(holding.attempt, "inventory.attempt")
    _require(holding.started_us >= 0, "inventory.started_us", "not below 0")
    if holding.launch is not None:
        _launch(holding.launch)
    if holding.ended is not None:
        _event(holding.ended, "inventory.ended")
        _require(holding.ended.attempt == holding.attempt, "inventory.ended.attempt", "that of the holding")


def _launch(launch: Launch) -> None:
    path = "inventory.launch"
    _slots(launch.slots, f"{path}.slots")
    least = min(launch.cores, launch.memory, launch.submitted_us, launch.array, launch.array_index)
    _require(least >= 0, path, "amounts not below 0")
    for name, shares in (("milli", launch.milli), ("device_bytes", launch.device_bytes)):
        fits = not shares or (len(shares) == len(launch.slots) and min(shares) >= 0)
        _require(fits, f"{path}.{name}", "one for each slot, not below 0")
    _instances(launch, f"{path}.instances")
    _require(0 <= launch.master_port <= 65535, f"{path}.master_port", "a port")
    _require(min(launch.owner.uid, launch.owner.gid) >= 0, f"{path}.owner", "numbers not below 0")
    for part in launch.parts:
        _require(part.tasks >= 1 and part.first_rank >= 0, f"{path}.parts", "ranks that count")
        known = 0 <= part.group < max(len(launch.job.request.groups), 1)
        _require(known, f"{path}.parts", "groups of the job")
    nodes = [part.node for part in launch.parts]
    _require(len(set(nodes)) == len(nodes), f"{path}.parts", "each node once")


def _instances(launch: Launch, path: str) -> None:
    """MIG instances: on slots of the launch, on slices that a GPU can have, no two on one slice."""
    held: dict[int, int] = {}
    for one in launch.instances:
        stands = one.size >= 1 and 0 <= one.start <= MOST_SLICES - one.size
        _require(
            stands and one.slot in launch.slots, path, f"slices below {MOST_SLICES} of slots of the launch"
        )
        _require(not held.get(one.slot, 0) & one.bits, path, "each slice once")
        held[one.slot] = held.get(one.slot, 0) | one.bits


def _slots(slots: Iterable[int], path: str) -> None:
    found = list(slots)
    _require(all(0 <= slot <= MOST_SLOT for slot in found), path, f"slots from 0 to {MOST_SLOT}")
    _require(len(set(found)) == len(found), path, "each slot once")


def _attempt(attempt: AttemptId, path: str) -> None:
    _require(min(attempt) >= 1, path, "a job and a number from 1")


def _walk(value: Any, path: str, longest: int) -> None:
    """Every number and text of the message, wherever it stands."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        _require(-MOST <= value <= MOST, path, f"numbers up to {MOST}")
    elif isinstance(value, str):
        _require(len(value) <= longest, path, f"texts of at most {longest} characters")
    elif is_dataclass(value):
        longest = MOST_LAUNCH_TEXT if isinstance(value, Launch) else longest
        for field in fields(value):
            _walk(getattr(value, field.name), f"{path}.{field.name}".lstrip("."), longest)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _walk(item, path, longest)
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            _walk(item, path, longest)


def _require(fits: bool, path: str, expected: str) -> None:
    if not fits:
        raise InputError(
            "protocol.out-of-bounds",
            f"no node can mean this: expected {expected}",
            "its agent's journal may be spoilt: see the node's agent.log",
            path=path,
        )
