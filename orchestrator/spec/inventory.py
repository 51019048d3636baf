"""The hosts of a metal site: Ansible's YAML inventory, read strictly.

Comes in: the text of the file that a site names. Goes out: `Host`s with the groups that they are in, and faults
placed in that file. Called by: `load`.

Taken from Ansible: groups with `hosts`, `children` and `vars`, names with ranges such as `h100-[01:32]` or `r[a:d]`,
a host in several groups, and any `ansible_*` variable that contradicts nothing (see `ways`). Gangline's own: `bmc`,
`bmc_user`, `bmc_password`, `mac`, `rack`. Everything else belongs into `vars` of a group, which Gangline does not read:
what it would have to read is refused there, and a slip in a host's line must not pass unseen.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from orchestrator.model.cluster import Host
from orchestrator.spec.tree import INI_ADVICE, Misread, Node, Place, Tree, read_tree
from orchestrator.spec.ways import WAYS, Said, misspelt
from orchestrator.wire.common import HOST_PATTERN, REFERENCE_PATTERN
from orchestrator.wire.faults import Loc, Problem, described, did_you_mean, plain, problem, shown
from orchestrator.wire.hostlist import LONGEST_NAME, MOST_NODES
from orchestrator.wire.leaf import UNKNOWN

GROUP_FIELDS = ("hosts", "children", "vars")
HOST_FIELDS = ("ansible_host", "bmc", "bmc_user", "bmc_password", "mac", "rack")

_RANGE = re.compile(r"\[([0-9]{1,9}|[a-z]|[A-Z]):([0-9]{1,9}|[a-z]|[A-Z])(?::([0-9]{1,4}))?\]")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_NO_NAME = "hosts are named with letters, digits, '.', '-' and '_', ranges are written [01:32]"
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_ADDRESS = re.compile(HOST_PATTERN)
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"({_BYTE}\.){{3}}{_BYTE}")  # nearly all addresses: told apart before anything is parsed
_SECRET = re.compile(REFERENCE_PATTERN)
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,253}")


Claim = tuple[str, str]  # what it is, and its value in one form


@dataclass(frozen=True, slots=True)
class Owner:
    """The first host with a value: where it has it, and in which field."""

    host: str
    field: str
    place: Place
    loc: Loc
    value: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a file says. `faults` are placed in it; with one, `hosts` may be incomplete. `ways`: what it says about the
    way to hosts, for each site to compare. `claims`: the host that each address and MAC belongs to."""

    tree: Tree
    hosts: tuple[Host, ...]
    faults: tuple[Misread, ...]
    ways: tuple[Said, ...] = ()
    claims: Mapping[Claim, Owner] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """A host while the groups are walked: where it stands first; its values so far, each with its place."""

    place: Place
    loc: Loc
    values: dict[str, tuple[str, Place]] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)


def read_inventory(text: str) -> Inventory:
    """All hosts of an inventory and all that is wrong with it."""
    tree = read_tree(text)
    if tree.root is None:
        return Inventory(tree, (), tree.faults)
    reader = _Reader(list(tree.faults))
    reader.top(tree.root)
    return Inventory(tree, reader.hosts(), tuple(reader.faults), tuple(reader.ways), reader.claims)


def taken(claim: Claim, owner: Owner, where: str) -> Problem:
    """The fault of a second host with a value. `where`: the place of the first one, in words."""
    value = plain(owner.value, 60)
    return problem("spec.duplicate-address", what=claim[0], value=value, host=owner.host, where=where)


