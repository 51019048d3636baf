"""The domains of a site's levels: those that the file tells of, and what follows for the others."""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import FabricDomain, SiteFabric, Unit
from tests.builders import cluster, pool

UNITS = (Unit("u1", ("p-1", "p-2")), Unit("u2", ("p-3",)))
SPINE = (FabricDomain("spine", "s1", ("u1", "u2")),)
BY_UNIT = {"u1": ("p-1", "p-2"), "u2": ("p-3",)}
ALONE = {f"p-{number}": (f"p-{number}",) for number in range(1, 5)}
WHOLE = {"here": ("p-1", "p-2", "p-3", "p-4")}


@pytest.mark.parametrize(
    ("fabric", "want"),
    [
        (SiteFabric(), {}),
        (
            SiteFabric(("unit", "spine"), UNITS, SPINE),
            {"unit": BY_UNIT, "spine": {"s1": ("p-1", "p-2", "p-3")}},
        ),
        (SiteFabric(("unit", "spine"), UNITS), {"unit": BY_UNIT, "spine": WHOLE}),
        (
            SiteFabric(("nvlink", "unit", "spine"), UNITS),
            {"nvlink": ALONE, "unit": BY_UNIT, "spine": WHOLE},
        ),
        (SiteFabric(("unit",)), {"unit": WHOLE}),
    ],
)
def test_a_level_of_which_nothing_is_told_is_as_the_next_one_outwards(
    fabric: SiteFabric, want: dict[str, dict[str, tuple[str, ...]]]
) -> None:
    spec = cluster(pool(nodes=4), fabric=fabric)

    found = spec.domains_of(spec.sites[0])

    assert found == want
    assert list(found) == list(fabric.levels)
