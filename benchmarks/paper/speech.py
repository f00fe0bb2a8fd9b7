"""Table 2 of the KNOI paper: learned acoustic features in a phone recogniser, cell by cell.

    python -m benchmarks.paper.speech --list
    python -m benchmarks.paper.speech --folds 0 --methods mfcc,pca,cca
    python -m benchmarks.paper.speech --corpus xrmb --protocol paper --data FOLDER
    python -m benchmarks.paper.speech --corpus synthetic --rank 100 --output try

Every finished cell is stored at once and not computed again: a run that was stopped goes on with
the next. One cell is a method on a fold: features are learned, 30, 50 and 70 of them are appended
to the MFCC, and a recogniser with each acoustic model is trained, tuned and tested. Widths and
regularisers are searched once per fold, by the phone error rate of its tuning sentences.

Corpora are read from KNOI_DATA unless --data names another folder: `benchmarks/speech/corpora.py`
says which files. Protocols and variants are in `benchmarks/speech/protocols.py`, methods in
`benchmarks/speech/methods.py`.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS, Cells, Clock
from benchmarks.speech.corpora import FOLDS, READERS, Corpus
from benchmarks.speech.evaluation import FoldData
from benchmarks.speech.methods import DIMENSIONS, METHODS, search
from benchmarks.speech.protocols import PROTOCOLS, VARIANTS, Fold, prepared
from knoi.estimators.base import BaseCCA
from knoi.exceptions import InputError, KnoiError, MemoryBudgetError

NAME = "speech"
SEARCH = "search"  # in the place of a method
SETTINGS = ("width", "reg", "linear_reg")  # what it finds
# Rough minutes on two cores: a recogniser of one feature set, and a search.
RECOGNISER_MINUTES, SEARCH_MINUTES = 0.3, 7.0

Log = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """A method on a fold, or the search of its widths and regularisers ("search")."""

    corpus: str
    protocol: str
    variant: str
    fold: Fold = field(compare=False)
    method: str
    rank: int | None = None

    @property
    def key(self) -> str:
        """Its name among the results."""
        parts = [self.corpus, self.protocol, self.variant, self.fold.name, self.method]
        return "-".join([*parts, *([] if self.rank is None else [f"M{self.rank}"])])


@dataclass
class Experiment:
    """Computes cells of one corpus that are missing in a folder of results.

    Parameters
    ----------
    corpus : Corpus
        As it was read.
    folder : path
        Where cells are stored.
    rank : int or None
        Instead of the ranks of all methods, for trials.
    memory_budget : str
        Of every fit; a method that does not fit is skipped.
    log : callable
        Receives lines about the progress.
    """

    corpus: Corpus
    folder: Path
    rank: int | None = None
    memory_budget: str = "12GiB"
    log: Log = print
    _corpus: tuple[str, Corpus] | None = None  # the prepared one of a variant
    _fold: tuple[Any, FoldData] | None = None
    _models: tuple[Any, dict[Any, Any]] | None = None  # all that learned from the same frames

    def cells(
        self,
        protocols: Sequence[str],
        variants: Sequence[str],
        methods: Sequence[str],
        folds: Sequence[int],
    ) -> Iterator[Cell]:
        """The cells wanted: variant by variant, fold by fold, the search before the methods."""
        _known(protocols, PROTOCOLS, "protocol")
        _known(variants, VARIANTS, "variant")
        _known(methods, METHODS, "method")
        if wrong := [k for k in folds if not 0 <= k < FOLDS]:
            raise InputError(f"There is no fold {wrong[0]}; there are 0 to {FOLDS - 1}.")
        for variant in variants:
            for protocol in protocols:
                for fold in PROTOCOLS[protocol](self.corpus):
                    if fold.number not in folds:
                        continue
                    one = VARIANTS[variant].fold(fold)
                    for name in methods:
                        rank = METHODS[name].rank
                        if rank is not None and self.rank is not None:
                            rank = self.rank
                        yield Cell(self.corpus.name, protocol, variant, one, name, rank)

    def minutes(self, cell: Cell) -> float:
        """A rough estimate for a cell that is not stored, without its search."""
        method, variant = METHODS[cell.method], VARIANTS[cell.variant]
        frames = len(self.corpus.rows(cell.fold.learn))
        smaller = 1.0 if not cell.rank or not method.rank else min(1.0, cell.rank / method.rank)
        sets = len(DIMENSIONS) if method.make else 1
        return method.minutes * smaller * frames / 100_000 + RECOGNISER_MINUTES * sets * len(
            variant.acoustic
        )

    def run(self, cell: Cell) -> dict[str, Any] | None:
        """The result of a cell, from the folder or computed now; None if it needs more memory."""
        cells = Cells(self.folder)
        stored = cells.stored(cell.key)
        if stored is not None:
            self.log(f"{cell.key}: stored already, {_summary(stored)}")
            return stored
        self.log(f"{cell.key}: about {self.minutes(cell):.0f} minutes")
        data = self._data(cell)
        settings = self._search(cell, data) if METHODS[cell.method].searched else {}
        clock = Clock()
        try:
            model, fitting = self._fitted(cell, data, settings)
        except MemoryBudgetError as error:
            self.log(f"  skipped: {error}")
            return None
        found = {
            "method": cell.method,
            "rank": cell.rank,
            "settings": {name: settings[name] for name in SETTINGS if name in settings},
            "fit_seconds": fitting,
            "learning_frames": len(data.corpus.rows(data.fold.learn)),
            "correlation": data.correlations(model),
            **data.rates(model),
            "seconds": clock.wall,
        }
        whole = cells.store(cell.key, {**_described(cell), **found})
        self.log(f"  {_summary(whole)}; {whole['seconds'] / 60:.1f} minutes")
        return whole

    def _data(self, cell: Cell) -> FoldData:
        variant = VARIANTS[cell.variant]
        if self._corpus is None or self._corpus[0] != cell.variant:
            self._corpus = cell.variant, prepared(self.corpus, variant)
        key = cell.variant, cell.protocol, cell.fold.name
        if self._fold is None or self._fold[0] != key:
            self._fold = key, FoldData(self._corpus[1], cell.fold, variant)
        return self._fold[1]

    def _search(self, cell: Cell, data: FoldData) -> dict[str, Any]:
        """Widths and regularisers of a fold, found once by the error rate of tuning sentences."""
        own = replace(cell, method=SEARCH, rank=None)
        cells = Cells(self.folder)
        stored = cells.stored(own.key)
        if stored is not None:
            return stored
        self.log(f"{own.key}: about {SEARCH_MINUTES:.0f} minutes")
        clock = Clock()

        def score(model: Any, X: Any, Y: Any) -> float:
            rate = data.tuning_rate(model)
            self.log(f"  {_settings_of(model)}: {rate:.1%}")
            return -rate

        found = search(*data.views("learn"), data.views("tune"), score)
        return cells.store(own.key, {**_described(own), **found, "seconds": clock.wall})

    def _fitted(self, cell: Cell, data: FoldData, settings: Any) -> tuple[Any, float]:
        """The fitted estimator and its seconds; folds that learn from the same frames share it."""
        method = METHODS[cell.method]
        if method.make is None:
            return None, 0.0
        frames = cell.variant, cell.protocol, data.fold.learn.tobytes()
        if self._models is None or self._models[0] != frames:
            self._models = frames, {}
        key = cell.method, cell.rank, *(repr(settings.get(name)) for name in SETTINGS)
        known = self._models[1]
        if key not in known:
            X, Y = data.views("learn")
            model = method.make(
                None if cell.rank is None else min(cell.rank, len(X) // 2), settings
            )
            if isinstance(model, BaseCCA):
                model.set_params(memory_budget=self.memory_budget)
            clock = Clock()
            known[key] = model.fit(X, Y), clock.wall
        found: tuple[Any, float] = known[key]
        return found


def _described(cell: Cell) -> dict[str, Any]:
    return {
        "corpus": cell.corpus,
        "protocol": cell.protocol,
        "variant": cell.variant,
        "fold": cell.fold.name,
    }


def _settings_of(model: BaseCCA) -> str:
    known = model.get_params(deep=False)
    return ", ".join(f"{name} {known[name]}" for name in ("width", "reg") if name in known)


def chosen(by_size: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The number of features that does best on the tuning sentences, and its results."""
    size, found = min(by_size.items(), key=lambda item: (item[1]["tuning"], int(item[0])))
    return int(size), found


