"""The document of a simulation: amounts of limits in the units in which people set them."""

from __future__ import annotations

import pytest

from orchestrator.simulate.report import amount


@pytest.mark.parametrize(
    ("dimension", "value", "wanted"),
    [
        ("jobs", 3, 3),
        ("watts", 7100, 7100),
        ("gpus", 2500, 2.5),
        ("gpus@h100", 8000, 8),
        ("gpus~H100-SXM5-80GB", 8000, 8),
        ("usd", 12_500_000, 12.5),
        ("gpu_hours", 3_600_000 * 40, 40),
    ],
)
def test_amounts_are_in_the_units_of_the_file(dimension: str, value: int, wanted: float) -> None:
    assert amount(dimension, value) == wanted
