"""Which controller the agent talks to, what that one is known by, and what the node shows of itself.

Comes in: the config, join tokens with pins. Goes out: an endpoint, TLS contexts, or a `PinError`: a sentence that says
why a join token is not for the controller that the config names. Called by: daemon, join.

What the config says stands. What it leaves out (the address, the certificate authority) comes from a join token's
line, and is kept: STATE/controller.json has the pins, STATE/ca-SUM.pem the certificate. That may be fetched from
anybody, since only the one with the pinned SHA-256 is taken. The secret goes to nobody whom it does not vouch for.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from orchestrator.agent import keypair, log
from orchestrator.agent.channel import Endpoint, parse_url
from orchestrator.agent.config import Config, ConfigError
from orchestrator.model import join_line
from orchestrator.model.join_line import JoinLine

if TYPE_CHECKING:
    import ssl

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class PinError(Exception):
    """The join token is for another controller, or its certificate is not to be had; the text is for people."""


class Trust:
    """See the module."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pins = self._stored()

    @property
    def url(self) -> str:
        """Where the controller is called; empty as long as nobody has said it."""
        return self._config.url or self._pins.url

    @property
    def endpoint(self) -> Endpoint:
        """The same, taken apart; the address must be known."""
        return parse_url(self.url)

    def context(self, *, show_key: bool = True) -> ssl.SSLContext | None:
        """For everything but a join: trusts what the config or the join token said, and shows the node's key if it has
        one. None without TLS. ConfigError if the certificate authority can't be read."""
        if not self.endpoint.tls:
            return None
        import ssl

        ca = self._ca_of(self._pins)
        try:
            context = ssl.create_default_context(cafile=ca or None)
        except OSError as error:
            raise ConfigError(f"{ca}: {error.strerror or error}: no certificate authority to trust") from None
        if show_key:
            self._show_key(context)
        return context

    def _show_key(self, context: ssl.SSLContext) -> None:
        path = keypair.identity_path(self._config.state_dir)
        if not os.path.exists(path):
            return
        try:
            context.load_cert_chain(path)
        except OSError as error:
            log.error(
                f"{path}: {error.strerror or error}: the node's key pair is lost, and its token may be worth nothing "
                "without it; a new join token lets it in again"
            )

    # --- joining ---------------------------------------------------------------------------------------------------

    def read_line(self) -> JoinLine:
        """The join token as the config's file has it now; PinError if there is none."""
        path = self._config.join_token_file
        try:
            with open(path, encoding="utf-8") as file:
                return join_line.parse(file.read())
        except OSError as error:
            raise PinError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise PinError(f"{path}: {error}") from None

    def newer_line(self) -> bool:
        """Whether the join token's file says another address or authority than the one before, and the config does not
        say them itself."""
        try:
            line = self.read_line()
            self.agree(line)
        except PinError:
            return False
        moved = not self._config.url and line.url not in ("", self._pins.url)
        return moved or (not self._config.ca and line.ca_sha256 not in ("", self._pins.ca_sha256))

    def other_controller(self) -> bool:
        """Whether the join token is for one of another authority than the last join was with, and the config agrees."""
        try:
            line = self.read_line()
            self.agree(line)
        except PinError:
            return False
        return bool(line.ca_sha256 and self._pins.ca_sha256) and line.ca_sha256 != self._pins.ca_sha256

    def agree(self, line: JoinLine) -> None:
        """PinError unless the config goes with what a join token pins."""
        where, config = self._config.join_token_file, self._config
        try:
            pinned = parse_url(line.url) if line.url else None
        except ValueError as error:
            raise PinError(f"{where}: the join token's address: {error}") from None
        if pinned is None and not self.url:
            raise PinError(f"{where}: the join token has no address, and the config has no url: give it one")
        if pinned is not None and config.url and pinned != parse_url(config.url):
            raise PinError(
                f"{where}: the join token is for the controller at {line.url}, and the config's url is {config.url}: "
                "nothing was sent; give the join token of this controller, or change the url"
            )
        if line.ca_sha256 and config.ca and line.ca_sha256 not in _sums(config.ca):
            raise PinError(
                f"{where}: {config.ca} has no certificate with the SHA-256 {line.ca_sha256[:16]}..., which the join "
                "token asks for: nothing was sent; one of the two is of another controller, or old"
            )

    def endpoint_of(self, line: JoinLine) -> Endpoint:
        """Where to join with it; `agree` has passed."""
        return parse_url(self._config.url or line.url or self._pins.url)

    def has_ca(self, line: JoinLine) -> bool:
        """Whether the certificate that it pins is here, or none is."""
        return not line.ca_sha256 or line.ca_sha256 in _sums(self._ca_of(line))

    def joining(self, line: JoinLine) -> ssl.SSLContext:
        """For a join: trusts the pinned certificate alone, and shows no key. PinError if it can't be read."""
        import ssl

        ca = self._ca_of(line if line.url else self._pins)
        try:
            if line.ca_sha256:
                return ssl.create_default_context(cadata=_sums(ca)[line.ca_sha256])
            return ssl.create_default_context(cafile=ca or None)
        except (OSError, KeyError) as error:
            raise PinError(f"{ca}: no certificate authority to trust: {error}") from None

    def take_ca(self, line: JoinLine, body: bytes) -> None:
        """Keep a certificate that anybody may have sent, if it is the pinned one; else PinError."""
        text = _certificates(body.decode("ascii", errors="replace")).get(line.ca_sha256)
        if text is None:
            raise PinError(
                f"whoever answers at {line.url} is not the controller that the join token is for: its certificate "
                f"authority is not the one with the SHA-256 {line.ca_sha256[:16]}...; nothing was sent"
            )
        self._write(self._kept(line.ca_sha256), text)

    def keep(self, line: JoinLine) -> None:
        """The node was let in with it."""
        if line.url:
            self._pins = JoinLine("", line.url, line.ca_sha256)
            plain = {"url": line.url, "ca_sha256": line.ca_sha256}
            self._write(os.path.join(self._config.state_dir, "controller.json"), json.dumps(plain) + "\n")

    # --- files -----------------------------------------------------------------------------------------------------

    def _ca_of(self, line: JoinLine) -> str:
        """Where the certificate authority is that goes with a join token; empty: those that the system trusts."""
        return self._config.ca or (self._kept(line.ca_sha256) if line.ca_sha256 else "")

    def _kept(self, ca_sha256: str) -> str:
        return os.path.join(self._config.state_dir, f"ca-{ca_sha256[:16]}.pem")

    def _stored(self) -> JoinLine:
        """The pins of the last join, without a secret."""
        try:
            with open(os.path.join(self._config.state_dir, "controller.json"), encoding="utf-8") as file:
                plain: dict[str, Any] = json.load(file)
            return JoinLine("", str(plain["url"]), str(plain["ca_sha256"]))
        except (OSError, ValueError, KeyError, TypeError):
            return JoinLine("")

    def _write(self, path: str, text: str) -> None:
        draft = path + ".new"
        try:
            with open(draft, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, path)
        except OSError as error:
            raise PinError(f"{path}: {error.strerror}") from None


def blind() -> ssl.SSLContext:
    """Believes anybody: for asking for a certificate whose SHA-256 is known. No secret may go over it."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _sums(path: str) -> dict[str, str]:
    """The certificates in a PEM file by their SHA-256; nothing if it can't be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return _certificates(file.read())
    except (OSError, UnicodeDecodeError):
        return {}


def _certificates(text: str) -> dict[str, str]:
    """The certificates in a text by the SHA-256 of their DER form."""
    import ssl

    found = {}
    for part in text.split(_BEGIN)[1:]:
        body, end, _ = part.partition(_END)
        pem = f"{_BEGIN}{body}{_END}\n"
        try:
            found[hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()] = pem if end else ""
        except ValueError:
            continue
    return found