class _Reader:
    """Walks the groups of one inventory."""

    def __init__(self, faults: list[Misread]) -> None:
        self.faults = faults
        self.ways: list[Said] = []
        self.claims: dict[Claim, Owner] = {}
        self._seen: dict[str, _Seen] = {}

    def hosts(self) -> tuple[Host, ...]:
        """The hosts in the order in which they first stand in the file."""
        return tuple(
            Host(
                name=name,
                address=_value(seen, "ansible_host"),
                bmc=_value(seen, "bmc"),
                bmc_user=_value(seen, "bmc_user"),
                bmc_password=_value(seen, "bmc_password"),
                mac=_value(seen, "mac").lower(),
                rack=_value(seen, "rack"),
                groups=tuple(seen.groups),
            )
            for name, seen in self._seen.items()
        )

    def top(self, root: Node) -> None:
        """The outermost groups, `all` among them or not."""
        if isinstance(root.value, str) and (advice := _other_form(root.value)):
            found = problem("spec.wrong-type", expected="a mapping of groups", got="a text", advice=advice)
            self._say(found, root.place, ())
        elif self._mapping(root, "a mapping of groups", ()):
            for name, node in root.values.items():
                self._group(name, node, root.keys[name], (name,))
            self._by_name()

    def _by_name(self) -> None:
        """A host without an address goes by its name, which is then nobody else's address."""
        for name, seen in self._seen.items():
            if "ansible_host" not in seen.values:
                self._claim(Owner(name, "", seen.place, seen.loc, name), "address")

    def _say(self, found: Problem, place: Place, loc: Loc) -> None:
        self.faults.append(Misread(found, place, loc))

    def _mapping(self, node: Node, expected: str, loc: Loc) -> bool:
        if isinstance(node.value, dict) or node.value is UNKNOWN:
            return node.value is not UNKNOWN
        advice = "give each host a key of its own, as in `n[01:32]:`" if isinstance(node.value, list) else ""
        found = problem("spec.wrong-type", expected=expected, got=described(node.value), advice=advice)
        self._say(found, node.place, loc)
        return False

    def _group(self, name: str, node: Node, key: Place, loc: Loc) -> None:
        if not _GROUP.fullmatch(name):
            advice = "groups are named with letters, digits, '_' and '-'"
            self._say(problem("spec.bad-name", got=shown(name), advice=advice), key, loc)
        if node.value is None or not self._mapping(node, "a mapping with hosts, children or vars", loc):
            return
        for word, inner in node.values.items():
            if word not in GROUP_FIELDS:
                advice = did_you_mean(word, list(GROUP_FIELDS)) or "a group has: " + ", ".join(GROUP_FIELDS)
                self._say(problem("spec.unknown-field", advice=advice), node.keys[word], (*loc, word))
            elif inner.value is not None and self._mapping(inner, "a mapping", (*loc, word)):
                if word == "vars":
                    self._vars(inner, (*loc, word))
                else:
                    self._members(word, inner, name, (*loc, word))

    def _vars(self, node: Node, loc: Loc) -> None:
        """Variables of a group: what Gangline would have to know of each host has no effect here."""
        for word, inner in node.values.items():
            if word in HOST_FIELDS:
                advice = "write it in lines of hosts, where n[01:32] stands for many"
                found = problem("spec.no-effect", field=word, advice=advice)
                self._say(found, node.keys[word], (*loc, word))
            elif word in WAYS and inner.value is not UNKNOWN:
                self.ways.append(Said(word, inner.value, node.keys[word], (*loc, word)))

    def _members(self, word: str, node: Node, group: str, loc: Loc) -> None:
        for name, inner in node.values.items():
            if word == "children":
                self._group(name, inner, node.keys[name], (*loc, name))
            else:
                self._line(name, inner, node.keys[name], group, (*loc, name))

    def _line(self, pattern: str, node: Node, key: Place, group: str, loc: Loc) -> None:
        """One line of hosts: a name or a range, with values for all that it stands for."""
        names = expand_range(pattern)
        if isinstance(names, str):
            self._say(problem("spec.bad-hostlist", got=shown(pattern), reason=names), key, loc)
            return
        if len(self._seen) + len(names) > MOST_NODES:
            reason = f"the inventory would have more than {MOST_NODES} hosts"
            self._say(problem("spec.bad-hostlist", got=shown(pattern), reason=reason), key, loc)
            return
        values = self._values(node, loc) if node.value is not None else {}
        for name in names:
            seen = self._seen.setdefault(name, _Seen(key, loc))
            if group not in ("all", "ungrouped"):
                seen.groups[group] = None
            for word, (value, place) in values.items():
                self._keep(name, seen, word, value, place, (*loc, word))

    def _values(self, node: Node, loc: Loc) -> dict[str, tuple[str, Place]]:
        """The sound values of a line."""
        if not self._mapping(node, "a mapping of values", loc):
            return {}
        found: dict[str, tuple[str, Place]] = {}
        for word, inner in node.values.items():
            if inner.value is UNKNOWN:
                continue
            reader = _READERS.get(word)
            if reader is None:
                self._other(word, inner, node.keys[word], (*loc, word))
                continue
            fault = _not_text(word, inner.value) or reader(inner.value)
            if fault:
                self._say(fault, inner.place, (*loc, word))
            else:
                found[word] = (inner.value, inner.place)
        return found

    def _other(self, word: str, node: Node, key: Place, loc: Loc) -> None:
        """A word of a line that is none of Gangline's own: Ansible's, or a slip."""
        if word in WAYS:
            self.ways.append(Said(word, node.value, key, loc))
        elif not word.startswith("ansible_"):
            self._say(_unknown(word), key, loc)
        elif advice := misspelt(word):
            self._say(problem("spec.unknown-field", advice=advice), key, loc)

    def _keep(self, name: str, seen: _Seen, word: str, value: str, place: Place, loc: Loc) -> None:
        before = seen.values.get(word)
        if before is not None:
            if before[0] != value:
                values = {"host": name, "field": word, "line": before[1].line}
                self._say(problem("spec.host-conflict", **values), place, loc)
            return
        seen.values[word] = (value, place)
        if word in _UNIQUE:
            self._claim(Owner(name, word, place, loc, value), _UNIQUE[word])

    def _claim(self, new: Owner, what: str) -> None:
        """A value that one host has, in one field; of a range only the second host is told."""
        claim = (what, _canonical(new.value))
        first = self.claims.setdefault(claim, new)
        if (first.host, first.field) == (new.host, new.field):
            return
        if not any(fault.place == new.place for fault in self.faults[-1:]):
            self._say(
                taken(claim, replace(first, value=new.value), f"line {first.place.line}"), new.place, new.loc
            )


