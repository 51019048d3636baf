"""`plan`, `apply` and `drift` as people type them: bad words, what is printed, exit codes.

Comes in: a cluster file of one metal site, no controller and no host. Goes out: proof of the texts and codes that CI
and people go by.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli import change_cmd, changing, choices, looking
from orchestrator.cli.change_cmd import _check_saved, as_document
from orchestrator.model.apply import Outcome
from orchestrator.model.change import (
    Change,
    ChangeKind,
    ChangeSet,
    PlanStep,
    Source,
    StepKind,
    UpdateClass,
    WorkEffect,
    WorkFate,
)
from orchestrator.model.cluster import ClusterSpec, Pool, Site, SiteKind
from orchestrator.model.errors import InputError, Refused
from orchestrator.model.host import Desired, Drift, ItemKind, PoolDesired, Sight, Step
from orchestrator.model.stack_sight import StackOp, StackRow, StackSight
from orchestrator.planning.world import NodeNow, Recorded
from orchestrator.provision.applying import Report
from tests.cli.conftest import Said

Run = Callable[..., Said]

CLUSTER = """apiVersion: gangline/v1
kind: Cluster
metadata: {name: lab}
controller: {address: "https://10.0.0.9:7443"}
sites: [{name: hall, kind: metal}]
pools: [{name: p, site: hall, nodes: "h[1-3]", gpu: {model: H100-SXM5-80GB, count: 8}}]
"""
OVER = CLUSTER + "queues: [{name: q, guarantee: [{pool: p, gpus: 99}]}]\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    return path


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--limit", "--accept-host-key"])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("h[1", "cli.bad-hosts"),
        ("h1,,h2", "cli.bad-hosts"),
        ("h4", "apply.unknown-host"),
        ("h1,h4", "apply.unknown-host"),
    ],
)
def test_what_names_no_host_is_refused(gangline: Run, file: Path, option: str, value: str, code: str) -> None:
    said = gangline("plan", "c.yaml", "--no-look", option, value)
    assert (said.code, said.out) == (2, "")
    assert f"[{code}]" in said.err


def test_an_unknown_host_is_answered_with_the_nearest(gangline: Run, file: Path) -> None:
    assert "did you mean 'h3'?" in gangline("plan", "c.yaml", "--no-look", "--limit", "h33").err


@pytest.mark.parametrize(
    "skips",
    [
        ("--skip", "guarantee-over-capacity"),
        ("--skip", "spec.guarantee-over-capacity"),
        ("--skip", "guarantee-over-power, guarantee-over-capacity"),
        ("--skip", "guarantee-over-power", "--skip", "guarantee-over-capacity"),
        ("--skip", "minimum-over-budget", "--skip", "guarantee-over-power,guarantee-over-capacity"),
    ],
)
@pytest.mark.parametrize("verb", [("validate",), ("plan", "--no-look")])
def test_a_check_is_left_out_by_name(
    gangline: Run, file: Path, skips: tuple[str, ...], verb: tuple[str, ...]
) -> None:
    file.write_text(OVER)
    assert gangline(*verb, "c.yaml").code == 2
    assert gangline(*verb, "c.yaml", *skips).code == 0


def test_a_check_that_is_left_out_is_not_called_passed(gangline: Run, file: Path) -> None:
    file.write_text(OVER)
    said = gangline("validate", "c.yaml", "--skip", "guarantee-over-capacity")
    assert said.err == "not checked: guarantee-over-capacity\n"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("guarantee-over-powr", "did you mean 'guarantee-over-power'?"),
        ("guarantee-over-power,zebra", "known: guarantee-over-capacity"),
        ("unknown-field", "known: "),
        ("all", "known: "),
    ],
)
def test_a_check_that_is_none_or_may_not_be_left_out_is_refused(
    gangline: Run, file: Path, value: str, hint: str
) -> None:
    said = gangline("validate", "c.yaml", "--skip", value)
    assert (said.code, said.out) == (2, "")
    assert "[cli.unknown-check]" in said.err
    assert hint in said.err


def test_other_checks_stay(gangline: Run, file: Path) -> None:
    file.write_text(OVER.replace("site: hall,", "site: hull,"))
    said = gangline("validate", "c.yaml", "--skip", "guarantee-over-capacity")
    assert (said.code, "spec.dangling-reference" in said.out) == (2, True)


@pytest.mark.parametrize("verb", ["plan", "apply", "drift", "render", "destroy", "up"])
def test_every_verb_tells_all_faults_of_the_file_and_acts_on_nothing(
    gangline: Run, file: Path, verb: str
) -> None:
    file.write_text(CLUSTER.replace("gpu:", "gpuz:").replace("kind: metal", "kind: metl"))
    more = ("--out", "folder") if verb == "render" else ()
    said = gangline(verb, "c.yaml", *more)
    assert (said.code, said.out) == (2, "")
    assert "gpuz: unknown field" in said.err
    assert "'metl'" in said.err
    assert sorted(path.name for path in file.parent.iterdir()) == ["c.yaml"]


# --- consents ---------------------------------------------------------------------------------------------------------


def planned(*consents: str) -> ChangeSet:
    changes = tuple(
        Change("x", ChangeKind.REMOVED, UpdateClass.DESTROYS, Source.SPEC, "a", "", consent=consent)
        for consent in consents
    )
    return ChangeSet("lab", "w", "r", "o", changes)


def test_a_consent_that_nothing_asks_for_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """And no error: the second run of an apply that was killed has the same words, and less to do."""
    choices.tell_needless(("storage/hom", "host/h1"), planned("storage/home", "host/h1"))
    said = capsys.readouterr().err
    assert said == "--consent storage/hom: nothing in this plan asks for it; did you mean 'storage/home'?\n"


def test_a_consent_to_what_a_site_would_lose_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        StackRow(StackOp.DELETE, "aws:fsx/lustreFileSystem:LustreFileSystem", "fast", data=True),
        StackRow(StackOp.REPLACE, "aws:ec2/instance:Instance", "controller"),
    )
    plan = replace(planned(), stacks=(StackSight("use1", rows),))
    choices.tell_needless(("storage/fast", "controller/instance"), plan)
    assert capsys.readouterr().err == ""


# --- how an apply ended -----------------------------------------------------------------------------------------------

SPEC = ClusterSpec("lab", sites=(Site("hall", SiteKind.METAL),), pools=(Pool("p", "hall", ("h1", "h2")),))


def ended(
    monkeypatch: pytest.MonkeyPatch,
    report: Report,
    unseen: tuple[str, ...] = (),
    changes: tuple[Change, ...] = (),
    quiet: bool = False,
    blockers: tuple[str, ...] = (),
) -> int:
    """The exit code of an apply with one step that came to this."""

    class Applier:
        def run(self, plan: ChangeSet) -> Report:
            return report

    monkeypatch.setattr(changing, "applier", lambda *_: Applier())
    step = PlanStep("record", StepKind.RECORD, "the file")
    plan = ChangeSet("lab", "w", "r", "o", changes, steps=(step,), unseen=unseen, blockers=blockers)
    look: Any = changing.Look(SPEC, Path(), None, None, plan)  # type: ignore[arg-type]
    client: Any = None
    return change_cmd.carry_out(look, client, "", yes=True, quiet=quiet)


def test_what_is_not_done_has_its_own_code_and_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"h1": "no route to host", "h2": "dpkg is locked"}
    report = Report("apply-3", Outcome.PARTIAL, failed, ["p.2.configure"], ["p"])
    assert ended(monkeypatch, report) == 4
    said = capsys.readouterr().err
    assert "h1: no route to host\nh2: dpkg is locked\n" in said
    assert "0 of 1 pool as wanted; not done: 1 step" in said
    assert "run it again when the reasons above are gone" in said


def test_enough_good_hosts_are_enough_and_the_bad_ones_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, Report("apply-3", Outcome.DONE, {"h1": "no route to host"})) == 0
    assert "h1: no route to host" in capsys.readouterr().err


def test_a_host_that_nobody_could_look_at_is_not_called_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, Report("apply-3")) == 0
    assert "1 of 1 pool as wanted\n" in capsys.readouterr().err
    assert ended(monkeypatch, Report("apply-3"), unseen=("h2: tcp: no answer",)) == 4
    assert "1 of 1 pool as wanted, but for 1 that could not be looked at\n" in capsys.readouterr().err


def test_a_refused_plan_is_shown_and_not_carried_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused, match="gone for good"):
        ended(monkeypatch, Report("apply-3"), blockers=("storage[home]: gone for good",))
    assert "apply would refuse this:\n  ! storage[home]: gone for good" in capsys.readouterr().err


@pytest.mark.parametrize(("unseen", "code"), [((), 0), (("h2: tcp: no answer",), 4)])
def test_nothing_to_change_says_whether_all_were_looked_at(unseen: tuple[str, ...], code: int) -> None:
    class Client:
        def applies(self) -> list[Any]:
            return []

    plan = ChangeSet("lab", "w", "r", "o", unseen=unseen)
    look: Any = changing.Look(SPEC, Path(), None, None, plan)  # type: ignore[arg-type]
    client: Any = Client()
    assert change_cmd.carry_out(look, client, "", yes=True) == code


# --- which commit it is -----------------------------------------------------------------------------------------------


def test_an_apply_says_which_commit_its_file_is_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whether the folder differs from it; nothing where there is no repository."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(file.parent.parent))
    assert changing.commit_of("c.yaml") == ""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    assert changing.commit_of("c.yaml") == ""
    git("add", ".")
    git("commit", "-q", "-m", "x")
    head = git("rev-parse", "--short=12", "HEAD")
    assert changing.commit_of("c.yaml") == head
    file.write_text(CLUSTER + "# another\n")
    assert changing.commit_of("c.yaml") == f"{head}+"


@pytest.mark.parametrize(("typed", "code"), [("lab", 0), ("labs", 5)])
def test_a_destroy_is_shown_before_the_name_is_asked_for(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch, typed: str, code: int
) -> None:
    said: list[str] = []
    plan = ChangeSet("lab", "w", "r", "o", steps=(PlanStep("record", StepKind.RECORD, "the file"),))
    look: Any = changing.Look(SPEC, Path(), None, None, plan)  # type: ignore[arg-type]

    def answer(text: str, **_: Any) -> str:
        said.append(text)
        return typed

    def carried_out(*_: Any, quiet: bool, **__: Any) -> int:
        said.append(f"quiet {quiet}")
        return 0

    monkeypatch.setattr(change_cmd, "client_or_none", lambda _: object())
    monkeypatch.setattr(changing, "look_without_nodes", lambda *_: look)
    monkeypatch.setattr(change_cmd, "_tell_plan", lambda shown: said.append(shown.cluster))
    monkeypatch.setattr(change_cmd, "carry_out", carried_out)
    monkeypatch.setattr("click.prompt", answer)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    ended = gangline("destroy", "c.yaml")
    assert ended.code == code
    assert said[:2] == ["lab", "Type the name of the cluster (lab)"]
    assert said[2:] == ([] if code else ["quiet True"])
    assert "run it again" not in ended.err, "nothing was begun"


# --- which hosts are looked at ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "looked"),
    [(None, ["h1", "h2", "h3"]), ("h2", ["h2"]), ("h[1-2]", ["h1", "h2"])],
)
@pytest.mark.parametrize("verb", ["plan", "drift"])
def test_only_the_hosts_that_are_meant_are_looked_at(
    gangline: Run,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    limit: str | None,
    looked: list[str],
) -> None:
    asked: list[str] = []

    class Hosts:
        def sights(self, names: list[str]) -> list[Sight]:
            asked.extend(names)
            return [seen(name) for name in names]

    monkeypatch.setattr(looking, "hosts_for", lambda *_, **__: Hosts())
    only = () if limit is None else ("--limit", limit)
    assert gangline(verb, "c.yaml", *only).code == 0
    assert asked == looked


@pytest.mark.parametrize(
    ("out", "code", "words"),
    [("nowhere/plan.json", 2, "nowhere is not there"), ("/dev/full", 1, "No space left on device")],
)
def test_a_plan_that_can_not_be_saved_is_told(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch, out: str, code: int, words: str
) -> None:
    class Hosts:
        def sights(self, names: list[str]) -> list[Sight]:
            assert code != 2, "hosts were asked for a plan that nobody can have"
            return [seen(name) for name in names]

    monkeypatch.setattr(looking, "hosts_for", lambda *_, **__: Hosts())
    said = gangline("plan", "c.yaml", "--out", out)
    assert (said.code, words in said.err) == (code, True), said


# --- saved plans ------------------------------------------------------------------------------------------------------

CHANGE = Change("queues[a].weight", ChangeKind.CHANGED, UpdateClass.CONTROLLER, Source.SPEC, "1", "2")
RECORD = PlanStep("record", StepKind.RECORD, "the file")
REVIEWED = ChangeSet("lab", "w", "r", "o", (CHANGE,), (RECORD,))


def applied_after(
    gangline: Run, monkeypatch: pytest.MonkeyPatch, before: ChangeSet, now: ChangeSet
) -> tuple[Said, list[ChangeSet]]:
    """`plan --out` in one world and `apply --plan` in another; what was carried out."""
    done: list[ChangeSet] = []

    class Applier:
        def run(self, plan: ChangeSet) -> Report:
            done.append(plan)
            return Report("apply-3")

    def seeing(plan: ChangeSet) -> Callable[..., Any]:
        return lambda *_, **__: changing.Look(SPEC, Path(), None, None, plan)  # type: ignore[arg-type]

    monkeypatch.setattr(change_cmd, "client_or_none", lambda *_, **__: object())
    monkeypatch.setattr(changing, "applier", lambda *_: Applier())
    monkeypatch.setattr(changing, "look", seeing(before))
    assert gangline("plan", "c.yaml", "--out", "plan.json").code == 0
    monkeypatch.setattr(changing, "look", seeing(now))
    return gangline("apply", "c.yaml", "--plan", "plan.json", "--yes"), done


def test_a_saved_plan_applies_while_the_world_is_as_it_was(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs come and go: what they mean for the plan is shown anew, and no reason to review it again."""
    now = replace(REVIEWED, work=(WorkEffect(7, "alice", WorkFate.DRAINED, ("h1",), 0, "it ends"),))
    said, done = applied_after(gangline, monkeypatch, REVIEWED, now)
    assert (said.code, done) == (0, [now])


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        (replace(REVIEWED, wanted="x"), "the file changed"),
        (replace(REVIEWED, recorded="x"), "what was recorded changed"),
        (replace(REVIEWED, observed="x"), "what is on the hosts changed"),
        (replace(REVIEWED, wanted="x", observed="x"), "the file and what is on the hosts changed"),
        (replace(REVIEWED, changes=(CHANGE, replace(CHANGE, source=Source.GANGLINE))), "another version"),
        (replace(REVIEWED, desired=(PoolDesired("p", "d", Desired(())),)), "another version"),
    ],
)
def test_a_saved_plan_of_another_world_is_refused(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch, now: ChangeSet, moved: str
) -> None:
    said, done = applied_after(gangline, monkeypatch, REVIEWED, now)
    assert (said.code, done) == (1, [])
    assert "[apply.stale-plan]" in said.err
    assert moved in said.err


