"""Why OpenSSH did not get into a host, read from its own log: how far it came, a sentence, and what to do.

Comes in: the log of one `ssh -v -E FILE`. Goes out: `Unreached`. Called by: channel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.model.errors import Unavailable
from orchestrator.model.host import Step
from orchestrator.provision.metal.ssh import JUMP, Access


class Unreached(Unavailable):
    """A host that SSH did not get into. `step` is what failed; the code is `host.STEP`."""

    def __init__(self, step: Step, host: str, message: str, hint: str) -> None:
        super().__init__(f"host.{step}", message, hint, host)
        self.step = step
        self.host = host


@dataclass(frozen=True, slots=True)
class Seen:
    """What the log says went well. `key` is the fingerprint that the host showed."""

    connected: bool
    spoke: bool
    key: str
    let_in: bool


def seen(log: str) -> Seen:
    """Read the log's progress. A shared connection counts as let in."""
    shown = re.findall(r"^debug1: Server host key: \S+ (SHA256:\S+)", log, re.MULTILINE)
    shared = "mux_client_request_session: master session id" in log
    return Seen(
        connected="Connection established." in log or shared,
        spoke="Remote protocol version" in log or shared,
        key=shown[-1] if shown else "",
        let_in="Authenticated to" in log or "Authenticated using" in log or shared,
    )


def broken(log: str) -> bool:
    """Of an ssh that ended with its own code 255: whether the connection was lost before the program had ended.

    A program that itself ends with 255 over a shared connection leaves no trace of that, and counts as lost too.
    """
    return re.search(r"rtype exit-status|Exit status \d", log) is None


def diagnose(access: Access, host: str, log: str, said: str = "", late_s: float = 0.0) -> Unreached:
    """Say why. `said` is what came on stderr: the jump host's ssh complains there, and so does PAM on the host.
    `late_s`: it was ended after so many seconds without an end of its own."""
    if access.jump and "Executing proxy command" in log and "Remote protocol version" not in log:
        return _through_jump(access, host, log, said, late_s)
    return _direct(access, host, f"{log}\n{said}", late_s)


def _through_jump(access: Access, host: str, log: str, said: str, late_s: float) -> Unreached:
    """The host's own SSH server never spoke. Either the jump host's ssh complains, or the jump host let it in and could
    not connect onwards; over a shared connection that leaves no words."""
    place, jump = access.place(host), access.place(JUMP)
    if "open failed" not in said and any(re.search(pattern, said) for pattern, _ in _KINDS):
        found = _direct(access, JUMP, said, 0.0)
        message = f"{place}: the way through the jump host failed: {found.message}"
        return Unreached(found.step, host, message, found.hint)
    hint = "look whether the host is on, and whether the jump host may reach it and forwards TCP"
    if late_s or "timed out during banner exchange" in log:
        return Unreached(Step.TCP, host, f"{place} does not answer through the {jump}", hint)
    reason = _after(said, "open failed: connect failed:") or _after(said, "forwarding request failed:")
    reason = f": {reason}" if reason else ""
    return Unreached(Step.TCP, host, f"{place} can't be reached from the {jump}{reason}", hint)


def _direct(access: Access, host: str, log: str, late_s: float) -> Unreached:
    words = _complaints(log)
    for pattern, explain in _KINDS:
        if re.search(pattern, log):
            return explain(access, host, log)
    far = seen(log)
    place = access.place(host)
    if late_s:
        return _late(access, host, far, late_s)
    if far.let_in:
        return Unreached(
            Step.TCP, host, f"{place}: the connection was lost: {words}", "try again; look whether it is on"
        )
    if not far.connected:
        return Unreached(Step.TCP, host, f"{place} can't be connected to: {words}", "look whether it is on")
    step = Step.AUTH if far.key else Step.HOST_KEY
    return Unreached(step, host, f"{place} ended the connection: {words}", "see its sshd's own log")


def _late(access: Access, host: str, far: Seen, late_s: float) -> Unreached:
    place = access.place(host)
    after = f"within {late_s:g} s"
    if not far.connected:
        return Unreached(
            Step.TCP, host, f"{place} does not answer {after}", "look whether it is on and connected"
        )
    if not far.spoke:
        return _silent(access, host, "")
    if not far.let_in:
        return Unreached(Step.AUTH, host, f"{place} did not finish the login {after}", _BUSY)
    return Unreached(Step.SUDO, host, f"{place} let Gangline in, and did not answer {after}", _BUSY)


_BUSY = "look at its console: it may hang, or be busy beyond measure"


def _refused(access: Access, host: str, _: str) -> Unreached:
    hint = "start its SSH server (apt-get install openssh-server), or set the site's ssh.port"
    return Unreached(Step.TCP, host, f"{access.place(host)} refuses connections: nothing listens there", hint)


def _no_answer(access: Access, host: str, _: str) -> Unreached:
    hint = "look whether it is on, connected, and not behind a firewall"
    return Unreached(Step.TCP, host, f"{access.place(host)} does not answer", hint)


def _no_route(access: Access, host: str, log: str) -> Unreached:
    why = "no route to it" if "No route" in log else "its network can't be reached"
    hint = "look whether it is on, and whether this machine is in its network or needs ssh.jump"
    return Unreached(Step.TCP, host, f"{access.place(host)} can't be reached: {why}", hint)


