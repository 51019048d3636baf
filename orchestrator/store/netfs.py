"""Which file system lies under a path, and whether a ledger may live there.

Comes in: a path, the text of /proc/self/mountinfo (format: proc(5)). Goes out: nothing, or Unavailable for a file
system that other machines can write to. Called by: opening a store, restoring one.

SQLite's WAL mode keeps its index in memory that all writers map, and relies on the locks of one kernel
(https://www.sqlite.org/wal.html, "does not work over a network filesystem"): two machines on one such file destroy it
without an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model.errors import Unavailable

MOUNTINFO = Path("/proc/self/mountinfo")

# File system types as the kernel or the FUSE helper names them. Those of shared block devices (gfs2, ocfs2) and of a
# virtual machine's host (9p, virtiofs, vboxsf) are here too: another machine sees the same file.
_TYPES = """
    9p acfs afs autofs beegfs ceph cifs coda davfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs
    prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs vmhgfs wekafs
"""
_FUSE = """
    afp azurestorage beegfs blobfuse blobfuse2 ceph ceph-fuse curlftpfs davfs davfs2 gcsfuse glusterfs goofys hdfs
    juicefs lizardfs mfs moosefs mount-s3 nfs objectivefs rclone s3backer s3fs s3ql saunafs seaweedfs smbnetfs sshfs
    vmhgfs-fuse
"""
NETWORK_TYPES = frozenset(_TYPES.split())
NETWORK_FUSE = frozenset(_FUSE.split())

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: its id, the mount it is on, where it is mounted, its type, and what is mounted."""

    id: str
    parent: str
    point: str
    type: str
    source: str

    @property
    def network(self) -> bool:
        """Whether another machine may write to the same files."""
        name, _, helper = self.type.partition(".")
        if name == "fuse":
            return (helper or self.source.partition("#")[0]) in NETWORK_FUSE
        return name in NETWORK_TYPES


def mount_of(path: str, mountinfo: str) -> Mount | None:
    """The mount that an absolute path without symbolic links lies on; None if the text has none for it.

    Found as the kernel walks: from the root's mount to the first one mounted on it on the way, and so on. Neither the
    order of lines nor the longest name would do: an initial RAM disk mounts the root late, and a mount may hide others.
    """
    mounts = [
        mount for line in mountinfo.splitlines() if (mount := _parse(line)) and _contains(mount.point, path)
    ]
    known = {mount.id for mount in mounts}
    on_the_way = [mount for mount in mounts if mount.parent not in known or mount.parent == mount.id]
    found = None
    while on_the_way:
        found = min(reversed(on_the_way), key=lambda mount: len(mount.point))
        mounts.remove(found)
        on_the_way = [mount for mount in mounts if mount.parent == found.id]
    return found


def refuse_network(path: Path, mountinfo: str | None = None) -> None:
    """Unavailable `ledger.network-filesystem` if `path`, which need not exist yet, lies on one."""
    place = _nearest(path)
    text = _read_mountinfo() if mountinfo is None else mountinfo
    mount = mount_of(str(place), text)
    if mount is None or not mount.network:
        return
    raise Unavailable(
        "ledger.network-filesystem",
        f"the ledger can't live in {path}: that is a {mount.type} file system ({mount.source} on {mount.point}),"
        " which other machines can write to, and SQLite's locks and shared memory do not reach them",
        hint="choose a directory on a local disk (`controller.state` in the spec, or GANGLINE_HOME)",
        path=str(path),
    )


def _nearest(path: Path) -> Path:
    """The deepest part of the path that exists, links resolved; looking at it also wakes an automounter."""
    whole = Path(os.path.realpath(path))
    return next((place for place in (whole, *whole.parents) if place.exists()), Path("/"))


def _read_mountinfo() -> str:
    try:
        return MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""  # no /proc: nothing can be said, and refusing all would help nobody


def _contains(point: str, path: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def _parse(line: str) -> Mount | None:
    """Fields: id parent major:minor root POINT options [optional ...] - TYPE SOURCE super-options."""
    left, separator, right = line.partition(" - ")
    fields, rest = left.split(" "), right.split(" ")
    if not separator or len(fields) < 6 or len(rest) < 2:
        return None
    return Mount(fields[0], fields[1], _unescape(fields[4]), rest[0], _unescape(rest[1]))


def _unescape(text: str) -> str:
    """Space, tab, newline and backslash stand as three octal digits; other bytes stand for themselves."""
    return _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), text)
