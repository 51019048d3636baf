"""A bought node as its cloud knows it: where its metadata service is, and what the service says that an agent acts on.

Comes in: nothing. Goes out: the addresses, the paths, `Ending`. Called by: agent (asks, and keeps jobs from asking),
provision.aws (user-data), protocol, tests that play the service.

Addresses and paths are those of the EC2 User Guide, "Access instance metadata". The service answers whoever asks from
the instance; that jobs can't is the agent's doing (agent/closing.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word

METADATA_V4 = "169.254.169.254"
METADATA_V6 = "fd00:ec2::254"
METADATA_URL = f"http://{METADATA_V4}"

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - where the service gives tokens
TOKEN_FIELD = "X-aws-ec2-metadata-token"  # noqa: S105 - the header that carries one
TTL_FIELD = "X-aws-ec2-metadata-token-ttl-seconds"
DOCUMENT_PATH = "/latest/dynamic/instance-identity/document"
SIGNATURE_PATH = "/latest/dynamic/instance-identity/rsa2048"
INTERRUPTION_PATH = "/latest/meta-data/spot/instance-action"
TERMINATION_PATH = "/latest/meta-data/spot/termination-time"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"


class EndingKind(Word):
    """Why a node will be gone, by what its cloud has told it."""

    INTERRUPTION = "interruption"  # the market takes it back: at `ends_us`, whatever is done
    REBALANCE = "rebalance"  # it is likelier than before to be taken back; nothing is decided


@dataclass(frozen=True, slots=True)
class Ending:
    """What a node was told of its end. `ends_us`: when it comes, 0 where only the risk is known; `told_us`: when the
    node heard it; `action`: `terminate`, `stop` or `hibernate`."""

    kind: EndingKind
    ends_us: int = 0
    told_us: int = 0
    action: str = ""
