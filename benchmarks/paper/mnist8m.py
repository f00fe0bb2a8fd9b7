"""Table 1 and Figure 1 of the KNOI paper on the MNIST8M stand-in: every method, cell by cell.

    python -m benchmarks.paper.mnist8m --list
    python -m benchmarks.paper.mnist8m --samples 20000 --ranks 512 --output try
    python -m benchmarks.paper.mnist8m --methods knoi-nystrom --ranks 16384 --budget-minutes 20

Every finished cell is stored at once and not computed again; a run that was stopped continues from
its checkpoint. All of it takes most of a day on two cores. MNIST comes from KNOI_DATA unless
--mnist names another folder.

Left and right halves of 8 million training and 100,000 test images, 50 components, widths by the
median of 4000 training rows. Exact methods get the regulariser that does best on 20,000 rows set
aside for it, and are charged for one solution only. Stochastic methods make one pass. Deep CCA is
planned for a time, because its learning rate falls over the planned run: one cell per time.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.fits import ExactFit, Log, evaluate, exact_fits, train_evaluated
from benchmarks.harness import AS_PUBLISHED, DATA, RESULTS, Cells, Clock, PeakMemory
from benchmarks.paper import standin
from knoi.estimators.closed_form import ClosedFormCCA, FourierCCA, NystromCCA
from knoi.estimators.deep import DeepCCA
from knoi.estimators.dsgd import DoublyStochasticCCA
from knoi.estimators.knoi import KNOI
from knoi.estimators.linear import LinearCCA
from knoi.estimators.training import StochasticCCA
from knoi.exceptions import InputError, KnoiError

NAME = "mnist8m"
L = 50
TEST_ROWS = 100_000
TUNING_ROWS = 20_000
FULL, PART = 8_000_000, 1_000_000
# Samples after which a curve has a point, besides the last. Judging takes as long as training on
# 100,000 samples or more: no points before there are a few samples for each feature.
MARKS = tuple(25_000 * 2**k for k in range(9))
SAMPLES_PER_FEATURE = 4
# Fewer rows that exact methods are solved for on their way, as a user in a hurry would.
SUBSETS = (100_000, 300_000)
LINEAR_REGS = (1e-8, 1e-6, 1e-4)
KERNEL_REGS = (1e-8, 1e-7, 1e-6)
# DSGD as tuned by benchmarks/paper/dsgd_tuning.py; the authors' b and blocks of 2048 frequencies.
DSGD: dict[str, Any] = {
    "learning_rate": 2.0,
    "decay": 10_000.0,
    "batch_size": 1024,
    "feature_block": 4096,
}
# KNOI as published: the paper's parameters. Its learning rate of 0.01 is our default of 1, because
# the authors' code multiplies the features by 10.
PUBLISHED: dict[str, Any] = {
    **AS_PUBLISHED,
    "approximation": "fourier",
    "precondition": None,
    "batch_size": 2500,
}

# Deep CCA gets this part of the time of a cell as its `max_time`, less some seconds: its last
# passes are planned from measured rates, which vary.
SHARE, OVERHEAD = 0.95, 5

# Table 1 of the paper: one pass over 8 million samples of MNIST8M itself, minutes on six cores.
PAPER: dict[tuple[str, int | None], tuple[float, float]] = {
    ("linear", None): (26.8, 0.5),
    ("fkcca", 1024): (33.5, 9.8),
    ("fkcca", 2048): (37.6, 24.4),
    ("fkcca", 4096): (40.7, 68.9),
    ("fkcca", 5000): (41.4, 79.4),
    ("fkcca", 6000): (42.1, 107.5),
    ("nkcca", 1024): (39.6, 17.1),
    ("nkcca", 2048): (42.2, 44.9),
    ("nkcca", 4096): (44.1, 138.8),
    ("nkcca", 5000): (44.5, 196.3),
    ("nkcca", 6000): (44.8, 272.2),
    ("dsgd", 20_480): (43.4, 306.9),
    ("knoi", 20_480): (44.5, 97.2),
    ("knoi", 40_960): (45.0, 194.0),
    ("knoi", 100_000): (45.3, 502.4),
}


@dataclass(frozen=True)
class Method:
    """A line of the table: how to make its model, and at which ranks and sizes it is run."""

    label: str
    make: Callable[[Any, dict[str, Any]], ClosedFormCCA | StochasticCCA]  # from rank and the rest
    sizes: dict[int | None, tuple[int, ...]]  # rank -> numbers of training samples
    regs: tuple[float, ...] = ()  # of exact methods
    minutes: dict[int | None, tuple[float, ...]] = field(default_factory=dict)  # rank -> times


def _knoi(**setting: Any) -> Callable[[Any, dict[str, Any]], KNOI]:
    def make(rank: int, common: dict[str, Any]) -> KNOI:
        return KNOI(L, rank=rank, epochs=1, held_out=0, tol=None, **setting, **common)

    return make


def _dsgd(rank: int, common: dict[str, Any]) -> DoublyStochasticCCA:
    # The paper counts frequencies; each is a cosine and a sine.
    return DoublyStochasticCCA(
        L, rank=2 * rank, epochs=1, held_out=0, **AS_PUBLISHED, **DSGD, **common
    )


# Hidden layers of deep CCA by the minutes it is planned for: wider networks learn more, later.
HIDDEN = {1.25: (800, 800), 8.0: (800, 800), 40.0: (1200, 1200)}


def _deep(_: None, common: dict[str, Any]) -> DeepCCA:
    return DeepCCA(L, tol=None, verbose=False, **common)


# What a day of two cores can do: everything at a million samples; at eight million what matters
# most.
METHODS: dict[str, Method] = {
    "linear": Method(
        "linear CCA", lambda _, common: LinearCCA(L, **common), {None: (PART, FULL)}, LINEAR_REGS
    ),
    "fkcca": Method(
        "FKCCA",
        lambda rank, common: FourierCCA(L, rank=rank, **AS_PUBLISHED, **common),
        {1024: (PART,), 2048: (PART,), 4096: (PART,), 6000: (PART,)},
        KERNEL_REGS,
    ),
    "nkcca": Method(
        "NKCCA",
        lambda rank, common: NystromCCA(L, rank=rank, **AS_PUBLISHED, **common),
        {1024: (PART,), 2048: (PART,), 4096: (PART,), 6000: (PART,)},
        KERNEL_REGS,
    ),
    "dsgd": Method("DSGD", _dsgd, {20_480: (PART,)}),
    "knoi": Method(
        "KNOI, published",
        _knoi(**PUBLISHED),
        {20_480: (FULL,), 40_960: (PART,), 100_000: (PART,)},
    ),
    "knoi-fourier": Method(
        "KNOI, Fourier features", _knoi(approximation="fourier", **AS_PUBLISHED), {20_480: (PART,)}
    ),
    "knoi-nystrom": Method(
        "KNOI, kernel columns",
        _knoi(approximation="nystrom", **AS_PUBLISHED),
        {4096: (PART,), 8192: (PART,), 16_384: (PART,), 24_576: (FULL,)},
        minutes={24_576: (60.0,)},
    ),
    # Defaults but for the rank and the single pass, in which held-out rows are not needed.
    "knoi-metric": Method(
        "KNOI, learned metric",
        _knoi(),
        {4096: (PART,), 16_384: (PART,)},
        minutes={4096: (1.25,), 16_384: (10.0,)},
    ),
    "deep": Method("deep CCA", _deep, {None: (FULL,)}, minutes={None: tuple(HIDDEN)}),
}


@dataclass(frozen=True)
class Cell:
    """One method at one size."""

    method: str
    rank: int | None
    samples: int
    seed: int = 0
    budget_minutes: float | None = None

    @property
    def key(self) -> str:
        """Its name among the results."""
        parts = [self.method, f"M{self.rank}", f"N{self.samples}", f"seed{self.seed}"]
        if self.rank is None:
            parts.remove("MNone")
        if self.budget_minutes is not None and not METHODS[self.method].regs:
            parts.append(f"{self.budget_minutes:g}min")
        return "-".join(parts)


def wanted_cells(
    methods: Sequence[str] = (),
    ranks: Sequence[int] = (),
    samples: Sequence[int] = (),
    seeds: Sequence[int] = (0,),
    budget_minutes: float | None = None,
) -> Iterator[Cell]:
    """Yield cells method by method; `METHODS` has the plan for what is not given."""
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise InputError(f"There is no method {unknown[0]!r}. Choose any of {', '.join(METHODS)}.")
    for name in methods or METHODS:
        planned = METHODS[name].sizes
        for rank in planned if None in planned or not ranks else ranks:
            times: tuple[float | None, ...] = METHODS[name].minutes.get(rank, (None,))
            for n in samples or planned.get(rank, (PART,)):
                for minutes in times if budget_minutes is None else (budget_minutes,):
                    for seed in seeds:
                        yield Cell(name, rank, n, seed, minutes)


@dataclass
class Experiment:
    """The experiment in a folder of results: computes what is missing.

    Parameters
    ----------
    folder : path
        Where cells are stored, and checkpoints of those under way.
    mnist, cache : path or None
        As in `benchmarks.paper.standin.load`.
    test_rows : int
        Held-out rows to evaluate on.
    memory_budget : str
        Of every fit.
    log : callable
        Receives lines about the progress.
    """

    folder: Path
    mnist: Path | None = None
    cache: Path | None = None
    test_rows: int = TEST_ROWS
    memory_budget: str = "12GiB"
    log: Log = print
    _views: dict[int, standin.StandIn] = field(default_factory=dict)

    def run(self, cell: Cell) -> dict[str, Any]:
        """The result of a cell, from the folder or computed now."""
        cells = Cells(self.folder)
        stored = cells.stored(cell.key)
        if stored is not None:
            self.log(f"{cell.key}: stored already, refit {stored['refit']:.2f}")
            return stored
        self.log(cell.key)
        method = METHODS[cell.method]
        common: dict[str, Any] = {"memory_budget": self.memory_budget}
        if cell.rank is not None or not method.regs:
            common["random_state"] = cell.seed
        model = method.make(cell.rank, common)
        views = self._load(cell.samples)
        if isinstance(model, ClosedFormCCA):
            found = self._exact(model, method.regs, views)
        elif isinstance(model, DeepCCA):
            found = self._planned(model, cell, views)
        else:
            found = self._stochastic(model, cell, views)
        described = {
            "method": cell.method,
            "rank": cell.rank,
            "samples_given": cell.samples,
            "seed": cell.seed,
            "budget_minutes": cell.budget_minutes,
            "test_rows": self.test_rows,
            "parameters": {k: repr(v) for k, v in model.get_params(deep=False).items()},
        }
        whole = cells.store(cell.key, {**described, **found})
        self.log(
            f"  refit {whole['refit']:.2f}, fitted {whole['fitted']:.2f}, "
            f"{whole['seconds'] / 60:.1f} minutes, {whole['busy_cores']:.1f} cores busy, "
            f"peak {whole['peak_bytes'] / 2**30:.1f} GiB"
        )
        return whole

    def _load(self, samples: int) -> standin.StandIn:
        if samples not in self._views:
            self._views.clear()
            self._views[samples] = standin.load(
                samples, self.test_rows, TUNING_ROWS, mnist=self.mnist, cache=self.cache
            )
        return self._views[samples]

    def _exact(
        self, model: ClosedFormCCA, regs: Sequence[float], views: standin.StandIn
    ) -> dict[str, Any]:
        samples = views.X.n_rows
        sizes = [*(size for size in SUBSETS if size < samples), samples]
        with PeakMemory() as peak:
            fits = exact_fits(model, views.X, views.Y, regs, sizes)
            *subsets, whole = [
                self._best_of(at_size, views) for _, at_size in groupby(fits, lambda fit: fit.rows)
            ]
        return {**whole, "subsets": subsets, "peak_bytes": peak.rss}

    def _best_of(self, fits: Iterable[ExactFit], views: standin.StandIn) -> dict[str, Any]:
        """Evaluate the fit whose regulariser does best on the tuning rows on the test rows."""
        tried: dict[float, float] = {}
        for fit in fits:
            tried[fit.reg] = evaluate(fit.model, views.tuning)["refit"]
            self.log(f"  {fit.rows:>9,} samples, reg {fit.reg:g}: tuning {tried[fit.reg]:.2f}")
            if tried[fit.reg] >= max(tried.values()):
                best = replace(fit, model=copy(fit.model))  # the next fit changes the model
        return {
            "samples": best.rows,
            **evaluate(best.model, views.test),
            "reg": best.reg,
            "tuning": {f"{reg:g}": refit for reg, refit in tried.items()},
            "seconds": best.seconds,
            "busy_cores": best.cpu_seconds / best.seconds,
        }

    def _planned(self, model: DeepCCA, cell: Cell, views: standin.StandIn) -> dict[str, Any]:
        """Deep CCA planned for the time of the cell."""
        minutes = cell.budget_minutes or min(HIDDEN)
        hidden = HIDDEN[max(time for time in HIDDEN if time <= max(minutes, min(HIDDEN)))]
        model.set_params(hidden=hidden, max_time=SHARE * 60 * minutes - OVERHEAD)
        with PeakMemory() as peak:
            clock = Clock()
            model.fit(views.X, views.Y)
            seconds, busy = clock.wall, clock.cpu / clock.wall
        return {
            **evaluate(model, views.test),
            "refit_20k": evaluate(model, tuple(view[:20_000] for view in views.test))["refit"],
            "samples": model.n_samples_seen_,
            "seconds": seconds,
            "training_seconds": model.history_["seconds"][-1],
            "held_out": max(model.history_["held_out"]),
            "busy_cores": busy,
            "peak_bytes": peak.rss,
        }

    def _stochastic(
        self, model: StochasticCCA, cell: Cell, views: standin.StandIn
    ) -> dict[str, Any]:
        first = SAMPLES_PER_FEATURE * (cell.rank or 0)
        marks = [*(mark for mark in MARKS if first <= mark < cell.samples), cell.samples]
        minutes = float("inf") if cell.budget_minutes is None else cell.budget_minutes
        return train_evaluated(
            model,
            views.X,
            views.Y,
            views.test,
            marks,
            budget=60 * minutes,
            # The curve in a checkpoint is that of these test rows.
            directory=self.folder / f"{cell.key}-test{self.test_rows}.run",
            log=self.log,
        )


# Stored cells, for tables and pictures.


def measured(results: Path) -> list[dict[str, Any]]:
    """Return the cells evaluated on all test rows, ordered by method, rank and samples."""
    cells = [cell for cell in Cells(results / NAME).all() if cell["test_rows"] == TEST_ROWS]
    order = list(METHODS)
    return sorted(
        cells,
        key=lambda c: (order.index(c["method"]), c["rank"] or 0, c["samples_given"], c["seed"]),
    )


def subsets(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an exact method reached on fewer rows, as cells."""
    return [{**cell, **point, "subsets": []} for point in cell.get("subsets", ())]


