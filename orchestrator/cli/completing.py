"""Live words for shell completion: ids of jobs, names of nodes and queues, within 300 ms or not at all.

Comes in: the beginning of a word. Goes out: what it could become. Called by: click, while a shell completes. A shell
must never wait for a controller that is away, nor see an error of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from orchestrator.client import Client

PATIENCE_S = 0.3

Ask = Callable[["Client"], list[CompletionItem]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _quickly(ask: Ask) -> list[CompletionItem]:
    """What the controller answers in time; a thread is left behind rather than waited for."""
    found: list[CompletionItem] = []

    def work() -> None:
        from orchestrator.cli.contexts import connect

        try:
            with connect(patience_s=0.0, timeout_s=PATIENCE_S) as client:
                found.extend(ask(client))
        except Exception:  # noqa: BLE001 - completion says nothing rather than something wrong
            return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return list(found)


def _matching(ask: Ask) -> Complete:
    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [item for item in _quickly(ask) if str(item.value).startswith(incomplete)]

    return complete


def _jobs(states: tuple[str, ...]) -> Ask:
    def ask(client: Client) -> list[CompletionItem]:
        page = client.jobs_page(states=states, limit=50)
        return [CompletionItem(str(job.id), help=f"{job.name} {job.state}") for job in page.items]

    return ask


LIVE = ("held", "waiting", "starting", "running", "ending")

any_job = _matching(_jobs(()))
live_job = _matching(_jobs(LIVE))
held_job = _matching(_jobs(("held",)))
waiting_job = _matching(_jobs(("waiting",)))
running_job = _matching(_jobs(("starting", "running")))
node = _matching(lambda client: [CompletionItem(each.name, help=each.pool) for each in client.nodes()])
queue = _matching(lambda client: [CompletionItem(each.name) for each in client.queues()])
