"""A bed of hosts, and what can be done to them: boot, cut, heal, hang, wake, kill, reboot, reset, run.

Comes in: names and releases. Goes out: `Bed` and its `Host`s. Called by: the fixture `testbed`, __main__.

    with Bed.make("t1") as bed:
        h1, h2, h3 = bed.fresh(3, "12", "13")     # three hosts as just installed; releases in turn
        h1.run("sudo -n systemctl restart ssh").check()
        h2.cut(); h2.inside("systemctl is-active gangline-agent"); h2.heal()
        h3.kill(); h3.boot()
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.testbed import base, network, record
from tests.testbed.groups import Group
from tests.testbed.machine import Machine, make_key
from tests.testbed.network import MOST_HOSTS, SETTINGS, Network
from tests.testbed.record import Record

AT_ONCE = 4  # hosts that boot side by side; more only wait for the same processors
STOP_S = 60.0
TICK_S = 0.05
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    def check(self) -> str:
        """Its output, without the last line's end; AssertionError if it did not end well."""
        assert self.code == 0, f"{shlex.join(self.argv)} ended with {self.code}\n{self.out}{self.err}"
        return self.out.rstrip("\n")


class Host:
    """One host. Its disk outlives `kill`, `reboot` and `off`; `reset` makes it as just installed."""

    def __init__(self, bed: Bed, machine: Machine) -> None:
        self._bed = bed
        self.machine = machine
        self.name = machine.name
        self.address = machine.address
        self.used = False  # whether anybody may have changed it since it was laid

    @property
    def release(self) -> str:
        """`12` or `13`."""
        return self.machine.release

    @property
    def root(self) -> Path:
        """Its file system as this machine sees it."""
        return self.machine.root

    def booted(self) -> bool:
        """Whether it is on."""
        return self.machine.leader() is not None

    def boot(self) -> None:
        """Power on and wait until systemd says `running` and sshd answers; nothing if it is on."""
        if not self.booted():
            self.machine.lay(self._bed.public_key)
            self.machine.start()
            self.machine.wait_booted()
            self.heal()

    def off(self) -> None:
        """Shut down in order."""
        with suppress(subprocess.TimeoutExpired):  # a process that enters a dying host may get stuck there
            self.inside("systemctl poweroff --no-wall", timeout_s=STOP_S / 4)
        self._until(lambda: not self.booted(), "is off")
        self.machine.kill()

    def kill(self) -> None:
        """Pull the plug."""
        self.machine.kill()

    def reboot(self) -> None:
        """Pull the plug and boot again: another boot id, the same disk. `off` and `boot` do it in order."""
        self.kill()
        self.boot()

    def reset(self, release: str = "") -> None:
        """As just installed: empty disk, new machine id and host keys, booted; of another release if one is named."""
        self.machine.wipe()
        self.machine.release = release or self.machine.release
        self._bed.note()
        self.boot()

    def cut(self) -> None:
        """Take its network away; it runs on, and `inside` still reaches it."""
        network.ip("link", "set", self._bed.network.link(self.machine.index), "down")

    def heal(self) -> None:
        """Give its network back."""
        network.ip("link", "set", self._bed.network.link(self.machine.index), "up")

    def hang(self) -> None:
        """Stop every process in it where it is: its kernel still accepts connections, and nobody answers."""
        self.machine.group.freeze(True)

    def wake(self) -> None:
        """Let its processes go on."""
        self.machine.group.freeze(False)

    def run(self, command: str, feed: str = "", timeout_s: float = 60.0) -> Outcome:
        """A shell command over SSH as the user `ops`, who may `sudo -n`. Code 255: SSH itself failed."""
        return self._bed.ssh(self, command, feed, timeout_s)

    def inside(self, command: str, feed: str = "", timeout_s: float = 60.0) -> Outcome:
        """A shell command as root past the network, also while the host is cut off; tests change hosts by it."""
        done = self.machine.inside(["sh", "-c", command], feed.encode(), timeout_s)
        words = (done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))
        return Outcome(("inside", self.name, command), done.returncode, *words)

    def boot_id(self) -> str:
        """What changes with every boot; empty while it is off. Nothing is run in the host, which may be going down."""
        leader = self.machine.leader()
        with suppress(OSError):
            return Path(f"/proc/{leader}/root{BOOT_ID}").read_text().strip()
        return ""

    def wait_reboot(self, before: str) -> None:
        """Until it runs again after a reboot that was asked of it; `before` is its boot id of then."""
        self._until(lambda: self.boot_id() not in ("", before), "reboots")
        self.machine.wait_booted()

    def memory(self) -> int:
        """Bytes of memory in use, page cache included."""
        return self.machine.group.memory()

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + STOP_S
        while not ready():
            assert time.monotonic() < end, f"not within {STOP_S:g} s: {self.name} {what}"
            time.sleep(TICK_S)


