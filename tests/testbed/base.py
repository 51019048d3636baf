"""Base trees: one bare Debian per release, made once by debootstrap and kept in a cache outside the repository.

Comes in: a release. Goes out: a folder that is the read-only lower layer of every host of that release; and a layer to
lie on it, with what roles install on every host, for tests that are not about bare hosts. Called by: bed, machine.

A tree is named by the digest of its recipe, is made in a draft folder and renamed when it is whole, so that a killed
build never counts. It is made again after MOST_AGE_S, since package lists age, and its layer with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.testbed.sources import CODENAMES, Mirror, mirror

RELEASES = tuple(CODENAMES)
USER = "ops"
MOST_AGE_S = 14 * 86400
MADE = "etc/testbed-made"  # says what a tree or a layer was made from; its time is when

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "sudo", "python3", "iproute2", "procps", "ca-certificates",
)  # fmt: skip
# Downloaded, not installed: what roles install on a bare host is then at hand.
AT_HAND = ("chrony", "python3-apt", "nfs-common", "cron", "logrotate")
# On hosts that are not bare: what the role base installs on each (seconds of a processor for each host), and no more.
FURNITURE = ("chrony",)
# They would take apt's lock or work for nothing at a time that no test chose.
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "man-db.timer", "systemd-networkd-wait-online.service", "console-getty.service",
)  # fmt: skip
FILES = {
    # What these hosts install is as old as the archive's own stamp, which some mirrors freeze.
    "etc/apt/apt.conf.d/90testbed": 'Acquire::Check-Valid-Until "false";\nAPT::Install-Recommends "false";\n',
    f"etc/sudoers.d/{USER}": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
    "etc/ssh/sshd_config.d/testbed.conf": "PermitRootLogin no\nPasswordAuthentication no\nUseDNS no\nMaxStartups 100\n",
    "etc/systemd/journald.conf.d/testbed.conf": "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n",
    # The machine's control groups of version 1 come read-only; each host has its own, so it may limit its units.
    "usr/local/sbin/testbed-init": """#!/bin/sh
for each in memory pids devices cpu cpuacct blkio freezer; do
    if [ -d /sys/fs/cgroup/$each ]; then mount -o remount,bind,rw /sys/fs/cgroup/$each; fi
done
exec /lib/systemd/systemd
""",
}


def cache() -> Path:
    """The folder of trees and of running beds; GANGLINE_TESTBED_CACHE moves it."""
    return Path(os.environ.get("GANGLINE_TESTBED_CACHE") or "/var/cache/gangline-testbed")


def digest(release: str) -> str:
    """What identifies the recipe of a release's tree."""
    recipe = [release, PACKAGES, AT_HAND, MASKED, FILES, USER]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]


def tree(release: str) -> Path:
    """The tree of a release (`12`, `13`); made first if there is none or it is too old.

    Making it takes one to two minutes. CalledProcessError with debootstrap's last words where that fails.
    """
    root = cache() / "trees" / f"debian-{release}-{digest(release)}"
    if _good(root):
        return root
    with _locked(root.with_suffix(".lock")):
        if not _good(root):
            draft = _build(release, root.with_suffix(".draft"), mirror())
            if root.exists():
                shutil.rmtree(root)
            draft.rename(root)
    return root


def furnished(release: str) -> Path:
    """The layer with FURNITURE on the release's tree; made first if there is none for the tree of now (seconds)."""
    root = tree(release)
    named = hashlib.sha256(json.dumps([digest(release), FURNITURE]).encode()).hexdigest()[:12]
    layer = root.with_name(f"debian-{release}-furnished-{named}")
    with _locked(layer.with_suffix(".lock")):
        if not _lies_on(layer, root):
            draft = _furnish(root, layer.with_suffix(".draft"))
            if layer.exists():
                shutil.rmtree(layer)
            draft.rename(layer)
    return layer


def trees(releases: Iterable[str] = RELEASES, furnish: bool = False) -> list[Path]:
    """The trees of these releases, and their layers if they are wanted, made side by side where they are missing."""
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(tree, dict.fromkeys(releases)))
        return [*made, *pool.map(furnished, dict.fromkeys(releases if furnish else ()))]


def lower(release: str, furnish: bool) -> str:
    """The lower layers of a host, topmost first, as mount(8) takes them."""
    layers = [furnished(release)] if furnish else []
    return ":".join(map(str, [*layers, tree(release)]))


def _good(root: Path) -> bool:
    """Whether it is there and young enough; one that lies under a running host is never too old."""
    with suppress(FileNotFoundError):
        young = time.time() - (root / MADE).stat().st_mtime < MOST_AGE_S
        return young or f"{root},upperdir=" in Path("/proc/self/mountinfo").read_text()
    return False


def _lies_on(layer: Path, root: Path) -> bool:
    """Whether the layer is there and was made for this very tree."""
    with suppress(FileNotFoundError):
        return (layer / MADE).read_text() == _stamp(root)
    return False


def _stamp(root: Path) -> str:
    return f"{root.name} {(root / MADE).stat().st_mtime_ns}\n"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(release: str, draft: Path, source: Mirror) -> Path:
    if draft.exists():
        shutil.rmtree(draft)
    codename = CODENAMES[release]
    _do(
        "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", codename, str(draft), source.archive
    )  # fmt: skip
    for name, text in FILES.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.startswith("usr/") else 0o440 if "sudoers" in name else 0o644)
    (draft / "etc/apt/sources.list").write_text(source.sources_list(codename))
    shutil.copy("/etc/resolv.conf", draft / "etc/resolv.conf")
    _users_and_units(draft)
    _do("chroot", str(draft), "apt-get", "-qq", "update")
    _do("chroot", str(draft), "apt-get", "-qq", "-y", "--download-only", "install", *AT_HAND)
    for key in (draft / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (draft / "etc/machine-id").write_text("")
    (draft / MADE).write_text(f"{digest(release)}\n")
    return draft


def _furnish(root: Path, draft: Path) -> Path:
    """Install FURNITURE in an overlay on the tree, and keep what that has written."""
    where, work, merged = draft, draft.with_suffix(".work"), draft.with_suffix(".root")
    for folder in (where, work, merged):
        if os.path.ismount(folder):
            _do("umount", str(folder))
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
    _do(
        "mount", "-t", "overlay", "overlay", "-o", f"lowerdir={root},upperdir={where},workdir={work}", str(merged)
    )  # fmt: skip
    try:
        _do("chroot", str(merged), "apt-get", "-qq", "-y", "--no-install-recommends", "install", *FURNITURE)
        (merged / MADE).write_text(_stamp(root))
    finally:
        _do("umount", str(merged))
    shutil.rmtree(work)
    merged.rmdir()
    return draft


def _users_and_units(root: Path) -> None:
    _do("chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", "--uid", "1000", USER)
    units = root / "etc/systemd/system"
    for name in MASKED:
        (units / name).symlink_to("/dev/null")
    wants = units / "multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")


def _do(*argv: str) -> None:
    """Run it to its end; its last words become those of the error."""
    kept = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env={**kept, **proxies}
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {last}")
