"""Bodies of requests: read within bounds of size and time, and as strict JSON.

Comes in: an ASGI `receive`, or bytes. Goes out: bytes, a plain value, or an InputError. Called by: gate, submit,
agents, cluster. Strict means: UTF-8, no key twice, finite numbers, no half surrogate, no endless depth.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any, NoReturn

from starlette.types import Receive, Scope

from orchestrator.api.problems import BadRequest, TooLarge, TooSlow, WrongType

MOST_BODY = 2 * 1024 * 1024  # bytes; a job's command and environment are under 2 MiB on Linux
MOST_CLUSTER = 16 * 1024 * 1024
MOST_AGENT = 16 * 1024 * 1024
BODY_S = 30.0  # seconds in which a body must be there, and for large ones as long as this rate needs besides
SLOWEST = 256 * 1024  # bytes a second
WHOLE = "gangline.whole"  # in the scope once all of the body has come: nobody has to wait for it
MOST_DIGITS = 400  # of a whole number, as in documents (spec.tree)


class Gone(Exception):
    """The client closed the connection: nobody waits for an answer."""


def header(scope: Scope, name: bytes) -> str:
    """The value of a header (lower-case name), or empty."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""


def media_type(scope: Scope) -> str:
    """The body's type without parameters, in lower case."""
    return header(scope, b"content-type").partition(";")[0].strip().lower()


def require_json(scope: Scope) -> None:
    """WrongType for a body that does not call itself JSON."""
    found = media_type(scope)
    if found != "application/json":
        raise WrongType(
            "request.content-type",
            f"the body is of type {found!r}" if found else "the body says no type",
            "send JSON with Content-Type: application/json",
        )


async def read(scope: Scope, receive: Receive, most: int) -> bytes:
    """The whole body. TooLarge, TooSlow; Gone if the client left."""
    length = header(scope, b"content-length")
    if _length(length) > most:
        raise _too_large(most)
    if WHOLE in scope:
        return await _whole(receive, most)
    try:
        async with asyncio.timeout(BODY_S + _length(length) / SLOWEST):
            return await _whole(receive, most)
    except TimeoutError:
        raise TooSlow("request.too-slow", "the body was not there in time") from None


def _length(text: str) -> int:
    """Content-Length, if it is one that can be: digits, and not endlessly many."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


async def _whole(receive: Receive, most: int) -> bytes:
    message = await _next(receive)
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(first) <= most:
        return first
    body = bytearray(first)
    while len(body) <= most:
        message = await _next(receive)
        body += message.get("body", b"")
        if not message.get("more_body", False) and len(body) <= most:
            return bytes(body)
    raise _too_large(most)


async def _next(receive: Receive) -> Any:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message


def _too_large(most: int) -> TooLarge:
    return TooLarge("request.too-large", f"the body is larger than {most} bytes")


def parse(body: bytes) -> Any:
    """The value of a strict JSON text; BadRequest says where it is none."""
    try:
        value = (_CAREFUL if _LONG.search(body) else _DECODER).decode(body.decode())
    except UnicodeDecodeError as error:
        raise _bad(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _bad(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except ValueError as error:
        raise _bad(str(error)) from None
    if b"\\ud" in body or b"\\uD" in body:  # the only way in for half a surrogate pair
        canonical(value)
    return value


def canonical(value: Any) -> bytes:
    """One text for equal values, as UTF-8; BadRequest for text that is no Unicode."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode()
    except UnicodeEncodeError:
        raise _bad("it holds half a surrogate pair, which is no character") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None


def _bad(problem: str) -> BadRequest:
    return BadRequest("request.bad-json", f"the body is not the JSON that is read here: {problem}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"the key {_twice(pairs)[:60]!r} is there twice")
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    """The first key that was there before; in one walk, since a body may have 200,000 keys."""
    seen: dict[str, bool] = {}
    for name, _ in pairs:
        if name in seen:
            return name
        seen[name] = True
    return ""


def _integer(text: str) -> int:
    """Python's own limit is about as high, and its message tells how to change Python."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"the number {text[:20]}… has more than {MOST_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:60]} is too large")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_refuse)
# A call for each number is a tenth of the time of a beat: for texts alone that need it.
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_finite, parse_int=_integer, parse_constant=_refuse
)
_LONG = re.compile(rb"\d{%d}" % MOST_DIGITS)
