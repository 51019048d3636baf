"""A package repository on a host itself, with two versions of each package: nothing outside has old versions for ever.

Comes in: names. Goes out: the shell script, run as root on a host, that makes it. Called by: tests of hosts whose
packages are pinned, held, upgraded and downgraded.
"""

from __future__ import annotations

REPOSITORY = "/srv/repo"
OLD, NEW = "1.0", "2.0"

_SCRIPT = r"""
set -e
mkdir -p FOLDER && cd FOLDER
for name in NAMES; do for version in OLD NEW; do
  rm -rf tree && mkdir -p tree/DEBIAN
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: t\nDescription: t\n' $name $version \
    > tree/DEBIAN/control
  dpkg-deb --build tree ${name}_$version.deb > /dev/null
done; done
for file in *.deb; do
  dpkg-deb --field $file
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $file $(stat -c %s $file) $(sha256sum < $file | cut -d' ' -f1)
done > Packages
echo 'deb [trusted=yes] file:FOLDER ./' > /etc/apt/sources.list.d/own.list
"""


def repository(*names: str) -> str:
    """The script for packages of these names, each in versions OLD and NEW, with nothing in them."""
    script = _SCRIPT.replace("FOLDER", REPOSITORY).replace("NAMES", " ".join(names))
    return script.replace("OLD", OLD).replace("NEW", NEW)
