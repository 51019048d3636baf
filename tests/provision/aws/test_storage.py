"""File systems of a site, against mocks: what is kept, and how nodes mount it."""

from __future__ import annotations

from tests.provision.aws.declared import declare, inputs_of
from tests.provision.aws.documents import (
    STORAGE,
    document,
    fixed,
)


def test_storage_is_protected_unless_its_name_was_released() -> None:
    text = document(fixed(), storage=STORAGE)

    site = declare(inputs_of(text, released=frozenset({"home"})))

    fast, home = site.one("LustreFileSystem", "fast"), site.one("FileSystem", "home")
    assert (fast.protect, fast.retain) == (True, True)
    assert (home.protect, home.retain) == (False, False)
    assert (fast.inputs["storageCapacity"], fast.inputs["perUnitStorageThroughput"]) == (4800, 250)
    assert fast.inputs["deploymentType"] == "PERSISTENT_2"
    assert home.inputs["encrypted"] is True
    assert (home.inputs["throughputMode"], home.inputs["provisionedThroughputInMibps"]) == (
        "provisioned",
        100,
    )
    assert site.names("MountTarget") == ["home-us-east-1a", "home-us-east-1b"]


def test_how_storages_are_mounted() -> None:
    found = {one.name: one for one in declare(inputs_of(document(fixed(), storage=STORAGE))).facts.storages}

    assert found["fast"].source == "LustreFileSystem/fast.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh"
    assert found["old"].source == "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/mnt"
    assert found["old"].id == "fs-0123456789abcdef0"
    assert found["shared"].source == "fs-0123456789abcdef1.efs.us-east-1.amazonaws.com:/"
    assert "nfsvers=4.1" in found["home"].options
