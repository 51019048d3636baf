"""What the engine and AWS say when a run fails, in words: no more is claimed than they said."""

from __future__ import annotations

import pytest

from orchestrator.model.errors import Refused, Unavailable
from orchestrator.provision.aws.changes import Listener, Op, ResourceChange, failed

SITE = "urn:pulumi:atlas-use1::gangline::gangline:aws:Site"
VPC, FSX, NODE = "aws:ec2/vpc:Vpc", "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ec2/instance:Instance"


def urn_of(kind: str, name: str) -> str:
    return f"{SITE}$gangline:aws:Part${kind}::{name}"


def protected(urn: str, name: str) -> str:
    """The engine's own words (pkg/resource/deploy/step.go of 3.274)."""
    return (
        f'resource "{urn}" cannot be deleted\nbecause it is protected. To unprotect the resource, either remove the '
        f"`protect` flag from the resource in your Pulumi program and run `pulumi up`, or use the command:\n"
        f"`pulumi state unprotect '{urn}'`"
    )


def said(kind: str, name: str, words: str) -> Listener:
    return Listener(errors=[(urn_of(kind, name), words)])


IN_USE = [
    (VPC, "DependencyViolation: The vpc 'vpc-1' has dependencies and cannot be deleted."),
    ("aws:ec2/securityGroup:SecurityGroup", "DependencyViolation: resource sg-1 has a dependent object"),
    ("aws:iam/role:Role", "DeleteConflict: Cannot delete entity, must detach all policies first."),
    ("aws:ec2/placementGroup:PlacementGroup", "InvalidPlacementGroup.InUse: The placement group is in use"),
    ("aws:efs/fileSystem:FileSystem", "FileSystemInUse: the file system has mount targets, and is protected"),
    ("aws:ebs/volume:Volume", "VolumeInUse: Volume vol-1 is currently attached to i-1"),
    ("aws:ec2/eip:Eip", "InvalidIPAddress.InUse: the address cannot be deleted"),
]


@pytest.mark.parametrize(("kind", "words"), IN_USE)
def test_what_is_in_use_is_said_to_be_in_use_and_nothing_of_data(kind: str, words: str) -> None:
    error = failed(said(kind, "it", words), "", "destroying")

    assert isinstance(error, Unavailable)
    assert words in error.message
    assert "data" not in error.message + error.hint
    assert error.hint.startswith("AWS says that something still uses it")


def test_what_the_record_protects_holds_data_where_it_is_of_such_a_type() -> None:
    held = failed(said(FSX, "fast", protected(urn_of(FSX, "fast"), "fast")), "", "the change")
    other = failed(said(NODE, "train-1", protected(urn_of(NODE, "train-1"), "train-1")), "", "the change")

    assert isinstance(held, Refused)
    assert (held.code, held.path) == ("aws.holds-data", "fast")
    assert held.message == "LustreFileSystem fast holds data and would be deleted, with all that is in it"
    assert isinstance(other, Refused)
    assert (
        other.message
        == "Instance train-1 would be deleted, and somebody has protected it in the stack's record"
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("failed to load checkpoint: place 1: unexpected end of JSON input", ".bak"),
        ("pre-step event returned an error: failed to save snapshot: write: no space left", "make room"),
    ],
)
def test_a_record_that_is_damaged_or_not_written_is_not_answered_with_run_it_again(
    words: str, hint: str
) -> None:
    """What was made is not recorded then (the engine's words, seen on a full disk)."""
    error = failed(Listener(), f"stderr: error: {words}", "reading the record")
    assert isinstance(error, Unavailable)
    assert words.split(":", maxsplit=1)[0] in error.message
    assert hint in error.hint
    assert "what was made is recorded" not in error.hint


def test_what_an_edit_would_replace_holds_data_too() -> None:
    """The engine has other words for a replacement (step_generator.go of 3.274)."""
    words = (
        f'unable to replace resource "{urn_of(FSX, "fast")}"\nas it is currently marked for protection. To unprotect '
        "the resource, remove the `protect` flag from the resource in your Pulumi program and run `pulumi up`"
    )
    held = failed(said(FSX, "fast", words), "", "the preview")
    assert isinstance(held, Refused)
    assert (held.code, held.path) == ("aws.holds-data", "fast")
    assert "storage/fast" in held.hint


@pytest.mark.parametrize(
    ("kind", "guarded", "wanted"),
    [
        (FSX, True, "it holds data"),
        (NODE, True, "somebody has protected it in the stack's record"),
        (VPC, False, "what else is kept stands in it"),
    ],
)
def test_why_a_thing_is_left(kind: str, guarded: bool, wanted: str) -> None:
    assert ResourceChange(Op.DELETE, kind, "it", urn_of(kind, "it"), protected=guarded).why_kept() == wanted


def test_a_provider_that_is_not_there_is_installed_in_the_version_that_is_named() -> None:
    """The engine's own words. It takes no other version (SelectCompatiblePlugin of its sdk, 3.274)."""
    words = (
        "no resource plugin 'pulumi-resource-aws' found in the workspace at version v7.51.1 or on your $PATH"
    )

    error = failed(said("pulumi:providers:aws", "aws", words), "", "the preview")

    assert "v7.51.1" in error.message
    assert "`pulumi plugin install resource aws VERSION`" in error.hint
