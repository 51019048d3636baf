"""The agent on a real host, from bare OS to accepted: it joins, and its job survives its healing."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.model.cluster import (
    ClusterSpec,
    Emulate,
    GpuSpec,
    Host,
    Identity,
    IdentitySource,
    Pool,
    Site,
    SiteKind,
    Ssh,
    User,
)
from orchestrator.model.host import Desired
from orchestrator.model.ids import AttemptId
from orchestrator.model.installed import AGENT_CONFIG
from orchestrator.model.job import Owner
from orchestrator.model.protocol import EventKind
from orchestrator.planning.desired import Resolved, desired
from orchestrator.provision.metal import ansible, archive, render
from orchestrator.provision.metal.ssh import lay
from tests.agent.fake_controller import JOIN_TOKEN, FakeController
from tests.agent.running import shell
from tests.testbed.bed import Bed

pytestmark = pytest.mark.testbed
FIRST = AttemptId(1, 1)
ALICE = Owner("alice", 1500, 1500)


@contextmanager
def relay(address: str, port: int) -> Iterator[int]:
    """A port of the bed's own network that leads to one of loopback."""
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        _shut(sink)

    def start(deed: Callable[..., None], *what: socket.socket) -> None:
        threads.append(threading.Thread(target=deed, args=what))
        threads[-1].start()

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                opened.append(client)
                opened.append(socket.create_connection(("127.0.0.1", port)))
                start(carry, client, opened[-1])
                start(carry, opened[-1], client)

    server = socket.create_server((address, 0))
    opened.append(server)
    start(serve)
    try:
        yield server.getsockname()[1]
    finally:
        for each in opened:
            _shut(each)
        for thread in threads:
            thread.join()
        for each in opened:
            each.close()


def _shut(found: socket.socket) -> None:
    with suppress(OSError):
        found.shutdown(socket.SHUT_RDWR)


def play(folder: Path, playbook: str, *roles: str) -> ansible.HostRun:
    tokens = {"gangline_join_tokens": {"h1": JOIN_TOKEN}}
    wanted = ansible.Play(folder, playbook, hosts=("h1",), roles=roles, secret_vars=tokens)
    return asyncio.run(ansible.play(wanted, lambda _: None))["h1"]


def test_from_bare_to_accepted_and_a_job_through_a_healed_agent(testbed: Bed, tmp_path: Path) -> None:
    (host,) = testbed.fresh(1, "13")
    controller = FakeController()
    try:
        with relay(testbed.gateway, int(controller.url.rpartition(":")[2])) as port:
            url = f"http://{testbed.gateway}:{port}"
            site = Site(
                "hall",
                SiteKind.METAL,
                ssh=Ssh(user="ops", key=f"file:{testbed.key}"),
                hosts=(Host("h1", host.address),),
            )
            pool = Pool("h100", "hall", ("h1",), gpu=GpuSpec("H100", 8, Emulate.ALWAYS))
            identity = Identity(IdentitySource.PUSHED, users=(User("alice", 1500),))
            spec = ClusterSpec("atlas", identity=identity, sites=(site,), pools=(pool,))
            agent = archive.agent_archive()
            wanted = desired(spec, pool, Resolved(agent.sha256, url, "", "test"))
            folder = rendered(tmp_path, spec, wanted, url)

            early = play(folder, "accept.yml")
            assert not early.ok
            assert "agent enrolled: wanted a token of its own, found none" in early.error

            assert play(folder, "site.yml").error == ""
            controller.wait(lambda: controller.requests, "contact")
            accepted = play(folder, "accept.yml")
            assert accepted.error == ""
            assert accepted.acceptance is not None
            assert accepted.acceptance["boot_id"] == host.boot_id()
            assert {each["name"] for each in accepted.acceptance["proofs"]} >= {
                "agent connected",
                "clock",
                "agent unit",
            }
            assert '"ok": true' in host.inside("cat /run/gangline/acceptance.json").check()
            assert host.inside("stat -c %a /var/lib/gangline-agent/token").check() == "600"

            controller.run("h1", FIRST, shell("exec sleep 300", owner=ALICE, node="h1"))
            pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
            assert host.inside(f"stat -c %U /proc/{pid}").check() == "alice"
            host.inside(f"sed -i s/1000/2000/ {AGENT_CONFIG}").check()
            healed = play(folder, "site.yml", "agent")
            assert (healed.error, len(healed.changes)) == ("", 2), "the file, and the unit that reads it"
            assert host.inside(f"cat /proc/{pid}/comm").check() == "sleep", "the job has not noticed"
            controller.end("h1", FIRST)
            controller.wait_for(FIRST, EventKind.ENDED)
    finally:
        controller.close()


def rendered(tmp_path: Path, spec: ClusterSpec, wanted: Desired, url: str) -> Path:
    access = lay(spec.sites[0], tmp_path, os.environ)
    first = ["ssh", "-F", str(access.config_first), "h1", "true"]
    assert os.spawnvp(os.P_WAIT, "ssh", first) == 0
    rendering = render.Rendering(
        spec, {"h100": wanted}, ssh_configs={"hall": access.config}, controller_url=url
    )
    render.write(tmp_path / "out", render.render(rendering, archive.agent_archive()))
    return tmp_path / "out"
