"""The front of the room: kinds, envelopes, models; the bundled examples; a thousand nodes.

Comes in: files of both kinds. Goes out: proof that models are in base units and free of order, that results have the
fixed envelope, and that nothing is read but the file and its inventories.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from orchestrator import bundled, spec
from orchestrator.model.cluster import (
    JOB_PORTS,
    ClusterSpec,
    Emulate,
    Queue,
    QueueLimits,
    Share,
    SiteKind,
    Window,
)
from orchestrator.model.codec import decode, encode
from orchestrator.model.job import JobSpec
from tests.spec.said import HEAD, POOL, SITE, cluster_of, coded, said, write

FULL = Path(__file__).parent / "full"


def bundled_file(*names: str) -> str:
    return str(bundled.find("inventories", *names))


@pytest.mark.parametrize(
    "path",
    [
        bundled_file("atlas", "cluster.yaml"),
        bundled_file("local-demo", "cluster.yaml"),
        str(FULL / "cluster.yaml"),
    ],
)
def test_clusters_load_and_survive_the_codec(path: str) -> None:
    loaded = spec.load_cluster(path)
    assert loaded.cluster is not None, spec.render(loaded.errors)
    assert spec.validate_file(path).valid
    plain = json.loads(json.dumps(encode(loaded.cluster)))
    assert decode(ClusterSpec, plain) == loaded.cluster


@pytest.mark.parametrize(
    ("cluster", "job"),
    [
        (bundled_file("atlas", "cluster.yaml"), bundled_file("atlas", "job.yaml")),
        (str(FULL / "cluster.yaml"), str(FULL / "job.yaml")),
        (str(FULL / "cluster.yaml"), str(FULL / "tasks.yaml")),
    ],
)
def test_jobs_load_and_survive_the_codec(cluster: str, job: str) -> None:
    loaded = spec.load_job(job, spec.load_cluster(cluster).cluster)
    assert loaded.job is not None, spec.render(loaded.errors)
    assert decode(JobSpec, json.loads(json.dumps(encode(loaded.job)))) == loaded.job


def test_the_demo_has_four_nodes_of_eight_gpus() -> None:
    cluster = spec.load_cluster(bundled_file("local-demo", "cluster.yaml")).cluster
    assert cluster is not None
    (pool,) = cluster.pools
    assert pool.nodes == ("local-1", "local-2", "local-3", "local-4")
    assert pool.gpu is not None
    assert (pool.gpu.count, pool.gpu.emulate) == (8, Emulate.AUTO)
    assert cluster.site_of(pool).kind == SiteKind.LOCAL
    assert cluster.site("here").network.first_port == JOB_PORTS[0]
    assert cluster.queues == (Queue("default"),)


def test_atlas_is_read_in_base_units() -> None:
    cluster = spec.load_cluster(bundled_file("atlas", "cluster.yaml")).cluster
    assert cluster is not None
    hall, burst = cluster.site("hall-a"), cluster.pool("burst")
    assert hall.power.price_microusd_per_kwh == 180_000
    assert hall.power.pue_milli == 1300
    assert {one.name: one.usable_watts() for one in hall.power.domains} == {
        "hall-a": 160_000, "a": 160_000, "b": 160_000, "rack-1": 44_000,
    }  # fmt: skip
    assert burst.size is not None
    assert (burst.size.max, burst.size.idle_s, burst.size.boot_deadline_s) == (16, 600, 1500)
    assert [one.types for one in burst.offerings] == [("p5.48xlarge",), ("p5.48xlarge", "p5en.48xlarge")]
    assert burst.offerings[0].max_microusd_per_hour == 30_000_000
    assert cluster.budgets[1].windows == (Window((0, 1, 2, 3, 4), 17 * 60, 20 * 60, 120_000),)
    research = cluster.queue("research")
    assert research.guarantee == (Share(48, pool="h100"),)
    assert research.limits == QueueLimits(default_time_limit_s=4 * 3600)
    assert cluster.pool("h100").most_nodes() == 32
    assert len(hall.hosts) == 32


def test_order_means_nothing_except_in_lists_of_policy() -> None:
    one = cluster_of("""\
        sites: [{name: a, kind: local}, {name: b, kind: local}]
        pools: [{name: p, site: a, nodes: n1, labels: {x: "1", y: "2"}}, {name: q, site: b, nodes: n2}]
        queues: [{name: r, guarantee: [], weight: 2}, {name: s}]
        """)
    other = cluster_of("""\
        queues: [{name: s}, {weight: 2, name: r}]
        pools: [{site: b, name: q, nodes: [n2]}, {name: p, site: a, nodes: n1, labels: {y: "2", x: "1"}}]
        sites: [{kind: local, name: b}, {name: a, kind: local}]
        """)
    assert one == other


def test_without_queues_there_is_one_and_jobs_may_use_it() -> None:
    cluster = cluster_of(SITE + POOL)
    assert [queue.name for queue in cluster.queues] == ["default"]
    assert cluster_of(
        SITE + POOL + "queues: []\nbudgets: [{name: b, applies_to: {queue: default}, usd_per_hour: 1}]\n"
    ).queues


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", [" spec.empty"]),
        ("5\n", [" spec.wrong-type"]),
        ("[]\n", [" spec.wrong-type"]),
        ("a: 1\n", ["kind spec.missing-field"]),
        ("knid: Cluster\n", ["knid spec.unknown-field"]),
        ("kind: Clutser\nx: 1\n", ["kind spec.wrong-kind"]),
        ("kind: 5\n", ["kind spec.wrong-type"]),
        ("kind: !!str Cluster\n", ["kind spec.yaml-tag"]),
        ("kind: Cluster\napiVersion: gangline/v2\nx: 1\n", ["apiVersion spec.wrong-version"]),
        ("kind: Node\napiVersion: v1\nx: 1\n", ["kind spec.wrong-kind", "apiVersion spec.wrong-version"]),
        ("kind: Job\napiVersion: gangline/v1\n", ["metadata spec.missing-field", "spec spec.missing-field"]),
    ],
)
def test_the_kind_decides_what_a_file_is_judged_by(text: str, wanted: list[str]) -> None:
    assert coded(spec.validate_text(text, "f.yaml").errors) == wanted


def test_a_job_is_no_cluster() -> None:
    (error,) = spec.load_cluster(str(FULL / "job.yaml")).errors
    assert (error.code, error.path, error.line, error.column) == ("spec.wrong-kind", "kind", 2, 7)
    assert spec.load_job(str(FULL / "cluster.yaml")).job is None


def test_a_null_section_is_reported_with_what_belongs_there() -> None:
    """Whoever comments out all children of a section leaves null behind."""
    text = HEAD + SITE + "pools:\n#  - name: p\nqueues:\n"
    errors = spec.load_cluster_text(text, "cluster.yaml").errors
    assert [(one.path, one.line, one.column, one.message) for one in errors] == [
        ("pools", 5, 1, "expected a list, got null"),
        ("queues", 7, 1, "expected a list, got null"),
    ]


def test_the_envelope_is_fixed(tmp_path: Path) -> None:
    path = write(tmp_path, cluster_yaml=HEAD + SITE + "pools: []\nzz: 1\n")
    result = spec.validate_file(path)
    assert json.loads(json.dumps(result.to_json())) == {
        "apiVersion": "gangline/v1",
        "kind": "ValidationResult",
        "valid": False,
        "errors": [
            {
                "file": path,
                "line": 6,
                "column": 1,
                "path": "zz",
                "code": "spec.unknown-field",
                "message": "unknown field",
                "hint": result.errors[0].hint,
            }
        ],
    }
    (tmp_path / "cluster.yaml").write_text(HEAD + SITE + "pools: []\n")
    assert spec.validate_file(path).to_json() == {
        "apiVersion": "gangline/v1", "kind": "ValidationResult", "valid": True, "errors": [],
    }  # fmt: skip


def test_every_unknown_key_is_told_at_once_and_guessed_only_if_near() -> None:
    text = (
        HEAD
        + """\
