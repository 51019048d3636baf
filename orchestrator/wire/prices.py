"""The document of negotiated prices: what an aws site pays, where that is not what AWS's lists say.

Comes in: the plain value of a `kind: Prices` file. Goes out: `PricesDocument`. Called by: spec (reads files),
`schemas`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from orchestrator.wire.cluster_aws import InstanceType, MarketWord
from orchestrator.wire.common import Dollars, Rows
from orchestrator.wire.leaf import Strict

KIND = "Prices"


class PriceDocument(Strict):
    """One row of a file of negotiated prices."""

    type: InstanceType = Field(description="Instance type.", examples=["p5.48xlarge"])
    market: MarketWord = Field(description="Market on which the price holds.")
    usd_per_hour: Dollars = Field(description="Dollars an hour for one instance.", examples=[31.464])


class PricesDocument(Strict):
    """Negotiated prices by type and market. They do not age, and come before all others."""

    model_config = ConfigDict(title="Gangline prices")

    api_version: Literal["gangline/v1"] = Field(alias="apiVersion", description="Version of this format.")
    kind: Literal["Prices"] = Field(description="What this file describes.")
    prices: Rows[PriceDocument] = Field(description="One row a type and market.")
