"""What a controller knows of the accounts that its cluster buys in: facts of stacks, certificates of regions.

Comes in: the controller's state folder. Goes out: the node that an instance is by a stack's facts, the certificates
that identity documents of a region are signed by. Called by: api (joins), controller (launches).

    STATE/aws/stacks/SITE.json           facts of a site's stack (`model.stack_facts`), as whoever applied it left them
    STATE/aws/certificates/REGION.pem    certificates of a region that this version of Gangline does not have

Read again when they change; what can't be read counts as not there and is said in the log.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.errors import Refused
from orchestrator.model.stack_facts import FixedFact, StackFacts
from orchestrator.provision.files import write_whole

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

REGION = re.compile(r"[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}")
log = logging.getLogger("gangline.aws")


class Accounts:
    """Of one controller."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "aws"
        self._read: dict[Path, tuple[int, StackFacts | None]] = {}  # by file, its time of change

    def keep(self, facts: StackFacts) -> None:
        """Write down what a site's stack says now."""
        path = self._folder / "stacks" / f"{facts.site}.json"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, (json.dumps(encode(facts), indent=1, sort_keys=True) + "\n").encode(), 0o600)

    def stacks(self) -> tuple[StackFacts, ...]:
        """Facts of all sites, by name."""
        paths = sorted((self._folder / "stacks").glob("*.json"))
        found = (self._stack(path) for path in paths)
        return tuple(facts for facts in found if facts is not None)

    def _stack(self, path: Path) -> StackFacts | None:
        try:
            changed = path.stat().st_mtime_ns
            known = self._read.get(path)
            if known is None or known[0] != changed:
                known = self._read[path] = (changed, _facts_in(path))
            return known[1]
        except OSError as error:
            log.warning("%s: %s", path, error.strerror)
            return None

    def fixed(self, account: str, region: str, instance: str) -> FixedFact | None:
        """The node that the instance is by the facts of its site; None if they name none. Refused for an account or
        region that is no site's."""
        sites = [facts for facts in self.stacks() if (facts.account, facts.region) == (account, region)]
        if not sites:
            raise Refused(
                "identity.other-account",
                "the instance is in no account and region of this cluster",
                "`gangline apply` tells the controller of a site's account",
            )
        return next((one for facts in sites for one in facts.fixed if one.instance == instance), None)

    def certificates_of(self, region: str) -> tuple[Certificate, ...]:
        """What signs identity documents of that region: those that ship with Gangline, and the operator's."""
        if not REGION.fullmatch(region):
            return ()
        return (*_shipped(region), *_certificates_in(self._folder / "certificates" / f"{region}.pem"))


def _facts_in(path: Path) -> StackFacts | None:
    try:
        return decode(StackFacts, json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, CodecError) as error:
        log.warning("%s: no facts of a stack: %s", path, error)
        return None


@cache
def _regions() -> dict[str, str]:
    data = json.loads(Path(__file__).with_name("regions.json").read_text(encoding="utf-8"))
    found: dict[str, str] = data["certificates"]
    return found


@cache
def _shipped(region: str) -> tuple[Certificate, ...]:
    from cryptography.x509 import load_der_x509_certificate

    text = _regions().get(region)
    return (load_der_x509_certificate(base64.b64decode(text)),) if text else ()


def _certificates_in(path: Path) -> tuple[Certificate, ...]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return tuple(load_pem_x509_certificates(path.read_bytes()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        log.warning("%s: no certificates: %s", path, error)
        return ()
