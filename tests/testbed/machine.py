"""One host's machine: an overlay on a base tree, and the nspawn process that boots it.

Comes in: a base tree, a folder, name, address, authorised key. Goes out: a booted Debian, its leader process, its end.
Called by: bed. Booting twice is refused by nspawn itself, since the machine's name and link are taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import base
from tests.testbed.groups import Group
from tests.testbed.network import Network

BOOT_S = 120.0
TICK_S = 0.02
SHARED = "/shared"
KEYS = ("ed25519", "ecdsa")  # as sshd has them on a fresh host, but for RSA, which takes seconds to make
NETWORK = """[Match]
Name=host0
[Network]
Address={address}/24
Gateway={gateway}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""

# One nspawn per life of the host. The link of the life before goes with its network namespace, a moment after it.
LIVES = """
while :; do
    while [ -e /sys/class/net/{link} ]; do ip link del {link} 2>/dev/null; sleep 0.02; done
    ( set -e
{enter}
      exec "$@" )
    code=$?
    [ $code -eq 133 ] || exit $code
done
"""
# Held, so that a bed can outlive the objects of the command that made it.
STARTED: list[subprocess.Popen[bytes]] = []


class NotBooted(RuntimeError):
    """The host did not come up; the message ends with the console's last lines."""


@dataclass(slots=True)
class Machine:
    """`folder` holds upper, work, root and console.log. The disk outlives a kill; `wipe` alone empties it. `shared` is
    the bed's, at SHARED in every host, whether its network is there or not. `furnished`: its next empty disk has what
    roles install on every host (base.FURNITURE)."""

    name: str
    index: int
    release: str
    folder: Path
    network: Network
    group: Group
    shared: Path
    furnished: bool = False
    process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        """The host's file system as this machine sees it; it can be read and changed while the host is off."""
        return self.folder / "root"

    @property
    def address(self) -> str:
        """The host's static address."""
        return self.network.address(self.index)

    def lay(self, public_key: str) -> None:
        """Make its disk if there is none: the overlay, its name, address, identity and keys."""
        done = self.folder / "laid"
        if done.exists():
            return
        self.wipe()  # what a killed command began
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # `volatile`: a test's host needs no fsync, and installing packages is twice as fast without.
        layers = base.lower(self.release, self.furnished)
        options = f"lowerdir={layers},upperdir={self.folder}/upper,workdir={self.folder}/work,volatile"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)], check=True)
        self._settle(public_key)
        done.touch()

    def _settle(self, public_key: str) -> None:
        etc = self.root / "etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (etc / "machine-id").write_text(f"{os.urandom(16).hex()}\n")
        (etc / "systemd/network/10-host0.network").write_text(
            NETWORK.format(address=self.address, gateway=self.network.gateway)
        )
        shutil.copy("/etc/resolv.conf", etc / "resolv.conf")
        for kind in KEYS:
            make_key(etc / f"ssh/ssh_host_{kind}_key", kind, f"root@{self.name}")
        home = self.root / "home" / base.USER / ".ssh"
        home.mkdir(mode=0o700)
        (home / "authorized_keys").write_text(public_key)
        os.chown(home, 1000, 1000)
        os.chown(home / "authorized_keys", 1000, 1000)

    def start(self) -> None:
        """Power on. Returns at once; `wait_booted` waits. A reboot from inside works too: nspawn ends with 133 then."""
        self.group.make()
        self.shared.mkdir(exist_ok=True)
        argv = [
            "systemd-nspawn", "-D", str(self.root), "-M", self.network.machine(self.index),
            f"--network-bridge={self.network.bridge}", "--register=no", "--keep-unit", "--resolv-conf=off",
            f"--bind={self.shared}:{SHARED}",
            "--kill-signal=SIGRTMIN+3", f"--hostname={self.name}", "/usr/local/sbin/testbed-init",
        ]  # fmt: skip
        script = LIVES.format(link=self.network.link(self.index), enter=self.group.enter())
        with (self.folder / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", script, "sh", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            )
        STARTED.append(self.process)

    def leader(self) -> int | None:
        """The process that is number 1 inside, or None while there is none."""
        for pid in self.group.pids():
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("NSpid:") and line.split()[2:] == ["1"]:
                        return pid
        return None

    def inside(
        self, argv: Sequence[str], feed: bytes | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it in the host as root, past any network. NotBooted while the host is off."""
        leader = self.leader()
        if leader is None:
            raise NotBooted(f"{self.name} is off")
        return subprocess.run(
            ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-r", "-w", *argv],
            input=feed or b"",
            capture_output=True,
            check=False,
            timeout=timeout_s,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )

    def wait_booted(self) -> None:
        """Until systemd inside says `running`. NotBooted with the reason otherwise."""
        end = time.monotonic() + BOOT_S
        while self.leader() is None or not (self.root_run() / "systemd/private").exists():
            if self.process is not None and self.process.poll() is not None:
                raise NotBooted(
                    f"{self.name}: nspawn ended with {self.process.returncode}\n{self._console()}"
                )
            if time.monotonic() > end:
                raise NotBooted(f"{self.name}: no systemd after {BOOT_S:g} s\n{self._console()}")
            time.sleep(TICK_S)
        done = self.inside(["systemctl", "is-system-running", "--wait"], timeout_s=BOOT_S)
        if done.stdout.strip() != b"running":
            failed = self.inside(["systemctl", "--failed", "--no-legend", "--plain"]).stdout.decode()
            raise NotBooted(f"{self.name}: {done.stdout.decode().strip()}: {failed}\n{self._console()}")

    def root_run(self) -> Path:
        """The host's own /run, which only its processes have mounted."""
        return Path(f"/proc/{self.leader()}/root/run")

    def _console(self) -> str:
        with suppress(OSError):
            return "\n".join((self.folder / "console.log").read_text(errors="replace").splitlines()[-12:])
        return ""

    def kill(self) -> None:
        """Pull the plug: every process of the host ends at once, its disk stays."""
        self.group.kill()
        if self.process is not None:
            self.process.wait()
            STARTED.remove(self.process)
            self.process = None
        name = self.network.machine(self.index)
        with suppress(OSError):
            Path("/run/systemd/nspawn/propagate", name).rmdir()

    def wipe(self) -> None:
        """Kill it and empty its disk."""
        self.kill()
        if os.path.ismount(self.root):
            subprocess.run(["umount", str(self.root)], check=True)
        if self.folder.exists():
            shutil.rmtree(self.folder)


def make_key(path: Path, kind: str, comment: str) -> None:
    """A key pair without passphrase."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", str(path)], check=True)
