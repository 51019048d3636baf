"""The hosts of all metal sites of a cluster, as an apply and a plan use them.

Comes in: the spec, the cluster's state folder, what the hosts of each pool are to have. Goes out: `MetalHosts`: looks
(sights), runs of the roles, reboots, retirements, each over many hosts at once and with a result for each. Called by:
cli changing (plan, drift, apply, up, destroy) and hosting; by `provision.applying`, as its `Hosts`.

Everything that touches a host goes through Gangline's own SSH config (`ssh.py`); Ansible runs on a folder that is
rendered anew each time, in STATE/ansible.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.model.apply import HostResult
from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.cluster import ClusterSpec, Host, Pool, Site, SiteKind
from orchestrator.model.errors import InputError
from orchestrator.model.host import Desired, PoolDesired, Sight, Step
from orchestrator.model.installed import AGENT_CONFIG, AGENT_UNIT
from orchestrator.model.units import seconds_text
from orchestrator.planning.desired import SECRETS
from orchestrator.planning.desired_controller import UNIT as CONTROLLER_UNIT
from orchestrator.provision.applying import Seen
from orchestrator.provision.metal import ansible, archive, check, probe, render, ssh
from orchestrator.provision.metal.channel import Channel, Ran
from orchestrator.provision.metal.diagnosis import Unreached

ANSWER_S = 60  # for a controller whose unit is ready to be reached from here
REBOOT_S = 900  # for a host to be back after a reboot: servers with much memory test it for ten minutes
LOOK_EVERY_S = 1.0
NO_CONFIG = 44  # the exit code of READ_CONFIG where there is no agent
READ_CONFIG = f"test -e {AGENT_CONFIG} || exit {NO_CONFIG}; cat {AGENT_CONFIG}"

# What of Gangline's lives on a host: by the names of units in control groups, and, where there are none, by what every
# process of a job has in its environment. Fails with it in words.
BUSY = 75  # the script's exit code then
LIVE = rf"""
live=$(cat /proc/[0-9]*/cgroup 2>/dev/null | grep -oE '/gangline-[1-9][0-9]*-[1-9][0-9]*' | cut -c2- | sort -u)
[ -n "$live" ] ||
  live=$(grep -lzE '^GANGLINE_JOB_ID=' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | sed 's/^/process /')