class Bed:
    """Hosts on one bridge. `owner` is the process at whose death the bed may be swept; empty: it stays until `down`."""

    def __init__(self, found: Record) -> None:
        self._record = found
        self.network = Network(found.number)
        self.gateway = self.network.gateway  # this machine's address, where the hosts reach its controllers
        self.folder = found.folder
        self.key = found.folder / "client_key"  # the private key of `ops` on every host
        self.hosts: dict[str, Host] = {}
        self._noting = threading.Lock()
        for name, (index, release) in found.hosts.items():
            self.hosts[name] = Host(self, self._machine(name, index, release))
            self.hosts[name].used = True

    @classmethod
    def make(cls, name: str, owner: str = "") -> Bed:
        """A new bed without hosts. Sweeps what dead runs left. FileExistsError if there is one of that name."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
            raise ValueError(f"{name!r} can't name a bed: small letters, digits and '-', 31 at most")
        with record.locked():
            sweep()
            folder = record.beds() / name
            folder.mkdir(parents=True)
            before = next((each.before for each in record.everyone()), network.read_settings())
            found = Record(name, network.claim().number, owner, record.boot_id(), before)
            found.write()
            try:
                network.write_settings({key: max(value, before[key]) for key, value in SETTINGS.items()})
                Network(found.number).raise_up()
                make_key(folder / "client_key", "ed25519", "testbed")
            except BaseException:
                _remove(found)
                raise
        bed = cls(found)
        bed._write_ssh_config()
        return bed

    @classmethod
    def find(cls, name: str) -> Bed | None:
        """The bed of that name that some process made before."""
        found = record.read(name)
        return cls(found) if found is not None and not found.abandoned() else None

    def __enter__(self) -> Bed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.down()

    @property
    def public_key(self) -> str:
        """What every host's `ops` trusts."""
        return self.key.with_suffix(".pub").read_text()

    @property
    def ssh_config(self) -> Path:
        """The tests' own way in: `ssh -F` this file and a host's name."""
        return self.folder / "ssh_config"

    @property
    def shared(self) -> Path:
        """A folder that all hosts have at SHARED, as a file server would give it, whatever becomes of their network."""
        return self.folder / "shared"

    def note(self) -> None:
        """Write down which hosts there are."""
        with self._noting:
            self._record.hosts = {
                name: (host.machine.index, host.machine.release) for name, host in self.hosts.items()
            }
            self._record.write()

    def host(self, name: str, release: str = "12", index: int = 0) -> Host:
        """The host of that name; a new one is added, and is off. `index`: its place in the network (0: a free one)."""
        if name not in self.hosts:
            taken = {host.machine.index for host in self.hosts.values()}
            index = index or next(number for number in range(1, MOST_HOSTS) if number not in taken)
            assert index not in taken, f"two hosts with number {index}"
            self.hosts[name] = Host(self, self._machine(name, index, release))
            self.note()
            self._write_ssh_config()
        return self.hosts[name]

    def boot(self, *names: str, releases: Sequence[str] = ("12",)) -> list[Host]:
        """Hosts of these names, on; those that are on stay as they are. New ones take the releases in turn."""
        base.trees(releases)
        found = [self.host(name, releases[at % len(releases)]) for at, name in enumerate(names)]
        self._each(Host.boot, found)
        for host in found:
            host.used = True
        return found

    def fresh(self, count: int, *releases: str, furnished: bool = False) -> list[Host]:
        """`h1` to `hN` as just installed and on, releases in turn (default: 12); all other hosts are killed.

        `furnished`: with the packages that roles install on every host, for tests that are not about bare ones.
        """
        wanted = {f"h{at + 1}": (releases or ("12",))[at % len(releases or ("12",))] for at in range(count)}
        base.trees(wanted.values(), furnished)
        self._each(
            lambda host: host.machine.wipe(),
            [host for name, host in self.hosts.items() if name not in wanted],
        )
        found = [self.host(name, release) for name, release in wanted.items()]
        self._each(lambda host: _renew(host, wanted[host.name], furnished), found)
        for host in found:
            host.used = True
        return found

    def drop(self, name: str) -> None:
        """The host of that name is off, and nothing of it is left."""
        self.hosts[name].machine.wipe()
        del self.hosts[name]
        self.note()

    def ssh(self, host: Host, command: str, feed: str, timeout_s: float) -> Outcome:
        """Run it on the host as `ops`."""
        argv = ["ssh", "-F", str(self.ssh_config), host.name, command]
        done = subprocess.run(
            argv, input=feed, capture_output=True, text=True, check=False, timeout=timeout_s
        )
        return Outcome(tuple(argv), done.returncode, done.stdout, done.stderr)

    def down(self) -> None:
        """End and forget everything. Kernel settings get their old values back with the last bed."""
        for host in self.hosts.values():
            host.kill()
        with record.locked():
            _remove(self._record)
        self.hosts.clear()

    def _machine(self, name: str, index: int, release: str) -> Machine:
        group = Group(f"gangline-bed-{self._record.name}/{name}")
        return Machine(name, index, release, self.folder / "hosts" / name, self.network, group, self.shared)

    def _write_ssh_config(self) -> None:
        lines = [
            f"User {base.USER}", f"IdentityFile {self.key}", "IdentitiesOnly yes", "BatchMode yes", "LogLevel ERROR",
            "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "ConnectTimeout 5",
        ]  # fmt: skip
        for name, host in self.hosts.items():
            lines += [f"Host {name}", f"  HostName {host.address}"]
        self.ssh_config.write_text("\n".join(lines) + "\n")

    def _each(self, deed: Callable[[Host], None], hosts: Iterable[Host]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(deed, hosts))


def _renew(host: Host, release: str, furnished: bool) -> None:
    other = (host.release, host.machine.furnished) != (release, furnished)
    host.machine.furnished = furnished
    if host.used or other:
        host.reset(release)
    else:
        host.boot()


def sweep() -> list[str]:
    """End what dead runs left; the caller holds the lock. Returns the names of the beds that it ended."""
    gone = [found for found in record.everyone() if found.abandoned()]
    for found in gone:
        _remove(found)
    return [found.name for found in gone]


def _remove(found: Record) -> None:
    """Everything that a record tells of. After a boot of this machine only the files are left."""
    if found.boot == record.boot_id():
        Group(f"gangline-bed-{found.name}").kill()
        _unmount_below(found.folder)
        Network(found.number).take_down(index for index, _ in found.hosts.values())
    others = [each for each in record.everyone() if each.name != found.name and not each.abandoned()]
    if not others and found.boot == record.boot_id():
        network.write_settings(found.before)
    shutil.rmtree(found.folder)


def _unmount_below(folder: Path) -> None:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted(points, reverse=True):
        if Path(point).is_relative_to(folder):
            subprocess.run(["umount", point], check=True)
