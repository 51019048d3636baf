"""The testbed finds this machine's own Debian mirror in either of apt's two forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed.sources import Mirror, NoMirror, mirror

DEB822 = """Types: deb
# a comment between fields
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/some.gpg

Types: deb deb-src
URIs: http://mirror.test/security
Suites:
 bookworm-security
Components: main
"""
ONE_LINE = """# deb http://old.test/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian trixie main contrib
deb http://mirror.test/security trixie-security main
deb-src http://source.test/debian trixie main
"""
WANTED = Mirror("http://mirror.test/debian", "http://mirror.test/security")


def _apt(tmp_path: Path, **files: str) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    for name, text in files.items():
        (tmp_path / name.replace("__", "/").replace("_", ".")).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"sources.list.d__debian_sources": DEB822}, id="deb822"),
        pytest.param({"sources_list": ONE_LINE}, id="one-line"),
        pytest.param({"sources.list.d__debian_list": ONE_LINE}, id="one-line in a part"),
        pytest.param(
            {
                "sources.list.d__a_sources": "Types: deb\nURIs: http://tool.test/apt\nSuites: stable-tool nodistro\n",
                "sources.list.d__b_sources": DEB822.replace("mirror", "off").replace(
                    "Types:", "Enabled: no\nTypes:"
                ),
                "sources.list.d__c_sources": DEB822,
            },
            id="past other vendors and what is switched off",
        ),
    ],
)
def test_the_machines_own_mirror(tmp_path: Path, files: dict[str, str]) -> None:
    assert mirror(_apt(tmp_path, **files)) == WANTED


def test_a_machine_without_a_debian_source(tmp_path: Path) -> None:
    apt = _apt(tmp_path, sources_list="deb http://mirror.test/ubuntu noble main\n")

    with pytest.raises(NoMirror, match="no apt source"):
        mirror(apt)


def test_sources_of_a_host_follow_its_own_release() -> None:
    assert WANTED.sources_list("trixie").splitlines() == [
        "deb http://mirror.test/debian trixie main",
        "deb http://mirror.test/debian trixie-updates main",
        "deb http://mirror.test/security trixie-security main",
    ]
    assert "security" not in Mirror("http://mirror.test/debian").sources_list("bookworm")