if [ -n "$live" ]; then echo $live >&2; exit {BUSY}; fi
"""
REBOOT = f"{LIVE}\nexec systemctl --no-block reboot\n"

# What makes a host a node of this cluster: of no use to it any more, and of much to whoever finds it. Logs and records
# of its work stay. A unit that is not there is stopped already.
RETIRE = f"""
set -e
if systemctl cat {AGENT_UNIT} > /dev/null 2>&1; then systemctl disable --now {AGENT_UNIT}; fi
rm -f -- {" ".join(SECRETS)}
"""
AS_ROOT = ("/bin/sh", "-c", 'test "$(id -u)" = 0 && exec /bin/sh -s; exec sudo -n /bin/sh -s')

T = TypeVar("T")


@dataclass(slots=True)
class Wishes:
    """What the hosts of each pool are to have, by pool, and what goes with it."""

    desired: Mapping[str, PoolDesired]
    letting_go: Mapping[str, Desired] = field(default_factory=dict)
    controller_url: str = ""
    ca_pem: str = ""
    ca_path: str = ""
    hosted: render.Hosted | None = None
    answers: Callable[[], bool] = lambda: True  # whether the controller on its own host does


class MetalHosts:
    """The hosts by name, whichever site they stand on."""

    def __init__(
        self,
        spec: ClusterSpec,
        state: Path,
        wishes: Wishes,
        environment: Mapping[str, str],
        clock: Clock,
        tell: Callable[[ansible.Progress], None] = lambda _: None,
        before: ClusterSpec | None = None,
        reboot_s: int = REBOOT_S,
    ) -> None:
        """`before`: the recorded spec, which has the hosts that leave. `reboot_s`: for a host to be back after one."""
        self._spec = spec
        self._state = state
        self._wishes = wishes
        self._environment = environment
        self._clock = clock
        self._tell = tell
        self._reboot_s = reboot_s
        self._tokens: dict[str, str] = {}
        self._sites = {site.name: _with_nodes(site, (spec, before)) for site in _with_leaving(spec, before)}
        self._laid: dict[str, ssh.Access] = {}
        addresses = (each.controller.address for each in (spec, before) if each is not None)
        self._urls = frozenset(url.rstrip("/") for url in (wishes.controller_url, *addresses) if url)
        self._inventory = {host.name: site.name for site in self._sites.values() for host in site.hosts}
        known = [*(render.metal_pools(before) if before is not None else ()), *render.metal_pools(spec)]
        self._pools: dict[str, Pool] = {name: pool for pool in known for name in pool.nodes}

    def _access(self, site: str) -> ssh.Access:
        """The way to the hosts of a site, laid when it is first used: a key that is gone concerns those alone who
        need it. InputError."""
        if site not in self._laid:
            self._laid[site] = ssh.lay(self._sites[site], self._state, self._environment)
        return self._laid[site]

    # --- looking --------------------------------------------------------------------------------------------------

    def sights(self, names: Iterable[str]) -> list[Sight]:
        """Each host compared with what it is to have. A host seen for the first time has its key recorded."""
        return self._compared(names, self._wanted)

    def sights_of_all(self, names: Iterable[str]) -> list[Sight]:
        """The same, and in the same look the controller's own host with what it is to have as that."""
        hosted = self._wishes.hosted
        own = hosted.host.name if hosted is not None else ""
        return self._compared(dict.fromkeys(filter(None, (own, *names))), self._wanted_of_all)

    def controller_sight(self) -> Sight:
        """The controller's own host, compared with what it is to have as that alone."""
        hosted = self._own()
        return self._compared([hosted.host.name], lambda _: hosted.desired)[0]

    def facts(self, name: str) -> Sight:
        """What a host is, compared with nothing."""
        return self._compared([name], lambda _: Desired(()))[0]

    def probed(self, names: Sequence[str]) -> list[Sight]:
        """What each host is, or at which step it can't be used, compared with nothing. InputError for a site without a
        key."""
        return _run(self._probe(names))

    async def _probe(self, names: Sequence[str]) -> list[Sight]:
        ways = [
            (Channel(self._access(site), self._clock), hosts) for site, hosts in self._by_site(names).items()
        ]
        found = await asyncio.gather(*(probe.probe(channel, hosts, first=True) for channel, hosts in ways))
        by_name = {sight.host: sight for each in found for sight in each}
        return [by_name[name] for name in names]

    def look(self, names: Sequence[str]) -> list[Seen]:
        """The same for an apply."""
        return [_seen(sight) for sight in self.sights(names)]

    def _compared(self, names: Iterable[str], wanted: Callable[[str], Desired]) -> list[Sight]:
        return [checked.sight for checked in _run(self._check(list(names), wanted))]

    async def _check(self, names: list[str], wanted: Callable[[str], Desired]) -> list[check.Checked]:
        found = await asyncio.gather(
            *(self._check_site(site, hosts, wanted) for site, hosts in self._by_site(names).items())
        )
        by_name = {checked.sight.host: checked for each in found for checked in each}
        return [by_name[name] for name in names]

    async def _check_site(
        self, site: str, names: list[str], wanted: Callable[[str], Desired]
    ) -> list[check.Checked]:
        channel = Channel(self._access(site), self._clock)
        failed = await self._meet(channel, names)
        targets = [
            check.Target(name, wanted(name), channel.access.addresses.get(name, name))
            for name in names
            if name not in failed
        ]
        return [*failed.values(), *await check.check(targets, channel, self._clock)]

    async def _meet(self, channel: Channel, names: list[str]) -> dict[str, check.Checked]:
        """Record the keys of hosts that have none, and see whether they can be used at all; those that can't."""
        known = channel.access.known_hosts
        strangers = [name for name in names if not known.keys(name)]
        met = await probe.probe(channel, strangers, first=True)
        return {sight.host: check.Checked(sight) for sight in met if sight.reached is not Step.DONE}

    def accept_host_keys(self, names: Iterable[str]) -> list[probe.Accepted]:
        """Record the keys that these hosts show now in place of what was recorded; InputError for an unknown host."""
        return _run(self._accept_keys(list(names)))

    async def _accept_keys(self, names: list[str]) -> list[probe.Accepted]:
        ways = [
            (name, self._access(self._site_of(name))) for name in names
        ]  # all are known before one is believed
        return [await probe.accept_host_key(Channel(access, self._clock), name) for name, access in ways]

    def _site_of(self, name: str) -> str:
        if name in self._pools:
            return self._pools[name].site
        if name in self._inventory:
            return self._inventory[name]
        raise InputError(
            "apply.unknown-host",
            f"no metal pool has a host {name}",
            "`gangline nodes` lists those there are",
        )

    def _wanted(self, name: str) -> Desired:
        pool = self._pools.get(name)  # the controller's host may be a node of none
        found = self._wishes.desired.get(pool.name) if pool is not None else None
        return found.desired if found is not None else Desired(())

    def _wanted_of_all(self, name: str) -> Desired:
        hosted = self._wishes.hosted
        own = hosted.desired.roles if hosted is not None and hosted.host.name == name else ()
        return Desired((*self._wanted(name).roles, *own))

    def _own(self) -> render.Hosted:
        assert self._wishes.hosted is not None, "asked only where the spec has controller.host"
        return self._wishes.hosted

    def _by_site(self, names: Iterable[str]) -> dict[str, list[str]]:
        sites: dict[str, list[str]] = {}
        for name in names:
            sites.setdefault(self._site_of(name), []).append(name)
        return sites

    # --- acting ---------------------------------------------------------------------------------------------------

    def enrol(self, tokens: dict[str, str]) -> list[HostResult]:
        """Keep the join tokens for the run of the roles that follows; they are never written to a file that stays."""
        self._tokens.update(tokens)
        return [HostResult(name, ok=True) for name in tokens]

    def configure(self, names: Sequence[str], roles: Sequence[str]) -> list[HostResult]:
        """Run the roles on these hosts alone."""
        folder = self._state / "ansible"
        render.write(folder, self.rendered())
        play = ansible.Play(
            folder,
            hosts=tuple(names),
            roles=tuple(roles),
            secret_vars={"gangline_join_tokens": self._tokens} if self._tokens else {},
        )
        results = _run(ansible.play(play, self._tell))
        return [_result(results[name]) for name in names]

    def configure_controller(self) -> HostResult:
        """Run the role on the controller's own host, and see that it is as wanted and answers."""
        name = self._own().host.name
        folder = self._state / "ansible"
        render.write(folder, self.rendered())
        play = ansible.Play(folder, playbook=render.CONTROLLER_PLAYBOOK, hosts=(name,))
        ran = _result(_run(ansible.play(play, self._tell))[name])
        if not ran.ok:
            return replace(ran, error=f"{ran.error}{self._last_words(name)}")
        seen = _seen(self.controller_sight())
        if seen.error or not seen.clean:
            error = seen.error or "it still differs after the role has run: `gangline drift` shows where"
            return HostResult(name, ok=False, error=error, changed=ran.changed)
        deadline_us = self._clock.monotonic_us() + ANSWER_S * SECOND
        while not self._wishes.answers():
            if self._clock.monotonic_us() > deadline_us:
                error = f"its unit runs, and nothing answers at its address after {ANSWER_S} s"
                return HostResult(name, ok=False, error=error, changed=ran.changed)
            time.sleep(LOOK_EVERY_S / 4)
        return ran

    def _last_words(self, name: str) -> str:
        """What the controller itself said last, where its unit is why the role failed."""
        said = self.ask(
            name, f"journalctl --unit={CONTROLLER_UNIT} --lines=1 --output=cat --no-pager --quiet"
        )
        words = (
            said.stdout.decode(errors="replace").strip() if isinstance(said, Ran) and said.code == 0 else ""
        )
        return f"; the controller's last words: {words}" if words else ""

    def ask(self, name: str, script: str) -> Ran | Unreached | InputError:
        """What one host answers to a shell script as root; why it could not be asked."""
        return self._answers([name], script)[name]

    def rendered(self) -> render.Files:
        """The folder that Ansible runs on."""
        wishes = self._wishes
        wanted = render.Rendering(
            self._spec,
            {pool: one.desired for pool, one in wishes.desired.items()},
            wishes.letting_go,
            ssh_configs={site: access.config for site, access in self._usable().items()},
            ca=wishes.ca_pem,
            ca_path=wishes.ca_path,
            controller_url=wishes.controller_url,
            hosted=wishes.hosted,
        )
        return render.render(wanted, archive.agent_archive())

    def _usable(self) -> dict[str, ssh.Access]:
        """The ways that can be laid."""
        for site in self._sites:
            with suppress(InputError):
                self._access(site)
        return self._laid

    def running(self, names: Sequence[str]) -> dict[str, str]:
        """What of Gangline's lives on them, in words. A host that does not answer says nothing: what is done next to it
        fails by itself."""
        answers = self._answers(names, LIVE)
        return {
            name: _last_line(one)
            for name, one in answers.items()
            if isinstance(one, Ran) and one.code == BUSY
        }

    def reboot(self, names: Sequence[str]) -> list[HostResult]:
        """Until each is back with another boot id and has all it should. None that runs anything of Gangline's."""
        before = {sight.host: sight.facts.boot_id for sight in self.sights(names) if sight.facts is not None}
        asked = self._as_root(list(before), REBOOT)
        results = [
            HostResult(name, ok=False, error="it could not be reached")
            for name in names
            if name not in before
        ]
        results += [_refused(result) for result in asked if not result.ok]
        waiting = [result.host for result in asked if result.ok]
        return results + _run(self._back(waiting, before))

    async def _back(self, waiting: list[str], before: Mapping[str, str]) -> list[HostResult]:
        """What a host runs only a while after its boot has time until the same bound."""
        deadline_us = self._clock.monotonic_us() + self._reboot_s * SECOND
        left = dict.fromkeys(waiting, f"it was not back {seconds_text(self._reboot_s)} after its reboot")
        results: list[HostResult] = []
        while left and self._clock.monotonic_us() < deadline_us:
            await asyncio.sleep(LOOK_EVERY_S)
            for checked in await self._check(list(left), self._wanted):
                sight = checked.sight
                if sight.facts is None or sight.facts.boot_id == before[sight.host]:
                    continue
                left[sight.host] = "it is back, and not as it should be: `gangline drift` shows where"
                if not sight.drift:
                    del left[sight.host]
                    results.append(HostResult(sight.host, ok=True, changed=1))
        return results + [HostResult(name, ok=False, error=why) for name, why in left.items()]

    def retire(self, names: Sequence[str]) -> list[HostResult]:
        """Stop the agents of these nodes, and take away what let them in. What the host itself says it is counts, not
        the address: where another node has come in meanwhile, or none is left, there is nothing to stop."""
        answers = self._answers(names, READ_CONFIG)
        results = {name: _whose(name, answer, self._urls) for name, answer in answers.items()}
        theirs = [name for name, result in results.items() if result is None]
        stopped = self._as_root(theirs, RETIRE) if theirs else []
        by_name = {result.host: result for result in (*stopped, *filter(None, results.values()))}
        return [by_name[name] for name in names]

    def _as_root(self, names: Sequence[str], script: str) -> list[HostResult]:
        return [_ran(name, answer) for name, answer in self._answers(names, script).items()]

    def _answers(self, names: Sequence[str], script: str) -> dict[str, Ran | Unreached | InputError]:
        return _run(self._everywhere(names, script))

    async def _everywhere(self, names: Sequence[str], script: str) -> dict[str, Ran | Unreached | InputError]:
        """What each host answers to a shell script as root; where there is no way to it, the reason."""
        answers: dict[str, Ran | Unreached | InputError] = {}
        for site, hosts in self._by_site(names).items():
            try:
                answers |= await Channel(self._access(site), self._clock).run_on(
                    hosts, AS_ROOT, script.encode()
                )
            except InputError as error:
                answers |= dict.fromkeys(hosts, error)
        return {name: answers[name] for name in names}


