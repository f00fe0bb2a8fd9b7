"""Compare the speed and memory of two checkouts, measured in turns on the same machine.

    python -m benchmarks.speed.compare OTHER [--rounds 3] [--only step_efficiency ...]

OTHER is a checkout of an earlier commit. Each benchmark runs in both checkouts alternately, each
with its own code and its own copy of the benchmark, and the best of the rounds counts: the machine
may be shared. Ratios are this checkout over the other: below 1 is faster, or takes less memory.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Results

NAME = "speed_compare"
HERE = Path(__file__).parents[2]
# Options that keep a round short, and the result file of each benchmark.
BENCHMARKS = {
    "step_efficiency": (["--again", "--rank", "8192", "--steps", "8"], "speed_step_efficiency"),
    "feature_maps": (["--rank", "8192"], "speed_feature_maps"),
    "moments": (["--rank", "2048"], "speed_moments"),
    "linear_memmap": (["--rows", "200000"], "speed_linear_memmap"),
    "memory": ([], "memory"),
}


def measure(checkout: Path, name: str) -> tuple[str, dict[str, float]]:
    """Run one benchmark in a checkout: its commit, and the seconds and peak bytes it stored."""
    options, result = BENCHMARKS[name]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-m", f"benchmarks.speed.{name}", *options]
    subprocess.run(command, cwd=checkout, env=environment, check=True, stdout=subprocess.DEVNULL)
    cells = json.loads((checkout / "benchmarks" / "results" / f"{result}.json").read_text())
    fresh = max(cell["origin"]["date"] for cell in cells["cells"].values())[:10]
    found: dict[str, float] = {}
    commit = ""
    for key, cell in cells["cells"].items():
        if cell["origin"]["date"].startswith(fresh):
            found |= {f"{key}: {path}": value for path, value in _numbers(cell)}
            commit = cell["origin"]["commit"]
    return commit, found


def _numbers(cell: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """The measured leaves of a cell: seconds, and peak bytes."""
    for name, value in cell.items():
        here = f"{path} {name}".strip()
        if isinstance(value, dict):
            yield from _numbers(value, here)
        elif (
            ("seconds" in here or "parts" in here) and "bare" not in here
        ) or name == "peak_bytes":
            yield here, float(value)


def compare(other: Path, name: str, rounds: int) -> dict[str, Any]:
    """The best value of each measurement in both checkouts, and their ratios."""
    best: dict[str, dict[str, float]] = {"this": {}, "other": {}}
    commits = {}
    for _ in range(rounds):
        for side, checkout in (("other", other), ("this", HERE)):
            commits[side], found = measure(checkout, name)
            for key, value in found.items():
                best[side][key] = min(value, best[side].get(key, value))
    shared = best["this"].keys() & best["other"].keys()
    return {
        "commits": commits,
        "rounds": rounds,
        "this": {key: best["this"][key] for key in sorted(shared)},
        "other": {key: best["other"][key] for key in sorted(shared)},
        "ratio": {key: best["this"][key] / best["other"][key] for key in sorted(shared)},
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("other", type=Path, help="a checkout of another commit")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    options = arguments.parse_args()
    for name in options.only:
        task = partial(compare, options.other.resolve(), name, options.rounds)
        cell = Results(NAME).cell(name, task, again=True)
        print(f"{name}: {cell['commits']['this']} over {cell['commits']['other']}")
        for key, ratio in cell["ratio"].items():
            print(f"  {ratio:5.2f}  {key}")


if __name__ == "__main__":
    main()