sites: [{name: here, kind: local, netwrok: {}}]
pools:
  - {name: p, site: here, nodes: n1, num_workers: 2, gpu: {model: H100-SXM5-80GB, count: 8, cuont: 4}}
qeues: []
"""
    )
    errors = spec.load_cluster_text(text, "cluster.yaml").errors
    assert {one.path: one.hint for one in errors} == {
        "sites[here].netwrok": "did you mean 'network'?",
        "pools[p].num_workers": next(one.hint for one in errors if "num_workers" in one.path),
        "pools[p].gpu.cuont": "did you mean 'count'?",
        "qeues": "did you mean 'queues'?",
    }
    assert "did you mean" not in next(one.hint for one in errors if "num_workers" in one.path)


def test_texts_that_look_like_numbers_get_advice() -> None:
    (error,) = spec.load_cluster_text(
        HEAD + SITE + "pools: [{name: p, site: here, nodes: a, labels: {spot: true}}]\n", "f"
    ).errors
    assert error.path == "pools[p].labels.spot"
    assert error.hint == "put it in quotes to make it a text"
    assert said(
        SITE + "pools: [{name: p, site: here, nodes: a, gpu: {model: L4-PCIE-24GB, count: '9'}}]"
    ) == ["pools[p].gpu.count spec.wrong-type"]


def test_numbers_in_quotes_get_advice() -> None:
    pool = "pools: [{name: p, site: here, nodes: a, gpu: {model: L4-PCIE-24GB, count: '8'}}]\n"
    (error,) = spec.load_cluster_text(HEAD + SITE + pool, "f").errors
    assert (error.path, error.hint) == ("pools[p].gpu.count", "remove the quotes")


def test_one_fault_behind_an_alias_is_one_error() -> None:
    text = (
        HEAD
        + SITE
        + """\
