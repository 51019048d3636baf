"""What the probe makes of a host's answer: facts, the first step that fails with what to do, a line for people."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.model.host import HostFacts, Step
from orchestrator.provision.metal import probe as probing
from orchestrator.provision.metal.channel import Ran
from orchestrator.provision.metal.diagnosis import Unreached
from orchestrator.provision.metal.probe import sight, skew_ms, worth_saying
from orchestrator.provision.metal.probe import words as words_of

SCRIPT = Path(probing.__file__).with_name("probe_host.sh")
SECOND = 1_000_000
GOOD = {
    "now": ["1000.500000000"], "machine_id": ["m1"], "boot_id": ["b1"], "hostname": ["h1"], "kernel": ["6.1.0"],
    "arch": ["x86_64"], "os": ["debian"], "release": ["12"], "system": ["Debian GNU/Linux 12 (bookworm)"],
    "sudo": ["ok"], "python": ["3.11.2 good"], "gpu": ["0000:1b:00.0 10de:2330", "0000:43:00.0 10de:2330"],
    "end": ["ok"],
}  # fmt: skip


def _answer(changes: dict[str, list[str]], noise: str = "") -> Ran:
    said = {**GOOD, **changes}
    text = "".join(f"gangline:{key}={value}\n" for key, values in said.items() for value in values)
    return Ran("h1", 0, f"{noise}{text}".encode(), b"", "SHA256:x", 1000 * SECOND, 1001 * SECOND)


def test_a_good_host() -> None:
    found = sight("h1", _answer({}), 7)

    assert (found.reached, found.error, found.hint, found.seen_us) == (Step.DONE, "", "", 7)
    assert found.facts == HostFacts(
        "m1", "b1", "h1", "debian", "12", "6.1.0", "3.11.2", "x86_64", tuple(GOOD["gpu"]), 0, False
    )
    assert words_of(found) == "debian 12, kernel 6.1.0, Python 3.11.2, 2 GPUs (10de:2330)"


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([], "0 GPUs"),
        (["0000:1b:00.0 10de:2330"], "1 GPU (10de:2330)"),
        (
            [f"0000:{at}:00.0 10de:2330" for at in "123"] + ["0000:4:00.0 10de:20b5"],
            "4 GPUs (3 x 10de:2330, 10de:20b5)",
        ),
    ],
)
def test_gpus_are_told_by_number_and_kind(gpus: list[str], words: str) -> None:
    assert words_of(sight("h1", _answer({"gpu": gpus}), 0)).endswith(f"3.11.2, {words}")


def test_what_a_login_prints_by_itself_is_passed_over() -> None:
    assert sight("h1", _answer({}, "Welcome!\ngangline: hello\n= 5\n"), 0).reached is Step.DONE


@pytest.mark.parametrize(
    ("changes", "step", "error", "hint"),
    [
        ({"sudo": ["sudo: a password is required"]}, Step.SUDO, "sudo asks for a password", "NOPASSWD"),
        (
            {"sudo": ["sudo: a terminal is required to read the password"]},
            Step.SUDO,
            "sudo asks for a password",
            "NOPASSWD",
        ),
        ({"sudo": ["ops is not in the sudoers file."]}, Step.SUDO, "may not use sudo", "NOPASSWD"),
        ({"sudo": ["sh: 29: sudo: not found"]}, Step.SUDO, "there is no sudo", "NOPASSWD"),
        ({"sudo": ["sudo: unable to open /etc/x"]}, Step.SUDO, "sudo refuses: sudo: unable", "NOPASSWD"),
        ({"python": []}, Step.PYTHON, "there is no Python; 3.10 or newer", "apt-get install python3"),
        ({"python": ["3.9.2"]}, Step.PYTHON, "its Python is 3.9.2; 3.10 or newer", "newer release"),
        ({"python": ["3.11.2 without json"]}, Step.PYTHON, "not whole", "python3-minimal"),
        (
            {"os": ["debian"], "release": ["10"], "system": ["Debian GNU/Linux 10 (buster)"], "python": []},
            Step.SYSTEM,
            "it runs Debian GNU/Linux 10 (buster), which Gangline does not support",
            "debian 12 and 13; ubuntu 22.04 and 24.04",
        ),
        ({"os": [], "release": [], "system": []}, Step.SYSTEM, "an unknown system", "debian 12 and 13"),
        ({"os": ["ubuntu"], "release": ["22.10"]}, Step.SYSTEM, "does not support", "ubuntu 22.04"),
    ],
)
def test_the_first_step_that_fails_counts(
    changes: dict[str, list[str]], step: Step, error: str, hint: str
) -> None:
    found = sight("h1", _answer(changes), 0)

    assert found.reached is step
    assert error in found.error
    assert hint in found.hint
    assert words_of(found) == f"{found.error} [{step}]"
    assert found.facts is not None
    assert found.facts.machine_id == "m1"


def test_supported_systems() -> None:
    for name, release in (("debian", "12"), ("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04")):
        assert sight("h1", _answer({"os": [name], "release": [release]}), 0).reached is Step.DONE


def test_an_old_python_beside_a_good_one_is_fine() -> None:
    found = sight("h1", _answer({"python": ["3.9.2", "3.11.9 good"]}), 0)

    assert found.reached is Step.DONE
    assert found.facts is not None
    assert found.facts.python == "3.11.9"


def test_a_login_that_runs_nothing() -> None:
    found = sight("h1", Ran("h1", 1, b"This account is currently not available.\n", b"bad shell\n"), 0)

    assert found.reached is Step.AUTH
    assert found.error == "h1 lets Gangline in, and runs nothing: bad shell"


def test_a_host_that_was_not_reached() -> None:
    found = sight("h1", Unreached(Step.TCP, "h1", "h1 (10.0.0.1:22) does not answer", "look at it"), 5)

    assert (found.reached, found.facts, found.hint, found.seen_us) == (Step.TCP, None, "look at it", 5)
    assert words_of(found) == "h1 (10.0.0.1:22) does not answer [tcp]"


@pytest.mark.parametrize(
    ("now", "skew"),
    [
        ("1000.5", 0),  # somewhere between question and answer
        ("1000.000000000", 0),
        ("1003.250", 2250),  # ahead of the answer
        ("997.5", -2500),  # behind the question
        ("997", -3000),
        ("1003.%N", 2000),  # a date that knows no nanoseconds
        ("", 0),
        ("²", 0),
        ("1" * 5000, 0),
        ("1000.²", 0),
    ],
)
def test_clock_skew_is_what_the_round_trip_cannot_explain(now: str, skew: int) -> None:
    assert skew_ms(now, 1000 * SECOND, 1001 * SECOND) == skew


def test_news_that_is_no_failure() -> None:
    found = sight("h1", _answer({"now": ["990"], "reboot": ["yes"]}), 0)

    assert found.reached is Step.DONE
    assert found.facts is not None
    assert worth_saying(found.facts) == ["its clock is 10.0 s behind", "a reboot is pending"]
    assert words_of(found).endswith("2 GPUs (10de:2330), its clock is 10.0 s behind, a reboot is pending")


@pytest.mark.system
def test_the_script_runs_in_a_plain_shell_and_tells_of_this_machine() -> None:
    done = subprocess.run(["sh", "-s"], input=SCRIPT.read_bytes(), capture_output=True, check=True)
    said = probing._said(done.stdout)

    assert done.stderr == b""
    assert said["boot_id"] == [Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    assert said["end"] == ["ok"]
    assert said["python"][-1].endswith(" good")
    assert said["sudo"] == ["ok"] or said["sudo"] != [""]
    assert float(said["now"][0]) > 0
