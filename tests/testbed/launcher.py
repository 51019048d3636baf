"""The cloud's own side of a launch: whatever instance the emulated account runs becomes a real host of the testbed.

Comes in: a bed, an account (tests.aws), the image's preparation. Goes out: for each running instance a host with its
private address, its metadata service and its user-data; the plug pulled where the account has ended it. Called by:
test_hybrid. It asks the account as any client does, in a thread of its own, and works for nobody but the account: it
never hears of Gangline's intents.

What is emulated: the metadata service, the signing of documents, and what the hosts do not have of their type, GPUs
above all: the agent is told to say that it has them.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import ip_address
from types import TracebackType
from typing import Any

from tests.aws.moto_server import REGION, Account
from tests.provision.aws.papers import document
from tests.testbed import base, cloud
from tests.testbed.bed import AT_ONCE, Bed, Host
from tests.testbed.lab import until
from tests.testbed.metadata import papers_of

LOOK_S = 0.3
LONGEST_S = 240.0  # a host boots, fetches its agent and joins in some ten seconds, three at once in more
LIVE = ("pending", "running")
BOOT_BEGIN = "cat > /etc/gangline/boot.json <<'END-OF-GANGLINE'\n"


class Launcher:
    """A context manager; `hosts` are those that are on, by instance. What goes wrong in it is raised at its end."""

    def __init__(
        self, bed: Bed, account: Account, agent: dict[str, Any], prepare: Callable[[Host], None]
    ) -> None:
        self._bed, self.account, self._agent, self._prepare = bed, account, agent, prepare
        self._ec2 = account.client("ec2")
        self._booting: dict[str, Future[None]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._faults: list[Exception] = []
        self.hosts: dict[str, Host] = {}
        self.ever: list[str] = []

    def __enter__(self) -> Launcher:
        base.trees(("12",))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._pool.shutdown()
        for name in list(self.hosts):
            self._end(name)
        if self._faults and error is None:
            raise self._faults[0]

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Until it is so; what went wrong in here meanwhile is raised at once."""
        until(lambda: self._faults or ready(), what, LONGEST_S)
        if self._faults:
            raise self._faults[0]

    def _work(self) -> None:
        try:
            while not self._over.wait(LOOK_S):
                self._look()
        except Exception as error:  # noqa: BLE001 - raised in the test's own thread at the end
            self._faults.append(error)

    def _look(self) -> None:
        found = {
            one["InstanceId"]: one
            for page in self._ec2.describe_instances()["Reservations"]
            for one in page["Instances"]
            if one["State"]["Name"] in LIVE
        }
        for name in [name for name in self.hosts if name not in found]:
            self._end(name)
        for name, one in found.items():
            if name not in self.hosts:
                self._begin(name, one)

    def _begin(self, name: str, one: dict[str, Any]) -> None:
        number = int(ip_address(one["PrivateIpAddress"])) - int(ip_address(self._bed.network.address(0)))
        host = self._bed.host(name[: len("i-") + 8], index=number)
        assert host.address == one["PrivateIpAddress"]
        self.hosts[name] = host
        self.ever.append(name)
        asked = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        user_data = base64.b64decode(asked["UserData"]["Value"]).decode()
        self._booting[name] = self._pool.submit(self._boot, host, one, user_data)

    def _boot(self, host: Host, one: dict[str, Any], user_data: str) -> None:
        text = document(
            one["InstanceId"],
            region=REGION,
            availabilityZone=one["Placement"]["AvailabilityZone"],
            instanceType=one["InstanceType"],
            imageId=one["ImageId"],
            privateIp=host.address,
        )
        try:
            host.boot()
            host.used = True
            self._prepare(host)
            papers = papers_of(one["InstanceId"], text)
            cloud.launched(self._bed, host, one["InstanceId"], saying(user_data, self._agent), papers)
        except Exception as error:  # noqa: BLE001 - raised in the test's own thread at the end
            self._faults.append(error)

    def _end(self, name: str) -> None:
        """The plug, once it is in: a host in the middle of its boot is waited for."""
        self._booting.pop(name).result()
        self._bed.drop(self.hosts.pop(name).name)


def saying(user_data: str, agent: dict[str, Any]) -> str:
    """The same user-data with more words for the agent's config."""
    before, begin, rest = user_data.partition(BOOT_BEGIN)
    assert begin, "user-data has no boot.json"
    line, end, after = rest.partition("\n")
    words = json.loads(line)
    words["agent"] = {**words["agent"], **agent}
    return before + begin + json.dumps(words) + end + after
