"""A ledger is refused where other machines can write to its file: tables of mounts as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.store import netfs
from orchestrator.store.open import open_store
from orchestrator.store.restore import restore

LOCAL = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:22 / /run/lock rw - tmpfs tmpfs rw
25 22 254:16 /sub /srv/data rw,noatime shared:2 master:1 - xfs /dev/vdb rw
"""


def _mounts(*lines: str) -> str:
    """LOCAL and more mounts with the ids 40, 41, ..., on its root."""
    numbered = (f"{n} 22 0:{n} / {line}" for n, line in enumerate(lines, start=40))
    return LOCAL + "\n".join(numbered) + "\n"


# As after a boot with an initial RAM disk: the root was mounted after /proc and /data, and moved under them.
MOVED_ROOT = """\
22 28 0:21 / /proc rw shared:14 - proc proc rw
23 28 0:40 / /data rw - nfs4 nas:/data rw
28 1 253:0 / / rw shared:1 - xfs /dev/vda2 rw
30 28 253:1 / /home rw - ext4 /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "mountinfo", "kind"),
    [
        ("/var/lib/gangline", LOCAL, "ext4"),
        ("/srv/data/x", LOCAL, "xfs"),
        ("/srv/database", LOCAL, "ext4"),  # a common beginning of names is no common folder
        ("/srv/data", LOCAL, "xfs"),
        ("/run/lock", LOCAL, "tmpfs"),
        ("/home/a", _mounts("/home rw - nfs4 nas1:/home rw"), "nfs4"),
        (
            "/home/a/b",
            _mounts("/home rw - nfs nas:/h rw") + "50 40 8:1 / /home/a rw - ext4 /dev/vdc rw",
            "ext4",
        ),
        ("/home/b", _mounts("/home rw - nfs nas:/h rw") + "50 40 8:1 / /home/a rw - ext4 /dev/vdc rw", "nfs"),
        (
            "/home/a",
            _mounts("/home rw - ext4 /dev/vdc rw") + "50 40 0:9 / /home rw - nfs nas:/h rw",
            "nfs",
        ),  # on top
        (
            "/home/a/b",
            _mounts("/home/a rw - ext4 /dev/vdc rw", "/home rw - nfs nas:/h rw"),
            "nfs",
        ),  # it hides
        ("/data/x", MOVED_ROOT, "nfs4"),
        ("/home/x", MOVED_ROOT, "ext4"),
        ("/var", MOVED_ROOT, "xfs"),
        ("/my disk/a", _mounts(r"/my\040disk rw - cifs //nas/my\040disk rw"), "cifs"),
        ("/back\\slash", _mounts(r"/back\134slash rw - lustre x rw"), "lustre"),
        ("/opt", _mounts("/opt rw shared:9 master:3 propagate_from:2 - ceph 10.0.0.1:/ rw"), "ceph"),
        ("/opt", "nonsense\n\n1 2 3\n" + LOCAL, "ext4"),
    ],
)
def test_the_mount_that_a_path_lies_on(path: str, mountinfo: str, kind: str) -> None:
    mount = netfs.mount_of(path, mountinfo)
    assert mount is not None
    assert mount.type == kind


def test_without_a_mount_nothing_is_said() -> None:
    assert netfs.mount_of("/a", "") is None
    netfs.refuse_network(Path("/"), "")


@pytest.mark.parametrize(
    ("kind", "source", "network"),
    [
        *(
            (name, "server:/x", True)
            for name in ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs")
        ),
        *((name, "tag", True) for name in ("9p", "virtiofs", "vboxsf", "afs", "gfs2", "ocfs2", "autofs")),
        *(
            (f"fuse.{name}", "user@host:/x", True)
            for name in ("sshfs", "glusterfs", "s3fs", "rclone", "juicefs")
        ),
        ("fuse", "sshfs#user@host:/x", True),  # the old way to name the helper
        *(
            (name, "/dev/sda1", False)
            for name in ("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk")
        ),
        ("fuse.bindfs", "/a", False),
        ("fuse.gocryptfs", "/a", False),
        ("fuse", "/dev/fuse", False),
    ],
)
def test_which_file_systems_are_of_the_network(kind: str, source: str, network: bool) -> None:
    mount = netfs.mount_of("/x/y", f"1 0 0:1 / /x rw - {kind} {source} rw")
    assert mount is not None
    assert mount.network is network


def test_the_error_names_path_type_source_and_what_to_do(tmp_path: Path) -> None:
    mountinfo = _mounts(f"{tmp_path.resolve()} rw - nfs4 nas1:/home rw")
    with pytest.raises(Unavailable) as caught:
        netfs.refuse_network(tmp_path / "new" / "state", mountinfo)
    assert caught.value.code == "ledger.network-filesystem"
    assert str(tmp_path / "new" / "state") in caught.value.message
    assert "nfs4 file system (nas1:/home on" in caught.value.message
    assert "local disk" in caught.value.hint


def test_a_link_is_followed_to_where_the_file_would_be(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mountinfo = _mounts(f"{(tmp_path / 'far').resolve()} rw - cifs //nas/x rw")
    with pytest.raises(Unavailable, match="cifs"):
        netfs.refuse_network(tmp_path / "near" / "state", mountinfo)
    netfs.refuse_network(tmp_path / "state", mountinfo)


def test_neither_open_nor_restore_touch_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(_mounts(f"{tmp_path.resolve()} rw - nfs nas:/x rw"))
    monkeypatch.setattr(netfs, "MOUNTINFO", mountinfo)
    with pytest.raises(Unavailable, match="nfs"):
        open_store(tmp_path / "state")
    with pytest.raises(Unavailable, match="nfs"):
        restore(tmp_path / "backup", tmp_path / "state", 0)
    assert not (tmp_path / "state").exists()
