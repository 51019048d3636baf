"""Compare hosts with what they must have, all at once and over SSH, and leave nothing on them.

Comes in: hosts with their `Desired`s, and what runs a program on a host. Goes out: a `Sight` per host, with the whole
difference. Called by: whoever plans, applies or shows drift. `check_host.py` is the part that runs on the host.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from orchestrator.model.clock import Clock
from orchestrator.model.codec import decode
from orchestrator.model.host import Desired, Drift, HostFacts, Item, Sight, Step
from orchestrator.provision.metal.diagnosis import Unreached

MOST_AT_ONCE = 64  # hosts that are looked at in the same moment: each is a process of ssh here
LAST_WORDS = 300  # characters of a host's complaint
MOST_US = 2**53  # of a clock: what every reader of JSON keeps
NO_ANSWER = (
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)  # read from any text

# As root: directly, or by sudo that asks for no password.
AS_ROOT = ("/bin/sh", "-c", 'test "$(id -u)" = 0 && exec python3 -I -; exec sudo -n python3 -I -')


class Ran(Protocol):
    """What a program on a host left: its exit code and its output."""

    @property
    def code(self) -> int: ...

    @property
    def stdout(self) -> bytes: ...

    @property
    def stderr(self) -> bytes: ...


class Run(Protocol):
    """Runs a program on a host; `channel.Channel` is one. Raises Unreached."""

    async def __call__(self, host: str, argv: list[str], stdin: bytes) -> Ran: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A host to look at. `address` is its own, for texts that hold `@ADDRESS@`."""

    host: str
    desired: Desired
    address: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """A sight, the digest of what was seen (empty where nothing was), and what is no drift but worth a word."""

    sight: Sight
    digest: str = ""
    notes: tuple[str, ...] = ()


async def check(targets: Iterable[Target], run: Run, clock: Clock) -> list[Checked]:
    """Look at every host; a host that fails is a sight with its error, and delays no other."""
    gate = asyncio.Semaphore(MOST_AT_ONCE)

    async def one(target: Target) -> Checked:
        async with gate:
            return await check_one(target, run, clock)

    return list(await asyncio.gather(*(one(target) for target in targets)))


async def check_one(target: Target, run: Run, clock: Clock) -> Checked:
    """Look at one host."""
    sent_us = clock.now_us()
    try:
        ran = await run(target.host, list(AS_ROOT), script(target))
    except Unreached as error:
        return _unseen(target, error.step, error.message, error.hint, sent_us)
    now_us = clock.now_us()
    try:
        return _checked(target, _answer(ran.stdout), sent_us, now_us)
    except NO_ANSWER:
        step, hint = _diagnosis(ran)
        return _unseen(target, step, _last_words(ran), hint, now_us)


def script(target: Target) -> bytes:
    """The program for the host's Python: the checker and a call of it with the host's payload."""
    payload = {
        "node": target.host,
        "address": target.address,
        "roles": plain_roles(target.desired),
    }
    return b"%s\nmain(%s)\n" % (_source(), ascii(json.dumps(payload)).encode())


@cache
def plain_roles(desired: Desired) -> list[dict[str, Any]]:
    """A `Desired` as plain values, as the checker and the roles take them."""
    return [{"role": role.role, "items": [plain_item(item) for item in role.items]} for role in desired.roles]


def plain_item(item: Item) -> dict[str, Any]:
    """An item as plain values; what it does not say is left out."""
    plain: dict[str, Any] = {"kind": str(item.kind), "name": item.name, "values": dict(item.values)}
    if item.restarts:
        plain["restarts"] = list(item.restarts)
    if item.reboots:
        plain["reboots"] = True
    return plain


@cache
def _source() -> bytes:
    return Path(__file__).with_name("check_host.py").read_bytes()


def _answer(said: bytes) -> dict[str, Any]:
    """What a host says, which may be anything; ValueError unless it can be sent on as JSON."""
    answer: dict[str, Any] = json.loads(said)
    if b"\\u" in said:  # half a surrogate pair, which is no character
        json.dumps(answer, ensure_ascii=False).encode()
    return answer


def _checked(target: Target, answer: dict[str, Any], sent_us: int, now_us: int) -> Checked:
    plain = answer["facts"]
    at_us = decode(int, plain["now_us"])
    if not 0 <= at_us < MOST_US:
        raise ValueError("no time of a clock")
    skew_us = outside(at_us, sent_us, now_us)
    facts = decode(HostFacts, {**plain, "clock_skew_ms": skew_us // 1000})
    drift = tuple(decode(Drift, each) for each in answer["drift"])
    sight = Sight(target.host, Step.DONE, facts=facts, checked=True, drift=drift, seen_us=now_us)
    return Checked(sight, str(answer["digest"]), decode(tuple[str, ...], answer["notes"]))


def outside(at: int, first: int, last: int) -> int:
    """How far a time lies after `last` or, negative, before `first`: what a slow connection can't explain."""
    return max(at - last, 0) + min(at - first, 0)


def _unseen(target: Target, step: Step, error: str, hint: str, now_us: int) -> Checked:
    return Checked(Sight(target.host, step, error, hint, seen_us=now_us))


def _diagnosis(ran: Ran) -> tuple[Step, str]:
    """How far it came, and what to do, from what a shell, sudo or Python say."""
    words = ran.stderr.decode(errors="replace")
    if "sudo" in words:
        return Step.SUDO, "let the SSH user run sudo without a password on this host"
    if ran.code == 127 or "python3" in words.partition("Traceback")[0]:
        return Step.PYTHON, "install python3 (3.9 or newer) on this host"
    return Step.SYSTEM, "the check itself failed on this host: please report it with these words"


def _last_words(ran: Ran) -> str:
    lines: Sequence[str] = ran.stderr.decode(errors="replace").strip().splitlines()
    said = lines[-1].strip() if lines else "no answer"
    return f"exit code {ran.code}: {said[:LAST_WORDS]}"