def _summary(cell: dict[str, Any]) -> str:
    rates = []
    for kind, by_size in cell["rates"].items():
        size, found = chosen(by_size)
        rates.append(f"{kind} {found['test']:.1%}" + (f" (L = {size})" if size else ""))
    return ", ".join(rates)


def _known(names: Sequence[str], known: Any, what: str) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"There is no {what} {name!r}. Choose any of {', '.join(known)}.")


# The command.


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in _names(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text}: expected whole numbers, separated by commas."
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--corpus", choices=READERS, default="mocha")
    option("--data", type=Path, metavar="DIR", help="the files of the corpus")
    option("--speakers", type=_names, metavar="NAME,...", help="of MOCHA; default: all three")
    option("--protocol", type=_names, default=["same"], help=f"any of {', '.join(PROTOCOLS)}")
    option("--variants", type=_names, default=["plain"], help=f"any of {', '.join(VARIANTS)}")
    option("--methods", type=_names, default=list(METHODS), help=f"any of {', '.join(METHODS)}")
    option("--folds", type=_numbers, default=list(range(FOLDS)), metavar="K,...", help="of 0 to 5")
    option("--rank", type=int, metavar="M", help="instead of the rank of every method, for trials")
    option("--memory", metavar="SIZE", default="12GiB", help="memory budget of each fit")
    option("--output", type=Path, metavar="DIR", default=RESULTS / NAME, help="result files")
    option("--list", action="store_true", help="show what would run and what is stored")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells that are missing and print the error rates of all that were asked for."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)

    def log(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    try:
        _known(options.protocol, PROTOCOLS, "protocol")
        _known(options.variants, VARIANTS, "variant")
        _known(options.methods, METHODS, "method")
        more = {"speakers": options.speakers} if options.speakers else {}
        corpus = READERS[options.corpus](options.data, **more)
        for note in corpus.notes:
            log(note)
        experiment = Experiment(corpus, options.output, options.rank, options.memory, log)
        cells = list(
            experiment.cells(options.protocol, options.variants, options.methods, options.folds)
        )
        missing = [cell for cell in cells if Cells(options.output).stored(cell.key) is None]
        minutes = sum(map(experiment.minutes, missing))
        searches = {cell.fold.name for cell in missing if METHODS[cell.method].searched}
        minutes += SEARCH_MINUTES * len(searches)
        log(f"{len(missing)} of {len(cells)} cells to run, about {minutes / 60:.1f} hours")
        if options.list:
            for cell in cells:
                log(f"{cell.key}: {'to be run' if cell in missing else 'stored'}")
            return
        found = [result for cell in cells if (result := experiment.run(cell)) is not None]
        console.print(_table(found))
    except KnoiError as error:
        sys.exit(str(error))


def _table(cells: list[dict[str, Any]]) -> Table:
    """Mean error rates of the folds that were asked for."""
    kinds = list(dict.fromkeys(kind for cell in cells for kind in cell["rates"]))
    table = Table(title="Phone error rate, %", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("method", "folds", *kinds, "paper"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, method in METHODS.items():
        own = [cell for cell in cells if cell["method"] == name]
        if own:
            rates = [
                np.mean(
                    [
                        chosen(cell["rates"][kind])[1]["test"]
                        for cell in own
                        if kind in cell["rates"]
                    ]
                )
                for kind in kinds
            ]
            table.add_row(
                method.label,
                str(len(own)),
                *(f"{100 * rate:.1f}" for rate in rates),
                "" if method.per is None else f"{method.per}",
            )
    return table


if __name__ == "__main__":
    main()
