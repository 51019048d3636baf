"""How each kind of item is made true on a Debian or Ubuntu host.

Comes in: items of one kind and what differs of them. Goes out: a host that has them, or `Failed` in words. Called by:
the Ansible module gangline_items, which looks before and after. Everything here can be repeated after a kill at any
point: what was not finished differs still.
"""

from __future__ import annotations

import fcntl
import grp
import itertools
import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

Plain = dict[str, Any]

APT = [
    "apt-get",
    "--assume-yes",
    "--quiet=2",
    "--option=DPkg::Lock::Timeout=300",  # another run of apt is waited for
    "--option=Acquire::Languages=none",
    "--option=Dpkg::Options::=--force-confdef",  # files that people have changed stay, and nobody is asked
    "--option=Dpkg::Options::=--force-confold",
]
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "l",  # Ubuntu's needrestart would restart services of running work
}
LAST_LINES = 3
ACCOUNTS = "/etc/passwd"
UID, GID, HOME = 2, 3, 5  # fields of an entry there
GID_OF_GROUP = 2  # of an entry in /etc/group
FIRST_PERSON, NOBODY = (
    1000,
    65534,
)  # numbers below the first, and the second, are the system's own (Debian Policy, 9.2.2)
SET_ASIDE = ".set-aside-by-gangline"


class Failed(Exception):
    """A host could not be made as wanted; the text is for people."""


def call(argv: list[str], text: str | None = None) -> str:
    """Run a program; Failed with its last words if it fails."""
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, check=False, env={**os.environ, **ENVIRONMENT}
        )
    except OSError as error:
        raise Failed(f"{argv[0]}: {error.strerror}") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-LAST_LINES:]
        raise Failed(f"{' '.join(argv[:1] + _arguments(argv))}: {' '.join(words) or done.returncode}")
    return done.stdout


def _arguments(argv: list[str]) -> list[str]:
    return [word for word in argv[1:] if not word.startswith("--")]


def heal_all(items: list[Plain], drift: list[Plain], look: Callable[[], list[Plain]]) -> list[Plain]:
    """Heal items in their order, neighbours of one kind together; then restart units that run with older files.

    `look` tells what differs now. Failed if something does in the end. Returns what was healed, restarts included.
    """
    _heal_once(items, drift)
    left = look()
    if not all(map(_late, left)):  # healing one thing may have moved another: a package its service
        _heal_once(items, left)
        left = look()
    late = [each for each in left if _late(each)]
    if late:
        restart_late_units(late)
        left = look()
    if left:
        raise Failed("still not as wanted: " + "; ".join(map(in_words, left)))
    return [*drift, *(each for each in late if each not in drift)]


def _heal_once(items: list[Plain], drift: list[Plain]) -> None:
    for kind, batch in itertools.groupby(items, key=lambda item: str(item["kind"])):
        wanted = list(batch)
        names = {item["name"] for item in wanted}
        mine = [each for each in drift if each["kind"] == kind and each["name"] in names and not _late(each)]
        if mine and kind in HEALERS:
            HEALERS[kind](wanted, mine)


def _late(each: Plain) -> bool:
    """A unit whose process is older than what it reads at its start."""
    return (each["kind"], each["value"]) == ("unit", "runs")


def in_words(each: Plain) -> str:
    """`package chrony: held no -> yes`."""
    return f"{each['kind']} {each['name']}: {each['value']} {each['found'] or 'absent'} -> {each['wanted']}"


def names_of(drift: Iterable[Plain], *values: str) -> set[str]:
    """Names of items of which one of these values differs; of all items without values."""
    return {each["name"] for each in drift if not values or each["value"] in values}


# --- packages --------------------------------------------------------------------------------------------------------


def heal_packages(items: list[Plain], drift: list[Plain]) -> None:
    """Bring versions, then holds. What must change is let go before, and all else that is held keeps its version."""
    install = names_of(drift, "present", "version", "status")
    if names_of(drift, "status"):
        call(["dpkg", "--configure", "--pending"])
    if install:
        set_selections(dict.fromkeys(install & _known(install), "install"))
        _install([_pinned(item) for item in items if item["name"] in install])
    holds = {item["name"]: item["values"]["held"] for item in items if item["values"].get("held")}
    set_selections({name: "hold" if held == "yes" else "install" for name, held in holds.items()})


