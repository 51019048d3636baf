"""What every benchmark needs: its options, its JSON lines, the machine's description, processor time, percentiles.

Comes in: BENCH_<NAME> variables (make variables of the same names), /proc. Goes out: one JSON line a figure on stdout,
everything else on stderr. Called by: rate, agents, cli, store and the helper processes that they start.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "BENCH_"
TICKS = os.sysconf("SC_CLK_TCK")
IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")
FSYNCS = 200  # of the probe that describes the disk
REMOVE_TRIES, TICK_S = 100, 0.1

Value = int | float | str


# --- options --------------------------------------------------------------------------------------------------------


class Options:
    """Options of one benchmark, with their defaults: `Options(JOBS=3000)["JOBS"]` is BENCH_JOBS or 3000.

    A variable that no option has, or a value of another type than the default's, ends the program with exit code 2:
    a misspelt option must not measure the default under another name.
    """

    def __init__(self, **defaults: Value) -> None:
        given = {name[len(PREFIX) :]: text for name, text in os.environ.items() if name.startswith(PREFIX)}
        unknown = sorted(given.keys() - defaults.keys())
        if unknown:
            refuse(
                f"unknown option {unknown[0]}; known: {', '.join(f'{k}={v}' for k, v in defaults.items())}"
            )
        self._values = {name: _value(name, given.get(name), default) for name, default in defaults.items()}

    def count(self, name: str) -> int:
        """A whole number."""
        return int(self._values[name])

    def number(self, name: str) -> float:
        """A number."""
        return float(self._values[name])

    def text(self, name: str) -> str:
        """A word."""
        return str(self._values[name])

    def cases(self, known: Sequence[str]) -> list[str]:
        """What CASE names, by commas; all if it is empty."""
        asked = [word for word in self.text("CASE").split(",") if word] or list(known)
        for word in asked:
            if word not in known:
                refuse(f"CASE={word}: known are {', '.join(known)}")
        return asked


def _value(name: str, text: str | None, default: Value) -> Value:
    if text is None:
        return default
    try:
        value = type(default)(text)
    except ValueError:
        refuse(f"{name}={text}: expected a number like {default}")
    if not isinstance(value, str) and value < 0:
        refuse(f"{name}={text}: expected no less than 0")
    return value


def refuse(why: str) -> NoReturn:
    """End the program: what was asked for can't be measured."""
    say(f"error: {why}")
    sys.exit(2)


# --- what comes out -------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """A line for people."""
    print(text, file=sys.stderr, flush=True)


class Figures:
    """Prints the figures of one benchmark on one machine."""

    def __init__(self, bench: str, folder: Path) -> None:
        self._bench = bench
        self.machine = machine(folder)
        say(f"{bench}: {self.machine}, load {os.getloadavg()[0]:.1f}")

    def emit(
        self, case: str, figure: float, unit: str, published: float | None = None, **more: Value
    ) -> None:
        """One figure; `published` is what another system's people state for the same work, in the same unit.

        `more` are further fields of this benchmark's own.
        """
        print(line(self._bench, case, figure, unit, published, self.machine, **more), flush=True)


def line(
    bench: str, case: str, figure: float, unit: str, published: float | None, machine: str, **more: Value
) -> str:
    """The JSON line of a figure."""
    return json.dumps(
        {
            "bench": bench,
            "case": case,
            "figure": round(figure, 4),
            "unit": unit,
            "published": published,
            "machine": machine,
            **{name: round(value, 4) if isinstance(value, float) else value for name, value in more.items()},
        }
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of all are no larger than (nearest rank); 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(1, int(rank)) - 1]


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


# --- the machine ----------------------------------------------------------------------------------------------------


def machine(folder: Path) -> str:
    """Processor, cores, memory, kernel, Python, and the median time of a 1 KB append with fsync in `folder`."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return ", ".join(
        (
            _cpu_model(),
            f"{len(os.sched_getaffinity(0))} cores",
            f"{memory:.0f} GiB",
            f"Linux {platform.release()}",
            f"Python {platform.python_version()}",
            f"fsync p50 {percentile(fsync_ms(folder), 50):.2f} ms",
        )
    )


def _cpu_model() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def fsync_ms(folder: Path) -> list[float]:
    """Milliseconds of appends of 1 KB, each with its fsync."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FSYNCS):
            begun = time.perf_counter()
            file.write(b"x" * 1024)
            file.flush()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - begun) * 1e3)
    return times


def cpu_s(pid: int) -> float:
    """Processor seconds that all threads of a process have used so far."""
    return cpu_s_of(Path(f"/proc/{pid}/stat"))


def cpu_s_of(stat: Path) -> float:
    """The same from a `stat` of /proc."""
    fields = stat.read_text(errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def first_thread_cpu_s(pid: int) -> float:
    """The same of its first thread alone."""
    return cpu_s_of(Path(f"/proc/{pid}/task/{pid}/stat"))


def busy_s() -> float:
    """Processor seconds that this machine has used since boot, by whatever process; `steal` is its host's."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def pss_mb(pid: int) -> float:
    """Proportional set size in MB (10^6 bytes): private memory, and a fair share of what is shared."""
    for text in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if text.startswith("Pss:"):
            return int(text.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} has no Pss in smaps_rollup")


# --- places and ends ------------------------------------------------------------------------------------------------


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder of its own for state, on a disk (TMPDIR, or build/ where that is memory); removed at the end."""
    where = Path(tempfile.gettempdir())
    if _file_system(where) in IN_MEMORY:
        say(f"{where} is in memory, where fsync costs nothing: state goes to {ROOT / 'build'}")
        where = ROOT / "build"
        where.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="gangline-bench-", dir=where))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Workers of agents that were just stopped may write their last lines still: try until it is gone."""
    for _ in range(REMOVE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(TICK_S)
    say(f"{folder} could not be removed")


def _file_system(path: Path) -> str:
    """The type of the file system that holds a path."""
    best, kind = "", ""
    for text in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = text.split()
        if path.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def run(main: Callable[[], None]) -> NoReturn:
    """Run a benchmark; SIGTERM ends it as Ctrl-C does, so that what it has started is ended in both cases (130)."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        main()
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
    except Failed as error:
        say(f"error: {error}")
        sys.exit(1)
    sys.exit(0)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


class Failed(Exception):
    """What was to be measured did not happen: no figure is better than a wrong one."""
