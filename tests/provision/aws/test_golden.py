"""Same file, newer Gangline: what the program declares for a set of files is kept, and what differs is seen.

`python -m tests.provision.aws.test_golden` writes the files again. Whoever does that tells in the commit what a person
sees in their next plan; nothing of class replace or destroy may be among it (promise 11): for that the trigger of each
node, and all that AWS replaces a resource for, has to be as it was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.provision.aws.declared import declare, inputs_of

GOLDEN = Path(__file__).with_name("golden")
HEAD = """
apiVersion: gangline/v1
kind: Cluster
metadata: {name: atlas}
"""
FILES = {
    "smallest": """
sites: [{name: use1, kind: aws, region: us-east-1}]
pools:
  - {name: burst, site: use1, size: {max: 4}, offerings: [{type: g6.48xlarge, market: spot}]}
""",
    "full": """
controller: {address: "https://atlas.example.org:7443", instance: {site: use1, type: m7i.large, volume: 80GiB}}
storage:
  - {name: fast, kind: fsx, path: /fast, sites: [use1], size: 4800GiB, throughput: 250}
  - {name: home, kind: efs, path: /home, sites: [use1]}
sites:
  - name: use1
    kind: aws
    region: us-east-1
    zones: [us-east-1a, us-east-1b]
    vpc: {cidr: 10.30.0.0/16, nat: per_zone, endpoints: [s3, ec2]}
    image: ami-0123456789abcdef0
    kms_key: "arn:aws:kms:us-east-1:123456789012:key/full"
    permissions_boundary: "arn:aws:iam::123456789012:policy/bound"
    tags: {team: infra, "cost centre": "12"}
pools:
  - name: train
    site: use1
    nodes: "p5-[1-3]"
    fabric: {kind: efa}
    offerings: [{type: p5.48xlarge, market: on_demand}]
  - name: burst
    site: use1
    size: {min: 1, max: 16}
    fabric: {kind: efa}
    image: "ssm:/atlas/image"
    root_volume: 500GiB
    offerings:
      - {type: p5.48xlarge, market: capacity_reservation, reservation: cr-0123456789abcdef0}
      - {type: [p5.48xlarge, p6-b300.48xlarge], market: on_demand}
""",
    "kept-network": """
sites:
  - name: use1
    kind: aws
    region: us-west-2
    vpc: {id: vpc-0123456789abcdef0, subnets: {us-west-2a: subnet-0123456789abcdef0}}
pools:
  - name: block
    site: use1
    nodes: "p5-[1-2]"
    fabric: {kind: efa}
    offerings: [{type: p5.48xlarge, market: capacity_block, reservation: cr-0123456789abcdef0}]
""",
}


def declared(name: str) -> dict[str, Any]:
    """What the file of that name declares now, without what the digest of the model is in."""
    found = declare(inputs_of(HEAD + FILES[name])).golden()
    (facts,) = [urn for urn in found if urn.endswith("::facts")]
    found[facts]["inputs"].pop("insecureValue")
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


@pytest.mark.parametrize("name", sorted(FILES))
def test_program_declares_what_it_declared(name: str) -> None:
    kept = json.loads((GOLDEN / f"{name}.json").read_text())
    now = declared(name)

    assert sorted(now) == sorted(kept)
    assert {urn: one for urn, one in now.items() if kept[urn] != one} == {}


def main() -> None:
    """Write all files again."""
    GOLDEN.mkdir(exist_ok=True)
    for name in FILES:
        text = json.dumps(declared(name), indent=1, sort_keys=True)
        (GOLDEN / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