def test_what_is_no_saved_plan_is_refused(gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_cmd, "client_or_none", lambda *_, **__: object())
    monkeypatch.setattr(
        changing,
        "look",
        lambda *_, **__: changing.Look(SPEC, Path(), None, None, REVIEWED),  # type: ignore[arg-type]
    )
    for text in ("", "{}", '{"kind": "Plan"}', '{"apiVersion": "gangline/v1", "kind": "Plan"}'):
        Path("plan.json").write_text(text)
        said = gangline("apply", "c.yaml", "--plan", "plan.json", "--yes")
        assert (said.code, "[apply.bad-plan]" in said.err) == (2, True), text


# --- what Gangline wants by itself ------------------------------------------------------------------------------------


def test_what_this_version_wants_can_be_put_off(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = changing.read("c.yaml")
    (now,) = changing.means_of(spec, changing.state_of(spec)).desired
    (first, *others) = now.desired.roles
    older = PoolDesired("p", "d", Desired((replace(first, items=first.items[1:]), *others)))
    recorded = Recorded(spec, (older,), tuple(NodeNow(name) for name in ("h1", "h2", "h3")))
    monkeypatch.setattr(changing, "recorded_of", lambda _: recorded)

    said = [
        gangline("plan", "c.yaml", "--no-look", "--detailed-exitcode", *more) for more in ((), ("--defer",))
    ]

    assert [one.code for one in said] == [3, 0]
    assert "can wait" not in said[0].out
    assert "nothing to change now" in said[1].out
    assert "can wait" in said[1].out


@pytest.mark.parametrize("verb", ["plan", "apply", "up"])
def test_each_verb_that_plans_can_put_it_off(gangline: Run, verb: str) -> None:
    assert "--defer" in gangline(verb, "--help").out


@pytest.mark.parametrize(("source", "shown"), [(Source.GANGLINE, True), (Source.SPEC, False)])
def test_what_gangline_wants_by_itself_is_never_carried_out_unseen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: Source, shown: bool
) -> None:
    """Also by `up`, which does not ask where no work is disturbed."""
    change = Change("pool[p].unit[x].active", ChangeKind.CHANGED, UpdateClass.IN_PLACE, source, "no", "yes")
    assert ended(monkeypatch, Report("apply-3"), changes=(change,), quiet=True) == 0
    assert ("unit[x].active: no -> yes" in capsys.readouterr().err) is shown


