"""Peak memory of a stretch of code in the running process, for cells too large to run twice."""

import threading
from pathlib import Path

_PAUSE = 0.02


class PeakMemory:
    """Watches resident memory for the length of a `with` block.

    Attributes
    ----------
    rss : int
        Bytes resident at the peak, pages of mapped files included.
    anonymous : int
        Bytes at the peak without mapped files, over those before the block: mapped pages are the
        data itself, and the kernel takes them back at will.
    """

    def __enter__(self):
        self._before = _status()["RssAnon"]
        self.rss = self.anonymous = 0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._watcher.join()

    def _watch(self):
        while True:
            now = _status()
            self.rss = max(self.rss, now["VmRSS"])
            self.anonymous = max(self.anonymous, now["RssAnon"] - self._before)
            if self._done.wait(_PAUSE):
                return


def _status():
    """Memory of this process in bytes; only Linux has the file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}
