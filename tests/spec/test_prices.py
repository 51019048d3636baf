"""Files of negotiated prices: read beside the cluster's file, every fault at its place in them.

Comes in: a cluster and a price file in a folder. Goes out: proof of the model, of each fault, and that sums go by it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import spec
from orchestrator.model.cluster import Market, Price
from tests.spec.said import HEAD, coded, lines, write

CLUSTER = (
    HEAD
    + """\
sites: [{name: u, kind: aws, region: us-east-1, prices: prices.yml}]
pools: [{name: p, site: u, size: {min: 2, max: 2}, offerings: [{type: p5.48xlarge, market: on_demand}]}]
budgets: [{name: m, usd_per_hour: 100}]
"""
)
PRICES = "apiVersion: gangline/v1\nkind: Prices\nprices:\n"


def loaded(folder: Path, rows: str, cluster: str = CLUSTER) -> spec.LoadedCluster:
    return spec.load_cluster(write(folder, cluster_yaml=cluster, prices_yml=PRICES + rows))


def test_rows_are_the_sites_own_and_sums_go_by_them(tmp_path: Path) -> None:
    """Two nodes at 49.99 are under 100 dollars; at the price of the catalog, 55.04, they would not be."""
    rows = (
        "  - {type: p5.48xlarge, market: spot, usd_per_hour: 20}\n"
        "  - {type: p5.48xlarge, market: on_demand, usd_per_hour: 49.99}\n"
    )

    done = loaded(tmp_path, rows)

    assert done.cluster is not None, spec.render(done.errors)
    assert done.cluster.site("u").negotiated == (
        Price("p5.48xlarge", Market.ON_DEMAND, 49_990_000),
        Price("p5.48xlarge", Market.SPOT, 20_000_000),
    )


def test_without_a_row_the_catalog_counts(tmp_path: Path) -> None:
    done = loaded(tmp_path, "  - {type: p5.48xlarge, market: spot, usd_per_hour: 20}\n")
    assert coded(done.errors) == ["pools[p].size.min spec.minimum-over-budget"]


def test_a_dear_price_is_over_the_budget_too(tmp_path: Path) -> None:
    (error,) = loaded(tmp_path, "  - {type: p5.48xlarge, market: on_demand, usd_per_hour: 60}\n").errors
    assert error.code == "spec.minimum-over-budget"
    assert "$120.00" in error.message


ROW = "  - {type: p5.48xlarge, market: on_demand, usd_per_hour: 1}\n"


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (ROW + ROW, ["5:12 prices[1].type spec.duplicate-item"]),
        (
            "  - {type: p5.48xlarg, market: spot, usd_per_hour: 1}\n",
            ["4:12 prices[0].type spec.unknown-instance-type"],
        ),
        (
            "  - {type: p5.48xlarge, market: owned, usd_per_hour: 1}\n",
            ["4:33 prices[0].market spec.not-for-kind"],
        ),
        (
            "  - {type: p5.48xlarge, market: on_demand, usd_per_hour: 0}\n",
            ["4:58 prices[0].usd_per_hour spec.out-of-range"],
        ),
        (
            "  - {type: p5.48xlarge, market: on_demand, usd: 1}\n",
            [
                "4:5 prices[0].usd_per_hour spec.missing-field",
                "4:44 prices[0].usd spec.unknown-field",
            ],
        ),
        (
            "  - {type: p5.48xlarge, market: cheap, usd_per_hour: 1}\n",
            ["4:33 prices[0].market spec.bad-choice"],
        ),
        ("  - [\n", ["5:1  spec.yaml-syntax"]),
    ],
    ids=["twice", "unknown type", "owned", "free", "another field", "another market", "no YAML"],
)
def test_each_fault_is_said_once_at_its_place_in_that_file(
    tmp_path: Path, rows: str, wanted: list[str]
) -> None:
    errors = loaded(tmp_path, rows).errors
    assert lines(errors) == wanted
    assert {error.file for error in errors} == {str(tmp_path / "prices.yml")}


def test_a_type_that_only_the_cluster_knows_may_have_a_price(tmp_path: Path) -> None:
    cluster = CLUSTER.replace("p5.48xlarge", "p9.huge").replace("site: u,", "site: u, cores: 8,")
    assert loaded(tmp_path, "  - {type: p9.huge, market: on_demand, usd_per_hour: 1}\n", cluster).errors == ()


def test_a_file_that_is_not_there_is_one_error_at_the_site(tmp_path: Path) -> None:
    (error,) = spec.load_cluster(write(tmp_path, cluster_yaml=CLUSTER)).errors
    assert (error.path, error.code) == ("sites[u].prices", "spec.file-not-found")
    assert error.hint == "check the path; it is relative to the folder of the file that names it"


def test_two_sites_read_one_file_once(tmp_path: Path) -> None:
    cluster = CLUSTER.replace(
        "sites: [", "sites: [{name: v, kind: aws, region: us-west-2, prices: prices.yml}, "
    )
    assert lines(loaded(tmp_path, ROW + ROW, cluster).errors) == ["5:12 prices[1].type spec.duplicate-item"]


def test_another_kind_of_document_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "prices.yml").write_text("apiVersion: gangline/v1\nkind: Job\nprices: []\n")
    (error,) = spec.load_cluster(str(tmp_path / "cluster.yaml")).errors
    assert (error.code, error.path) == ("spec.wrong-kind", "kind")


def test_a_price_file_can_be_validated_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path, prices_yml=PRICES + ROW)
    assert spec.validate_file(path).valid
    path = write(tmp_path, prices_yml=PRICES + ROW + ROW)
    assert coded(spec.validate_file(path).errors) == ["prices[1].type spec.duplicate-item"]
