"""Cluster documents with one aws site, as text, for tests of the program that declares it.

Comes in: pools, storages and fields of the site in the file's own words. Goes out: a document, and what is looked for
in what it declares. Called by: the unit tests beside this file.
"""

from __future__ import annotations

from typing import Any

from tests.provision.aws.declared import UID, Site

SITE = "  - {name: use1, kind: aws, region: us-east-1, image: ami-0123456789abcdef0"
HEAD = """
apiVersion: gangline/v1
kind: Cluster
metadata: {name: atlas}
"""
EFA = "fabric: {kind: efa}, "
ADDRESS = 'address: "https://a.example.org:7443"'
RESERVED = ", reservation: cr-0123456789abcdef0"
STORAGE = """  - {name: fast, kind: fsx, path: /fast, sites: [use1], size: 4800GiB, throughput: 250}
  - {name: home, kind: efs, path: /home, sites: [use1], throughput: 100}
  - {name: old, kind: fsx, path: /old, sites: [use1], source: fs-0123456789abcdef0/mnt}
  - {name: shared, kind: efs, path: /shared, sites: [use1], source: fs-0123456789abcdef1}
"""


def document(pools: str, site: str = "", storage: str = "", controller: str = "") -> str:
    """A cluster with one aws site; `site` are further fields of it, each with a comma before it."""
    parts = [HEAD, f"controller: {{{controller}}}\n" if controller else "", f"sites:\n{SITE}{site}}}\n"]
    parts += [f"storage:\n{storage}" if storage else "", f"pools:\n{pools}"]
    return "".join(parts)


def elastic(kind: str, market: str = "on_demand", fabric: str = "", more: str = "") -> str:
    """One pool that buys that type."""
    offering = f"{{type: {kind}, market: {market}{more}}}"
    return f"  - {{name: burst, site: use1, size: {{max: 4}}, {fabric}offerings: [{offering}]}}\n"


def fixed(nodes: str = "train-[01-03]", more: str = "", kind: str = "p5.48xlarge") -> str:
    """One pool with nodes by name."""
    offer = f"offerings: [{{type: {kind}, market: on_demand}}]"
    return f'  - {{name: train, site: use1, nodes: "{nodes}", fabric: {{kind: efa}}, {offer}{more}}}\n'


def template(site: Site) -> dict[str, Any]:
    """The inputs of the only launch template."""
    (found,) = site.all("LaunchTemplate")
    return found.inputs


def marked_by(site: Site, name: str) -> set[str]:
    """The kinds of things that the template marks with the cluster's uid."""
    rows = site.one("LaunchTemplate", name).inputs["tagSpecifications"]
    return {row["resourceType"] for row in rows if row["tags"]["gangline:uid"] == UID}
