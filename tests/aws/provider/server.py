"""The provider's service: what the engine asks about a resource, answered from its kind.

Comes in: gRPC of the engine (pulumi/provider.proto). Goes out: its answers; AWS's errors in their own words. Called by:
`__main__` registers it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import grpc
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import any_pb2, empty_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from tests.aws.provider import groups, identity, machines, network, storage, values
from tests.aws.provider.invokes import INVOKES
from tests.aws.provider.kinds import KINDS, Clients, Kind, Values, Wait

VERSION = "7.51.1"
TABLES = (groups, identity, machines, network, storage)  # importing them fills KINDS
INPUT_DIFFERS = provider_pb2.PropertyDiff.Kind


def _said(method: Callable[..., Any]) -> Callable[..., Any]:
    """AWS's errors become the call's, in one line."""

    @wraps(method)
    def guarded(self: Provider, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except (ClientError, BotoCoreError, LookupError, TimeoutError) as wrong:
            context.abort(grpc.StatusCode.UNKNOWN, str(wrong))

    return guarded


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider process serves one engine; its region comes with Configure."""

    def __init__(self) -> None:
        self.clients = Clients("us-east-1")
        self.cancelled = threading.Event()

    # The process and its configuration

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=VERSION)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        given = values.read(request.args)
        tags = given.get("defaultTags") or {}
        tags = json.loads(tags) if isinstance(tags, str) else tags
        region = given.get("region") or self.clients.region
        self.clients = Clients(str(region), tags.get("tags") or {})
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cancelled.set()
        return empty_pb2.Empty()

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    # Resources

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        token, name = _token(request.urn), request.urn.rpartition("::")[2]
        if token not in KINDS:
            words = f"the stand-in for tests has no type {token}"
            failure = provider_pb2.CheckFailure(property="", reason=words)
            return provider_pb2.CheckResponse(inputs=request.news, failures=[failure])
        old, new = values.read(request.olds), values.read(request.news)
        named = KINDS[token].named
        if named and named not in new:
            new[named] = old.get(named) or _auto_name(request, name, str(new.get(f"{named}Prefix", "")))
        return provider_pb2.CheckResponse(inputs=values.write(new))

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind = KINDS[_token(request.urn)]
        old, new = values.read(request.old_inputs), values.read(request.news)
        differing = [name for name in values.changed(old, new) if name not in request.ignoreChanges]
        if not differing:
            return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)
        replacing = [
            name for name in differing if name in kind.replace or (kind.update is None and name != "tags")
        ]
        detailed = {
            name: provider_pb2.PropertyDiff(
                kind=INPUT_DIFFERS.UPDATE_REPLACE if name in replacing else INPUT_DIFFERS.UPDATE,
                inputDiff=True,
            )
            for name in differing
        }
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME, diffs=differing, replaces=replacing, hasDetailedDiff=True,
            detailedDiff=detailed, deleteBeforeReplace=bool(replacing) and _name_stays(kind, old, new),
        )  # fmt: skip

    @_said
    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind, inputs = KINDS[_token(request.urn)], values.read(request.properties)
        if request.preview:
            unknown = {name: values.UNKNOWN for name in kind.computed if name not in inputs}
            return provider_pb2.CreateResponse(properties=values.write(self._outputs(inputs, unknown)))
        made = kind.create(self.clients, inputs)
        try:
            seen = Wait(f"{made} is not to be seen").until(lambda: kind.read(self.clients, made, inputs))
        except (ClientError, TimeoutError) as wrong:
            self._half_made(context, made, inputs, str(wrong))
        return provider_pb2.CreateResponse(id=made, properties=values.write(self._outputs(inputs, seen)))

    def _half_made(self, context: Any, made: str, inputs: Values, why: str) -> NoReturn:
        """It exists, but is not as it should be: the engine keeps it in the state, and the next update goes on."""
        detail = provider_pb2.ErrorResourceInitFailed(
            id=made, properties=values.write(inputs), inputs=values.write(inputs), reasons=[why]
        )
        packed = any_pb2.Any()
        packed.Pack(detail)
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=why, details=[packed])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.UNKNOWN, why)
        raise AssertionError(why)  # abort does not return

    @_said
    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind = KINDS[_token(request.urn)]
        inputs = values.read(request.inputs) or values.read(request.properties)
        seen = kind.read(self.clients, request.id, inputs)
        if seen is None:
            return provider_pb2.ReadResponse()
        now = {
            name: inputs[name] if name not in seen or values.same(inputs[name], seen[name]) else seen[name]
            for name in inputs
        }
        if now.get("tags") != inputs.get("tags") or "tags" in seen:
            now |= self._seen_tags(inputs, seen)
        return provider_pb2.ReadResponse(
            id=request.id, inputs=values.write(now), properties=values.write(self._outputs(now, seen))
        )

    def _seen_tags(self, inputs: Values, seen: Values) -> Values:
        """Tags as inputs have them: without those that the provider adds, and none where there never were any."""
        default = self.clients.default_tags
        own = inputs.get("tags") or {}
        tags = {key: text for key, text in seen["tags"].items() if key in own or default.get(key) != text}
        return {"tags": tags} if tags or "tags" in inputs else {}

    @_said
    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind = KINDS[_token(request.urn)]
        old, new = values.read(request.old_inputs), values.read(request.news)
        for name in request.ignoreChanges:
            new = {**new, name: old[name]} if name in old else {k: v for k, v in new.items() if k != name}
        if request.preview:
            known = values.read(request.olds)
            unknown = dict.fromkeys(kind.moving, values.UNKNOWN)
            return provider_pb2.UpdateResponse(properties=values.write(self._outputs(new, known | unknown)))
        if kind.update:
            kind.update(self.clients, request.id, old, new)
        if kind.tagged:
            self._tag(request.id, old, new)
        seen = kind.read(self.clients, request.id, new) or {}
        return provider_pb2.UpdateResponse(properties=values.write(self._outputs(new, seen)))

    def _tag(self, made: str, old: Values, new: Values) -> None:
        before, after = self.clients.tags(old), self.clients.tags(new)
        if ending := [{"Key": key} for key in before if key not in after]:
            self.clients.ec2.delete_tags(Resources=[made], Tags=ending)
        if coming := [{"Key": key, "Value": text} for key, text in after.items() if before.get(key) != text]:
            self.clients.ec2.create_tags(Resources=[made], Tags=coming)

    @_said
    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind = KINDS[_token(request.urn)]
        outputs = values.read(request.properties)
        if kind.read(self.clients, request.id, outputs) is not None:
            kind.delete(self.clients, request.id, outputs)
        return empty_pb2.Empty()

    @_said
    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.tok not in INVOKES:
            raise LookupError(f"the stand-in for tests has no function {request.tok}")
        said = INVOKES[request.tok](self.clients, values.read(request.args))
        return provider_pb2.InvokeResponse(**{"return": values.write(said)})

    def _outputs(self, inputs: Values, seen: Values) -> Values:
        """What is seen and what was asked for; inputs win, for they may say the same in other words."""
        tags = self.clients.tags(inputs)
        return {**seen, **inputs, "region": self.clients.region, **({"tagsAll": tags} if tags else {})}


def _token(urn: str) -> str:
    """The type of a resource by its URN, without its parents'."""
    return urn.split("::")[2].rpartition("$")[2]


def _auto_name(request: Any, name: str, prefix: str) -> str:
    """Pulumi's name and seven hexadecimal digits, the same for the same seed."""
    tail = hashlib.sha256(bytes(request.randomSeed) or request.urn.encode()).hexdigest()[:7]
    return f"{prefix}{tail}" if prefix else f"{name}-{tail}"


def _name_stays(kind: Kind, old: Values, new: Values) -> bool:
    """Whether the new one would have the old one's name, so that the old one must go first."""
    return bool(kind.named) and old.get(kind.named) == new.get(kind.named)
