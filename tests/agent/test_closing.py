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
