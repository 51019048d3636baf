"""Values on the wire: numbers are doubles, what a preview can't know is a fixed word, what is null is not there.

Comes in: protobuf structs. Goes out: plain dicts, and back; and which inputs differ. Called by: server.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format, struct_pb2  # type: ignore[import-untyped]

# The engine's word for a value that is not known yet (pulumi/sdk: resource/plugin/rpc.go).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
INTERNAL = ("__defaults", "__meta", "__pulumi_raw_state_delta", "__internal")


def read(struct: struct_pb2.Struct) -> dict[str, Any]:
    """A struct as a dict: whole doubles are ints, nulls are left out."""
    plain: dict[str, Any] = _plain(json_format.MessageToDict(struct))
    return {name: value for name, value in plain.items() if name not in INTERNAL}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def write(value: dict[str, Any]) -> struct_pb2.Struct:
    """A dict as a struct, without what is None."""
    struct = struct_pb2.Struct()
    struct.update(_plain(value))
    return struct


def unknown(value: Any) -> bool:
    """Whether anything in it is not known yet."""
    if isinstance(value, dict):
        return any(unknown(part) for part in value.values())
    if isinstance(value, list):
        return any(unknown(part) for part in value)
    return bool(value == UNKNOWN)


def same(old: Any, new: Any) -> bool:
    """Whether two inputs mean the same: AWS's models have texts for what is a number or a truth elsewhere."""
    return bool(_canonical(old) == _canonical(new))


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _canonical(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Inputs that differ, by name."""
    return sorted(name for name in {*old, *new} if not same(old.get(name), new.get(name)))