def _pinned(item: Plain) -> str:
    version = item["values"].get("version", "")
    return f"{item['name']}={version}" if version else item["name"]


def _install(wanted: list[str]) -> None:
    """With the package lists that are there, or, if they do not know what is wanted, with new ones."""
    install = [*APT, "install", "--no-install-recommends", "--allow-downgrades", "--", *sorted(wanted)]
    try:
        call(install)
    except Failed:
        call([*APT, "update"])
        call(install)


def set_selections(wanted: dict[str, str]) -> None:
    """As `apt-mark hold` and `unhold`, for all at once."""
    if wanted:
        call(["dpkg", "--set-selections"], "".join(f"{name} {state}\n" for name, state in wanted.items()))


def _known(names: Iterable[str]) -> set[str]:
    """Those that dpkg has any record of."""
    form = ["dpkg-query", "--show", "--showformat=${Package}\\n", *sorted(names)]
    done = subprocess.run(form, capture_output=True, text=True, check=False)
    return set(done.stdout.split())


# --- files -----------------------------------------------------------------------------------------------------------


def heal_files(items: list[Plain], drift: list[Plain]) -> None:
    """Write, replace, and set mode and owner. Parents that are missing are made as root's, for all to pass."""
    for item in items:
        wrong = {each["value"] for each in drift if each["name"] == item["name"]}
        if not wrong:
            continue
        try:
            _heal_file(item["name"], item["values"], wrong)
        except (OSError, KeyError) as error:
            raise Failed(f"{item['name']}: {getattr(error, 'strerror', None) or error}") from None


def _heal_file(path: str, values: Plain, wrong: set[str]) -> None:
    uid, gid = _ids(values)
    mode = int(values["mode"], 8)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if "content" not in values:
        if "type" in wrong:
            os.rename(path, path + SET_ASIDE)
        os.makedirs(path, exist_ok=True)
    elif wrong & {"present", "content", "type"}:
        if stat.S_ISDIR(_mode(path)):
            os.rename(path, path + SET_ASIDE)
        write(path, values["content"].encode(), mode, uid, gid)
    os.chown(path, uid, gid)
    os.chmod(path, mode)


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _ids(values: Plain) -> tuple[int, int]:
    try:
        return pwd.getpwnam(values["owner"]).pw_uid, grp.getgrnam(values["group"]).gr_gid
    except KeyError as error:
        raise Failed(f"the owner is unknown on this host: {error.args[0]}") from None


