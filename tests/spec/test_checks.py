"""What contradicts or leads nowhere in a cluster document: one row for each fault, with where and what must be said.

Comes in: bodies of cluster documents. Goes out: proof of path and code, of what is not an error, and of sums at their
edge.
"""

from __future__ import annotations

import pytest

from tests.spec.said import HEAD, POOL, SITE, cluster_errors, cluster_of, said

QUEUES = SITE + POOL + "queues: "
POWER = """\
sites:
  - name: here
    kind: local
    power:
      domains: {domains}
pools: [{{name: p, site: here, nodes: 'n[1-4]', gpu: {{model: H100-SXM5-80GB, count: 8}}}}]
queues: [{{name: q, guarantee: [{{pool: p, gpus: {gpus}}}]}}]
budgets: {budgets}
"""
AWS = """\
sites: [{{name: use1, kind: aws, region: us-east-1}}]
pools:
  - name: b
    site: use1
    size: {{min: {low}, max: {high}}}
    offerings: [{{type: {types}, market: {market}}}]
budgets: {budgets}
"""

BOUGHT = "sites: [{name: u, kind: aws, region: us-east-1}]\n"
METAL = "sites: [{name: m, kind: metal}]\n"

FAULTS: list[tuple[str, str, list[str]]] = [
    # --- the controller and users ---
    (
        "a controller on a host that is not there",
        "controller: {host: b, address: 'https://b:7443'}\n"
        + METAL
        + "pools: [{name: p, site: m, nodes: a}]",
        ["controller.host spec.dangling-reference"],
    ),
    (
        "a controller on a node of a local site",
        "controller: {host: n1, address: 'https://n1:7443'}\n" + SITE + POOL,
        ["controller.host spec.dangling-reference"],
    ),
    (
        "a controller on a host that nobody is told how to call",
        "controller: {host: a}\n" + METAL + "pools: [{name: p, site: m, nodes: a}]",
        ["controller.host spec.needs-field"],
    ),
    (
        "a controller on a host that anybody could listen to",
        "controller: {host: a, address: 'http://a:7443'}\n" + METAL + "pools: [{name: p, site: m, nodes: a}]",
        ["controller.address spec.bad-url"],
    ),
    (
        "copies of the ledger without a pause",
        "controller: {backup: {every: 30s}}\n" + SITE + POOL,
        ["controller.backup.every spec.out-of-range"],
    ),
    (
        "users that come from elsewhere",
        "identity: {source: sssd, users: [{name: alice, uid: 2001}]}\n" + SITE + POOL,
        ["identity.users spec.not-for-kind"],
    ),
    (
        "two users of one name, and two of one number",
        "identity: {source: pushed, users: [{name: a, uid: 2001}, {name: a, uid: 2002}, {name: b, uid: 2001}]}\n"
        + SITE
        + POOL,
        ["identity.users[a].name spec.duplicate-name", "identity.users[b].uid spec.duplicate-item"],
    ),
    (
        "a group with a user's number, two of one name, and one that is a user's own",
        "identity: {source: pushed, users: [{name: a, uid: 2001}], groups: [{name: g, gid: 2001},"
        " {name: h, gid: 3007}, {name: h, gid: 3008}, {name: a, gid: 3009}]}\n" + SITE + POOL,
        [
            "identity.groups[g].gid spec.duplicate-item",
            "identity.groups[h].name spec.duplicate-name",
            "identity.groups[a].name spec.duplicate-name",
        ],
    ),
    (
        "a user under min_uid",
        "identity: {source: pushed, min_uid: 2000, users: [{name: a, uid: 1999}]}\n" + SITE + POOL,
        ["identity.users[a].uid spec.out-of-range"],
    ),
    (
        "a user twice in a group",
        "identity: {source: pushed, users: [{name: a, uid: 2001, groups: [x, x]}]}\n" + SITE + POOL,
        ["identity.users[a].groups[1] spec.duplicate-item"],
    ),
    # --- names and references ---
    (
        "two pools of one name",
        SITE + "pools: [{name: p, site: here, nodes: a}, {name: p, site: here, nodes: b}]",
        ["pools[p].name spec.duplicate-name"],
    ),
    (
        "two sites of one name",
        "sites: [{name: a, kind: local}, {name: a, kind: local}]\npools: []",
        ["sites[a].name spec.duplicate-name"],
    ),
    ("two queues of one name", QUEUES + "[{name: q}, {name: q}]", ["queues[q].name spec.duplicate-name"]),
    (
        "a site that is not there",
        SITE + "pools: [{name: p, site: there, nodes: a}]",
        ["pools[p].site spec.dangling-reference"],
    ),
    (
        "a parent that is not there",
        QUEUES + "[{name: q, parent: r}]",
        ["queues[q].parent spec.dangling-reference"],
    ),
    ("a queue under itself", QUEUES + "[{name: q, parent: q}]", ["queues[q].parent spec.cycle"]),
    (
        "three queues in a circle",
        QUEUES + "[{name: a, parent: b}, {name: b, parent: c}, {name: c, parent: a}, {name: d}]",
        ["queues[a].parent spec.cycle"],
    ),
    (
        "two circles",
        QUEUES + "[{name: a, parent: a}, {name: b, parent: c}, {name: c, parent: b}]",
        ["queues[a].parent spec.cycle", "queues[b].parent spec.cycle"],
    ),
    (
        "a queue under a circle is no circle",
        QUEUES + "[{name: x, parent: a}, {name: a, parent: a}]",
        ["queues[a].parent spec.cycle"],
    ),
    (
        "a storage on no site",
        SITE + POOL + "storage: [{name: s, kind: nfs, source: x, path: /s, sites: [nowhere]}]",
        ["storage[s].sites[0] spec.dangling-reference"],
    ),
    (
        "a grant to nobody",
        SITE + POOL + "access: {grants: [{role: read, to: ghosts}]}",
        ["access.grants[0].to spec.dangling-reference"],
    ),
    ("an unknown zone", "sites: []\npools: []\n", []),
    # --- pools and their sites ---
    (
        "a node in two pools",
        SITE + "pools: [{name: p, site: here, nodes: 'n[1-4]'}, {name: r, site: here, nodes: 'n[3-9]'}]",
        ["pools[r].nodes spec.node-twice"],
    ),
    (
        "no nodes on a local site",
        SITE + "pools: [{name: p, site: here}]",
        ["pools[p].nodes spec.missing-field"],
    ),
    (
        "size on a local site",
        SITE + "pools: [{name: p, site: here, nodes: a, size: {max: 1}}]",
        ["pools[p].size spec.not-for-kind"],
    ),
    (
        "nodes and size on aws",
        BOUGHT
        + "pools: [{name: p, site: u, nodes: a, size: {max: 1}, offerings: [{type: p5.48xlarge, market: on_demand}]}]",
        ["pools[p].size spec.exclusive-fields"],
    ),
    (
        "neither size nor offerings on aws",
        "sites: [{name: u, kind: aws, region: us-east-1}]\npools: [{name: p, site: u}]",
        ["pools[p].offerings spec.missing-field", "pools[p].size spec.needs-one-of"],
    ),
    (
        "min over max",
        AWS.format(low=3, high=2, types="p5.48xlarge", market="spot", budgets="[]"),
        ["pools[b].size.min spec.min-over-max"],
    ),
    (
        "emulated GPUs that are bought",
        AWS.format(low=0, high=1, types="p5.48xlarge", market="spot", budgets="[]").replace(
            "size:", "gpu: {model: H100-SXM5-80GB, count: 8, emulate: always}\n    size:"
        ),
        ["pools[b].gpu.emulate spec.not-for-kind"],
    ),
    (
        "MIG instances of a model that has none",
        SITE
        + "pools: [{name: p, site: here, nodes: a, gpu: {model: L4-PCIE-24GB, count: 1, emulate: always, mig: true}}]",
        ["pools[p].gpu.mig spec.no-mig"],
    ),
    (
        "MIG instances of GPUs that may be real",
        SITE + "pools: [{name: p, site: here, nodes: a, gpu: {model: A30-PCIE-24GB, count: 1, mig: true}}]",
        ["pools[p].gpu.mig spec.mig-not-real"],
    ),
    (
        "a model that nobody knows",
        SITE + "pools: [{name: p, site: here, nodes: a, gpu: {model: H100-SXM5-8GB, count: 8}}]",
        ["pools[p].gpu.model spec.unknown-gpu-model"],
    ),
    (
        "owned capacity on aws",
        AWS.format(low=0, high=1, types="p5.48xlarge", market="owned", budgets="[]"),
        ["pools[b].offerings[0].market spec.not-for-kind"],
    ),
    (
        "a block without its id",
        AWS.format(low=0, high=1, types="p5.48xlarge", market="capacity_block", budgets="[]"),
        ["pools[b].offerings[0].reservation spec.missing-field"],
    ),
    (
        "GPUs that the type has not",
        AWS.format(low=0, high=1, types="p5.48xlarge", market="spot", budgets="[]").replace(
            "    size", "    gpu: {model: H100-SXM5-80GB, count: 4}\n    size"
        ),
        ["pools[b].gpu spec.gpu-not-of-type"],
    ),
    (
        "a zone of another region",
        "sites: [{name: u, kind: aws, region: us-east-1, zones: [us-west-2a]}]\npools: []",
        ["sites[u].zones[0] spec.zone-elsewhere"],
    ),
    # --- storage ---
    (
        "nfs without a source",
        SITE + POOL + "storage: [{name: s, kind: nfs, path: /s}]",
        ["storage[s].source spec.missing-field"],
    ),
    (
        "purging what is shared",
        SITE + POOL + "storage: [{name: s, kind: nfs, source: x, path: /s, purge: true}]",
        ["storage[s].purge spec.not-for-kind"],
    ),
    (
        "purging what is not the job's",
        SITE + POOL + "storage: [{name: s, kind: local, path: /s, purge: true}]",
        ["storage[s].purge spec.needs-field"],
    ),
    (
        "two at one path",
        SITE + POOL + "storage: [{name: s, kind: local, path: /s}, {name: t, kind: local, path: /s}]",
        ["storage[t].path spec.duplicate-item"],
    ),
    # --- fabric and power domains ---
    (
        "a unit with a strange node",
        SITE.replace("local}", "local, fabric: {units: {u: 'n[1-5]'}}}") + POOL,
        ["sites[here].fabric.units.u spec.node-unknown"],
    ),
    (
        "a node in two units",
        SITE.replace("local}", "local, fabric: {units: {u: n1, v: 'n[1-2]'}}}") + POOL,
        ["sites[here].fabric.units.v spec.node-twice"],
    ),
    (
        "a parent and feeds",
        POWER.format(
            domains="[{name: a, limit_kw: 99}, {name: b, limit_kw: 99, parent: a, fed_by: [a]}]",
            gpus=0,
            budgets="[]",
        ),
        ["sites[here].power.domains[b].fed_by spec.exclusive-fields"],
    ),
    (
        "2N with one feed",
        POWER.format(
            domains="[{name: a, limit_kw: 99}, {name: b, limit_kw: 99, fed_by: [a], redundancy: 2N}]",
            gpus=0,
            budgets="[]",
        ),
        ["sites[here].power.domains[b].redundancy spec.redundancy-feeds"],
    ),
    (
        "domains in a circle",
        POWER.format(
            domains="[{name: a, limit_kw: 9, parent: b}, {name: b, limit_kw: 9, fed_by: [a]}]",
            gpus=0,
            budgets="[]",
        ),
        ["sites[here].power.domains[a].parent spec.cycle"],
    ),
    (
        "a domain that limits nothing",
        POWER.format(domains="[{name: a}]", gpus=0, budgets="[]"),
        ["sites[here].power.domains[a] spec.idle-domain"],
    ),
    # --- queues ---
    (
        "a share in both",
        QUEUES + "[{name: q, guarantee: [{pool: p, gpu_model: H100-SXM5-80GB, gpus: 1}]}]",
        ["queues[q].guarantee[p].gpu_model spec.exclusive-fields"],
    ),
    (
        "a share in nothing",
        QUEUES + "[{name: q, guarantee: [{gpus: 1}]}]",
        ["queues[q].guarantee[0].pool spec.needs-one-of"],
    ),
    (
        "a share twice",
        QUEUES + "[{name: q, guarantee: [{pool: p, gpus: 1}, {pool: p, gpus: 2}]}]",
        ["queues[q].guarantee[p].pool spec.duplicate-item"],
    ),
    (
        "a queue lends more than it is guaranteed",
        QUEUES + "[{name: q, guarantee: [{pool: p, gpus: 1}], lending_limit: [{pool: p, gpus: 2}]}]",
        ["queues[q].lending_limit[p].gpus spec.min-over-max"],
    ),
    (
        "a queue lends what it is not guaranteed",
        QUEUES + "[{name: q, lending_limit: [{pool: p, gpus: 2}]}]",
        ["queues[q].lending_limit[p] spec.needs-field"],
    ),
    (
        "a default over the most",
        QUEUES + "[{name: q, limits: {default_time_limit: 2h, max_time_limit: 1h}}]",
        ["queues[q].limits.default_time_limit spec.min-over-max"],
    ),
    # --- budgets ---
    ("a budget on nothing", SITE + POOL + "budgets: [{name: b}]", ["budgets[b] spec.needs-one-of"]),
    (
        "windows without a domain",
        SITE + POOL + "budgets: [{name: b, windows: [{from: '10:00', to: '11:00', limit_kw: 1}]}]",
        ["budgets[b].windows spec.needs-field"],
    ),
    (
        "power and money in one",
        POWER.format(
            domains="[{name: a, limit_kw: 99}]",
            gpus=0,
            budgets="[{name: b, domain: a, windows: [{from: '10:00', to: '11:00', limit_kw: 50}], usd_per_hour: 1}]",
        ),
        ["budgets[b].usd_per_hour spec.exclusive-fields"],
    ),
    (
        "a window of no length",
        POWER.format(
            domains="[{name: a, limit_kw: 99}]",
            gpus=0,
            budgets="[{name: b, domain: a, windows: [{from: '10:00', to: '10:00', limit_kw: 50}]}]",
        ),
        ["budgets[b].windows[0].to spec.zero-window"],
    ),
    (
        "a budget on two things",
        SITE + POOL + "budgets: [{name: b, applies_to: {site: here, pool: p}, usd_per_hour: 1}]",
        ["budgets[b].applies_to.pool spec.exclusive-fields"],
    ),
    # --- versions and numbers ---
    (
        "versions that name none",
        (
            "sites: [{name: m, kind: metal, system: {packages: {a: latest, b: '580.*', c: '>=5', d: '1:2.3-4~x+y'}}}]\n"
            "pools: []"
        ),
        [f"sites[m].system.packages.{name} spec.bad-text" for name in "abc"],
    ),
    (
        "numbers are compared as such",
        (
            "sites: [{name: a, kind: aws, region: us-east-1, zones: [us-east-1a]}]\n"
            "pools: [{name: p, site: a, size: {min: 9, max: 10}, offerings: [{type: p5.48xlarge, market: spot}]},"
            " {name: q, site: a, size: {min: 10, max: 9}, offerings: [{type: p5.48xlarge, market: spot}]}]"
        ),
        ["pools[q].size.min spec.min-over-max"],
    ),
    # --- access ---
    ("a group of nobody", SITE + POOL + "access: {groups: {g: {}}}", ["access.groups.g spec.needs-one-of"]),
    (
        "a grant on nothing",
        SITE + POOL + "access: {groups: {g: {posix: g}}, grants: [{role: read, to: g, on: {}}]}",
        ["access.grants[0].on spec.needs-one-of"],
    ),
]


