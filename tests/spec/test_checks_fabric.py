"""The fabric of a site: what its domains may hold, and what follows for each node.

Comes in: fabrics in one line. Goes out: proof of path, code and text of each fault, and of the nodes of each domain.
"""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import FabricDomain
from tests.spec.said import HEAD, POOL, SITE, cluster_errors, cluster_of, said


def body(fabric: str) -> str:
    """A site of nodes n1 to n4 with this fabric."""
    return SITE.replace("local}", "local, fabric: {" + fabric + "}}") + POOL.replace("n[1-2]", "n[1-4]")


FAULTS = {
    "a level that there is not": (
        "levels: [unit, spine], domains: {spin: {a: n1}}",
        ["sites[here].fabric.domains.spin spec.dangling-reference"],
    ),
    "units are told of in one way": (
        "levels: [unit], domains: {unit: {a: n1}}",
        ["sites[here].fabric.domains.unit spec.exclusive-fields"],
    ),
    "neither a unit nor a node": (
        "levels: [unit, spine], units: {u1: n1}, domains: {spine: {a: [u1, u2]}}",
        ["sites[here].fabric.domains.spine.a spec.dangling-reference"],
    ),
    "a domain of a level further in than the one inside": (
        "levels: [nvlink, unit, spine], units: {u1: 'n[1-2]'}, domains: {nvlink: {x: n1}, spine: {a: x}}",
        ["sites[here].fabric.domains.spine.a spec.dangling-reference"],
    ),
    "a domain of a level further out": (
        "levels: [unit, spine, hall], domains: {spine: {a: h}, hall: {h: n1}}",
        ["sites[here].fabric.domains.spine.a spec.dangling-reference"],
    ),
    "a unit in two spines": (
        "levels: [unit, spine], units: {u1: 'n[1-2]', u2: n3}, domains: {spine: {a: [u1, u2], b: u1}}",
        ["sites[here].fabric.domains.spine.b spec.node-twice"],
    ),
    "a node in two spines, by way of its unit": (
        "levels: [unit, spine], units: {u1: 'n[1-2]'}, domains: {spine: {a: u1, b: 'n[2-3]'}}",
        ["sites[here].fabric.domains.spine.b spec.node-twice"],
    ),
    "a node beside its unit": (
        "levels: [unit, spine], units: {u1: 'n[1-2]'}, domains: {spine: {a: [u1, n2]}}",
        ["sites[here].fabric.domains.spine.a spec.node-twice"],
    ),
    "a domain listed twice": (
        "levels: [unit, spine], units: {u1: n1}, domains: {spine: {a: [u1, u1]}}",
        ["sites[here].fabric.domains.spine.a[1] spec.bad-hostlist"],
    ),
    "a domain given twice": (
        "levels: [unit, spine], domains: {spine: {a: n1, a: n2}}",
        ["sites[here].fabric.domains.spine.a spec.duplicate-key"],
    ),
    "a strange unit is told once, not at the spine that holds it": (
        "levels: [unit, spine], units: {u1: n9}, domains: {spine: {a: u1}}",
        ["sites[here].fabric.units.u1 spec.node-unknown"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_said_once_at_its_place(name: str) -> None:
    fabric, want = FAULTS[name]

    assert said(body(fabric)) == want


def test_what_is_said_names_level_member_and_what_is_near() -> None:
    fabric = "levels: [unit, spine], units: {su-1: n1}, domains: {spine: {a: su-2}}"
    (unknown,) = cluster_errors(HEAD + body(fabric))
    (twice,) = cluster_errors(HEAD + body("levels: [spine], domains: {spine: {a: 'n[1-3]', b: 'n[2-3]'}}"))

    assert unknown.message == "there is no unit or node of this site 'su-2'"
    assert unknown.hint == "did you mean 'su-1'?"
    assert twice.message == "node n2 and 1 more belongs to spine a already"
    assert twice.hint == "a node stands in one spine only"


ALLOWED = {
    "nodes that no domain holds": ("levels: [unit, spine], units: {u1: n1}, domains: {spine: {a: u1}}"),
    "nodes and units side by side": (
        "levels: [unit, spine], units: {u1: n1}, domains: {spine: {a: [u1, 'n[2-3]']}}"
    ),
    "a level of which nothing is told in between": (
        "levels: [unit, row, spine], units: {u1: n1}, domains: {spine: {a: u1}}"
    ),
    "a level without domains": "levels: [unit, spine]",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_no_fault(name: str) -> None:
    assert said(body(ALLOWED[name])) == []


def test_a_domain_holds_the_nodes_of_what_lies_in_it() -> None:
    fabric = (
        cluster_of(
            body(
                "levels: [nvlink, unit, spine], units: {su-1: 'n[1-2]', su-2: n3}, "
                "domains: {spine: {sp-1: 'su-[1-2]'}, nvlink: {nv-1: 'n[1-2]'}}"
            )
        )
        .sites[0]
        .fabric
    )

    assert fabric.domains == (
        FabricDomain("nvlink", "nv-1", ("n1", "n2")),
        FabricDomain("spine", "sp-1", ("su-1", "su-2")),
    )
    assert fabric.nodes_by_level() == {
        "nvlink": {"nv-1": ("n1", "n2")},
        "unit": {"su-1": ("n1", "n2"), "su-2": ("n3",)},
        "spine": {"sp-1": ("n1", "n2", "n3")},
    }