def by_minutes(cell: dict[str, Any]) -> list[tuple[float, float]]:
    """Return (minutes, refit) pairs; minutes include set-up, training and the final CCA."""
    if "curve" not in cell:
        return [(one["seconds"] / 60, one["refit"]) for one in (*subsets(cell), cell)]
    setup = cell["setup_seconds"]
    return [
        ((setup + p["train_seconds"] + p["finish_seconds"]) / 60, p["refit"]) for p in cell["curve"]
    ]


# The command.


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.replace("_", "").split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text}: expected whole numbers, separated by commas."
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--methods", default="", metavar="NAME,...", help=f"any of {', '.join(METHODS)}")
    option("--ranks", type=_numbers, default=[], metavar="M,...", help="instead of the planned")
    option("--samples", type=_numbers, default=[], metavar="N,...", help="instead of the planned")
    option("--seeds", type=_numbers, default=[0], metavar="S,...", help="random seeds")
    option("--budget-minutes", type=float, metavar="T", help="stop a stochastic method after this")
    option("--mnist", type=Path, metavar="DIR", default=DATA / "mnist", help="MNIST's idx files")
    option("--fetch", action="store_true", help="fetch MNIST from OpenML instead")
    option("--cache", type=Path, metavar="DIR", help="keep the images here, 784 bytes each")
    option("--output", type=Path, metavar="DIR", default=RESULTS / NAME, help="result files")
    option("--test-rows", type=int, metavar="N", default=TEST_ROWS, help="held-out rows")
    option("--memory", metavar="SIZE", default="12GiB", help="memory budget of each fit")
    option("--list", action="store_true", help="show what would run and what is stored")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells that are missing and print all that are stored."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)

    def log(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    methods = [name for name in options.methods.split(",") if name]
    mnist = None if options.fetch else options.mnist
    experiment = Experiment(
        options.output, mnist, options.cache, options.test_rows, options.memory, log
    )
    cells = Cells(options.output)
    try:
        for cell in wanted_cells(
            methods, options.ranks, options.samples, options.seeds, options.budget_minutes
        ):
            if options.list:
                log(f"{cell.key}: {'stored' if cells.stored(cell.key) else 'to be run'}")
            else:
                experiment.run(cell)
        console.print(_table(cells.all()))
    except KnoiError as error:
        sys.exit(str(error))


def _table(cells: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Total correlation on held-out pairs of the MNIST8M stand-in, of 50",
        caption="paper: MNIST8M itself, 8 million samples, six cores",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("method", "M", "samples", "refit", "fitted", "minutes", "paper", "minutes"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, method in METHODS.items():
        own = [cell for cell in cells if cell["method"] == name]
        for cell in sorted(own, key=lambda cell: (cell["rank"] or 0, cell["samples"])):
            paper = PAPER.get((name, cell["rank"]))
            table.add_row(
                method.label,
                "" if cell["rank"] is None else f"{cell['rank']:,}",
                f"{cell['samples']:,}",
                f"{cell['refit']:.2f}",
                f"{cell['fitted']:.2f}",
                f"{cell['seconds'] / 60:.1f}",
                "" if paper is None else f"{paper[0]}",
                "" if paper is None else f"{paper[1]}",
            )
    return table


if __name__ == "__main__":
    main()
