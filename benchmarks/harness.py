"""What every benchmark shares: stored results with their origin, fair timing, peak memory."""

import datetime
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from knoi import __version__
from knoi.exceptions import SourceFormatError
from knoi.fileio import atomic_write_text

# Kernels on the columns as they are, with the median width, for fits that are compared with others.
AS_PUBLISHED = {"metric": None, "scale": None, "width": "median"}
RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("KNOI_DATA", Path(__file__).parents[2] / "shared" / "data"))
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch")  # those of them that are installed


# Stored results, which are not computed again.


class Results:
    """One JSON file of cells, such as `results/memory.json`."""

    def __init__(self, name: str) -> None:
        self.path = RESULTS / f"{name}.json"
        self.cells: dict[str, Any] = _read(self.path)["cells"] if self.path.exists() else {}

    def cell(self, key: str, compute: Callable[[], dict[str, Any]], *, again: bool = False) -> Any:
        """Return the stored cell, or the one that `compute` makes now."""
        if again or key not in self.cells:
            self.cells[key] = {**compute(), "origin": origin()}
            write_json(self.path, {"cells": self.cells})
        return self.cells[key]


class Cells:
    """A folder with one JSON file per cell: for cells that take minutes or hours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def stored(self, key: str) -> dict[str, Any] | None:
        """Return the cell under `key`, or None if it has not been computed."""
        file = self._file(key)
        return _read(file) if file.exists() else None

    def all(self) -> list[dict[str, Any]]:
        """Return all stored cells, ordered by key."""
        return [_read(file) for file in sorted(self.folder.glob("*.json"))]

    def store(self, key: str, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Write a cell atomically, together with its origin."""
        whole = {**cell, "origin": origin()}
        write_json(self._file(key), whole)
        return whole

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(file, json.dumps(content, indent=1, sort_keys=True) + "\n")


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise SourceFormatError(
            f"{file} is not a result file ({error}). Delete it to compute it again."
        ) from None
    return content


def origin() -> dict[str, Any]:
    """Date, commit, versions and machine; a commit ends in "+" if its code was changed since."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": {"knoi": __version__} | _versions(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _commit() -> str:
    """Return the commit of this repository, or "unknown" outside of one."""
    commit = _git("rev-parse", "--short", "HEAD")
    code = (":(top)src", ":(top)benchmarks", ":(top,exclude)benchmarks/results")
    return f"{commit}+" if _git("diff", "--stat", "HEAD", "--", *code) else commit or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or sys.platform


# Time.

PAUSE = 0.2


def best_times(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the shortest time of each task, in seconds, over rounds in which they alternate.

    On a shared machine a single time means little; the best of several, measured side by side, is
    what the code needs when nothing else runs. A pause precedes each: BLAS threads were seen to
    spin for a tenth of a second after their work, which would take a core from the next task.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats):
        for name, task in tasks.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


class Clock:
    """Wall-clock and processor seconds since the object was made.

    On an idle machine n busy threads take n processor seconds per second; fewer show that other
    processes were running.
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), _cpu_seconds()

    @property
    def wall(self) -> float:
        """Wall-clock seconds."""
        return time.perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        """Processor seconds of all threads of this process."""
        return _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


# Memory.


class PeakMemory:
    """Measures the peak of resident memory within a `with` block; on Linux only, elsewhere 0.

    Attributes
    ----------
    rss : int
        Peak resident bytes, pages of mapped files included.
    anonymous : int
        Peak bytes without mapped files, minus those before the block: mapped pages are the data
        itself, and the kernel can reclaim them at any time.
    """

    def __init__(self, interval: float = 0.02) -> None:
        self._interval = interval

    def __enter__(self) -> Self:
        self._before = _memory()["RssAnon"]
        self.rss = self.anonymous = 0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            now = _memory()
            self.rss = max(self.rss, now["VmRSS"])
            self.anonymous = max(self.anonymous, now["RssAnon"] - self._before)
            if self._done.wait(self._interval):
                return


def _memory() -> dict[str, int]:
    """Memory of this process in bytes; only Linux has the file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {"RssAnon": 0, "VmRSS": 0}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}
