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
    """One line of mountinfo: where it is mounted, its type, and what is mounted."""

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
    """The mount that an absolute path without symbolic links lies on; None if the text has none for it."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        mount = _parse(line)
        if mount is None or not _contains(mount.point, path):
            continue
        # A later mount on the same point or above it hides an earlier one.
        if found is None or len(mount.point) >= len(found.point) or _contains(mount.point, found.point):
            found = mount
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
    return Mount(_unescape(fields[4]), rest[0], _unescape(rest[1]))


def _unescape(text: str) -> str:
    """Space, tab, newline and backslash stand as three octal digits; other bytes stand for themselves."""
    return _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), text)
