"""What EC2, FSx, EFS or a VPC would refuse: one row for each fault, with where and what must be said.

Comes in: bodies of cluster documents. Goes out: proof of path and code, and of what is no fault.
"""

from __future__ import annotations

import pytest

from tests.spec.said import HEAD, cluster_errors, cluster_of, said

SITE = "sites: [{name: u, kind: aws, region: us-east-1}]\n"
RESERVED = "reservation: cr-0123456789abcdef0"


def pool(offerings: str, more: str = "size: {max: 2}") -> str:
    """One site and one pool on it."""
    return SITE + f"pools: [{{name: p, site: u, {more}, offerings: [{offerings}]}}]"


def site(fields: str, pools: str = "[]") -> str:
    """One site with these fields."""
    return f"sites: [{{name: u, kind: aws, region: us-east-1, {fields}}}]\npools: {pools}"


def offer(name: str, market: str = "on_demand", more: str = "") -> str:
    return f"{{type: {name}, market: {market}{', ' + more if more else ''}}}"


def nodes(count: int) -> str:
    return f"[{{name: p, site: u, size: {{max: {count}}}, offerings: [{offer('p5.48xlarge')}]}}]"


def two_names(region: str) -> str:
    """Pools b-c of site a and c of site a-b, the latter in that region."""
    sites = f"{{name: a, kind: aws, region: us-east-1}}, {{name: a-b, kind: aws, region: {region}}}"
    more = f"size: {{max: 2}}, offerings: [{offer('p5.48xlarge')}]"
    pools = f"{{name: b-c, site: a, {more}}}, {{name: c, site: a-b, {more}}}"
    return f"sites: [{sites}]\npools: [{pools}]"


EFA = "size: {max: 2}, fabric: {kind: efa}"
CLOSE = "size: {max: 2}, fabric: {kind: efa, placement: cluster}"
ETHERNET_CLOSE = "size: {max: 2}, cores: 4, fabric: {kind: ethernet, placement: cluster}"
SUBNET = "subnet-0123456789abcdef"
KEPT = "vpc: {id: vpc-0123456789abcdef0, subnets: "

