"""How aws sites stand in plans and applies: what can't be looked at, what is refused, what is brought, in words.

The stacks here are on paper; tests/cli/test_aws_sites.py has real ones.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli import stacking
from orchestrator.cli.stacking import Account, Named, Stacks
from orchestrator.model.apply import HostResult
from orchestrator.model.capacity import CloudInstance, CloudState
from orchestrator.model.cluster import ClusterSpec, ControllerInstance, Site, SiteKind
from orchestrator.model.errors import GanglineError, InputError, Refused, Unavailable
from orchestrator.model.findings import Finding, Severity
from orchestrator.model.stack_sight import StackOp, StackRow, StackSight
from orchestrator.provision.aws import live

USE1 = Site("use1", SiteKind.AWS, region="us-east-1")
SPEC = ClusterSpec("atlas", sites=(USE1,))
ROW = StackRow(StackOp.CREATE, "aws:ec2/vpc:Vpc", "vpc")
LOST = Unavailable("aws.unreachable", "AWS can't be asked", "check the way to AWS")


@dataclass
class Paper:
    """A stack that does as it is told; `fails` is raised instead."""

    fails: GanglineError | None = None
    done: list[str] = field(default_factory=list)

    def sight(self, inputs: Any) -> StackSight:
        self._do("sight")
        return StackSight("use1", (ROW,), (ROW,), spec="ab")

    def drift(self) -> tuple[Any, ...]:
        self._do("drift")
        return ()

    def refresh(self, progress: Any) -> None:
        self._do("refresh")

    def up(self, inputs: Any, progress: Any, find: Any) -> Any:
        self._do(f"up holding {','.join(sorted(inputs.held))}")
        for done in (False, True):
            progress(SimpleNamespace(op=ROW.op, type=ROW.kind, name=ROW.name), done)
        return SimpleNamespace(changes=(ROW,), adopted=("vpc",))

    def _do(self, what: str) -> None:
        if self.fails is not None:
            raise self.fails
        self.done.append(what)


@dataclass(frozen=True)
class Inputs:
    uid: str = "k3j9x0q2m5a7"
    held: frozenset[str] = frozenset()


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    made = Paper()
    monkeypatch.setattr(stacking, "_stack", lambda *_, **__: made)
    monkeypatch.setattr(stacking, "_inputs", lambda *_: Inputs())
    monkeypatch.setattr(stacking, "_live", lambda *_: (("quota is short",), ()))
    monkeypatch.setattr(stacking, "_found_again", lambda *_: lambda kind, name, given: "")
    return made


def account(before: ClusterSpec | None = None) -> Account:
    return Account(SPEC, before, Path("/nowhere"))


def test_a_site_is_looked_at_with_its_warnings(paper: Paper) -> None:
    (found,) = stacking.sights(account())
    assert found == StackSight("use1", (ROW,), (ROW,), warnings=("quota is short",), spec="ab")


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("look", [stacking.sights, stacking.drifts])
def test_a_person_who_waits_is_told_what_for(
    paper: Paper,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    look: Callable[[Account], Any],
    terminal: bool,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    look(account())
    assert capsys.readouterr().err == ("looking at site use1, by Pulumi and AWS\n" if terminal else "")


def test_what_is_asked_for_and_not_built_is_a_warning(paper: Paper) -> None:
    own = ControllerInstance("use1", "m7i.large")
    spec = replace(SPEC, controller=replace(SPEC.controller, instance=own))
    (found,) = stacking.sights(replace(account(), spec=spec))
    first, *others = found.warnings
    assert first.startswith("controller.instance: ")
    assert others == ["quota is short"]


@pytest.mark.parametrize(
    ("fails", "wanted"),
    [
        (LOST, StackSight("use1", error="AWS can't be asked", hint="check the way to AWS")),
        (
            InputError("aws.no-image", "there is no image", "name another", "sites[use1].image"),
            StackSight("use1", faults=("sites[use1].image: there is no image; name another",)),
        ),
        (Refused("aws.holds-data", "fast holds data"), StackSight("use1", faults=("fast holds data",))),
    ],
)
def test_what_means_nothing_is_a_fault_and_what_is_away_is_not_seen(
    paper: Paper, fails: GanglineError, wanted: StackSight
) -> None:
    paper.fails = fails
    assert stacking.sights(account()) == (wanted,)


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in ("boto3", "pulumi", "botocore") or "provision.aws" in name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    (found,) = stacking.sights(account())
    assert "the packages for aws sites are not installed here" in found.error
    assert found.hint == "pip install 'gangline[aws]'"
    result = Stacks(account(), lambda _: None).bring("use1", frozenset())
    assert (result.ok, "pip install" in result.error) == (False, True)


@pytest.mark.parametrize(
    ("severity", "fault"),
    [(Severity.ERROR, True), (Severity.WARNING, False), (Severity.UNCHECKED, False)],
)
def test_what_a_look_calls_an_error_keeps_an_apply_from_the_site(
    monkeypatch: pytest.MonkeyPatch, severity: Severity, fault: bool
) -> None:
    found = Finding("quota", severity, "pools[burst].size.min", "64 are left", "ask for more")
    monkeypatch.setattr(live, "check", lambda *_: (found,))
    monkeypatch.setattr(stacking, "current", lambda: SimpleNamespace(skip=frozenset()))
    inputs: Any = SimpleNamespace(facts=None, catalog=None)
    warnings, faults = stacking._live(account(), "use1", inputs)
    text = "pools[burst].size.min: 64 are left; ask for more [quota]"
    assert (warnings, faults) == (((), (text,)) if fault else ((text,), ()))


def test_no_site_of_the_kind_costs_nothing() -> None:
    assert stacking.sights(Account(ClusterSpec("atlas"), None, Path("/nowhere"))) == ()


def test_a_site_that_left_the_file_is_still_looked_at() -> None:
    left = Account(ClusterSpec("atlas"), SPEC, Path("/nowhere"))
    assert stacking.sites_of(left) == ("use1",)
    assert stacking._spec_with(left, "use1") is SPEC, (
        "where it is and what it is called, only the record knows"
    )


def test_a_site_is_brought_as_it_is_now_and_what_is_held_stays(paper: Paper) -> None:
    said: list[str] = []
    result = Stacks(account(), said.append).bring("use1", frozenset({"t-1"}))
    assert (result.host, result.ok, result.changed) == ("use1", True, 1)
    assert paper.done == ["refresh", "up holding t-1"]
    assert said == [
        "use1: create Vpc vpc",
        "use1: vpc was made by a run that was killed, and is taken over",
    ]


def test_what_fails_is_one_sentence(paper: Paper) -> None:
    paper.fails = LOST
    result = Stacks(account(), lambda _: None).bring("use1", frozenset())
    assert result.error == "AWS can't be asked; check the way to AWS"


def test_nothing_is_made_without_a_name(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_inputs", lambda *_: Inputs(uid=stacking.UNNAMED))
    result = Stacks(account(), lambda _: None).bring("use1", frozenset())
    assert "has not named the cluster" in result.error
    assert paper.done == []


def test_a_site_is_not_ended_under_work(paper: Paper) -> None:
    leaving = Account(ClusterSpec("atlas"), SPEC, Path("/nowhere"))
    result = Stacks(leaving, lambda _: None).bring("use1", frozenset({"burst-1", "burst-2"}))
    assert result.error == "work has not left burst-[1-2]; run it again when it is over"
    assert paper.done == []


class Bought:
    """A cloud with what the controller launched on two sites of one region; `keeps` are never given back. `others` were
    launched by runs of stacks."""

    def __init__(
        self, keeps: dict[str, tuple[str, ...]], others: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        self.keeps, self.others = keeps, others or {}
        self.ended: list[str] = []
        self.said: list[str] = []
        self.stubborn = False  # what is told to end does not
        self.left: tuple[tuple[str, str], ...] = ()

    def describe(self, uid: str, site: str) -> tuple[CloudInstance, ...]:
        return self._alive(self.keeps[site])

    def marked(self, uid: str, site: str) -> tuple[CloudInstance, ...]:
        return self._alive((*self.keeps[site], *self.others.get(site, ())))

    def tagged(self, uid: str, site: str) -> tuple[tuple[str, str], ...]:
        return self.left

    def _alive(self, names: tuple[str, ...]) -> tuple[CloudInstance, ...]:
        """EC2 tells of what has ended for an hour more."""
        gone = () if self.stubborn else self.ended
        return tuple(
            CloudInstance(name, "intent-1", CloudState.GONE if name in gone else CloudState.RUNNING)
            for name in names
        )

    def terminate(self, ids: tuple[str, ...]) -> None:
        self.ended += ids


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bought], HostResult]:
    """The end of site use1, beside which another one of the same region stays."""

    def destroy(progress: Any, released: Any, find: Callable[[str, str, Any], str]) -> Any:
        return SimpleNamespace(changes=(ROW,), adopted=tuple(filter(None, [find("kind", "t-1", {})])))

    stack = SimpleNamespace(
        destroy=destroy,
        left=tuple,
        ids=lambda: frozenset({"i-protected", "vpc-kept"}),
    )
    monkeypatch.setattr(stacking, "_stack", lambda *_, **__: stack)
    monkeypatch.setattr(
        stacking, "_found_again", lambda spec, site, uid: lambda kind, name, given: f"{name} of {uid}"
    )
    monkeypatch.setattr(stacking, "named", lambda _: Named("k3j9x0q2m5a7"))
    monkeypatch.setattr(stacking, "GIVEN_BACK_S", 0.0)
    monkeypatch.setattr(stacking, "LOOK_S", 0.0)

    def end(cloud: Bought) -> HostResult:
        monkeypatch.setattr(stacking, "_cloud", lambda *_: cloud)
        account = Account(ClusterSpec("atlas"), SPEC, Path("/nowhere"))
        return Stacks(account, cloud.said.append).bring("use1", frozenset())

    return end


def test_what_the_controller_keeps_is_not_ended_from_here(leaving: Callable[[Bought], HostResult]) -> None:
    cloud = Bought({"use1": ("i-1",), "other": ("i-2",)})
    result = leaving(cloud)
    assert result.error.startswith("the controller still keeps i-1")
    assert cloud.ended == []


def test_nothing_of_another_site_in_the_region_is_touched(leaving: Callable[[Bought], HostResult]) -> None:
    cloud = Bought({"use1": (), "other": ("i-2",)})
    assert leaving(cloud).ok
    assert cloud.ended == []


def test_what_a_killed_run_was_making_ends_with_the_site(leaving: Callable[[Bought], HostResult]) -> None:
    cloud = Bought({"use1": ()})
    assert leaving(cloud).ok
    assert cloud.said == ["use1: t-1 of k3j9x0q2m5a7 was made by a run that was killed, and is ended too"]


def test_what_has_the_sites_marks_and_is_in_no_record_is_named_and_left(
    leaving: Callable[[Bought], HostResult],
) -> None:
    cloud = Bought({"use1": ()})
    cloud.left = (("fleet", "fleet-1"), ("instance", "i-9"), ("volume", "vol-1"), ("vpc", "vpc-kept"))
    assert leaving(cloud).ok
    assert cloud.said[1:] == ["use1: volume vol-1 is left: it has the site's marks and is in no record"]


def test_an_instance_that_nobody_has_on_record_ends_with_the_site(
    leaving: Callable[[Bought], HostResult],
) -> None:
    cloud = Bought({"use1": (), "other": ()}, {"use1": ("i-twin", "i-protected"), "other": ("i-3",)})
    assert leaving(cloud).ok
    assert cloud.ended == ["i-twin"]


def test_an_instance_that_would_not_end_is_named_and_the_site_is_not_called_gone(
    leaving: Callable[[Bought], HostResult],
) -> None:
    cloud = Bought({"use1": ()}, {"use1": ("i-twin",)})
    cloud.stubborn = True
    result = leaving(cloud)
    assert (result.ok, "i-twin would not end" in result.error) == (False, True)
    assert cloud.ended == ["i-twin"]