pools:
  - {name: p, site: here, nodes: a, gpu: &g {model: H100-SXM5-80GB, count: 0}}
  - {name: q, site: here, nodes: b, gpu: *g}
"""
    )
    errors = spec.load_cluster_text(text, "f").errors
    assert [(one.path, one.line) for one in errors] == [("pools[p].gpu.count", 6)]


def test_all_faults_of_all_kinds_come_at_once() -> None:
    assert said("""\
        sites: [{name: here, kind: local}, {name: there, kind: metl}]
        pools:
          - {name: p, site: here, nodes: "n[1-4]", gpu: {model: H100-SXM5-80GB, count: 8}, zz: 1}
          - {name: q, site: her, nodes: "m[4-1]", gpu: {model: H100-SXM5-80GB, count: 8}}
          - {name: r, site: there, nodes: "n4", cores: none}
        queues:
          - {name: a, guarantee: [{pool: p, gpus: 33}], parent: zz, weight: 0}
          - {name: a}
        """) == [
        "sites[there].kind spec.bad-choice",
        "pools[p].zz spec.unknown-field",
        "pools[q].site spec.dangling-reference",
        "pools[q].nodes spec.bad-hostlist",
        "pools[r].nodes spec.node-twice",
        "pools[r].cores spec.wrong-type",
        "queues[a].parent spec.dangling-reference",
        "queues[a].weight spec.out-of-range",
        "queues[a].name spec.duplicate-name",
    ]


def test_a_thousand_nodes_take_little_work(tmp_path: Path) -> None:
    """The figure that users feel, 1 s for the whole command, is measured by bench-cli; here it is only shown."""
    hosts = "".join(
        f"    n{n:04}: {{ansible_host: 10.0.{n // 250}.{n % 250}, bmc: 10.1.{n // 250}.{n % 250},"
        f' mac: "02:00:00:00:{n // 256:02x}:{n % 256:02x}", rack: r{n // 8}}}\n'
        for n in range(1, 1001)
    )
    path = write(
        tmp_path,
        cluster_yaml=HEAD
        + """\
sites: [{name: hall, kind: metal, inventory: hosts.yml, power: {domains: [{name: root, limit_kw: 12000}]}}]
pools: [{name: p, site: hall, nodes: "n[0001-1000]", gpu: {model: H100-SXM5-80GB, count: 8}}]
queues: [{name: q, guarantee: [{pool: p, gpus: 8000}]}]
""",
        hosts_yml="all:\n  hosts:\n" + hosts,
    )
    started = time.perf_counter()
    loaded = spec.load_cluster(path)
    print(f"1,000 nodes: {time.perf_counter() - started:.3f} s")  # noqa: T201
    assert loaded.cluster is not None, spec.render(loaded.errors)
    assert len(loaded.cluster.site("hall").hosts) == 1000


def test_what_lies_under_a_key_given_twice_has_its_path() -> None:
    found = said("sites: []\nsites: [{name: a, kind: local, kind: metal}]\npools: []\n")
    assert found == ["sites spec.duplicate-key", "sites[0].kind spec.duplicate-key"]
