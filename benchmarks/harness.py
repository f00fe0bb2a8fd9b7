"""What every benchmark shares: fair timing, and results stored cell by cell with their origin."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from knoi.bench.cells import write_json
from knoi.bench.origin import origin

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("KNOI_DATA", Path(__file__).parents[2] / "shared" / "data"))


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
        write_json(self.path, {"cells": self.cells})


PAUSE = 0.2


def best_times(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least seconds of each task over rounds in which they take turns.

    On a shared machine a single time means little; the best of several, taken side by side, is
    what the code needs when nobody is in the way. Each begins after a pause: threads of BLAS were
    seen to spin for a tenth of a second after their work, and would take a core from the next task.
    """
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats):
        for name, task in tasks.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
