"""An emulated metadata service in the test's own process, with papers of an emulated region.

Comes in: a folder, which instance it is of. Goes out: a Unix socket's URL, what was asked, notices that a test sets.
Called by: tests of the agent, and `cloud`, which puts the same files into hosts.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import TracebackType

from orchestrator.model import instance
from tests.provision.aws.papers import INSTANCE, document, region
from tests.testbed.metadata_host import Handler, UnixService


def papers_of(name: str, text: str = "", signature: str = "") -> dict[str, str]:
    """The answers by their path: true papers of that instance, unless others are given."""
    text = text or document(name)
    return {
        instance.DOCUMENT_PATH: text,
        instance.SIGNATURE_PATH: signature or region().sign(text),
        "/latest/meta-data/instance-id": name,
        "/latest/meta-data/iam/security-credentials/node": json.dumps({"AccessKeyId": "ASIAEMULATED"}),
    }


def put(folder: Path, answers: dict[str, str]) -> None:
    """From now on these are the answers at these paths."""
    for path, text in answers.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.new")
        draft.write_text(text)
        draft.rename(file)


class Emulated:
    """One service; a context manager that ends it."""

    def __init__(self, folder: Path, name: str = INSTANCE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.answers, self._socket = folder / "answers", folder / "s"
        self.answers.mkdir()
        put(self.answers, papers_of(name))
        self._server = UnixService(str(self._socket), Handler)
        self._server.prepare(str(self.answers))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """For an agent's config."""
        return f"unix:{self._socket}"

    @property
    def asked(self) -> list[str]:
        """Every path that was asked for, in its order."""
        return self._server.asked

    def say(self, path: str, text: str) -> None:
        """Another answer at that path."""
        put(self.answers, {path: text})

    def forget_tokens(self) -> None:
        """As when their time is over."""
        self._server.tokens.clear()

    def __enter__(self) -> Emulated:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