def _other_form(text: str) -> str:
    """What to do about a file that is an inventory, and not in the form that is read; nothing for any other text."""
    if text.startswith("$ANSIBLE_VAULT"):
        return "vaults are not opened: keep it in plain text, with references such as env:NAME for what is secret"
    if "=" in text:
        return INI_ADVICE
    return ""


def _value(seen: _Seen, word: str) -> str:
    return seen.values[word][0] if word in seen.values else ""


def _unknown(word: str) -> Problem:
    near = did_you_mean(word, list(HOST_FIELDS))
    return problem("spec.unknown-field", advice=near or "put variables of your own under `vars` of a group")


def _not_text(word: str, value: Any) -> Problem | None:
    if isinstance(value, str):
        return None
    if _READERS[word] is _secret and value is not None:
        return problem("spec.bad-secret")  # which is not repeated
    advice = "put it in quotes" if value is not None else "give it a value, or remove it"
    return problem("spec.wrong-type", expected="a text", got=described(value), advice=advice)


def _address(value: str) -> Problem | None:
    """A name, or an address that means the same everywhere: 10.0.01.1 is 10.0.1.1 to some and octal to others."""
    if _IPV4.fullmatch(value):
        return None
    number = ":" in value or not value.strip("0123456789.")
    if _ADDRESS.fullmatch(value) and (not number or _parsed(value) is not None):
        return None
    return problem("spec.bad-address", got=shown(value))


def _parsed(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def _mac(value: str) -> Problem | None:
    return None if _MAC.fullmatch(value) else problem("spec.bad-mac", got=shown(value))


def _secret(value: str) -> Problem | None:
    return None if _SECRET.fullmatch(value) else problem("spec.bad-secret")


def _word(value: str) -> Problem | None:
    advice = "use printable characters only"
    return None if _WORD.fullmatch(value) else problem("spec.bad-text", got=shown(value), advice=advice)


_READERS: dict[str, Callable[[str], Problem | None]] = {
    "ansible_host": _address,
    "bmc": _address,
    "bmc_user": _word,
    "bmc_password": _secret,
    "mac": _mac,
    "rack": _word,
}
_UNIQUE = {"ansible_host": "address", "bmc": "address", "mac": "MAC address"}


def _canonical(value: str) -> str:
    """One form for values that are the same: IPv6 has many, and another one for every address of IPv4."""
    found = _parsed(value) if ":" in value and not _MAC.fullmatch(value) else None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found) if found is not None else value.lower()


def expand_range(pattern: str) -> list[str] | str:
    """The names that an Ansible host pattern stands for, or the reason why it is none."""
    pieces: list[list[str]] = []
    count, position = 1, 0
    if "[" not in pattern:  # nearly all lines, of which there may be ten thousand
        return [pattern] if _is_name(pattern) else _NO_NAME
    for found in _RANGE.finditer(pattern):
        pieces.append([pattern[position : found.start()]])
        piece = _one_range(found[1], found[2], found[3], MOST_NODES // count)
        if isinstance(piece, str):
            return piece
        pieces.append(piece)
        count *= len(piece)
        position = found.end()
    pieces.append([pattern[position:]])
    names = ["".join(chosen) for chosen in product(*pieces)]
    return names if _is_name(names[0]) and _is_name(names[-1]) else _NO_NAME


def _is_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and _HOST.fullmatch(name) is not None


def _one_range(low: str, high: str, step: str | None, most: int) -> list[str] | str:
    """The texts of `[01:32]`, `[a:d]` or `[1:9:2]`."""
    stride = int(step or "1")
    if low.isdigit() != high.isdigit() or stride < 1:
        return f"[{low}:{high}] is no range"
    if not low.isdigit():
        letters = [chr(code) for code in range(ord(low), ord(high) + 1, stride)]
        return letters if letters and low.isupper() == high.isupper() else f"[{low}:{high}] is no range"
    if low[0] == "0" and len(low) > 1 and len(high) != len(low):
        return f"[{low}:{high}] mixes widths"
    numbers = range(int(low), int(high) + 1, stride)
    if not numbers:
        return f"[{low}:{high}] runs backwards"
    if len(numbers) > most:
        return f"it stands for more than {MOST_NODES} hosts"
    width = len(low) if low[0] == "0" else 0
    return [str(number).zfill(width) for number in numbers]
