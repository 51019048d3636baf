"""The bed's own network: a bridge, a subnet and an nftables table, chosen so that beds on one machine never meet.

Comes in: nothing. Goes out: `Network` with a number that no other bed has; hosts behind it reach what this machine
reaches. Called by: bed. Subnets are of 198.18.0.0/15, which RFC 2544 keeps for tests: no real network is hidden.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_BEDS = 256
MOST_HOSTS = 240
# Kernel settings while there is a bed: each host takes about seven instances of inotify, of 128 by default for all.
SETTINGS = {"net/ipv4/ip_forward": 1, "fs/inotify/max_user_instances": 8192}


class NoRoom(RuntimeError):
    """Every bridge number is taken."""


@dataclass(frozen=True, slots=True)
class Network:
    """Number N: bridge `gbN`, this machine is 198.18.N.1, host i is 198.18.N.(10+i), table `gangline_gbN`."""

    number: int

    @property
    def bridge(self) -> str:
        """The bridge's name."""
        return f"gb{self.number}"

    @property
    def gateway(self) -> str:
        """This machine's address on the bridge, where its controllers can listen."""
        return f"198.18.{self.number}.1"

    @property
    def subnet(self) -> str:
        """All of the bed's addresses."""
        return f"198.18.{self.number}.0/24"

    def address(self, index: int) -> str:
        """The address of host number `index`, which counts from 1."""
        return f"198.18.{self.number}.{10 + index}"

    def machine(self, index: int) -> str:
        """What nspawn calls the host; its end of the link is named after it, which allows 15 characters."""
        return f"{self.bridge}-{index}"

    def link(self, index: int) -> str:
        """This machine's end of the host's link."""
        return f"vb-{self.machine(index)}"

    def raise_up(self) -> None:
        """Give the bridge its address, and its hosts a way out."""
        ip("addr", "add", f"{self.gateway}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        rules = f"""table ip gangline_{self.bridge} {{
  chain leave {{
    type nat hook postrouting priority srcnat;
    ip saddr {self.subnet} oifname != "{self.bridge}" masquerade
  }}
  chain clamp {{
    type filter hook forward priority mangle;
    iifname "{self.bridge}" tcp flags syn tcp option maxseg size set rt mtu
  }}
}}
"""
        subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)

    def take_down(self, indices: Iterable[int]) -> None:
        """Remove the links of these hosts, the bridge and the table; gone already is well.

        The bridge goes last, since its number is free for others from then on.
        """
        for argv in (
            *(["ip", "link", "del", self.link(index)] for index in indices),
            ["nft", "delete", "table", "ip", f"gangline_{self.bridge}"],
            ["ip", "link", "del", self.bridge],
        ):
            subprocess.run(argv, capture_output=True, check=False)


def read_settings() -> dict[str, int]:
    """What the kernel has now of SETTINGS."""
    return {name: int(Path("/proc/sys", name).read_text()) for name in SETTINGS}


def write_settings(values: dict[str, int]) -> None:
    """Set them."""
    for name, value in values.items():
        Path("/proc/sys", name).write_text(str(value))


def claim() -> Network:
    """Take the first free number: making the bridge is the claim, and the kernel lets only one have it."""
    for number in range(MOST_BEDS):
        found = Network(number)
        with suppress(subprocess.CalledProcessError):
            ip("link", "add", found.bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0")
            return found
    raise NoRoom(f"all {MOST_BEDS} bridges gb0 to gb{MOST_BEDS - 1} exist: `python -m tests.testbed list`")


def ip(*argv: str) -> None:
    """Run `ip`; CalledProcessError with its words."""
    subprocess.run(["ip", *argv], capture_output=True, text=True, check=True)
