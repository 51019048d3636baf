"""Look at hosts, all at once and bounded: what each is, or at which step it can't be used, and what to do.

Comes in: `Access` (through a `Channel`), names of hosts. Goes out: a `Sight` per host, and a line of words for each.
Called by: whoever plans or applies, before anything is changed. One login per host: probe_host.sh is sent over it,
needs no Python there, and says everything in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.model.host import HostFacts, Sight, Step
from orchestrator.provision.metal.channel import Channel, Ran, Way
from orchestrator.provision.metal.diagnosis import Unreached
from orchestrator.provision.metal.known_hosts import HostKey
from orchestrator.provision.metal.ssh import unknown

DEADLINE_S = 10.0  # for one host that accepts the connection; one that does not is told after ssh.CONNECT_S
OLDEST_PYTHON = (3, 10)  # DESIGN section 6
SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}
MOST_DIGITS = 10  # of a clock's seconds
CLOCK_WORTH_SAYING_MS = 1000
GREETING = b"gangline:hello\n"
PROGRAM = ("sh", "-c", f"echo {GREETING.decode().strip()}; exec sh -s")
MARK = "gangline:"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What `accept_host_key` did: fingerprints before (none recorded: empty) and now."""

    host: str
    before: str
    now: str


async def probe(
    channel: Channel,
    hosts: Iterable[str],
    first: bool = False,
    fresh: bool = True,
    deadline_s: float = DEADLINE_S,
) -> list[Sight]:
    """A sight of every host, in their order. `first`: record keys of hosts that have none (a changed one is refused
    all the same). `fresh` False: a shared connection that stands counts as proof of key and login, and is faster."""
    names = list(hosts)
    way = Way(first, fresh, deadline_s, GREETING)
    found = await channel.run_on(names, PROGRAM, _script(), way)
    return [sight(name, found[name], channel.clock.now_us()) for name in names]


async def accept_host_key(channel: Channel, host: str) -> Accepted:
    """Forget the recorded key of a host and record the one that it shows now, as its person has asked by name.

    Unreached if it can't be contacted; then the old key stays.
    """
    if host not in channel.access.addresses:
        raise unknown(channel.access, host)
    known = channel.access.known_hosts
    before = known.path.read_text() if known.path.exists() else ""
    dropped = known.forget(host)
    try:
        await channel.run(host, ["true"], way=Way(first=True, fresh=True, deadline_s=DEADLINE_S))
    except Unreached:
        if not known.keys(host):
            known.path.write_text(before)
            raise
    return Accepted(host, _one(dropped), _one(known.keys(host)))


def _one(keys: list[HostKey]) -> str:
    return keys[0].fingerprint if keys else ""


def sight(host: str, found: Ran | Unreached, now_us: int) -> Sight:
    """What the probe's answer means; the first step that fails counts."""
    if isinstance(found, Unreached):
        return Sight(host, found.step, found.message, found.hint, seen_us=now_us)
    said = _said(found.stdout)
    if "end" not in said:
        return _no_shell(host, found, now_us)
    facts = _facts(said, found)
    step, error, hint = _fault(said, facts)
    return Sight(host, step, error, hint, facts, seen_us=now_us)


def words(found: Sight) -> str:
    """What a host is, for people; of one that can't be used, why and at which step."""
    if found.reached is not Step.DONE or found.facts is None:
        return f"{found.error} [{found.reached}]"
    return ", ".join([*_summary(found.facts), *worth_saying(found.facts)])


def worth_saying(facts: HostFacts) -> list[str]:
    """What is no failure of the probe, and yet news to a person."""
    skew = facts.clock_skew_ms
    said = []
    if abs(skew) >= CLOCK_WORTH_SAYING_MS:
        said.append(f"its clock is {abs(skew) / 1000:.1f} s {'ahead' if skew > 0 else 'behind'}")
    if facts.reboot_needed:
        said.append("a reboot is pending")
    return said


def _summary(facts: HostFacts) -> list[str]:
    return [f"{facts.os} {facts.release}", f"kernel {facts.kernel}", f"Python {facts.python}", _gpus(facts)]


def _gpus(facts: HostFacts) -> str:
    """`8 GPUs (10de:2330)`, or `3 GPUs (2 x 10de:2330, 10de:20b5)`: how many, and of what by vendor and device."""
    counts = Counter(gpu.rpartition(" ")[2] for gpu in facts.gpus)
    kinds = [f"{count} x {kind}" if count > 1 and len(counts) > 1 else kind for kind, count in counts.items()]
    ids = f" ({', '.join(kinds)})" if kinds else ""
    return f"{len(facts.gpus)} GPU{'' if len(facts.gpus) == 1 else 's'}{ids}"