def _with_leaving(spec: ClusterSpec, before: ClusterSpec | None) -> list[Site]:
    """The metal sites, each with the hosts that it had before as well: one that leaves has to be reached once more."""
    sites = {site.name: site for site in before.sites} if before is not None else {}
    for site in spec.sites:
        old = sites.get(site.name)
        names = {host.name for host in site.hosts}
        leaving = tuple(host for host in old.hosts if host.name not in names) if old is not None else ()
        sites[site.name] = replace(site, hosts=site.hosts + leaving)
    return [site for site in sites.values() if site.kind is SiteKind.METAL]


def _with_nodes(site: Site, specs: Iterable[ClusterSpec | None]) -> Site:
    """The site with the nodes of its pools that no inventory has: they are reached by their names."""
    pools = (pool for spec in specs if spec is not None for pool in spec.pools if pool.site == site.name)
    known = {host.name for host in site.hosts}
    others = dict.fromkeys(name for pool in pools for name in pool.nodes if name not in known)
    return replace(site, hosts=(*site.hosts, *map(Host, others)))


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _seen(sight: Sight) -> Seen:
    if sight.reached is not Step.DONE:
        return Seen(
            sight.host, clean=False, error=f"{sight.error}; {sight.hint}" if sight.hint else sight.error
        )
    return Seen(sight.host, clean=sight.checked and not sight.drift, facts=sight.facts)


