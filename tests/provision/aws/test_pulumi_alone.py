"""`pulumi preview` and `pulumi up` in stacks/aws, as a person or their CI runs them, without the command of Gangline.

The engine is Pulumi's own. The language host is a stand-in (tests.aws.language), since Pulumi's is no published module.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator import bundled
from orchestrator.provision.aws import facts
from tests.aws.fixture import Place
from tests.provision.aws.declared import UID

pytestmark = pytest.mark.system

FILE = """
apiVersion: gangline/v1
kind: Cluster
metadata: {name: atlas}
controller: {address: "https://atlas.example.org:7443"}
sites:
  - {name: use1, kind: aws, region: us-east-1, zones: [us-east-1a], image: IMAGE}
pools:
  - name: train
    site: use1
    nodes: [train-01, train-02]
    fabric: {kind: efa}
    offerings: [{type: p4d.24xlarge, market: on_demand}]
"""


@pytest.fixture
def project(pulumi_place: Place, tmp_path: Path) -> Path:
    """The bundled project in a folder of a person's own, with a stack that has a uid."""
    folder = tmp_path / "atlas"
    shutil.copytree(bundled.find("stacks", "aws"), folder)
    (folder / "cluster.yaml").write_text(FILE.replace("IMAGE", pulumi_place.account.image()))
    pulumi_place.run("stack", "init", "atlas-use1", cwd=folder)
    pulumi_place.run("config", "set", "gangline:uid", UID, cwd=folder)
    return folder


def test_pulumi_up_alone_with_a_stand_in_of_the_language_host(pulumi_place: Place, project: Path) -> None:
    pulumi_place.run("preview", cwd=project)
    pulumi_place.run("up", "--skip-preview", cwd=project)

    kept = facts.read(pulumi_place.account.client("ssm"), "atlas", UID, "use1")
    assert kept is not None
    assert [one.node for one in kept.fixed] == ["train-01", "train-02"]
    pulumi_place.run("preview", "--expect-no-changes", cwd=project)

    file = project / "cluster.yaml"
    file.write_text(file.read_text().replace("[train-01, train-02]", "[train-02]") + "# a comment\n")
    shown = pulumi_place.run("up", "--skip-preview", cwd=project).stdout
    assert "1 deleted" in shown
    assert "1 updated" in shown  # the facts

    pulumi_place.run("destroy", "--skip-preview", cwd=project)
    assert facts.read(pulumi_place.account.client("ssm"), "atlas", UID, "use1") is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("market: on_demand", "markt: on_demand", "cluster.yaml:13:38: pools[train].offerings[0].markt"),
        ("p4d.24xlarge", "g6.xlarge", "has no EFA"),
    ],
)
def test_mistake_in_the_file_is_said_as_validate_says_it(
    pulumi_place: Place, project: Path, old: str, new: str, said: str
) -> None:
    file = project / "cluster.yaml"
    file.write_text(file.read_text().replace(old, new))

    done = pulumi_place.run("preview", cwd=project, code=None)

    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert said in told
    assert "hint:" in told
    assert "Traceback" not in told


def test_stack_without_a_uid_is_told_how_to_get_one(pulumi_place: Place, project: Path) -> None:
    pulumi_place.run("config", "rm", "gangline:uid", cwd=project)

    done = pulumi_place.run("preview", cwd=project, code=None)

    assert done.returncode != 0
    assert "the cluster has no uid here" in done.stdout + done.stderr