def _no_name(access: Access, host: str, _: str) -> Unreached:
    hint = "give the host an ansible_host in the inventory, or repair the name service"
    return Unreached(Step.TCP, host, f"{access.place(host)}: nobody knows an address for that name", hint)


def _silent(access: Access, host: str, _: str) -> Unreached:
    hint = (
        f"it may hang: look at its console; or something that is no SSH server listens on port {access.port}"
    )
    return Unreached(Step.HOST_KEY, host, f"{access.place(host)} accepts connections and says nothing", hint)


def _changed_key(access: Access, host: str, log: str) -> Unreached:
    recorded = access.known_hosts.keys(host)
    shown = seen(log).key or _after(log, "key sent by the remote host is")
    was = recorded[0].fingerprint if recorded else "another one"
    where = f"{access.known_hosts.path}:{recorded[0].line}" if recorded else str(access.known_hosts.path)
    message = f"{access.place(host)} shows the host key {shown}, but {was} is recorded ({where})"
    hint = (
        f"if {host} was installed anew, accept its key with `gangline apply --accept-host-key {host}`; if "
        "nobody did that, something else may answer at its address: compare with `ssh-keygen -lf` on its console"
    )
    return Unreached(Step.HOST_KEY, host, message, hint)


def _unknown_key(access: Access, host: str, log: str) -> Unreached:
    message = f"{access.place(host)} shows the host key {seen(log).key}, and none is recorded yet"
    return Unreached(
        Step.HOST_KEY, host, message, f"record it with `gangline apply --accept-host-key {host}`"
    )


def _denied(access: Access, host: str, log: str) -> Unreached:
    user = _user(access, log)
    message = f"{access.place(host)} does not let '{user}' in with {_offer(access, log)}"
    after = log.rpartition("Server accepts key")[2]
    if "Server accepts key" in log and "Authentications that can continue" in after:
        hint = f"it knows the key: see whether the account of '{user}' is locked or expired"
        return Unreached(Step.AUTH, host, message, hint)
    if "Server accepts key" in log:
        message = f"{access.place(host)} would let '{user}' in, but the key needs a passphrase: {access.key}"
        return Unreached(Step.AUTH, host, message, f"ssh-add {access.key}".rstrip())
    hint = f"add its public key to ~{user}/.ssh/authorized_keys on {host}, or set the site's ssh.user and ssh.key"
    return Unreached(Step.AUTH, host, message, hint)


def _offer(access: Access, log: str) -> str:
    """What it tried: the key by name, or why there was none to try."""
    offered = "Offering public key" in log
    if not access.key:
        return "the keys of the agent and of ~/.ssh" if offered else "any key, since there is none"
    if reason := _after(log, f'Load key "{access.key}":'):
        return f"the key {access.key}, which can't be used ({reason})"
    return (
        f"the key {access.key}"
        if offered
        else f"the key {access.key}, which may need a passphrase: ssh-add it"
    )


def _stranger(access: Access, host: str, log: str) -> Unreached:
    message = f"{access.place(host)}: what listens there is no SSH server: it says '{_after(log, 'banner line 0:')}'"
    return Unreached(Step.HOST_KEY, host, message, "set the site's ssh.port")


def _user(access: Access, log: str) -> str:
    found = re.search(r"as '([^']+)'", log)
    return access.user or (found[1] if found else "you")


def _booting(access: Access, host: str, log: str) -> Unreached:
    going = "shutting down" if "going down" in log else "still booting"
    return Unreached(
        Step.AUTH, host, f"{access.place(host)} is {going}, and lets nobody in", "try again in a minute"
    )


def _no_common(access: Access, host: str, log: str) -> Unreached:
    what = re.search(r"no matching (.+?) found", log)
    offers = _after(log, "Their offer:")
    message = (
        f"{access.place(host)} and this machine have no {what[1] if what else 'method'} in common ({offers})"
    )
    return Unreached(Step.HOST_KEY, host, message, "its SSH server is too old: update the host")


def _throttled(access: Access, host: str, _: str) -> Unreached:
    message = f"{access.place(host)} refuses connections from this machine for a while, after failed ones"
    return Unreached(Step.HOST_KEY, host, message, "wait a minute and try again")


_Explain = Callable[[Access, str, str], Unreached]
# Looked for in this order in ssh's log: the words are OpenSSH's, which are the same in every language.
_KINDS: tuple[tuple[str, _Explain], ...] = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", _changed_key),
    (r"No \S+ host key is known", _unknown_key),
    (r"no matching .+ found", _no_common),
    (r"System is (booting up|going down)|pam_nologin", _booting),
    (r"Permission denied", _denied),
    (r"Not allowed at this time", _throttled),
    (r"banner line 0: (?!.*Not allowed)", _stranger),
    (r"Could not resolve hostname", _no_name),
    (r"Connection refused", _refused),
    (r"timed out during banner exchange", _silent),
    (r"Connection timed out", _no_answer),
    (r"No route to host|Network is unreachable", _no_route),
)


def _complaints(log: str) -> str:
    """The last line that is no progress report, for what has no sentence of its own."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("debug")]
    return lines[-1] if lines else "it gave no reason"


def _after(log: str, words: str) -> str:
    found = re.search(re.escape(words) + r"\s*(.+)", log)
    return found[1].strip().rstrip(".") if found else ""
