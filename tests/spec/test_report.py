"""How faults look: line, caret and hint as DESIGN section 7 shows them, on any line and any terminal.

Comes in: faulty texts. Goes out: proof of the exact text, of caret columns, and that nothing in a file acts on a
terminal.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator import spec
from orchestrator.spec import context, reading
from orchestrator.spec.report import SpecError, render
from tests.spec.said import HEAD, SITE, cluster_errors, write


def test_an_error_reads_as_designed() -> None:
    text = dedent("""\
        apiVersion: gangline/v1
        kind: Cluster
        metadata: {name: c}
        sites: [{name: here, kind: local}]
        pools:
          - name: h100
            site: here
            nodes: n1
            gpuz: 4
        """)
    assert render(cluster_errors(text)) == dedent("""\
        cluster.yaml:9:5: pools[h100].gpuz: unknown field [spec.unknown-field]
          9 |     gpuz: 4
            |     ^^^^
          hint: did you mean 'gpu'?""")


def caret(text: str) -> tuple[str, str]:
    """The shown line and the caret line of the only error of a text, without their gutters."""
    lines = render(cluster_errors(HEAD + text)).split("\n")
    return lines[1].split(" | ", 1)[1], lines[2].split(" | ", 1)[1]


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ("sites: []\npools: []\nstorage: 5\n", "5"),
        ("sites: []\npools: []\nstorage: [{name: é, kind: nfs}]\n", ""),
        ("sites: []\npools: [{name: p, site: 'no where', nodes: a}]\n", "'no where'"),
        ('sites: []\npools: []\n"qu\\u0065uez": []\n', '"qu\\u0065uez"'),
        ("{}: x\nsites: []\npools: []\n", ""),
    ],
)
def test_the_caret_underlines_the_token(body: str, marked: str) -> None:
    if not marked:
        assert cluster_errors(HEAD + body)
        return
    line, under = caret(body)
    start = under.index("^")
    assert line[start : start + under.count("^")] == marked


def test_wide_characters_and_tabs_keep_the_caret_in_place() -> None:
    line, under = caret(
        "sites: []\npools: []\nbudgets: [{name: '日本'\t, nmae: x, usd_per_hour: 1}]\n".replace("'日本'", "b")
    )
    assert line.index("nmae") == under.index("^")
    error = SpecError("f", 1, 5, "", "spec.x", "m", length=2, source="日本\t: ab".replace(": ", ""), cut=0)
    shown = render([error]).split("\n")
    # two wide characters take four columns, the tab four more
    assert shown[1] == "  1 | 日本    ab"
    assert shown[2] == "    | " + " " * 9 + "^" or shown[2].index("^") == len("    | ") + 8 + 1


def test_a_long_line_is_cut_around_the_fault() -> None:
    labels = ", ".join(f"l{number}: 'x'" for number in range(300))
    text = (
        SITE
        + f"pools: [{{name: p, site: here, nodes: a, labels: {{{labels}, bad: 5, {labels.replace('l', 'm')}}}}}]\n"
    )
    line, under = caret(text)
    assert len(line) < 130
    assert line.startswith("…")
    assert line.endswith("…")
    assert line[under.index("^")] == "5"


EVIL_BODIES = [
    'sites: []\npools: []\n"{quoted}": 1\n',
    'sites: []\npools: [{{name: "{quoted}", site: "{quoted}", nodes: "{quoted}"}}]\n',
    'sites: [{{name: a, kind: "{quoted}"}}]\npools: []\nqueues: [{{name: q, parent: "x{quoted}"}}]\n',
    'sites: []\npools: []\naccess: {{groups: {{"{quoted}": {{posix: "{quoted}"}}}}}}\n',
    "sites: []\npools: []\nx: {raw} y\n",
    "sites: []\npools: []\nx: !{raw} y\n",
    "sites: []\npools: []\nx: *a{raw}\n",
]


@pytest.mark.parametrize("evil", ["\x1b[31m", "\u202e", "\u2066", "\x07", "\x9b"])
@pytest.mark.parametrize("body", EVIL_BODIES)
def test_nothing_in_a_file_acts_on_the_terminal(evil: str, body: str) -> None:
    quoted = "".join(f"\\u{ord(char):04x}" for char in evil)
    text = HEAD + body.format(quoted=quoted, raw=evil)
    errors = spec.load_cluster_text(text, f"clu{evil}ster.yaml").errors
    told = render(errors)
    assert errors
    assert evil not in told
    assert all(evil not in field for one in errors for field in (one.path, one.message, one.hint))


def test_errors_of_one_file_come_in_the_order_of_places() -> None:
    errors = cluster_errors(
        "kind: Cluster\nzz: 1\nmetadata: {name: '-'}\nqq: 2\napiVersion: gangline/v1\nsites: 5\npools: {}\n"
    )
    assert [one.line for one in errors] == sorted(one.line for one in errors)
    assert len(errors) == 5


def test_a_thousand_errors_are_enough() -> None:
    errors = cluster_errors(
        HEAD + "sites: []\npools: []\n" + "".join(f"x{number}: 1\n" for number in range(1500))
    )
    assert len(errors) == 1001
    assert errors[-1].code == "spec.more-faults"
    assert errors[-1].message == "500 more faults are not listed"


def test_faults_that_are_not_told_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a look for what was meant: 18,000 in one body of a client held the server for three seconds."""
    asked = [0]

    def counted(*_: object) -> str:
        asked[0] += 1
        return ""

    monkeypatch.setattr(reading, "did_you_mean", counted)
    monkeypatch.setattr(context, "suggestion", counted)
    unknown = HEAD + "sites: []\npools: []\n" + "".join(f"x{number}: 1\n" for number in range(3000))
    assert cluster_errors(unknown)[-1].message == "2000 more faults are not listed"
    assert asked[0] <= 1000
    asked[0] = 0
    queues = "".join(f"  - {{name: q{number}, parent: x{number}}}\n" for number in range(3000))
    assert cluster_errors(HEAD + "sites: []\npools: []\nqueues:\n" + queues)[-1].code == "spec.more-faults"
    assert 1000 < asked[0] <= 1001