def _result(found: ansible.HostRun) -> HostResult:
    where = f"role {found.role}, {found.task}: " if found.role and found.task else ""
    return HostResult(found.host, found.ok, f"{where}{found.error}" if found.error else "", found.changed)


def _ran(name: str, answer: Ran | Unreached | InputError) -> HostResult:
    if isinstance(answer, (Unreached, InputError)):
        return HostResult(name, ok=False, error=answer.message)
    ok = answer.code == 0
    return HostResult(name, ok, "" if ok else _last_line(answer) or "it failed")


def _last_line(answer: Ran) -> str:
    words = answer.stderr.decode(errors="replace").strip().splitlines()
    return words[-1] if words else ""


def _whose(name: str, answer: Ran | Unreached | InputError, urls: frozenset[str]) -> HostResult | None:
    """None if the host's agent is that node's own, and calls one of the URLs; else what there is to say of it."""
    if isinstance(answer, (Unreached, InputError)) or answer.code not in (0, NO_CONFIG):
        return _ran(name, answer)
    try:
        found = json.loads(answer.stdout)
    except (
        ValueError,
        RecursionError,
    ):  # none, or one that nobody can read: the unit is stopped all the same
        return HostResult(name, ok=True) if answer.code == NO_CONFIG else None
    if not isinstance(found, dict):
        return None
    if found.get("node") not in (name, None):
        return HostResult(name, ok=True)
    url = str(found.get("url", ""))
    if url and urls and url.rstrip("/") not in urls:
        return HostResult(
            name, ok=False, error=f"its agent is another controller's by now ({url}); it was left alone"
        )
    return None


def _refused(result: HostResult) -> HostResult:
    """A host that was not rebooted, with the reason."""
    return replace(result, error=f"it was not rebooted: {result.error}")