# --- drift ------------------------------------------------------------------------------------------------------------


def seen(host: str, *drift: Drift) -> Sight:
    return Sight(host, Step.DONE, checked=True, drift=drift)


SYSCTL = Drift("base", ItemKind.SYSCTL, "net.core.somaxconn", "value", "4096", "128")
PACKAGE = Drift("base", ItemKind.PACKAGE, "jq", "version", "1.6-1", "1.7-1")
FILE = Drift("base", ItemKind.FILE, "/etc/motd", "content", "line 1: a", "line 1: b")
UNSEEN = Sight("h9", Step.SUDO, "sudo asks for a password")


@pytest.mark.parametrize(
    ("sights", "code"),
    [
        ((seen("h1"),), 0),
        ((seen("h1", SYSCTL),), 3),
        ((seen("h1"), UNSEEN), 4),
        ((seen("h1", SYSCTL), UNSEEN), 3),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_codes_of_drift(
    gangline: Run,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    sights: tuple[Sight, ...],
    code: int,
    form: str,
) -> None:
    monkeypatch.setattr(looking, "drift_of", lambda *_: list(sights))
    assert gangline("drift", "c.yaml", "-o", form).code == code


def test_what_differs_is_reverted_or_adopted(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sights = [seen("h1", SYSCTL, PACKAGE), seen("h2", SYSCTL), seen("h3", FILE), UNSEEN]
    monkeypatch.setattr(looking, "drift_of", lambda *_: sights)
    said = gangline("drift", "c.yaml")
    assert said.out == (
        "h[1-2]: sysctl net.core.somaxconn, value: 128, wanted 4096  [base]\n"
        f"    {looking.ADOPT}\n"
        '    +  system: {sysctls: {net.core.somaxconn: "128"}}\n'
        "h1: package jq, version: 1.7-1, wanted 1.6-1  [base]\n"
        f"    {looking.ADOPT}\n"
        '    +  system: {packages: {jq: "1.7-1"}}\n'
        "h3: file /etc/motd, content: line 1: b, wanted line 1: a  [base]\n"
    )
    assert "h9: not looked at: sudo asks for a password" in said.err
    assert "3 hosts looked at, 3 differ; `gangline apply` reverts what differs" in said.err


def test_what_is_adopted_is_a_file_that_passes(gangline: Run, file: Path) -> None:
    """The printed lines, put into the site as they stand, are valid."""
    for one in (SYSCTL, PACKAGE):
        (_, line) = looking.adopt_advice(str(one.kind), one.name, one.value, one.found)
        patch = line.removeprefix("+").strip()
        file.write_text(CLUSTER.replace("kind: metal}", f"kind: metal, {patch}}}"))
        assert gangline("validate", "c.yaml").code == 0


def test_an_empty_limit_does_not_mean_all(gangline: Run, file: Path) -> None:
    for verb in ("plan", "drift"):
        said = gangline(verb, "c.yaml", "--limit", "")
        assert said.code == 2
        assert "--limit: no list of hosts" in said.err


def test_drift_of_none_and_of_one(gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "drift_of", lambda *_: [seen("h1"), seen("h2")])
    assert gangline("drift", "c.yaml").err == "2 hosts looked at, none differs\n"
    monkeypatch.setattr(looking, "drift_of", lambda *_: [seen("h1", FILE), seen("h2")])
    assert "2 hosts looked at, 1 differs; `gangline apply` reverts" in gangline("drift", "c.yaml").err


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "nothing differs\n"),
        (1, "1 resource differs; `gangline apply` reverts what differs\n"),
        (2, "2 resources differ; `gangline apply` reverts what differs\n"),
    ],
)
def test_drift_of_an_aws_site_says_what_puts_it_right(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch, count: int, words: str
) -> None:
    rows = tuple(StackRow(StackOp.UPDATE, "aws:ec2/vpc:Vpc", f"vpc-{n}", ("tags",)) for n in range(count))
    monkeypatch.setattr(looking, "drift_of", lambda *_: [])
    monkeypatch.setattr(looking, "stack_drift_of", lambda *_: (StackSight("use1", drift=rows),))
    said = gangline("drift", "c.yaml")
    assert said.err == f"site use1 looked at, {words}"
    assert said.code == (3 if count else 0)


