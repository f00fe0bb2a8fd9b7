"""Memory and processor time of a stretch of code in the running process."""

import os
import threading
import time
from pathlib import Path
from typing import Self

_PAUSE = 0.02


class PeakMemory:
    """Watches resident memory for the length of a `with` block; Linux only, else it stays 0.

    Attributes
    ----------
    rss : int
        Bytes resident at the peak, pages of mapped files included.
    anonymous : int
        Bytes at the peak without mapped files, over those before the block: mapped pages are the
        data itself, and the kernel takes them back at will.
    """

    def __enter__(self) -> Self:
        self._before = _status()["RssAnon"]
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
            now = _status()
            self.rss = max(self.rss, now["VmRSS"])
            self.anonymous = max(self.anonymous, now["RssAnon"] - self._before)
            if self._done.wait(_PAUSE):
                return


class Clock:
    """Seconds on the wall and of the processor since it was made.

    Where a program has the machine to itself, n threads that are busy take n processor seconds a
    second: less of them shows that others were at work.
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), _cpu_seconds()

    @property
    def wall(self) -> float:
        """Seconds passed."""
        return time.perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        """Seconds of all threads of this process together."""
        return _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _status() -> dict[str, int]:
    """Memory of this process in bytes; only Linux has the file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {"RssAnon": 0, "VmRSS": 0}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}
