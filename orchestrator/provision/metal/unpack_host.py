"""Make a folder hold what the controller's archive holds: this file starts that archive on its host.

Comes in: the archive that this file lies in, as `python3 -I controller.pyz --unpack FOLDER`. Goes out: the folder, with
each file that differed written anew and each that the archive does not have taken away; an exit code. Called by: the
unit of the controller before each start, as root, so that what runs is what was brought, whoever changed it meanwhile.

Standard library only. Every file is replaced in one step: a start that is killed leaves files that are old or new.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import zipfile

OWN = "__main__.py"
LEAST = (3, 11)
FOLDER_MODE, FILE_MODE = 0o755, 0o644


def unpack(archive: str, folder: str) -> list[str]:
    """Returns the paths that differed. OSError where it can't be done; zipfile.BadZipFile for a torn archive."""
    with zipfile.ZipFile(archive) as packed:
        names = [name for name in packed.namelist() if name != OWN]
        wrong = _strangers(folder, set(names))
        for path in wrong:
            _remove(os.path.join(folder, path))
        for inner in sorted({os.path.dirname(name) for name in names}):
            os.makedirs(os.path.join(folder, inner), FOLDER_MODE, exist_ok=True)
        for name in names:
            data = packed.read(name)
            if not _holds(os.path.join(folder, name), data):
                _write(os.path.join(folder, name), data)
                wrong.append(name)
    return wrong


def _strangers(folder: str, wanted: set[str]) -> list[str]:
    """What lies in the folder and is none of the archive's, by path in it: files, links, and folders of no use."""
    folders = {""}
    for name in wanted:
        above = os.path.dirname(name)
        while above not in folders:
            folders.add(above)
            above = os.path.dirname(above)
    found = []
    for place, inner, files in os.walk(folder):
        at = os.path.relpath(place, folder)
        prefix = "" if at == "." else at + "/"
        bad = [
            one for one in inner if prefix + one not in folders or os.path.islink(os.path.join(place, one))
        ]
        inner[:] = [one for one in inner if one not in bad]
        found += [prefix + one for one in (*bad, *files) if one in bad or prefix + one not in wanted]
    return found


def _holds(path: str, data: bytes) -> bool:
    """Whether it is a plain file of ours with just these bytes, which nobody else may write."""
    try:
        seen = os.lstat(path)
        plain = stat.S_ISREG(seen.st_mode) and stat.S_IMODE(seen.st_mode) == FILE_MODE
        if not plain or seen.st_uid != os.geteuid() or seen.st_size != len(data):
            return False
        with open(path, "rb") as file:
            return file.read() == data
    except OSError:
        return False


def _write(path: str, data: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    draft = f"{path}.new"
    _remove(draft)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, FILE_MODE)
        file.write(data)
    os.replace(draft, path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def main(argv: list[str]) -> int:
    """One call; 0 if the folder is as it should be."""
    if sys.version_info < LEAST:
        return _complain(f"the controller needs Python 3.11 or newer, and this is {sys.version.split()[0]}")
    if len(argv) != 2 or argv[0] != "--unpack":
        return _complain("usage: python3 -I controller.pyz --unpack FOLDER")
    os.umask(0o022)
    try:
        changed = unpack(os.path.dirname(os.path.abspath(__file__)), os.path.abspath(argv[1]))
    except (OSError, zipfile.BadZipFile) as error:
        return _complain(f"{argv[1]}: the controller's code could not be unpacked: {error}")
    words = f"{len(changed)} files were not as in the archive" if changed else "as in the archive"
    sys.stdout.write(f"{argv[1]}: {words}\n")
    return 0


def _complain(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