FAULTS: list[tuple[str, str, list[str]]] = [
    # --- names in the account ---
    (
        "pools of two sites that have one name there",
        two_names("us-east-1"),
        ["pools[c].name spec.duplicate-name"],
    ),
    (
        "sites that differ in capitals alone",
        "sites: [{name: a, kind: aws, region: us-east-1}, {name: A, kind: aws, region: us-west-2}]\npools: []",
        ["sites[A].name spec.duplicate-name"],
    ),
    ("a tag that IAM refuses", site("tags: {owner: 'a, b'}"), ["sites[u].tags.owner spec.bad-text"]),
    ("a tag of AWS's own", site("tags: {'AWS:x': y}"), ['sites[u].tags["AWS:x"] spec.bad-name']),
    (
        "one service twice",
        site("vpc: {endpoints: [s3, ec2, s3]}"),
        ["sites[u].vpc.endpoints[2] spec.duplicate-item"],
    ),
    # --- types ---
    (
        "a type that nobody knows",
        pool(offer("p5.48xlarg")),
        ["pools[p].offerings[0].type spec.unknown-instance-type"],
    ),
    (
        "a type that nobody knows, among others",
        pool(offer("[p5.48xlarge, p9.huge]")),
        ["pools[p].offerings[0].type[1] spec.unknown-instance-type"],
    ),
    (
        "EFA on a type whose network cards nobody knows",
        pool(offer("p9.huge"), EFA + ", gpu: {model: H100-SXM5-80GB, count: 8}"),
        ["pools[p].offerings[0].type spec.unknown-instance-type"],
    ),
    (
        "EFA on a type without it",
        pool(offer("[g5.xlarge, g5.8xlarge]"), EFA),
        ["pools[p].offerings[0].type[0] spec.type-without"],
    ),
    (
        "types of one GPU and of four in one pool",
        pool(offer("[g5.xlarge, g5.12xlarge]")),
        ["pools[p].offerings spec.types-differ"],
    ),
    (
        "types of different counts in two offerings",
        pool(f"{offer('g5.xlarge')}, {offer('g5.12xlarge')}"),
        ["pools[p].offerings spec.types-differ"],
    ),
    (
        "a block of a type that is not sold so",
        pool(offer("g5.48xlarge", "capacity_block", RESERVED)),
        ["pools[p].offerings[0].type spec.type-without"],
    ),
    (
        "a burstable type close to others",
        pool(offer("t3.xlarge"), ETHERNET_CLOSE),
        ["pools[p].offerings[0].type spec.type-without"],
    ),
    (
        "a flexible type close to others",
        pool(offer("m7i-flex.large"), ETHERNET_CLOSE),
        ["pools[p].offerings[0].type spec.type-without"],
    ),
    # --- what does not go together ---
    (
        "a public address and several network interfaces",
        pool(offer("p5.48xlarge"), EFA + ", public_address: true"),
        ["pools[p].public_address spec.exclusive-fields"],
    ),
    (
        "a placement group and a capacity block",
        pool(offer("p5.48xlarge", "capacity_block", RESERVED), CLOSE),
        ["pools[p].fabric.placement spec.exclusive-fields"],
    ),
    (
        "a reservation of two types",
        pool(offer("[p5.48xlarge, p5en.48xlarge]", "capacity_reservation", RESERVED)),
        ["pools[p].offerings[0].type spec.one-of-many"],
    ),
    (
        "a highest price of what is paid",
        pool(offer("p5.48xlarge", "capacity_block", RESERVED + ", max_usd_per_hour: 30")),
        ["pools[p].offerings[0].max_usd_per_hour spec.no-effect"],
    ),
    (
        "the same offering twice",
        pool(f"{offer('p5.48xlarge')}, {offer('p5.48xlarge', 'spot')}, {offer('p5.48xlarge')}"),
        ["pools[p].offerings[2] spec.duplicate-item"],
    ),
    (
        "a boot that can't be so quick",
        pool(offer("p5.48xlarge"), "size: {max: 2, boot_deadline: 59s}"),
        ["pools[p].size.boot_deadline spec.out-of-range"],
    ),
    # --- fixed nodes ---
    (
        "fixed nodes of two offerings",
        pool(f"{offer('p5.48xlarge')}, {offer('p5en.48xlarge')}", "nodes: a"),
        ["pools[p].offerings spec.one-of-many"],
    ),
    (
        "fixed nodes of two types",
        pool(offer("[p5.48xlarge, p5en.48xlarge]"), "nodes: a"),
        ["pools[p].offerings[0].type spec.one-of-many"],
    ),
    (
        "fixed nodes on spot",
        pool(offer("p5.48xlarge", "spot"), "nodes: a"),
        ["pools[p].offerings[0].market spec.not-for-kind"],
    ),
    (
        "fixed nodes of the same name in two pools",
        SITE
        + f"pools: [{{name: p, site: u, nodes: 'n[1-2]', offerings: [{offer('p5.48xlarge')}]}},"
        + f" {{name: q, site: u, nodes: 'n[2-3]', offerings: [{offer('p5.48xlarge')}]}}]",
        ["pools[q].nodes spec.node-twice"],
    ),
    # --- zones and networks ---
    (
        "zones that no region has",
        site("zones: [us-east-1a, us-east-1z, us-east-10a]"),
        ["sites[u].zones[1] spec.zone-elsewhere", "sites[u].zones[2] spec.zone-elsewhere"],
    ),
    (
        "a kept network without subnets",
        site("vpc: {id: vpc-0123456789abcdef0}"),
        ["sites[u].vpc.subnets spec.missing-field"],
    ),
    (
        "subnets of no network",
        site(f"vpc: {{subnets: {{us-east-1a: {SUBNET}0}}}}"),
        ["sites[u].vpc.subnets spec.needs-field"],
    ),
    *(
        (
            f"addresses that no host has: {cidr}",
            site(f"vpc: {{cidr: {cidr}}}"),
            ["sites[u].vpc.cidr spec.bad-network"],
        )
        for cidr in ("127.0.0.0/16", "169.254.0.0/16", "0.0.0.0/16", "240.0.0.0/16", "224.0.0.0/16")
    ),
    (
        "what Gangline makes, in a network that people keep",
        site(KEPT + f"{{us-east-1a: {SUBNET}0}}, cidr: 10.0.0.0/16, nat: one, endpoints: [s3]}}"),
        [f"sites[u].vpc.{field} spec.exclusive-fields" for field in ("cidr", "nat", "endpoints")],
    ),
    (
        "a zone without a subnet, and a subnet without a zone",
        site(f"zones: [us-east-1a, us-east-1b], {KEPT}{{us-east-1a: {SUBNET}0, us-east-1c: {SUBNET}1}}}}"),
        ["sites[u].zones[1] spec.zone-without", "sites[u].vpc.subnets.us-east-1c spec.zone-without"],
    ),
    (
        "a subnet of another region",
        site(f"{KEPT}{{us-west-2a: {SUBNET}0}}}}"),
        ["sites[u].vpc.subnets.us-west-2a spec.zone-elsewhere"],
    ),
    (
        "one subnet for two zones",
        site(f"{KEPT}{{us-east-1a: {SUBNET}0, us-east-1b: {SUBNET}0}}}}"),
        ["sites[u].vpc.subnets.us-east-1b spec.duplicate-item"],
    ),
    (
        "a network larger than a VPC's",
        site("vpc: {cidr: 10.0.0.0/15}"),
        ["sites[u].vpc.cidr spec.bad-network"],
    ),
    (
        "a network too small for public subnets",
        site("vpc: {cidr: 10.0.0.0/21}"),
        ["sites[u].vpc.cidr spec.bad-network"],
    ),
    (
        "a network too small for private ones",
        site("vpc: {cidr: 10.0.0.0/25, nat: none}"),
        ["sites[u].vpc.cidr spec.bad-network"],
    ),
    (
        "more nodes than addresses",  # a sixteenth of a /20 has 256 addresses, of which AWS keeps 5
        site("zones: [us-east-1a, us-east-1b], vpc: {cidr: 10.0.0.0/20}", nodes(503)),
        ["sites[u].vpc.cidr spec.vpc-too-small"],
    ),
    (
        "jobs that talk over another network",
        site("network: {jobs: 10.1.0.0/16}, vpc: {cidr: 10.0.0.0/16}"),
        ["sites[u].network.jobs spec.bad-network"],
    ),
    # --- keys, tags, the record ---
    (
        "a key of another region",
        site("kms_key: 'arn:aws:kms:us-west-2:123456789012:key/a'"),
        ["sites[u].kms_key spec.arn-elsewhere"],
    ),
    (
        "a boundary that is no policy",
        site("permissions_boundary: 'arn:aws:s3:::123456789012:a'"),
        ["sites[u].permissions_boundary spec.bad-name"],
    ),
    (
        "a boundary of another service",
        site("permissions_boundary: 'arn:aws:kms:us-east-1:123456789012:key/a'"),
        ["sites[u].permissions_boundary spec.arn-elsewhere"],
    ),
    (
        "more tags than EC2 takes",
        site("tags: {" + ", ".join(f"t{number}: x" for number in range(41)) + "}"),
        ["sites[u].tags spec.out-of-range"],
    ),
    (
        "a record in a folder that moves",
        site("stack: {backend: 'file://pulumi'}"),
        ["sites[u].stack.backend spec.bad-backend"],
    ),
    # --- the controller's instance ---
    (
        "a bought controller that nobody is told how to call",
        "controller: {instance: {site: u, type: m7i.large}}\n" + pool(offer("p5.48xlarge")),
        ["controller.instance spec.needs-field"],
    ),
    (
        "a bought controller that anybody could listen to",
        "controller: {address: 'http://127.0.0.1:7443', instance: {site: u, type: m7i.large}}\n"
        + pool(offer("p5.48xlarge")),
        ["controller.address spec.bad-url"],
    ),
    (
        "a bought controller on a site that is not bought",
        (
            "controller: {address: 'https://c:7443', instance: {site: m, type: m7i.large}}\n"
            "sites: [{name: m, kind: metal}]\npools: []"
        ),
        ["controller.instance.site spec.not-for-kind"],
    ),
    # --- storage ---
    (
        "an FSx of a size that there is none of",
        "storage: [{name: f, kind: fsx, path: /f, size: 3TiB}]\n" + pool(offer("p5.48xlarge")),
        ["storage[f].size spec.no-such-size"],
    ),
    (
        "an FSx of a throughput that there is none of",
        "storage: [{name: f, kind: fsx, path: /f, size: 1200GiB, throughput: 300}]\n"
        + pool(offer("p5.48xlarge")),
        ["storage[f].throughput spec.no-such-size"],
    ),
    (
        "an EFS with a size, and more throughput than any has",
        "storage: [{name: f, kind: efs, path: /f, size: 1TiB, throughput: 4000}]\n"
        + pool(offer("p5.48xlarge")),
        ["storage[f].size spec.not-for-kind", "storage[f].throughput spec.no-such-size"],
    ),
    (
        "an FSx that is made on a metal site",
        (
            "storage: [{name: f, kind: fsx, path: /f, size: 1200GiB, sites: [m]}]\n"
            "sites: [{name: m, kind: metal}, {name: u, kind: aws, region: us-east-1}]\npools: []"
        ),
        ["storage[f].sites[0] spec.not-for-kind"],
    ),
    (
        "an EFS that is made everywhere, in a cluster that has metal too",
        (
            "storage: [{name: f, kind: efs, path: /f}]\n"
            "sites: [{name: m, kind: metal}, {name: u, kind: aws, region: us-east-1}]\npools: []"
        ),
        ["storage[f].sites spec.missing-field"],
    ),
]