def test_a_plan_fits_a_terminal(gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_cmd, "room", lambda _: 40)
    for line in gangline("plan", "c.yaml", "--no-look").out.splitlines():
        assert len(line) <= 40 or " " not in line.strip(), line


def test_a_saved_plan_says_what_it_was_made_for(tmp_path: Path) -> None:
    """No file, no plan, and a plan for other hosts are three things, and none of them is a changed host."""
    whole, one = (ChangeSet("lab", "w", "r", "o", only=only) for only in ((), ("h1",)))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(as_document(one)))
    _check_saved(str(path), one)
    with pytest.raises(InputError, match="made with --limit h1"):
        _check_saved(str(path), whole)
    path.write_text("apiVersion: gangline/v1\n")
    with pytest.raises(InputError, match="this is no saved plan"):
        _check_saved(str(path), whole)
    with pytest.raises(InputError, match=r"can't be read: No such file or directory$"):
        _check_saved(str(tmp_path / "gone.json"), whole)


def test_a_controller_that_does_not_run_is_said(
    gangline: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is what a plan is made against: without it everything looks new."""
    monkeypatch.setattr(looking, "drift_of", lambda *_: [seen("h1")])
    assert "does not run" not in gangline("drift", "c.yaml").err
    (changing.state_of(changing.read("c.yaml")) / "ledger.db").touch()
    assert "the controller of lab does not run" in gangline("drift", "c.yaml").err
