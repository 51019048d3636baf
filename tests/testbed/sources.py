"""Where this machine gets its Debian packages from, so that hosts of the testbed get theirs there too.

Comes in: apt's own source files, deb822 and one-line. Goes out: `Mirror`, the addresses of the archive and of its
security updates. Called by: base. No address of a mirror is written anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

APT = Path("/etc/apt")
CODENAMES = {"12": "bookworm", "13": "trixie"}


class NoMirror(RuntimeError):
    """This machine's apt knows no Debian archive."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """`archive` has the releases and their `-updates`; `security` is empty where this machine has no such source."""

    archive: str
    security: str = ""

    def sources_list(self, codename: str) -> str:
        """The sources.list of a host of that release."""
        lines = [
            f"deb {self.archive} {codename} main",
            f"deb {self.archive} {codename}-updates main",
        ]
        if self.security:
            lines.append(f"deb {self.security} {codename}-security main")
        return "\n".join(lines) + "\n"


def mirror(apt: Path = APT) -> Mirror:
    """Read it from apt's files. NoMirror where none of them names a Debian release."""
    archive = security = ""
    for address, suite in _pairs(apt):
        codename, _, rest = suite.partition("-")
        if codename not in (*CODENAMES.values(), "stable", "oldstable", "testing", "sid"):
            continue
        if rest == "security":
            security = security or address
        elif not rest:
            archive = archive or address
    if not archive:
        raise NoMirror(f"no apt source in {apt} is a Debian release, so hosts can't be made here")
    return Mirror(archive, security)


def _pairs(apt: Path) -> Iterator[tuple[str, str]]:
    """(address, suite) of every source of binary packages that is switched on, in apt's order."""
    parts = apt / "sources.list.d"
    for path in [apt / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            yield from _one_line(path.read_text())
    for path in sorted(parts.glob("*.sources")):
        yield from _deb822(path.read_text())


def _one_line(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)", line)
        if found:
            yield found[1], found[2]


def _deb822(text: str) -> Iterator[tuple[str, str]]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[name] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        on = fields.get("enabled", "yes").lower() not in ("no", "false")
        if on and "deb" in fields.get("types", "").split():
            for address in fields.get("uris", "").split():
                for suite in fields.get("suites", "").split():
                    yield address, suite