@pytest.mark.parametrize(("name", "body", "wanted"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_what_would_be_refused_is_said_once_at_its_place(name: str, body: str, wanted: list[str]) -> None:
    assert said(body) == wanted


SOUND: list[tuple[str, str]] = [
    ("EFA on one card, with a public address", pool(offer("g5.8xlarge"), EFA + ", public_address: true")),
    (
        "a public address without EFA on a type with many cards",
        pool(offer("p5.48xlarge"), "size: {max: 2}, public_address: true"),
    ),
    ("a block, with EFA", pool(offer("p5.48xlarge", "capacity_block", RESERVED), EFA)),
    (
        "a placement group that was asked for, with a reservation",
        pool(offer("p5.48xlarge", "capacity_reservation", RESERVED), CLOSE),
    ),
    (
        "fixed nodes in a reservation",
        pool(offer("p5.48xlarge", "capacity_reservation", RESERVED), "nodes: 'a[1-4]'"),
    ),
    (
        "a newer type, of which the file says what it has",
        pool(offer("p9.huge"), "size: {max: 2}, gpu: {model: H100-SXM5-80GB, count: 8}"),
    ),
    ("a type without GPUs", pool(offer("c7i.24xlarge"), "size: {max: 2}, cores: 96, memory: 192GiB")),
    ("types of as many GPUs of two models", pool(offer("[p5.48xlarge, p5en.48xlarge]"))),
    (
        "the boundary that AWS itself keeps",
        site("permissions_boundary: 'arn:aws:iam::aws:policy/PowerUserAccess'"),
    ),
    ("tags in any script", site("tags: {team: 'Größe 5 / 東京 = a+b@c.d:e-f_g'}")),
    (
        "the same in two regions",
        two_names("us-west-2"),
    ),
    ("a local zone", site("zones: [us-east-1a, us-east-1-dfw-2a]")),
    ("a subnet for each zone that is named", site(f"zones: [us-east-1a], {KEPT}{{us-east-1a: {SUBNET}0}}}}")),
    ("subnets, and all of their zones", site(f"{KEPT}{{us-east-1a: {SUBNET}0, us-east-1b: {SUBNET}1}}}}")),
    ("the smallest network without public subnets", site("vpc: {cidr: 10.0.0.0/24, nat: none}", nodes(66))),
    (
        "as many nodes as addresses",
        site("zones: [us-east-1a, us-east-1b], vpc: {cidr: 10.0.0.0/20}", nodes(502)),
    ),
    (
        "FSx of the sizes that there are",
        "storage: ["
        + ", ".join(
            f"{{name: f{size}, kind: fsx, path: /f{size}, size: {size}GiB, throughput: 1000}}"
            for size in (1200, 2400, 4800, 24000)
        )
        + "]\n"
        + pool(offer("p5.48xlarge")),
    ),
]


@pytest.mark.parametrize(("name", "body"), SOUND, ids=[name for name, _ in SOUND])
def test_what_is_not_refused(name: str, body: str) -> None:
    assert cluster_of(body).sites


def test_a_slip_in_a_type_is_answered_with_the_nearest_one() -> None:
    (error,) = cluster_errors(HEAD + pool(offer("p5.48xlrage")))
    assert error.message == "the catalog knows no instance type 'p5.48xlrage'"
    assert error.hint.startswith("did you mean 'p5.48xlarge'?")


def test_the_next_size_of_an_fsx_is_said() -> None:
    (error,) = cluster_errors(
        HEAD + "storage: [{name: f, kind: fsx, path: /f, size: 5TiB}]\n" + pool(offer("p5.48xlarge"))
    )
    assert error.message == "FSx for Lustre has no 5TiB"
    assert error.hint.endswith("the next one is 7200GiB")


def test_the_numbers_of_a_network_that_is_too_small_are_right() -> None:
    (error,) = cluster_errors(HEAD + site("zones: [us-east-1a], vpc: {cidr: 10.0.0.0/20}", nodes(300)))
    assert error.message == ("up to 300 nodes stand here, but 10.0.0.0/20 has addresses for 251 in 1 zone")


# Fixed nodes of a type at $55.04 an hour in us-east-1, in the catalog of 2026-07-20
@pytest.mark.parametrize(
    ("budget", "wanted"),
    [
        ("usd_per_hour: 165.12", []),
        ("usd_per_hour: 165.11", ["pools[p].nodes spec.minimum-over-budget"]),
    ],
)
def test_money_reaches_fixed_nodes(budget: str, wanted: list[str]) -> None:
    body = pool(offer("p5.48xlarge"), "nodes: 'a[1-3]'") + f"\nbudgets: [{{name: m, {budget}}}]"
    assert said(body) == wanted


@pytest.mark.parametrize(
    ("fields", "offered", "message", "hint"),
    [
        (
            "nodes: a, size: {max: 1}, ",
            "{type: p5.48xlarge, market: on_demand}",
            "'size' and 'nodes' can't be given together",
            "keep `nodes` for some that are always there, or `size` for nodes that are bought when work waits",
        ),
        (
            "",
            "{type: p5.48xlarge, market: on_demand}",
            "one of size, nodes must be given",
            "add `size` for nodes that are bought when work waits, or `nodes` for some that are always there",
        ),
        (
            "nodes: a, ",
            "",
            "the field 'offerings' is missing",
            "say what may be bought, as in offerings: [{type: p5.48xlarge, market: on_demand}]",
        ),
        (
            "size: {max: 1}, ",
            "{type: p5.48xlarge, market: on_demand, reservation: cr-0123456789abcdef0}",
            "a market of kind on_demand has no 'reservation'",
            "remove it, or write market: capacity_reservation (or capacity_block)",
        ),
        (
            "size: {max: 1}, ",
            "{type: p5.48xlarge, market: on_demand, max_usd_per_hour: $30}",
            "expected a number, got the text '$30'",
            "write the number alone",
        ),
    ],
)
def test_what_is_wrong_with_a_bought_pool_says_what_to_write(
    fields: str, offered: str, message: str, hint: str
) -> None:
    offerings = f", offerings: [{offered}]" if offered else ""
    body = (
        "sites: [{name: u, kind: aws, region: us-east-1}]\n"
        f"pools: [{{name: p, {fields}site: u{offerings}}}]\n"
    )
    (error,) = cluster_errors(HEAD + body)
    assert (error.message, error.hint) == (message, hint)
