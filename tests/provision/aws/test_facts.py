"""The facts' parameter: what is written is read back, plain or packed, and what does not fit is refused."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.errors import GanglineError, InputError
from orchestrator.model.stack_facts import FixedFact, StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.aws import facts


def some(nodes: int = 2) -> StackFacts:
    """Facts with that many fixed nodes, whose ids are as different as real ones."""
    fixed = tuple(
        FixedFact(
            f"train-{at:03}",
            "train",
            f"i-{at * 2654435761 % 2**64:017x}",
            f"10.64.{at // 250}.{at % 250}",
            "m" * 16,
        )
        for at in range(nodes)
    )
    return StackFacts(
        cluster="atlas",
        uid="k3s8d0a1b2c3",
        site="use1",
        region="us-east-1",
        account="123456789012",
        spec="d" * 64,
        images=(("ssm:/x", "ami-0123456789abcdef0"),),
        subnets=(SubnetFact("us-east-1a", "subnet-0123456789abcdef0"),),
        templates=(TemplateFact("burst", "p5.48xlarge", "lt-0123456789abcdef0", 3, "ami-0123456789abcdef0"),),
        fixed=fixed,
    )


class Parameters:
    """The parameter store's client, as far as it is used."""

    class exceptions:  # noqa: N801 (boto3's name)
        class ParameterNotFound(Exception):
            """There is none of that name."""

    def __init__(self, **kept: str) -> None:
        self.kept = kept

    def get_parameter(self, Name: str) -> dict[str, Any]:  # noqa: N803 (boto3's name)
        if Name not in self.kept:
            raise self.exceptions.ParameterNotFound
        return {"Parameter": {"Value": self.kept[Name]}}


@pytest.mark.parametrize("nodes", [0, 2, 100, 250])
def test_facts_are_read_as_they_were_written(nodes: int) -> None:
    text = facts.render(some(nodes))

    assert facts.parse(text) == some(nodes)
    assert len(text.encode()) <= (facts.PLAIN_BYTES if nodes < 10 else facts.MOST_BYTES)


def test_small_facts_are_plain_json_for_people_who_look() -> None:
    assert facts.render(some()).startswith('{"account":"123456789012"')


def test_too_many_nodes_are_refused_with_what_to_do() -> None:
    with pytest.raises(InputError) as caught:
        facts.render(some(2000))

    assert caught.value.code == "aws.too-many-facts"
    assert "two sites" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "zlib:%%%", "zlib:AAAA", '{"cluster": 3}', "[]"])
def test_text_of_somebody_else_is_no_traceback(text: str) -> None:
    with pytest.raises(GanglineError) as caught:
        facts.parse(text)

    assert caught.value.code == "aws.bad-facts"


def test_read_by_name_and_none_where_there_was_no_stack() -> None:
    client = Parameters(**{"/gangline/atlas-k3s8d0a1b2c3/use1": facts.render(some())})

    assert facts.read(client, "atlas", "k3s8d0a1b2c3", "use1") == some()
    assert facts.read(client, "atlas", "k3s8d0a1b2c3", "usw2") is None


def test_words_of_the_facts() -> None:
    known = some()

    assert known.image("ssm:/x") == "ami-0123456789abcdef0"
    assert known.image("ssm:/y") == ""
    assert known.home("nat") == ""
    assert known.placement("burst", "us-east-1a") == ""
    template = known.template("burst", "p5.48xlarge")
    assert template is not None
    assert template.version == 3
    assert known.template("burst", "p5.48xlarge", "cr-1") is None
