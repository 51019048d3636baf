"""Which nodes have a metadata service that jobs are to be kept from, and by what; real hosts are in test_bought.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.agent import closing, scope
from orchestrator.agent.closing import ADDRESSES, NOTHING, Closed, close, exposed
from orchestrator.agent.config import Config
from orchestrator.agent.supervisor import Supervisor


@pytest.mark.parametrize(
    ("join", "metadata", "wanted"),
    [
        ("aws", "http://169.254.169.254", True),
        ("aws", "http://169.254.169.254/", True),
        ("aws", "http://169.254.169.254:80", True),
        ("aws", "http://[fd00:ec2::254]", True),
        ("aws", "http://127.0.0.1:4000", False),
        ("", "http://169.254.169.254", False),
    ],
)
def test_it_is_exposed_however_its_address_is_written(join: str, metadata: str, wanted: bool) -> None:
    assert exposed(Config("n1", "/s", join=join, metadata=metadata)) is wanted


BY_NOBODY = Closed(unenforced=(scope.METADATA,))


@pytest.mark.parametrize(
    ("units", "uid", "holds", "wanted", "tried"),
    [
        ("units deny, and so does the first rule", 0, "nft", Closed(ADDRESSES), ["nft"]),
        ("units deny, no rule is to be had", 0, "", Closed(ADDRESSES), ["nft", "ip"]),
        ("units deny, without root", 1000, "", Closed(ADDRESSES), []),
        ("", 0, "nft", NOTHING, ["nft"]),
        ("", 0, "ip", NOTHING, ["nft", "ip"]),
        ("", 0, "", BY_NOBODY, ["nft", "ip"]),
        ("", 1000, "", BY_NOBODY, []),
    ],
)
def test_a_rule_is_made_beside_what_units_deny(
    monkeypatch: pytest.MonkeyPatch, units: str, uid: int, holds: str, wanted: Closed, tried: list[str]
) -> None:
    """A job's user has processes outside its unit too."""
    ran: list[str] = []
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr(closing, "_run", lambda rule: ran.append(rule[0][0][0]))
    monkeypatch.setattr(closing, "_reached", lambda: ran[-1] != holds)
    found = cast(Supervisor, SimpleNamespace(closes=bool(units)))
    assert (close(found, 1000), ran) == (wanted, tried)


def test_both_rules_are_of_both_addresses_and_of_jobs_uids_alone() -> None:
    """Tables of the kernel's take an address of the other family for a mistake in the whole text."""
    ((nft,), text), (routes, _) = closing._rules(1000)
    assert nft == ("nft", "-f", "-")
    for family, address in (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254")):
        assert f"meta skuid 1000-4294967294 {family} daddr {address} reject" in text
    made = [" ".join(words) for words in routes if "add" in words]
    assert [words.split(" priority")[0] for words in made] == [
        "ip -4 rule add to 169.254.169.254 uidrange 1000-4294967294",
        "ip -6 rule add to fd00:ec2::254 uidrange 1000-4294967294",
    ]
