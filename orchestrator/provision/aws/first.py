"""The first step of a bought node, at each of its starts: fetches the agent from the controller.

Comes in: /etc/gangline/boot.json. Goes out: the certificate authority and the agent's archive on disk; then that
archive's own `--install` takes over. Called by: the unit that user-data makes; `boot` puts the text there, without
what is in here for readers alone. Standard library of Python 3.10.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

BOOT, CA, ARCHIVE = (
    Path("/etc/gangline/boot.json"),
    Path("/etc/gangline/ca.pem"),
    Path("/opt/gangline/agent.pyz"),
)
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
MOST = 64 << 20
LONGEST_PAUSE_S = 30.0


def say(text: str) -> None:
    """To the journal and the console."""
    sys.stdout.write(f"gangline: {text}\n")
    sys.stdout.flush()


def get(url: str, path: str, context: ssl.SSLContext, etag: str = "") -> tuple[int, bytes, str]:
    """Status, body and ETag."""
    place = urllib.parse.urlsplit(url)
    call = http.client.HTTPSConnection(place.hostname or "", place.port or 443, timeout=30, context=context)
    try:
        call.request("GET", place.path.rstrip("/") + path, headers={"If-None-Match": etag} if etag else {})
        answer = call.getresponse()
        body = answer.read(MOST)
        if answer.status not in (200, 304):
            raise OSError(f"it answered {answer.status} to GET {path}")
        return answer.status, body, (answer.getheader("ETag") or "").strip('"')
    finally:
        call.close()


def keep(path: Path, data: bytes) -> None:
    """The file is whole, or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.chmod(0o644)
    draft.rename(path)


def trusted(boot: dict[str, Any]) -> ssl.SSLContext:
    """Whoever answers may be anybody until the certificate with the pinned sum is here: it is public, and nothing
    that is secret is said."""
    wanted = boot["ca_sha256"]
    if not wanted:
        return ssl.create_default_context()
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    text = get(boot["url"], "/api/v1/ca", nobody)[1].decode("ascii", "replace")
    for part in text.split(BEGIN)[1:]:
        pem = BEGIN + part.partition(END)[0] + END + "\n"
        if hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() == wanted:
            keep(CA, pem.encode())
            return ssl.create_default_context(cadata=pem)
    raise OSError("whoever answers there does not have the pinned certificate authority")


def fetch(boot: dict[str, Any]) -> bool:
    """The archive is on disk; whether it is another than before."""
    have = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest() if ARCHIVE.exists() else ""
    status, body, wanted = get(boot["url"], "/api/v1/agent", trusted(boot), f'"{have}"' if have else "")
    if status == 304:
        return False
    if hashlib.sha256(body).hexdigest() != wanted:
        raise OSError("the agent did not come whole")
    keep(ARCHIVE, body)
    return True


def fetched(boot: dict[str, Any]) -> bool:
    """The same, however long it takes."""
    pause, said = 1.0, ""
    while True:
        try:
            return fetch(boot)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if str(error) != said:
                said = str(error)
                say(f"no agent from {boot['url']} yet: {said}")
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)


def main() -> None:
    """Ends as the archive's own first step."""
    boot = json.loads(BOOT.read_text())
    new = fetched(boot)
    say(f"the agent of pool {boot['pool']}, site {boot['site']}, is here")
    argv = [sys.executable, "-I", str(ARCHIVE), "--install", str(BOOT)]
    os.execv(sys.executable, argv + (["--anew"] if new else []))  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
