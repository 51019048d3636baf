"""The HTTP front: hooks for tests below /_ground, the price list, and moto behind the guard for all else.

Comes in: WSGI requests. Goes out: JSON of hooks and prices, moto's answers, or a connection that is cut. Called by: the
server of `__main__`.

    POST /_ground/set      {"faults": […], "rooms": […], "quotas": {…}, …}: see `_set`
    GET  /_ground/calls    every request since the last reset, with its parameters and error code
    GET  /_ground/misfits  requests that botocore's models don't allow
    GET  /_ground/bills    every instance that was ever launched, and for how long it was billed
    POST /_ground/reset    an empty account and ground
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from moto.backends import get_backend
from moto.core.base_backend import BackendDict
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from tests.aws.server import missing, pricing
from tests.aws.server.ground import GROUND, Fault, Offering, Room
from tests.aws.server.guard import Silence, plain

HOOKS = "/_ground/"
START = Callable[[str, list[tuple[str, str]]], Any]


class Front:
    """The WSGI application."""

    def __init__(self) -> None:
        self.moto = DomainDispatcherApplication(_app)

    def __call__(self, environ: dict[str, Any], start: START) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(HOOKS):
            return _json(start, 200, _hook(path.removeprefix(HOOKS), _body(environ)))
        if "/pricing/" in environ.get("HTTP_AUTHORIZATION", ""):
            operation = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
            return _json(start, *pricing.answer(operation, _body(environ)))
        with GROUND.lock:
            missing.age_reservations()
        try:
            return self.moto(environ, start)  # type: ignore[no-any-return]
        except Silence:
            return _cut(environ, start)


def _app(service: Any) -> Any:
    """moto's application of a service, which lets `Silence` through instead of answering 500."""
    app = create_backend_app(service)
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.debug = False
    return app


def _cut(environ: dict[str, Any], start: START) -> Iterable[bytes]:
    """Close the connection: whoever asked hears nothing, as when a network drops the answer."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)
    start("204 No Content", [])
    return []


def _body(environ: dict[str, Any]) -> bytes:
    read: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return read


def _json(start: START, status: int, value: Any) -> Iterable[bytes]:
    text = json.dumps(value).encode()
    start(f"{status} X", [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))])
    return [text]


def _hook(name: str, body: bytes) -> Any:
    with GROUND.lock:
        if name == "reset":
            _reset()
            return {}
        if name == "set":
            _set(json.loads(body))
            return {}
        if name == "calls":
            return plain(GROUND.calls)
        if name == "misfits":
            return GROUND.misfits
        assert name == "bills", name
        now = GROUND.now().timestamp()
        return [
            asdict(bill) | {"seconds": (bill.ended or now) - bill.began} for bill in GROUND.bills.values()
        ]


def _reset() -> None:
    GROUND.reset()
    for service in ("ec2", "iam", "ssm", "sts", "fsx", "efs", "s3", "service-quotas"):
        backend: BackendDict[Any] = get_backend(service)
        backend.reset()


def _set(wanted: dict[str, Any]) -> None:
    """Faults and rooms are added; all else becomes what is said. A row may name an offering: type, zone, market."""
    for row in wanted.pop("faults", []):
        GROUND.faults.append(Fault(offering=_offering(row), **row))
    for row in wanted.pop("rooms", []):
        GROUND.rooms.append(Room(_offering(row), **row))
    for row in wanted.pop("spot", []):
        GROUND.spot.append((_offering(row), float(row["price"])))
    for row in wanted.pop("reservations", []):
        GROUND.reservations[row["CapacityReservationId"]] |= row
    for name in ("prices", "quotas"):
        getattr(GROUND, name).update(wanted.pop(name, {}))
    for name, value in wanted.items():
        assert name in ("hide_new_for", "ending_for", "ahead_s", "partial"), name
        setattr(GROUND, name, value)


def _offering(row: dict[str, Any]) -> Offering:
    return Offering(**{word: row.pop(word) for word in ("type", "zone", "market") if word in row})
