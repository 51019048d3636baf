"""Nodes of a local site: who plays which GPUs, what an agent is told, one `up` at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.model.cluster import ClusterSpec, Emulate, GpuSpec, Pool, Site, SiteKind
from orchestrator.model.errors import Conflict
from orchestrator.provision.local import LocalSite, agent_config, foreign_sites, nodes_of

HERE, HALL = Site("here", SiteKind.LOCAL), Site("hall", SiteKind.METAL)
H100 = GpuSpec("H100", 8, Emulate.AUTO, 80 << 30)


def cluster(*pools: Pool) -> ClusterSpec:
    return ClusterSpec("lab", sites=(HERE, HALL), pools=pools)


def test_nodes_of_local_sites_in_the_specs_order() -> None:
    spec = cluster(Pool("b", "here", ("b1", "b2")), Pool("far", "hall", ("x1",)), Pool("a", "here", ("a1",)))

    assert [node.name for node in nodes_of(spec)] == ["b1", "b2", "a1"]
    assert foreign_sites(spec) == ["hall"]


def test_one_node_has_all_real_gpus_of_the_machine() -> None:
    assert nodes_of(cluster(Pool("p", "here", ("n1",), gpu=H100)))[0].only is None


def test_several_nodes_share_them_out_and_emulated_pools_take_none() -> None:
    emulated = GpuSpec("H100", 8, Emulate.ALWAYS)
    spec = cluster(
        Pool("a", "here", ("a1", "a2"), gpu=GpuSpec("H100", 2)),
        Pool("e", "here", ("e1",), gpu=emulated),
        Pool("none", "here", ("c1",)),
        Pool("z", "here", ("z1",), gpu=GpuSpec("L4", 1, Emulate.NEVER)),
    )

    assert {node.name: node.only for node in nodes_of(spec)} == {
        "a1": (0, 1),
        "a2": (2, 3),
        "e1": (),
        "c1": (),
        "z1": (4,),
    }


@pytest.mark.parametrize(
    ("pool", "gpus"),
    [
        (
            Pool("p", "here", ("n1",), gpu=H100),
            {"emulate": "auto", "model": "H100", "count": 8, "memory": 80 << 30},
        ),
        (
            Pool("p", "here", ("n1",), gpu=GpuSpec("L4", 1, Emulate.ALWAYS)),
            {"emulate": "always", "model": "L4", "count": 1, "memory": 0},
        ),
        (
            Pool("p", "here", ("n1",), gpu=GpuSpec("H100-SXM5-80GB", 2, Emulate.ALWAYS)),
            {"emulate": "always", "model": "H100-SXM5-80GB", "count": 2, "memory": 80 << 30},
        ),
        (Pool("p", "here", ("n1",)), {"emulate": "never", "only": []}),
    ],
)
def test_config_of_an_agent_is_one_that_the_agent_reads(
    pool: Pool, gpus: dict[str, object], tmp_path: Path
) -> None:
    from orchestrator.agent import config as agent

    plain = agent_config(nodes_of(cluster(pool))[0], "unix:///lab/api.sock", tmp_path / "n1")

    assert plain["gpus"] == gpus
    (tmp_path / "agent.json").write_text(json.dumps(plain))
    config = agent.load(str(tmp_path / "agent.json"))
    assert (config.node, config.url, config.run_as_self) == ("n1", "unix:///lab/api.sock", True)
    assert config.state_dir == str(tmp_path / "n1" / "state")


def test_configure_says_whether_anything_changed(tmp_path: Path) -> None:
    site = LocalSite(tmp_path)
    (node,) = nodes_of(cluster(Pool("p", "here", ("n1",), gpu=H100)))

    assert site.configure(node, "unix:///a") is True
    assert site.configure(node, "unix:///a") is False
    assert site.configure(node, "unix:///b") is True
    assert (site.home("n1") / "agent.json").stat().st_mode & 0o777 == 0o600


def test_the_join_token_is_the_owners_alone(tmp_path: Path) -> None:
    site = LocalSite(tmp_path)
    site.write_join("n1", "gln_secret")

    assert (site.home("n1") / "join").read_text() == "gln_secret\n"
    assert (site.home("n1") / "join").stat().st_mode & 0o777 == 0o600
    assert not site.joined("n1")


def test_one_up_at_a_time(tmp_path: Path) -> None:
    with LocalSite(tmp_path).alone(), pytest.raises(Conflict), LocalSite(tmp_path).alone():
        pass
    with LocalSite(tmp_path).alone():
        pass


def test_nothing_runs_where_nothing_was_started(tmp_path: Path) -> None:
    site = LocalSite(tmp_path)

    assert site.server() is None
    assert site.agents() == {}
