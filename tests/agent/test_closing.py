"""Which nodes have a metadata service that jobs are to be kept from."""

from __future__ import annotations

import pytest

from orchestrator.agent.closing import exposed
from orchestrator.agent.config import Config


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
