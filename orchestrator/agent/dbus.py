"""A D-Bus client as small as the agent needs it: call a method of systemd, read its answer, hear what follows.

Comes in: a socket's path, method calls with their signature. Goes out: bodies of answers, `DbusError` with the name and
text that the other side gave. Called by: systemd.

The wire format is that of the D-Bus specification, version 1 of the protocol, in this machine's byte order. Values in
Python: integers, `str`, `bool`; lists for arrays (`bytes` for `ay`), tuples for structs, `(signature, value)` for
variants, dicts for arrays of dictionary entries.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
_ORDER = "<" if sys.byteorder == "little" else ">"
_MARK = b"l" if sys.byteorder == "little" else b"B"
_NUMBERS = {"y": "B", "b": "I", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d"}
_ALIGN = {
    "y": 1,
    "n": 2,
    "q": 2,
    "b": 4,
    "i": 4,
    "u": 4,
    "x": 8,
    "t": 8,
    "d": 8,
    "s": 4,
    "o": 4,
    "g": 1,
    "v": 1,
}
_ALIGN |= {"a": 4, "(": 8, "{": 8}
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _DESTINATION, _SENDER, _SIGNATURE = range(1, 9)
MOST_BYTES = 1 << 27  # of a message, from the specification


class DbusError(Exception):
    """The other side refused; `name` is its word for why. A lost connection is an OSError instead."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text or name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Message:
    """What came in. `answers` is the serial of the call that it answers, 0 for signals."""

    kind: int
    answers: int
    path: str
    member: str
    error: str
    signature: str
    raw: bytes
    order: str

    @property
    def body(self) -> tuple[Any, ...]:
        """Decoded when it is asked for: most signals are of others."""
        return decode(self.signature, self.raw, self.order)


