"""What every benchmark shares: fair timing, and results stored cell by cell with their origin."""

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("KNOI_DATA", Path(__file__).parents[2] / "shared" / "data"))


def origin() -> dict[str, Any]:
    """Where and with what a result was made."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _code_changed() else ""),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("knoi", "numpy", "scipy", "scikit-learn")},
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }


class Results:
    """One JSON file of cells: what is there is not computed again, what is new is stored."""

    def __init__(self, name: str) -> None:
        self.path = RESULTS / f"{name}.json"
        self.cells: dict[str, Any] = (
            json.loads(self.path.read_text())["cells"] if self.path.exists() else {}
        )

    def cell(self, key: str, compute: Callable[[], dict[str, Any]], *, again: bool = False) -> Any:
        """The stored cell, or the one `compute` makes now."""
        if again or key not in self.cells:
            self.cells[key] = {**compute(), "origin": origin()}
            self._write()
        return self.cells[key]

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=self.path.parent, suffix=".part", delete=False
        ) as file:
            json.dump({"cells": self.cells}, file, indent=1, sort_keys=True)
            file.write("\n")
        os.replace(file.name, self.path)


PAUSE = 0.05


def best_times(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least seconds of each task over rounds in which they take turns.

    On a shared machine a single time means little; the best of several, taken side by side, is
    what the code needs when nobody is in the way. Each begins after a pause: threads of BLAS go on
    spinning for a fortieth of a second after their work, and would take a core from the next task.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats):
        for name, task in tasks.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _code_changed() -> bool:
    """Whether what was measured is not what is committed; new results are no change of it."""
    code = (":(top)src", ":(top)benchmarks", ":(top,exclude)benchmarks/results")
    return bool(_git("diff", "--stat", "HEAD", "--", *code))


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or sys.platform
