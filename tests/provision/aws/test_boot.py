"""User-data: what is in it, what changes it, what does not; and its first step against a server that it does not
trust."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.cluster import Controller, Identity, PoolSize
from orchestrator.model.errors import InputError
from orchestrator.provision.aws import boot
from orchestrator.provision.aws.boot import Boot, canonical, user_data
from tests.builders import cluster, pool

GOLDEN = Path(__file__).with_name("golden") / "user-data.sh"
BURST = Boot("https://10.0.0.2:7443", "ab" * 32, "use1", "burst")
SPEC = replace(cluster(pool("p", gpus=0)), controller=Controller(address="https://c.example.org:7443"))


def test_user_data_is_what_it_was() -> None:
    """Whoever changes this gives every launch template a new version, and every fixed node another user-data: is it
    worth it? `python -m tests.provision.aws.test_boot` writes it."""
    assert user_data(BURST) == GOLDEN.read_text()


def test_it_is_short_and_a_shell_takes_it() -> None:
    text = user_data(BURST)
    assert len(text.encode()) < boot.MOST_BYTES / 2
    assert text.startswith("#!/bin/sh\n")
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def test_its_first_step_is_python_without_what_is_for_readers() -> None:
    (text,) = re.findall(
        r"first\.py <<'END-OF-GANGLINE'\n(.*?)\nEND-OF-GANGLINE", user_data(BURST), re.DOTALL
    )
    tree = ast.parse(text)
    assert not any(
        ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef)
    )
    assert "#" not in text


def test_nothing_secret_is_in_it() -> None:
    text = user_data(BURST).lower()
    assert not any(word in text for word in ("token", "secret", "password", "private key"))


def test_names_alone_make_the_difference_between_nodes() -> None:
    one, other = user_data(replace(BURST, node="train-01")), user_data(replace(BURST, node="train-02"))
    assert one.replace("train-01", "train-02") == other


def words(spec: object = SPEC, **change: object) -> dict[str, object]:
    made = boot.of_cluster(SPEC, "cd" * 32)(replace(SPEC.pools[0], **change), "p-1")  # type: ignore[arg-type]
    (line,) = re.findall(r"^\{.*\}$", made, re.MULTILINE)
    found: dict[str, object] = json.loads(line)
    return found


def test_what_the_file_says_is_in_it() -> None:
    assert words(cores=0, memory=0) == {
        "agent": {},
        "ca_sha256": "cd" * 32,
        "node": "p-1",
        "pool": "p",
        "site": "here",
        "url": "https://c.example.org:7443",
    }


def test_what_is_not_as_usual_is_said_to_the_agent() -> None:
    assert words(cores=96, memory=1 << 40)["agent"] == {"cores": 96, "memory": 1 << 40}
    spec = replace(SPEC, identity=Identity(min_uid=2000))
    assert boot.boot_of(spec, spec.pools[0], "").agent["min_uid"] == 2000


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:7443", "unix:/x"])
def test_a_controller_that_can_not_be_called_from_elsewhere_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="bought nodes call the controller by https") as caught:
        user_data(replace(BURST, url=address))
    assert caught.value.path == "controller.address"


@pytest.mark.parametrize(
    ("boot_s", "seconds"),
    [(None, 0), (1500, 3600), (1800, 3600), (3600, 7200)],
    ids=["fixed", "25m", "30m", "1h"],
)
def test_an_elastic_instance_that_nobody_lets_in_ends_itself(boot_s: int | None, seconds: int) -> None:
    """Later than a controller that is there would have ended it, and not before an hour."""
    size = PoolSize(0, 2, 600, boot_s) if boot_s is not None else None
    pool = replace(SPEC.pools[0], size=size, nodes=() if size else ("p-1",))
    made = boot.boot_of(replace(SPEC, pools=(pool,)), pool, "")
    assert made.unjoined_s == seconds
    text = user_data(made)
    assert (f"OnBootSec={seconds}" in text) is bool(seconds)
    assert ("ConditionPathExists=!/var/lib/gangline-agent/token" in text) is bool(seconds)
    assert "@" not in text.replace("@staticmethod", "")


def test_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="more than 16384 bytes"):
        user_data(replace(BURST, agent={"x": "y" * 16_384}))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("#!/bin/sh\na\nb\n", True),
        ("#!/bin/sh\n\na\n\n\nb", True),
        ("#!/bin/sh\n# why\na  \n    # another\nb\n", True),
        ("#!/bin/sh\na\n b\n", False),
        ("#!/bin/sh\nb\na\n", False),
    ],
)
def test_blank_lines_and_comments_change_nothing(text: str, same: bool) -> None:
    assert (canonical(text) == "#!/bin/sh\na\nb\n") is same


def test_words_of_the_file_can_not_break_out() -> None:
    text = user_data(replace(BURST, node="x'\nEND-OF-GANGLINE\nrm -rf /\n", pool="$(reboot)"))
    assert text.count("\nEND-OF-GANGLINE\n") == user_data(BURST).count("\nEND-OF-GANGLINE\n")
    assert "\nrm" not in text


def main() -> None:
    """Write the golden file."""
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(user_data(BURST))


if __name__ == "__main__":
    main()