@pytest.mark.parametrize(
    "line",
    [
        "    ssh: {key: hunter2}",
        "    ssh: {key: 400200}",
        "    ssh: {user: 7, password: hunter2}",
        "    ssh: {'password': 'hunter2 hunter2', user: 7}",
        '    ssh: {passphrase: "hun}ter2", user: 7}',
        "    ssh: {api_token: hunter2, user: 7} # hi",
        "    ssh: {become_pass: hunter2}",
    ],
)
def test_no_secret_of_a_line_is_repeated_beside_its_fault(line: str) -> None:
    errors = spec.load_cluster_text(
        HEAD + f"sites:\n  - name: a\n    kind: metal\n{line}\npools: []\n", "c"
    ).errors
    text = spec.render(errors)
    assert errors
    for part in ("hunter2", "hun}ter2", "400200"):
        assert part not in text
    assert "*****" in text


def test_references_and_other_values_are_shown_as_they_are() -> None:
    body = (
        "sites:\n  - {name: a, kind: metal, ssh: {userr: u, password: 'env:PW', token: file:/x}}\npools: []\n"
    )
    text = spec.render(spec.load_cluster_text(HEAD + body, "c").errors)
    assert "password: 'env:PW', token: file:/x" in text
    assert "*" not in text


def test_no_secret_of_an_inventory_is_repeated(tmp_path: Path) -> None:
    sites = "sites: [{name: hall, kind: metal, inventory: hosts.yml}]\npools: []\n"
    values = ("bmc_password: hunter2", "bmc_password: 400200", "ansible_password: hunter2")
    hosts = "all:\n  hosts:\n" + "".join(f"    h{number}: {{{one}}}\n" for number, one in enumerate(values))
    path = write(tmp_path, cluster_yaml=HEAD + sites, hosts_yml=hosts)
    text = spec.render(spec.load_cluster(path).errors)
    assert text.count("spec.bad-secret") == 2
    assert "hunter2" not in text
    assert "400200" not in text
