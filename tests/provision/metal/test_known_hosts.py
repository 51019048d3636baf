"""A site's known_hosts: fingerprints as OpenSSH shows them, keys found and forgotten by the inventory's names."""

from __future__ import annotations

from pathlib import Path

from orchestrator.provision.metal.known_hosts import HostKey, KnownHosts, fingerprint

# Made with `ssh-keygen -t ed25519`; its own `-lf` gave the fingerprint.
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAILOVrGkA+Sqmj8j0fuqqmBCQNQ8smSBsHISoKnILOg08"

FINGERPRINT = "SHA256:Tq4MlchpIakMLQY/ZxJTyGSIPLPNjgRiGXXBKP2YMMk"


def _file(tmp_path: Path, text: str) -> KnownHosts:
    (tmp_path / "known_hosts").write_text(text)
    return KnownHosts(tmp_path / "known_hosts")


def test_no_file_is_no_keys(tmp_path: Path) -> None:
    known = KnownHosts(tmp_path / "known_hosts")

    assert known.keys("h1") == []
    assert known.forget("h1") == []
    assert not known.path.exists()


def test_keys_are_found_by_name_with_their_line(tmp_path: Path) -> None:
    known = _file(tmp_path, f"# a comment\n\nh1 ssh-ed25519 {KEY}\nh10 ssh-ed25519 {KEY} note\nbroken\n")

    assert known.keys("h1") == [HostKey("ssh-ed25519", FINGERPRINT, 3)]
    assert known.keys("h10")[0].line == 4
    assert known.keys("h") == known.keys("broken") == []


def test_forgetting_one_host_keeps_all_others(tmp_path: Path) -> None:
    text = f"h1 ssh-ed25519 {KEY}\nh2 ssh-ed25519 {KEY}\nh1 ecdsa-sha2-nistp256 {KEY}\n"
    known = _file(tmp_path, text)

    dropped = known.forget("h1")

    assert [key.kind for key in dropped] == ["ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert known.path.read_text() == f"h2 ssh-ed25519 {KEY}\n"
    assert known.forget("h1") == []


def test_a_key_that_is_no_base64_has_no_fingerprint(tmp_path: Path) -> None:
    assert fingerprint("?") == ""
    assert _file(tmp_path, "h1 ssh-ed25519 ???\n").keys("h1") == [HostKey("ssh-ed25519", "", 1)]