@cache
def _script() -> bytes:
    return Path(__file__).with_name("probe_host.sh").read_bytes()


def _said(stdout: bytes) -> dict[str, list[str]]:
    """Lines of the script by key; what a login's own start-up files print is passed over."""
    said: dict[str, list[str]] = {}
    for text in stdout.decode("utf-8", "replace").splitlines():
        if text.startswith(MARK) and "=" in text:
            key, _, value = text[len(MARK) :].partition("=")
            said.setdefault(key, []).append(value.strip())
    return said


def _no_shell(host: str, found: Ran, now_us: int) -> Sight:
    words = found.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = words[-1] if words else f"it ended with {found.code}"
    hint = "give the site's ssh.user a POSIX shell on this host"
    return Sight(
        host, Step.AUTH, f"{host} lets Gangline in, and runs nothing: {reason}", hint, seen_us=now_us
    )


def _facts(said: dict[str, list[str]], found: Ran) -> HostFacts:
    def one(key: str) -> str:
        return said.get(key, [""])[0]

    pythons = [text for text in said.get("python", []) if text]
    good = [text for text in pythons if _good_python(text)]
    return HostFacts(
        machine_id=one("machine_id"),
        boot_id=one("boot_id"),
        hostname=one("hostname"),
        os=one("os"),
        release=one("release"),
        kernel=one("kernel"),
        python=(good or pythons or [""])[0].partition(" ")[0],
        arch=one("arch"),
        gpus=tuple(said.get("gpu", [])),
        clock_skew_ms=skew_ms(one("now"), found.asked_us, found.answered_us),
        reboot_needed="reboot" in said,
    )


def skew_ms(now: str, asked_us: int, answered_us: int) -> int:
    """How far a host's clock is ahead, in milliseconds: what lies outside the time between question and answer, since
    the host read its clock somewhere in between."""
    seconds, _, fraction = now.partition(".")
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= MOST_DIGITS):
        return 0
    micros = fraction[:6].ljust(6, "0")
    at = int(seconds) * 1_000_000 + (int(micros) if micros.isascii() and micros.isdecimal() else 0)
    outside = max(at - answered_us, 0) + min(at - asked_us, 0)
    return int(outside / 1000)


def _good_python(text: str) -> bool:
    return text.endswith(" good")  # probe_host.sh decides: OLDEST_PYTHON, and a whole standard library


def _fault(said: dict[str, list[str]], facts: HostFacts) -> tuple[Step, str, str]:
    """The first thing that stands in the way. The system comes before Python, which comes with it."""
    sudo = said.get("sudo", ["it gave no answer"])[0]
    user_hint = "give the site's ssh.user a line `USER ALL=(ALL) NOPASSWD: ALL` in /etc/sudoers.d"
    if sudo != "ok":
        return Step.SUDO, _sudo_words(sudo), user_hint
    if facts.release not in SUPPORTED.get(facts.os, ()):
        name = said.get("system", [""])[0] or facts.os or "an unknown system"
        known = "; ".join(f"{name} {' and '.join(releases)}" for name, releases in SUPPORTED.items())
        return Step.SYSTEM, f"it runs {name}, which Gangline does not support", f"install one of: {known}"
    return _python_fault(said, facts)


def _sudo_words(said: str) -> str:
    if "password is required" in said or "a terminal is required" in said:
        return "sudo asks for a password"
    if "not in the sudoers" in said or "may not run" in said or "not allowed" in said:
        return "the user may not use sudo"
    if "not found" in said:
        return "there is no sudo, and the user is not root"
    return f"sudo refuses: {said}"


def _python_fault(said: dict[str, list[str]], facts: HostFacts) -> tuple[Step, str, str]:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    pythons = [text for text in said.get("python", []) if text]
    if any(map(_good_python, pythons)):
        return Step.DONE, "", ""
    install = "apt-get install python3"
    if not pythons:
        return Step.PYTHON, f"there is no Python; {wanted} or newer is needed", install
    if " without " in pythons[0]:
        return (
            Step.PYTHON,
            f"its Python {pythons[0]} is not whole",
            f"{install} (it has python3-minimal alone)",
        )
    return (
        Step.PYTHON,
        f"its Python is {facts.python}; {wanted} or newer is needed",
        f"{install} of a newer release",
    )
