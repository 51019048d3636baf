"""A join token as one line of text: the secret, where its controller is called, and what that one is known by.

Comes in: the parts, or a line. Goes out: the line, or the parts. Called by: api (writes lines), agent (reads them).

    SECRET                                  no more than the secret: whoever has it must know the rest from elsewhere
    SECRET@https://HOST:PORT                called there and nowhere else
    SECRET@https://HOST:PORT#sha256:HEX     and only if its certificate is signed by the one with this SHA-256
"""

from __future__ import annotations

from dataclasses import dataclass

_MARK = "#sha256:"
_TLS = "https://"
_HEX = 64  # digits of a SHA-256


@dataclass(frozen=True, slots=True)
class JoinLine:
    """The parts. `ca_sha256`: hex, lower case, of the DER form of the certificate that everything is trusted by."""

    secret: str
    url: str = ""
    ca_sha256: str = ""

    @property
    def text(self) -> str:
        """The line, without its end."""
        if not self.url:
            return self.secret
        return f"{self.secret}@{self.url}" + (f"{_MARK}{self.ca_sha256}" if self.ca_sha256 else "")


def parse(text: str) -> JoinLine:
    """The parts of a line; ValueError says what is wrong, without a word of the secret."""
    words = text.split()
    if len(words) != 1:
        raise ValueError(
            "expected one join token on one line, " + ("and it is empty" if not words else "got more")
        )
    secret, at, rest = words[0].partition("@")
    url, mark, digits = rest.partition("#")
    if not secret or (at and not url):
        raise ValueError("expected SECRET or SECRET@URL#sha256:DIGITS, and a part is missing")
    if not mark:
        return JoinLine(secret, url)
    digits = (mark + digits).removeprefix(_MARK).lower()
    if len(digits) != _HEX or digits.strip("0123456789abcdef"):
        raise ValueError(
            f"after the address there has to be {_MARK} and {_HEX} hex digits: the line is cut or changed"
        )
    if not url.startswith(_TLS):
        raise ValueError(
            "a certificate is named, and the address is not https: the secret would be sent to anybody"
        )
    return JoinLine(secret, url, digits)
