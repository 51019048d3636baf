"""Every way in which SSH fails has its own sentence, step and hint, read from OpenSSH's own log."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.model.cluster import Host, Site, SiteKind, Ssh
from orchestrator.model.host import Step
from orchestrator.provision.metal.diagnosis import broken, diagnose, seen
from orchestrator.provision.metal.ssh import Access, lay

PROXY = "debug1: Executing proxy command: exec ssh -F c -W [10.0.0.1]:22 gangline-jump\n"
TO = "ssh: connect to host 10.0.0.1 port 22:"
CONNECTED = "debug1: Connection established.\n"
SPOKE = f"{CONNECTED}debug1: Remote protocol version 2.0, remote software version OpenSSH_9.2p1\n"
SHOWN = f"{SPOKE}debug1: Server host key: ssh-ed25519 SHA256:new\n"
OFFERED = f"{SHOWN}debug1: Authenticating to 10.0.0.1:22 as 'ops'\ndebug1: Offering public key: /k ED25519 SHA256:k\n"
MORE = "debug1: Authentications that can continue: publickey\n"
IN = f'{OFFERED}Authenticated to 10.0.0.1 ([10.0.0.1]:22) using "publickey".\n'
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAILOVrGkA+Sqmj8j0fuqqmBCQNQ8smSBsHISoKnILOg08"


def _access(tmp_path: Path, **ssh: str) -> Access:
    site = Site("hall", SiteKind.METAL, ssh=Ssh(**ssh), hosts=(Host("h1", "10.0.0.1"),))  # type: ignore[arg-type]
    return lay(site, tmp_path, {"K": "key"})


@pytest.mark.parametrize(
    ("log", "late", "step", "message", "hint"),
    [
        (f"{TO} Connection refused", 0, Step.TCP, "refuses connections", "openssh-server"),
        (f"{TO} Connection timed out", 0, Step.TCP, "does not answer", "firewall"),
        (f"{TO} No route to host", 0, Step.TCP, "no route to it", "ssh.jump"),
        ("ssh: connect to host x port 22: Network is unreachable", 0, Step.TCP, "network can't be reached", "ssh.jump"),
        ("ssh: Could not resolve hostname h1: Name or service not known", 0, Step.TCP, "nobody knows", "ansible_host"),
        (f"{CONNECTED}Connection timed out during banner exchange", 0, Step.HOST_KEY, "says nothing", "console"),
        ("", 10, Step.TCP, "does not answer within 10 s", "whether it is on"),
        (CONNECTED, 10, Step.HOST_KEY, "accepts connections and says nothing", "no SSH server"),
        (OFFERED, 10, Step.AUTH, "did not finish the login within 10 s", "console"),
        (IN, 10, Step.SUDO, "let Gangline in, and did not answer within 10 s", "console"),
        (f"{SHOWN}No ED25519 host key is known for h1 and you have requested strict checking.", 0, Step.HOST_KEY,
         "shows the host key SHA256:new, and none is recorded", "--accept-host-key h1"),
        (f"{OFFERED}ops@10.0.0.1: Permission denied (publickey).", 0, Step.AUTH,
         "does not let 'ops' in with the key", "~ops/.ssh/authorized_keys on h1"),
        (f"{SHOWN}ops@10.0.0.1: Permission denied (publickey).", 0, Step.AUTH, "may need a passphrase", "ssh.key"),
        (f'{SHOWN}Load key "K": error in libcrypto\nops@h1: Permission denied', 0, Step.AUTH, "can't be used", ""),
        (f'{OFFERED}debug1: x\n"System is booting up. Unprivileged users are not permitted to log in yet."', 0,
         Step.AUTH, "is still booting", "in a minute"),
        (f"{OFFERED}debug1: Server accepts key: /k\nops@h1: Permission denied", 0, Step.AUTH,
         "the key needs a passphrase", "ssh-add"),
        (f"{OFFERED}debug1: Server accepts key: /k\n{MORE}ops@h1: Permission denied", 0, Step.AUTH,
         "does not let 'ops' in", "locked or expired"),
        (f"{CONNECTED}debug1: kex_exchange_identification: banner line 0: HTTP/1.1 400\nConnection closed", 0,
         Step.HOST_KEY, "no SSH server: it says 'HTTP/1.1 400'", "ssh.port"),
        (f"{OFFERED}System is going down.", 0, Step.AUTH, "is shutting down", "in a minute"),
        (f"{SPOKE}Unable to negotiate with x: no matching host key type found. Their offer: ssh-dss", 0, Step.HOST_KEY,
         "no host key type in common (ssh-dss)", "too old"),
        (f"{CONNECTED}debug1: kex_exchange_identification: banner line 0: Not allowed at this time", 0, Step.HOST_KEY,
         "for a while", "a minute"),
        (f"{CONNECTED}kex_exchange_identification: Connection closed by remote host", 0, Step.HOST_KEY,
         "ended the connection: kex_exchange_identification", "sshd"),
        (f"{IN}Timeout, server 10.0.0.1 not responding.", 0, Step.TCP, "the connection was lost: Timeout", "try again"),
    ],
)  # fmt: skip
def test_each_failure_has_its_sentence(
    tmp_path: Path, log: str, late: float, step: Step, message: str, hint: str
) -> None:
    access = _access(tmp_path, user="ops", key="env:K")

    found = diagnose(access, "h1", log.replace('"K"', f'"{access.key}"'), "", late)

    assert found.step is step
    assert message in found.message
    assert "h1 (10.0.0.1:22)" in found.message
    assert hint in found.hint
    assert (found.code, found.path) == (f"host.{step}", "h1")


def test_a_changed_key_is_told_with_both_fingerprints_and_the_place(tmp_path: Path) -> None:
    access = _access(tmp_path)
    access.known_hosts.path.write_text(f"other ssh-ed25519 {KEY}\nh1 ssh-ed25519 {KEY}\n")

    found = diagnose(access, "h1", f"{SHOWN}@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n")

    assert found.step is Step.HOST_KEY
    assert found.message == (
        "h1 (10.0.0.1:22) shows the host key SHA256:new, but SHA256:Tq4MlchpIakMLQY/ZxJTyGSIPLPNjgRiGXXBKP2YMMk"
        f" is recorded ({access.known_hosts.path}:2)"
    )
    assert "--accept-host-key h1" in found.hint


def test_without_any_key_it_says_so(tmp_path: Path) -> None:
    found = diagnose(
        _access(tmp_path, user="ops"), "h1", f"{SHOWN}ops@10.0.0.1: Permission denied (publickey)."
    )

    assert "does not let 'ops' in with any key, since there is none" in found.message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("ssh: connect to host bastion.test port 22: Connection refused",
         "h1 (10.0.0.1:22): the way through the jump host failed: jump host (bastion.test:22) refuses connections"),
        ("channel 0: open failed: connect failed: No route to host\nstdio forwarding failed",
         "h1 (10.0.0.1:22) can't be reached from the jump host (bastion.test:22): No route to host"),
        ("", "h1 (10.0.0.1:22) can't be reached from the jump host (bastion.test:22)"),
        ("me@bastion.test: Permission denied (publickey).",
         "h1 (10.0.0.1:22): the way through the jump host failed: jump host (bastion.test:22) does not let"),
    ],
)  # fmt: skip
def test_a_jump_host_that_fails_is_told_from_the_host(tmp_path: Path, said: str, message: str) -> None:
    access = _access(tmp_path, jump="bastion.test")

    found = diagnose(
        access, "h1", f"{PROXY}kex_exchange_identification: Connection closed by remote host", said
    )

    assert message in found.message
    assert found.path == "h1"


def test_a_host_behind_a_jump_host_that_says_nothing(tmp_path: Path) -> None:
    access = _access(tmp_path, jump="bastion.test")

    for found in (
        diagnose(access, "h1", f"{PROXY}Connection timed out during banner exchange"),
        diagnose(access, "h1", PROXY, late_s=10),
    ):
        assert "does not answer through the jump host" in found.message
    assert "did not finish the login" in diagnose(access, "h1", f"{PROXY}{OFFERED}", late_s=10).message


def test_progress_is_read_from_the_log() -> None:
    far = seen(IN)

    assert (far.connected, far.spoke, far.key, far.let_in) == (True, True, "SHA256:new", True)
    assert not seen(OFFERED).let_in
    assert not seen("").connected
    assert seen("debug1: mux_client_request_session: master session id: 2").let_in


def test_a_program_that_ends_with_255_is_no_broken_connection() -> None:
    assert not broken(f"{IN}debug1: client_input_channel_req: channel 0 rtype exit-status reply 0\n")
    assert not broken(f"{IN}debug1: Exit status 255\n")
    assert broken(f"{IN}Connection to 10.0.0.1 closed by remote host.\n")
    assert broken("debug1: mux_client_request_session: master session id: 2\n")
