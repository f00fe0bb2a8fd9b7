"""The path of a fit: which modules of knoi `KNOI.fit("X.npy", "Y.npy")` runs through.

    python -m benchmarks.fit_path [--approximation fourier] [--jobs 1]

A profiler notes every function of the package that is called, in order of the first call, and
prints them module by module: those of `fit` until it has the projection, those that the rest of
`fit` adds (it relates columns to variates, for `predict` and loadings), and those that `transform`
adds. Functions that run while a module is imported do not count. `docs/architecture.md` holds the
list.
"""

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import knoi

PACKAGE = Path(knoi.__file__).resolve().parent
Calls = dict[str, list[str]]  # module -> its functions, both in order of the first call


class Recorder:
    """A profile function that notes the functions of knoi that are called."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        # Functions that only another thread calls come last, so that the order is repeatable.
        self._called: tuple[dict[Any, bool], dict[Any, bool]] = ({}, {})
        self._has_projection = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, unless it is part of an import."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(PACKAGE)):
            return
        called = self._called[threading.get_ident() != self._main]
        if code not in called and not _importing(frame):
            called[code] = self._has_projection
        if code.co_qualname == "BaseCCA._keep":
            self._has_projection = True

    def path(self, *, after_projection: bool) -> Calls:
        """Functions by module, in order of the first call, before or after the projection."""
        found: Calls = {}
        for called in self._called:
            for code, after in called.items():
                if after is not after_projection:
                    continue
                name = code.co_qualname.replace(".<locals>", "")
                functions = found.setdefault(_module(code.co_filename), [])
                if "<" not in name and name not in functions:
                    functions.append(name)
        return found


def _importing(frame: FrameType | None) -> bool:
    """Whether the call comes from the body of a module that is being imported."""
    while frame is not None:
        if "importlib._bootstrap" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _module(file: str) -> str:
    return Path(file).relative_to(PACKAGE).with_suffix("").as_posix()


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record the calls of this thread and of threads started in the block."""
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def paths(**parameters: Any) -> dict[str, Calls]:
    """The path of a small fit from two files, and what `transform` of the same files adds."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((2000, 3), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{view}.npy" for view in "XY"]
        for file, columns in zip(files, (12, 10), strict=True):
            noise = rng.standard_normal((len(shared), columns), dtype=np.float32)
            np.save(file, shared @ rng.standard_normal((3, columns), dtype=np.float32) + noise)
        # The paper's kernels first; then what learning a metric adds.
        model = knoi.KNOI(
            2,
            rank=200,
            epochs=2,
            metric=None,
            scale=None,
            width="median",
            memory_budget="1GiB",
            random_state=0,
            **parameters,
        )
        with recording() as fit:
            model.fit(*map(str, files))
        with recording() as transform:
            model.transform(*map(str, files))
        with recording() as learned:
            model.set_params(metric="learned", width="auto").fit(*map(str, files))
    stages = {
        "fit, until it has the projection": fit.path(after_projection=False),
        "fit, after that": fit.path(after_projection=True),
        "transform": transform.path(after_projection=False),
        "fit with a learned metric": learned.path(after_projection=False),
    }
    known: set[str] = set()
    for stage, calls in stages.items():
        stages[stage] = {module: f for module, f in calls.items() if module not in known}
        known |= set(calls)
    return stages


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--approximation", default="auto")
    arguments.add_argument("--jobs", type=int, default=1, help="n_jobs")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    stages = paths(approximation=options.approximation, n_jobs=options.jobs)
    if options.json:
        print(json.dumps(stages))
        return
    for stage, (heading, found) in enumerate(stages.items()):
        print(f"{heading}: {len(found)} {'further ' if stage else ''}modules")
        for number, (module, functions) in enumerate(found.items(), 1):
            print(f"{number:3} {module}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
