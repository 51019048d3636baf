"""Look-ups of names: kept for a while, never on the event loop."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading

import pytest

from orchestrator.api.people import KNOWN_S, UNKNOWN_S, People, Person, look_up, name_of
from orchestrator.model.clock import ManualClock
from orchestrator.model.job import Owner

ALICE = Person(Owner("alice", 1001, 1001), ("alice",))


class Host:
    """A name service that counts."""

    def __init__(self) -> None:
        self.users: dict[str, Person] = {}
        self.asked: list[str] = []
        self.threads: set[str] = set()

    def look(self, name: str) -> Person | None:
        self.asked.append(name)
        self.threads.add(threading.current_thread().name)
        return self.users.get(name)


@pytest.mark.parametrize(("known", "kept_s"), [(True, KNOWN_S), (False, UNKNOWN_S)])
def test_answers_are_kept_for_a_while(known: bool, kept_s: int) -> None:
    host, clock = Host(), ManualClock()
    if known:
        host.users["alice"] = ALICE
    people = People(clock, look=host.look)

    async def ask() -> Person | None:
        return await people.person("alice")

    answers = [asyncio.run(ask())]
    clock.advance(kept_s - 1)
    answers.append(asyncio.run(ask()))
    assert len(host.asked) == 1
    clock.advance(1)
    answers.append(asyncio.run(ask()))

    assert len(host.asked) == 2
    assert answers == [ALICE if known else None] * 3
    assert threading.current_thread().name not in host.threads
    people.close()


def test_number_of_names_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.api.people.MOST_KEPT", 3)
    people = People(ManualClock(), look=Host().look)

    async def ask() -> None:
        for number in range(10):
            await people.person(f"n{number}")

    asyncio.run(ask())

    assert len(people._people) <= 3
    people.close()


def test_real_host() -> None:
    entry = pwd.getpwuid(os.getuid())

    person = look_up(entry.pw_name)

    assert person is not None
    assert (person.owner.name, person.owner.uid, person.owner.gid) == (
        entry.pw_name,
        entry.pw_uid,
        entry.pw_gid,
    )
    assert entry.pw_gid in person.owner.groups
    assert name_of(entry.pw_uid) == entry.pw_name


@pytest.mark.parametrize("name", ["no-such-user-here", "", "a\0b", "ü" * 300])
def test_unknown_names(name: str) -> None:
    assert look_up(name) is None


def test_unknown_uid() -> None:
    assert name_of(2**31 - 7) == ""
