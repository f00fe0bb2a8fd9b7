"""The MNIST8M stand-in for benchmarks at a million samples, kept in files.

    python -m benchmarks.paper.standin [--samples 1000000]

`knoi.bench.standin` with 20,000 held-out rows, in the folder `KNOI_CACHE` names (a folder of the
system's temporary directory by default). Needs KNOI_DATA with MNIST.
"""

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.harness import DATA
from knoi.bench import standin

CACHE = Path(os.environ.get("KNOI_CACHE", Path(tempfile.gettempdir()) / "knoi-benchmarks"))
L = 50
SAMPLES = 1_000_000
HELD_OUT = 20_000


def load(samples=SAMPLES):
    """The stand-in with this many training rows; made first where no file has as many."""
    return standin.load(samples, HELD_OUT, mnist=DATA / "mnist", cache=CACHE)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=SAMPLES)
    options = arguments.parse_args()
    views = load(options.samples)
    print(f"{views.X.n_rows:,} training and {len(views.test[0]):,} held-out pairs in {CACHE}")


if __name__ == "__main__":
    main()
