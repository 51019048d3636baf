"""The agent's config: a JSON file, read and checked once.

Comes in: the file's path. Goes out: `Config`, or a `ConfigError` that names file, field, reason and what to do.
Called by: main.

    {"node": "n1", "url": "https://atlas.example.org:7443", "ca": "/etc/gangline/ca.pem",
     "join_token_file": "/etc/gangline/join", "state_dir": "/var/lib/gangline-agent",
     "gpus": {"emulate": "auto", "model": "", "count": 0, "memory": 0, "only": [0, 1]}, "min_uid": 1000}
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from orchestrator.agent.channel import parse_url
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.instance import METADATA_URL
from orchestrator.telemetry.devices import GpuConfig

DAY_S = 86_400


class ConfigError(Exception):
    """The config can't be used; the text is for people."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a node's agent needs to know. Paths are absolute; memory in bytes, times in seconds.

    `url`: where the controller is called; `ca`: the certificate that its own is trusted by, for https. Both may be left
    out where the join token says them (`model.join_line`); where it says others, the node does not join. `join`: `aws`
    for a bought node, which is let in as the instance that it is, by the service at `metadata`; its `node` may be
    empty, since the controller knows which one it is. Else empty: by a token.
    `token_file` holds the node's own token, `join_token_file` one that lets a node in; the node's own is kept in
    STATE/token. `cores` and `memory` 0: as measured. `run_as_self`: jobs of the agent's own user only, as an agent
    without root does anyway. `supervisor`: `auto`, `systemd`, `cgroup2` or `process-tree`. `devices`: patterns of nodes
    below /dev that every job may open besides the usual ones (`device_nodes.SHARED`), where the supervisor is systemd.
    """

    node: str
    state_dir: str
    url: str = ""
    ca: str = ""
    join: str = ""
    metadata: str = METADATA_URL
    token_file: str = ""
    join_token_file: str = ""
    gpus: GpuConfig = field(default_factory=GpuConfig)
    cores: int = 0
    memory: int = 0
    min_uid: int = 1000
    run_as_self: bool = False
    supervisor: str = "auto"
    devices: tuple[str, ...] = ()
    stuck_s: float = 15.0
    failure_grace_s: float = 1.0
    keep_s: int = 14 * DAY_S  # how long folders and records of ended attempts are kept
    keep_attempts: int = 5000
    keep_bytes: int = 20 << 30
    log_level: str = "info"


def load(path: str) -> Config:
    """Read and check; ConfigError if anything is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            plain = json.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    try:
        config = decode(Config, plain)
    except CodecError as error:
        raise ConfigError(f"{path}: {error.path or 'the file'}: {error.problem}") from None
    _check(path, config)
    return config


def _check(path: str, config: Config) -> None:
    try:
        if config.url or not config.join_token_file:
            endpoint = parse_url(config.url)
            if config.join and not endpoint.tls:
                raise ValueError(
                    "expected https://HOST:PORT, since `join` sends papers that let in whoever has them"
                )
    except ValueError as error:
        raise ConfigError(f"{path}: url: {error}, got {config.url!r}") from None
    try:
        parse_url(config.metadata)
    except ValueError as error:
        raise ConfigError(f"{path}: metadata: {error}, got {config.metadata!r}") from None
    if not (config.node or config.join) or "/" in config.node or config.node.startswith("."):
        raise ConfigError(f"{path}: node: a name without a slash, got {config.node!r}")
    if not os.path.isabs(config.state_dir):
        raise ConfigError(f"{path}: state_dir: an absolute path, got {config.state_dir!r}")
    for name, value, words in (
        ("supervisor", config.supervisor, ("auto", "systemd", "cgroup2", "process-tree")),
        ("gpus.emulate", config.gpus.emulate, ("auto", "always", "never")),
        ("log_level", config.log_level, ("error", "info", "debug")),
        ("join", config.join, ("", "aws")),
    ):
        if value not in words:
            raise ConfigError(f"{path}: {name}: one of {', '.join(filter(None, words))}, got {value!r}")
    for pattern in config.devices:
        if not pattern.startswith("/dev/"):
            raise ConfigError(f"{path}: devices: a path or pattern below /dev, got {pattern!r}")
    if not (
        config.join
        or config.token_file
        or config.join_token_file
        or os.path.exists(os.path.join(config.state_dir, "token"))
    ):
        raise ConfigError(f"{path}: token_file or join_token_file is needed: this node has no token yet")
