"""Gangline's own known_hosts of a site: one key of each host, recorded at first contact and never changed unasked.

Comes in: names of the inventory. Goes out: recorded keys and their fingerprints; keys forgotten. Called by: channel (a
changed key is told with both fingerprints), probe. OpenSSH itself reads the file and adds first keys to it; entries
are by the inventory's names, so that a host may get another address.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostKey:
    """A recorded key: kind (`ssh-ed25519`), SHA256 fingerprint as OpenSSH writes it, and its line in the file."""

    kind: str
    fingerprint: str
    line: int


class KnownHosts:
    """The file; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keys(self, name: str) -> list[HostKey]:
        """What is recorded of a host, in the file's order."""
        return [
            HostKey(kind, fingerprint(blob), number)
            for number, words in enumerate(self._lines(), start=1)
            for kind, blob in ([(words[1], words[2])] if _names(words, name) else [])
        ]

    def forget(self, name: str) -> list[HostKey]:
        """Drop what is recorded of a host, so that the next contact records anew. Returns what was dropped."""
        dropped = self.keys(name)
        if dropped:
            kept = [words for words in self._lines() if not _names(words, name)]
            draft = self.path.with_name(f".{self.path.name}.new")
            draft.write_text("".join(f"{' '.join(words)}\n" for words in kept))
            draft.replace(self.path)
        return dropped

    def _lines(self) -> list[list[str]]:
        try:
            return [line.split() for line in self.path.read_text(errors="replace").splitlines()]
        except FileNotFoundError:
            return []


def fingerprint(blob: str) -> str:
    """The SHA256 fingerprint of a key in base64, as OpenSSH writes it; empty if it is no base64."""
    try:
        digest = hashlib.sha256(base64.b64decode(blob, validate=True)).digest()
    except binascii.Error:
        return ""
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _names(words: list[str], name: str) -> bool:
    return len(words) >= 3 and name in words[0].split(",")
