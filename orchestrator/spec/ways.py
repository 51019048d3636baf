"""What an inventory says about the way to its hosts, held against what the site says: Gangline goes by the site alone.

Comes in: variables of Ansible that `inventory` has met, and the `ssh` of the site. Goes out: faults for those that
would be passed over although they say something else. Called by: `inventory` (words), `load` (values, since one
inventory may serve several sites).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.spec.tree import Misread, Place
from orchestrator.wire.cluster_sites import SshDocument
from orchestrator.wire.faults import Loc, did_you_mean, plain, problem
from orchestrator.wire.leaf import UNKNOWN

# Connection variables of ansible-core's ssh plugin (its documentation, "vars" of each option), by the field of a site's
# `ssh` that says the same; those of an empty field have no equal there.
WAYS: dict[str, str] = {
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_private_key_file": "key",
    "ansible_ssh_private_key_file": "key",
    "ansible_ssh_common_args": "jump",
    "ansible_ssh_extra_args": "jump",
    "ansible_ssh_host": "",
    "ansible_connection": "",
    "ansible_password": "",
    "ansible_ssh_pass": "",
    "ansible_ssh_password": "",
}
_INSTEAD = {
    "ansible_ssh_host": "write it as ansible_host",
    "ansible_connection": "leave it out: metal sites are reached by OpenSSH",
}
_PASSED_OVER = (  # common ones that change nothing for Gangline; here so that slips of them are found
    "ansible_become",
    "ansible_become_method",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_python_interpreter",
    "ansible_shell_type",
)
KNOWN = ("ansible_host", *WAYS, *_PASSED_OVER)


@dataclass(frozen=True, slots=True)
class Said:
    """One connection variable: of a host's line, or of the `vars` of a group."""

    word: str
    value: Any
    place: Place
    loc: Loc


def misspelt(word: str) -> str:
    """`did you mean 'ansible_host'?` for a slip in an `ansible_*` variable, else nothing."""
    return "" if word in KNOWN else did_you_mean(word, list(KNOWN))


def contradicting(said: Iterable[Said], ssh: SshDocument | Any) -> Iterator[Misread]:
    """Those that say something else than the site does. Nothing where the site's `ssh` could not be read."""
    if ssh is UNKNOWN:
        return
    for one in said:
        if advice := _advice(one, ssh):
            yield Misread(problem("spec.no-effect", field=one.word, advice=advice), one.place, one.loc)


def _advice(one: Said, ssh: SshDocument) -> str:
    field = WAYS[one.word]
    if not field:
        usual = one.word == "ansible_connection" and one.value in ("ssh", "smart")
        return "" if usual else _INSTEAD.get(one.word, "Gangline logs in with a key: the site's ssh.key")
    has = getattr(ssh, field)
    if has is UNKNOWN or _equal(field, str(one.value).strip(), has):
        return ""
    now = f"which is {plain(str(has), 60)}" if has is not None else "which says nothing"
    return f"hosts are reached by their site's ssh.{field}, {now}"


def _expanded(path: str) -> Path:
    """As Ansible reads it: a `~` of somebody who is not known here stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _equal(field: str, value: str, has: Any) -> bool:
    if field == "key":
        return has is not None and str(has) == f"file:{_expanded(value)}"
    return str(has if has is not None else "") == value