@pytest.mark.parametrize(("name", "body", "wanted"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_what_contradicts_is_said_once_at_its_place(name: str, body: str, wanted: list[str]) -> None:
    assert said(body) == wanted


# --- sums, at their edge ---------------------------------------------------------------------------------------------


def tree(root: int, a: int, b: int, c: int) -> str:
    shares = {"root": root, "a": a, "b": b, "c": c}
    queues = [f"{{name: {name}, guarantee: [{{pool: p, gpus: {gpus}}}]}}" for name, gpus in shares.items()]
    return (
        QUEUES
        + "["
        + ", ".join(queues)
        .replace("name: a,", "name: a, parent: root,")
        .replace("name: b,", "name: b, parent: root,")
        + "]"
    )


@pytest.mark.parametrize(
    ("root", "a", "b", "c", "wanted"),
    [
        (16, 8, 8, 16, []),
        (16, 8, 9, 16, ["queues[b].guarantee[p].gpus spec.guarantee-over-parent"]),
        (16, 8, 8, 17, ["queues[c].guarantee[p].gpus spec.guarantee-over-capacity"]),
        (33, 8, 8, 0, ["queues[root].guarantee[p].gpus spec.guarantee-over-capacity"]),
    ],
)
def test_guarantees_fit_into_parents_and_pools(root: int, a: int, b: int, c: int, wanted: list[str]) -> None:
    assert said(tree(root, a, b, c)) == wanted


def test_guarantees_by_model_and_by_pool_share_the_same_gpus() -> None:
    by_model = "{{name: b, guarantee: [{{gpu_model: H100-SXM5-80GB, gpus: {n}}}]}}"
    both = "[{{name: a, guarantee: [{{pool: p, gpus: 20}}]}}, " + by_model + "]"
    assert said(QUEUES + both.format(n=12)) == []
    assert said(QUEUES + both.format(n=13)) == [
        "queues[b].guarantee[H100-SXM5-80GB].gpus spec.guarantee-over-capacity"
    ]


def test_the_sum_of_the_message_is_right() -> None:
    (error,) = cluster_errors(HEAD + tree(16, 8, 8, 20))
    assert error.message == "guarantees in pool 'p' add up to 36 GPUs, but it has 32"
    assert error.hint == "lower them by 4 GPUs in all"


RACK = "{name: r, nodes: 'n[1-4]', fed_by: [a, b], limit_kw: 12"


# 16 GPUs of 700 W are 11.2 kW
@pytest.mark.parametrize(
    ("domains", "wanted"),
    [
        ("[{name: a, limit_kw: 11.2}]", []),
        (
            "[{name: a, limit_kw: 11.199}]",
            ["sites[here].power.domains[a].limit_kw spec.guarantee-over-power"],
        ),
        ("[{name: a, limit_kw: 14, derate: 0.8}]", []),
        (
            "[{name: a, limit_kw: 13.9, derate: 0.8}]",
            ["sites[here].power.domains[a].limit_kw spec.guarantee-over-power"],
        ),
        ("[{name: a, limit_kw: 12, unmanaged_kw: 0.8}]", []),
        (
            "[{name: a, limit_kw: 12, unmanaged_kw: 0.9}]",
            ["sites[here].power.domains[a].limit_kw spec.guarantee-over-power"],
        ),
        # half of the nodes hang on b: both halves of the guarantee can run elsewhere
        ("[{name: a, limit_kw: 12}, {name: b, parent: a, nodes: 'n[1-2]', limit_kw: 0.1}]", []),
        # three quarters hang on b: one node's worth must run there
        (
            "[{name: a, limit_kw: 12}, {name: b, parent: a, nodes: 'n[1-3]', limit_kw: 5}]",
            ["sites[here].power.domains[b].limit_kw spec.guarantee-over-power"],
        ),
        # two feeds share the load (N), or each carries all of it (2N)
        (
            "[{name: a, limit_kw: 5.6}, {name: b, limit_kw: 5.6}, " + RACK + "}]",
            [],
        ),
        (
            "[{name: a, limit_kw: 11}, {name: b, limit_kw: 12}, " + RACK + ", redundancy: 2N}]",
            ["sites[here].power.domains[a].limit_kw spec.guarantee-over-power"],
        ),
        # a load on two feeds burdens what feeds both of them once
        (
            "[{name: t, limit_kw: 11.2}, {name: a, parent: t, limit_kw: 12}, {name: b, parent: t, limit_kw: 12}, "
            + RACK
            + ", redundancy: 2N}]",
            [],
        ),
    ],
)
def test_power_carries_what_is_guaranteed(domains: str, wanted: list[str]) -> None:
    assert said(POWER.format(domains=domains, gpus=16, budgets="[]")) == wanted


def test_a_window_must_carry_what_is_guaranteed() -> None:
    window = (
        "[{{name: b, domain: a, windows: [{{days: mon-fri, from: '17:00', to: '20:00', limit_kw: {kw}}}]}}]"
    )
    power = POWER.format(domains="[{name: a, limit_kw: 40}]", gpus=16, budgets=window.format(kw="{kw}"))
    assert cluster_of(power.replace("{kw}", "11.2")).budgets[0].windows[0].limit_watts == 11200
    (error,) = cluster_errors(HEAD + power.replace("{kw}", "11"))
    assert error.path == "budgets[b].windows[0].limit_kw"
    assert error.code == "spec.guarantee-over-power"
    assert "mon-fri 17:00-20:00" in error.message
    assert "11 kW" in error.message
    assert "11.2 kW" in error.message


# p5.48xlarge costs $55.04 an hour in us-east-1 in the catalog of 2026-07-20
@pytest.mark.parametrize(
    ("low", "high", "market", "budget", "wanted"),
    [
        (0, 4, "on_demand", "usd_per_hour: 220.16", []),
        (0, 4, "on_demand", "usd_per_hour: 220.15", ["pools[b].size.max spec.unreachable-ceiling"]),
        (0, 4, "spot", "usd_per_hour: 1", []),
        (2, 4, "on_demand", "usd_per_hour: 100", ["pools[b].size.min spec.minimum-over-budget"]),
        (1, 1, "on_demand", "usd_per_month: 36000", ["pools[b].size.min spec.minimum-over-budget"]),
        (1, 1, "on_demand", "usd_per_month: 37000", []),
        (
            0,
            4,
            "on_demand",
            "applies_to: {pool: b}, usd_per_hour: 1",
            ["pools[b].size.max spec.unreachable-ceiling"],
        ),
        (
            0,
            4,
            "on_demand",
            "applies_to: {site: use1}, usd_per_hour: 1",
            ["pools[b].size.max spec.unreachable-ceiling"],
        ),
    ],
)
def test_money_reaches_the_sizes_that_a_pool_may_have(
    low: int, high: int, market: str, budget: str, wanted: list[str]
) -> None:
    budgets = f"[{{name: m, {budget}}}]"
    assert said(AWS.format(low=low, high=high, types="p5.48xlarge", market=market, budgets=budgets)) == wanted


def test_what_the_catalog_does_not_know_settles_nothing() -> None:
    body = AWS.format(
        low=0, high=9, types="p9.metal-96xl", market="on_demand", budgets="[{name: m, usd_per_hour: 1}]"
    )
    body = body.replace("    site: use1\n", "    site: use1\n    cores: 192\n")
    assert said(body + "queues: [{name: q, guarantee: [{pool: b, gpus: 4000}]}]") == []