def write(path: str, data: bytes, mode: int, uid: int, gid: int) -> None:
    """Whole or not at all, and on disk before it has its name."""
    handle, draft = tempfile.mkstemp(prefix=".gangline-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchown(file.fileno(), uid, gid)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


# --- sysctls ---------------------------------------------------------------------------------------------------------


def heal_sysctls(items: list[Plain], drift: list[Plain]) -> None:
    """Set the values that are in force; the file that sets them at a boot is an item of its own."""
    for item in items:
        if item["name"] in names_of(drift):
            call(["sysctl", "--quiet", "--write", f"{item['name']}={item['values']['value']}"])


# --- users -----------------------------------------------------------------------------------------------------------


def heal_groups(items: list[Plain], drift: list[Plain]) -> None:
    """Make groups and give them their numbers. Files keep the numbers that they have."""
    for item in items:
        wrong = {each["value"] for each in drift if each["name"] == item["name"]}
        if wrong:
            _renumber_group(item["name"], item["values"]["gid"])


def _renumber_group(name: str, gid: str) -> None:
    """Make it or give it the number. Failed for a group of the system's: its files would be nobody's."""
    found = [line.split(":") for line in _lines("/etc/group") if line.startswith(f"{name}:")]
    if found and _of_the_system(int(found[0][GID_OF_GROUP])):
        raise Failed(f"group {name}: this host's system has a group of that name, {found[0][GID_OF_GROUP]}")
    call(["groupmod" if found else "groupadd", "--gid", gid, name])


def _of_the_system(number: int) -> bool:
    return number < FIRST_PERSON or number == NOBODY


def _is_the_systems(name: str) -> bool:
    return any(
        line.startswith(f"{name}:") and _of_the_system(int(line.split(":")[UID])) for line in _lines(ACCOUNTS)
    )


def heal_users(items: list[Plain], drift: list[Plain]) -> None:
    """Make and change users; their groups are made where they are missing. Nobody's files are touched."""
    for item in items:
        wrong = {each["value"] for each in drift if each["name"] == item["name"]}
        groups = list(filter(None, item["values"].get("groups", "").split(",")))
        if wrong and item["values"].get("system") != "yes" and _is_the_systems(item["name"]):
            raise Failed(f"user {item['name']}: this host's system has an account of that name")
        if wrong:
            for group in groups:
                _make_group(group)
        if "present" in wrong:
            _make_user(item["name"], item["values"], groups)
        elif wrong:
            _change_user(item["name"], item["values"], groups, wrong)


def _make_group(name: str, gid: str = "") -> None:
    number = ["--gid", gid] if gid else []
    if not any(line.startswith(f"{name}:") for line in _lines("/etc/group")):
        call(["groupadd", "--system", *number, name])


def _make_user(name: str, values: Plain, groups: list[str]) -> None:
    argv = ["useradd", "--home-dir", values["home"], "--shell", values["shell"]]
    argv += ["--uid", values["uid"]] if values.get("uid") else []
    argv += ["--groups", ",".join(groups)] if groups else []
    argv += ["--system"] if values.get("system") == "yes" else ["--create-home"]
    own = any(line.startswith(f"{name}:") for line in _lines("/etc/group"))
    call([*argv, "--gid" if own else "--user-group", *([name] if own else []), name])


def _change_user(name: str, values: Plain, groups: list[str], wrong: set[str]) -> None:
    if "group" in wrong:
        _mend_own_group(name, values)
    argv = ["--shell", values["shell"]] if "shell" in wrong else []
    argv += ["--groups", ",".join(groups)] if "groups" in wrong else []
    if argv:
        call(["usermod", *argv, name])
    fields = {UID: values.get("uid", ""), HOME: values["home"]}
    changed = {UID: "uid", HOME: "home"}
    rewrite_entry(name, {field: fields[field] for field, key in changed.items() if key in wrong})


def _mend_own_group(name: str, values: Plain) -> None:
    """A person's own group has their name and number; the group of another account gets a name."""
    if values.get("system") == "yes":
        _make_group(name, str(pwd.getpwnam(name).pw_gid))
        return
    uid = values.get("uid") or str(pwd.getpwnam(name).pw_uid)
    _renumber_group(name, uid)
    rewrite_entry(name, {GID: uid})


def rewrite_entry(name: str, fields: dict[int, str], accounts: str = ACCOUNTS) -> None:
    """Set fields of a user's entry, whatever the user runs: usermod refuses these two while it runs anything, and gives
    the files of its home away. Under the lock that all tools for accounts take."""
    if not fields:
        return
    lock = os.open(os.path.join(os.path.dirname(accounts), ".pwd.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        with open(accounts, "rb") as file:
            entries = [line.split(b":") for line in file.read().splitlines()]
        for entry in entries:
            if entry[0] == name.encode():
                for field, text in fields.items():
                    entry[field] = text.encode()
            elif len(entry) > UID and entry[UID].decode(errors="replace") == fields.get(UID):
                raise Failed(
                    f"user {name}: the number {fields[UID]} is {entry[0].decode(errors='replace')}'s"
                )
        write(accounts, b"".join(b":".join(entry) + b"\n" for entry in entries), 0o644, *_owner(accounts))
    finally:
        os.close(lock)


def _owner(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_uid, found.st_gid


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


# --- units -----------------------------------------------------------------------------------------------------------


def heal_units(items: list[Plain], drift: list[Plain]) -> None:
    """Overrides aside, then unmask, enable and start, or stop, disable and mask."""
    for each in drift:
        if each["value"] == "overrides":
            for path in each["found"].split():
                os.rename(path, path + SET_ASIDE)
    call(["systemctl", "daemon-reload"])
    for item in items:
        if item["name"] in names_of(drift):
            _heal_unit(item["name"], item["values"])


def _heal_unit(unit: str, values: Plain) -> None:
    steps = [
        ("masked", "no", "unmask"),
        ("enabled", "yes", "enable"),
        ("active", "yes", "start"),
        ("active", "no", "stop"),
        ("enabled", "no", "disable"),
        ("masked", "yes", "mask"),
    ]
    for key, wanted, verb in steps:
        if values.get(key) == wanted:
            call(["systemctl", verb, "--", unit])


def restart_late_units(late: list[Plain]) -> None:
    """Units whose process is older than the files that it reads."""
    call(["systemctl", "daemon-reload"])
    call(["systemctl", "restart", "--", *sorted(names_of(late))])


# --- what is wanted no more ------------------------------------------------------------------------------------------


def let_go(items: list[Plain], dry: bool) -> list[str]:
    """Undo what would bind the host while nobody remembers it: units stop, then files and accounts go, holds end.
    Packages stay installed, home folders and folders with something in them stay. Returns what was done, in words."""
    order = ("unit", "file", "archive", "user", "package")
    done = []
    for item in sorted(items, key=lambda item: order.index(item["kind"]) if item["kind"] in order else 9):
        undo, words = UNDO.get(item["kind"], (_nothing, ""))
        if undo(item["name"], item["values"], dry):
            done.append(f"{item['kind']} {item['name']}: {words}")
    return done


def _nothing(_name: str, _values: Plain, _dry: bool) -> bool:
    return False


def _undo_unit(name: str, _values: Plain, dry: bool) -> bool:
    shown = call(["systemctl", "show", "--property=LoadState,ActiveState,UnitFileState", "--", name])
    state = dict(line.partition("=")[::2] for line in shown.splitlines())
    idle = state["ActiveState"] in ("inactive", "failed") and state["UnitFileState"] != "enabled"
    if state["LoadState"] == "not-found" or idle:
        return False
    if not dry:
        call(["systemctl", "disable", "--now", "--", name])
    return True


def _undo_file(name: str, values: Plain, dry: bool) -> bool:
    mode = _mode(name)
    if not mode or (stat.S_ISDIR(mode) and (os.listdir(name) or "content" in values)):
        return False
    if not dry and stat.S_ISDIR(mode):
        os.rmdir(name)
    elif not dry:
        os.unlink(name)
        if name.startswith("/etc/systemd/"):
            call(["systemctl", "daemon-reload"])
    return True


def _undo_user(name: str, _values: Plain, dry: bool) -> bool:
    if not any(line.startswith(f"{name}:") for line in _lines(ACCOUNTS)) or _is_the_systems(name):
        return False
    if dry:
        return True
    try:
        call(["userdel", name])
    except Failed:  # something of theirs runs: it runs on, as a number
        call(["userdel", "--force", name])
    return True


def _undo_package(name: str, _values: Plain, dry: bool) -> bool:
    lines = call(["dpkg", "--get-selections"]).splitlines()
    if name not in {line.split()[0].partition(":")[0] for line in lines if line.endswith("hold")}:
        return False
    if not dry:
        set_selections({name: "install"})
    return True


UNDO: dict[str, tuple[Callable[[str, Plain, bool], bool], str]] = {
    "unit": (_undo_unit, "stopped and disabled"),
    "file": (_undo_file, "removed"),
    "archive": (_undo_file, "removed"),
    "user": (_undo_user, "account removed, home kept"),
    "package": (_undo_package, "no longer held"),
}
HEALERS: dict[str, Callable[[list[Plain], list[Plain]], None]] = {
    "package": heal_packages,
    "file": heal_files,
    "sysctl": heal_sysctls,
    "user": heal_users,
    "group": heal_groups,
    "unit": heal_units,
}