class Connection:
    """To one socket; each step waits at most `timeout_s` for the other side (TimeoutError, an OSError)."""

    def __init__(self, path: str, timeout_s: float = 10.0) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._serial = 0
        self._data = b""
        try:
            self._sock.settimeout(timeout_s)
            self._sock.connect(path)
            self._authenticate()
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        """Let go of it."""
        self._sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _authenticate(self) -> None:
        """As the user that the kernel says we are."""
        uid = str(os.geteuid()).encode().hex().encode()
        self._sock.sendall(b"\0AUTH EXTERNAL " + uid + b"\r\nBEGIN\r\n")
        while b"\r\n" not in self._data:
            self._more()
        line, _, self._data = self._data.partition(b"\r\n")
        if not line.startswith(b"OK "):
            raise DbusError("org.freedesktop.DBus.Error.AuthFailed", line.decode(errors="replace"))

    def call(
        self, destination: str, path: str, interface: str, member: str, signature: str = "", *values: Any
    ) -> tuple[Any, ...]:
        """Call and wait for the answer; signals that come before it are dropped."""
        self.send(destination, path, interface, member, signature, *values)
        for message in self.messages():
            if message.answers == self._serial:
                return body_of(message)
        raise AssertionError("messages() has no end")

    def send(
        self, destination: str, path: str, interface: str, member: str, signature: str = "", *values: Any
    ) -> int:
        """Call; the serial by which `messages` will have the answer."""
        self._serial += 1
        fields = [(_PATH, ("o", path)), (_INTERFACE, ("s", interface)), (_MEMBER, ("s", member))]
        fields += [(_DESTINATION, ("s", destination))] if destination else []
        fields += [(_SIGNATURE, ("g", signature))] if signature else []
        body = encode(signature, values)
        head = bytearray(_MARK + struct.pack(_ORDER + "BBBII", CALL, 0, 1, len(body), self._serial))
        _put(head, "a(yv)", fields)
        _pad(head, 8)
        self._sock.sendall(bytes(head) + body)
        return self._serial

    def messages(self) -> Iterator[Message]:
        """What comes in, one after the other; TimeoutError when nothing does."""
        while True:
            yield self._read()

    def _more(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionResetError(104, "the other side closed the connection")
        self._data += data

    def _read(self) -> Message:
        while len(self._data) < 16:
            self._more()
        order = "<" if self._data[:1] == b"l" else ">"
        body_len, _, fields_len = struct.unpack_from(order + "III", self._data, 4)
        start = (16 + fields_len + 7) // 8 * 8
        if start + body_len > MOST_BYTES:
            raise ConnectionResetError(104, "a message longer than the protocol allows")
        while len(self._data) < start + body_len:
            self._more()
        raw, self._data = self._data[: start + body_len], self._data[start + body_len :]
        fields, _ = _take(raw, 12, "a(yv)", order)
        known = {code: value for code, (_, value) in fields}
        return Message(
            raw[1],
            known.get(_REPLY_SERIAL, 0),
            known.get(_PATH, ""),
            known.get(_MEMBER, ""),
            known.get(_ERROR_NAME, ""),
            known.get(_SIGNATURE, ""),
            raw[start:],
            order,
        )


def body_of(answer: Message) -> tuple[Any, ...]:
    """What an answer says; DbusError if it is a refusal."""
    if answer.kind == ERROR:
        raise DbusError(answer.error, str(answer.body[0]) if answer.body else "")
    return answer.body


# --- values and bytes ------------------------------------------------------------------------------------------


def encode(signature: str, values: tuple[Any, ...]) -> bytes:
    """Values one after the other, as a message's body has them."""
    out = bytearray()
    for each, value in zip(split(signature), values, strict=True):
        _put(out, each, value)
    return bytes(out)


def decode(signature: str, data: bytes, order: str = _ORDER) -> tuple[Any, ...]:
    """The other way round."""
    found: list[Any] = []
    at = 0
    for each in split(signature):
        value, at = _take(data, at, each, order)
        found.append(value)
    return tuple(found)


def split(signature: str) -> list[str]:
    """The single complete types in it: `ssa(sv)` has three."""
    found: list[str] = []
    at = 0
    while at < len(signature):
        end = _end(signature, at)
        found.append(signature[at:end])
        at = end
    return found


def _end(signature: str, at: int) -> int:
    if signature[at] == "a":
        return _end(signature, at + 1)
    if signature[at] not in "({":
        return at + 1
    depth = 0
    for position in range(at, len(signature)):
        depth += (signature[position] in "({") - (signature[position] in ")}")
        if not depth:
            return position + 1
    raise ValueError(f"no end in signature {signature!r}")


def _pad(out: bytearray, size: int) -> None:
    out.extend(bytes(-len(out) % size))


def _put(out: bytearray, kind: str, value: Any) -> None:
    first = kind[0]
    _pad(out, _ALIGN[first])
    if first in _NUMBERS:
        out += struct.pack(_ORDER + _NUMBERS[first], value)
    elif first in "so":
        data = value.encode()
        out += struct.pack(_ORDER + "I", len(data)) + data + b"\0"
    elif first == "g":
        out += bytes([len(value)]) + value.encode() + b"\0"
    elif first == "v":
        _put(out, "g", value[0])
        _put(out, value[0], value[1])
    elif first == "a":
        _put_array(out, kind[1:], value)
    else:
        for each, part in zip(split(kind[1:-1]), value, strict=True):
            _put(out, each, part)


def _put_array(out: bytearray, kind: str, value: Any) -> None:
    at = len(out)
    out += bytes(4)
    _pad(out, _ALIGN[kind[0]])
    start = len(out)
    if kind == "y":
        out += value
    else:
        for each in value.items() if kind[0] == "{" else value:
            _put(out, kind, each)
    struct.pack_into(_ORDER + "I", out, at, len(out) - start)


def _take(data: bytes, at: int, kind: str, order: str) -> tuple[Any, int]:
    first = kind[0]
    at += -at % _ALIGN[first]
    if first in _NUMBERS:
        (number,) = struct.unpack_from(order + _NUMBERS[first], data, at)
        return (bool(number) if first == "b" else number), at + struct.calcsize(order + _NUMBERS[first])
    if first in "sog":
        size, head = (data[at], 1) if first == "g" else (struct.unpack_from(order + "I", data, at)[0], 4)
        return data[at + head : at + head + size].decode(errors="replace"), at + head + size + 1
    if first == "v":
        inner, at = _take(data, at, "g", order)
        value, at = _take(data, at, inner, order)
        return (inner, value), at
    if first == "a":
        return _take_array(data, at, kind[1:], order)
    parts: list[Any] = []
    for each in split(kind[1:-1]):
        part, at = _take(data, at, each, order)
        parts.append(part)
    return tuple(parts), at


def _take_array(data: bytes, at: int, kind: str, order: str) -> tuple[Any, int]:
    (size,) = struct.unpack_from(order + "I", data, at)
    at += 4
    at += -at % _ALIGN[kind[0]]
    end = at + size
    if kind == "y":
        return data[at:end], end
    found: list[Any] = []
    while at < end:
        value, at = _take(data, at, kind, order)
        found.append(value)
    return (dict(found) if kind[0] == "{" else found), end
