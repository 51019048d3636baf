"""The account that tests use: one server process for a session, emptied for each test, with words for what it shall do.

Comes in: nothing. Goes out: `Account` with its endpoint, boto3 clients, faults, capacity, time, and what was asked of
it. Called by: the fixture `aws` (tests.aws.fixture), and whoever starts one by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
SETTINGS = {"MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}  # images are a test's own
LONGEST_START_S = 60


@dataclass
class Account:
    """One account on one server. Offerings in words: `type`, `zone`, `market` (on_demand, spot, capacity_reservation,
    capacity_block); a word that is left out matches every one."""

    process: subprocess.Popen[str]
    port: int

    @classmethod
    def start(cls) -> Account:
        """Start a server; it ends with this process at the latest."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.aws.server"],
            cwd=ROOT, env=plain_environment() | SETTINGS, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.strip().isdigit(), f"the server ended with {process.poll()} before it listened"
        return cls(process, int(line))

    def stop(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=LONGEST_START_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Variables by which every AWS client talks to this server and to nothing else."""
        return KEYS | {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }  # fmt: skip

    def client(self, service: str, region: str = REGION, **options: Any) -> Any:
        """A boto3 client of it."""
        return _session().client(
            service, region_name=region, endpoint_url=self.endpoint, aws_access_key_id="testing",
            aws_secret_access_key="testing", **options,
        )  # fmt: skip

    def reset(self) -> None:
        """An empty account: moto's default networks, no instance, no fault."""
        self._ask("reset", {})

    def fail(
        self, code: str, *, operation: str = "", message: str = "", times: int | None = 1, **offering: str
    ) -> None:
        """Let calls of `operation`, or launches of an offering, fail with an error code; `times` None: for ever."""
        row = {"code": code, "operation": operation, "message": message, "times": times, **offering}
        self._ask("set", {"faults": [row]})

    def silent(self, operation: str, *, after: bool = True, times: int | None = 1) -> None:
        """Cut the connection of calls of `operation`: after acting, or instead of it."""
        row = {"operation": operation, "silence": "after" if after else "before", "times": times}
        self._ask("set", {"faults": [row]})

    def room(self, left: int, **offering: str) -> None:
        """There is room for so many more instances of an offering; those that end give theirs back."""
        self._ask("set", {"rooms": [{"left": left, **offering}]})

    def partial(self, *counts: int) -> None:
        """The next fleets end with so many instances each, whatever they asked for."""
        self._ask("set", {"partial": list(counts)})

    def quota(self, **values: float) -> None:
        """Virtual processors by quota code, with `_` for `-`: `quota(L_417A185B=192)`."""
        self._ask("set", {"quotas": {name.replace("_", "-"): value for name, value in values.items()}})

    def spot_price(self, dollars: float, **offering: str) -> None:
        """Dollars an hour from now on."""
        self._ask("set", {"spot": [{"price": dollars, **offering}]})

    def price(self, type_: str, dollars: float) -> None:
        """Dollars an hour on demand in us-east-1; other regions ask a quarter more."""
        self._ask("set", {"prices": {type_: dollars}})

    def visible_after(self, calls: int, *, gone_after: int = 0) -> None:
        """New instances are seen after so many Describe calls, ended ones are shutting-down for `gone_after` more."""
        self._ask("set", {"hide_new_for": calls, "ending_for": gone_after})

    def pass_time(self, seconds: float) -> None:
        """The account's clock is so far ahead of the machine's: reservations end by it, bills run by it."""
        self._ask("set", {"ahead_s": seconds})

    def calls(self, operation: str = "") -> list[dict[str, Any]]:
        """Requests since the last reset, oldest first: service, operation, params, error."""
        return [call for call in self._ask("calls") if operation in ("", call["operation"])]

    def misfits(self) -> list[str]:
        """Requests that botocore's own models don't allow, in words."""
        found: list[str] = self._ask("misfits")
        return found

    def bills(self) -> list[dict[str, Any]]:
        """Every instance that was ever launched: instance, type, market, zone, began, ended, seconds."""
        found: list[dict[str, Any]] = self._ask("bills")
        return found

    def image(self, name: str = "gangline-test") -> str:
        """A machine image of that name, made now. Its id."""
        root = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8, "VolumeType": "gp3"}}
        made = self.client("ec2").register_image(
            Name=name, Architecture="x86_64", RootDeviceName="/dev/sda1", VirtualizationType="hvm",
            BlockDeviceMappings=[root],
        )  # fmt: skip
        return str(made["ImageId"])

    def _ask(self, hook: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}/_ground/{hook}", data=data)
        with urllib.request.urlopen(request, timeout=LONGEST_START_S) as answer:
            return json.load(answer)


@cache
def _session() -> Any:
    """One for all clients of this process: it reads EC2's model, which takes half a second, once."""
    import boto3

    return boto3.session.Session()


def plain_environment() -> dict[str, str]:
    """This process's variables without any of AWS, Pulumi or Gangline: none of a person's own reaches a test."""
    return {
        k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PULUMI_", "GANGLINE_", "MOTO_"))
    }


def main() -> None:
    """A server by hand: prints its endpoint and runs until it is interrupted."""
    account = Account.start()
    sys.stdout.write(f"export AWS_ENDPOINT_URL={account.endpoint}\n")
    sys.stdout.flush()
    try:
        while account.process.poll() is None:
            time.sleep(1)
    except KeyboardInterrupt:
        account.stop()


if __name__ == "__main__":
    main()
