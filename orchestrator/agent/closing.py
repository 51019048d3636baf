"""Keeps jobs from the metadata service of a bought node: it tells whoever asks the credentials of the instance's role,
and the papers that the node was let in with.

Comes in: how units are kept together here, from which uid on jobs run. Goes out: the addresses that units are kept
from, or a rule of the kernel's; what nothing holds is said. Called by: the daemon, at its start.

The service's own bound (a hop limit of 1) stops containers with a network of their own, never a process of the host. So
units of systemd deny both addresses (IPAddressDeny, by a program in their control group), where that has force: under
hybrid control groups it has none. And a rule holds for the uids that jobs can have, since a job can leave processes of
its user outside its unit (a line of cron, a login); those of system users keep their way, as EC2 Instance Connect, for
one, asks as a user of its own. Each is believed only when an ordinary user was seen to fail.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from orchestrator.agent import log, scope
from orchestrator.agent.channel import parse_url
from orchestrator.agent.config import Config
from orchestrator.agent.supervisor import Supervisor
from orchestrator.model.instance import METADATA_V4, METADATA_V6

ADDRESSES = (METADATA_V4, METADATA_V6)
NOBODY = 65_534  # an ordinary uid that owns nothing
LAST_UID = 4_294_967_294
TABLE = "gangline_metadata"
PRIORITY = "169"  # of the rules for routes: before all that lead somewhere but to this machine itself
RULE_S = 20


@dataclass(frozen=True, slots=True)
class Closed:
    """`addresses`: what each unit is to be kept from; `unenforced`: `metadata` where jobs reach the service."""

    addresses: tuple[str, ...] = ()
    unenforced: tuple[str, ...] = ()


NOTHING = Closed()


def exposed(config: Config) -> bool:
    """Whether the service is where jobs would look for it; a test's own is elsewhere."""
    return bool(config.join) and parse_url(config.metadata).host in ADDRESSES


def close(found: Supervisor, min_uid: int) -> Closed:
    """See the module."""
    units = Closed(ADDRESSES) if found.closes else NOTHING
    if os.geteuid() == 0:
        for rule in _rules(min_uid):
            _run(rule)
            if not _reached():
                return units
    if found.closes:
        return units
    log.error(
        "jobs on this node can reach its metadata service, and with it the rights of the instance's role: "
        "nothing here keeps them from it; install nftables or iproute2"
    )
    return Closed(unenforced=(scope.METADATA,))


Rule = tuple[tuple[tuple[str, ...], ...], str]  # commands, and what they read


def _rules(min_uid: int) -> tuple[Rule, ...]:
    """What may keep jobs' uids from the addresses, best first. Each can be made again."""
    uids = f"{min_uid}-{LAST_UID}"
    text = (
        f"table inet {TABLE}\ndelete table inet {TABLE}\n"
        f"table inet {TABLE} {{\nchain output {{\ntype filter hook output priority filter;\n"
        f"meta skuid {uids} ip daddr {METADATA_V4} reject\n"
        f"meta skuid {uids} ip6 daddr {METADATA_V6} reject\n}}\n}}\n"
    )
    routes: list[tuple[str, ...]] = []
    for family, address in (("-4", METADATA_V4), ("-6", METADATA_V6)):
        what = ("to", address, "uidrange", uids, "priority", PRIORITY, "prohibit")
        routes += [("ip", family, "rule", "del", *what), ("ip", family, "rule", "add", *what)]
    return ((("nft", "-f", "-"),), text), (tuple(routes), "")


def _run(rule: Rule) -> None:
    """What it came to is looked at afterwards; a command that is not here is no rule."""
    import subprocess  # only bought nodes need it

    commands, text = rule
    for argv in commands:
        try:
            subprocess.run(argv, input=text.encode(), capture_output=True, timeout=RULE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.debug(f"{argv[0]}: {error}")


def _reached() -> bool:
    """Whether a process of an ordinary user may send to one of the addresses."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code = int(any(scope.reaches(address) for address in ADDRESSES))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
