"""A fit from files to files: everything that can fail is looked at before the long part."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from knoi.cli.files import about, check_columns, check_model_output, open_pairs
from knoi.cli.methods import STEPWISE
from knoi.cli.options import Invocation
from knoi.cli.screen import clock, counting_rows, print_json, remarks, results, say
from knoi.cli.stopped import Stopped

if TYPE_CHECKING:
    from knoi.cli.measured import Measured
    from knoi.cli.reporting import Shown
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA

USAGE = "knoi fit X Y -o MODEL"
DEFAULT_COMPONENTS = 10
# Without --test, and unless told otherwise, this part of the pairs is kept out, up to a number ...
HELD_OUT, MOST_HELD_OUT = 0.1, 10_000
# ... of data that have at least as many.
FEWEST_TO_SPLIT = 1000


@dataclass(frozen=True)
class Request:
    """What `knoi fit` was told, checked as far as it can be without a file."""

    x: Path
    y: Path
    output: Path
    model: "BaseCCA"
    method: str
    components: int | None
    seed: int
    held_out: int | float | None
    test: tuple[Path, Path] | None
    resume: bool
    report: Path | None
    labels: Path | None
    images: tuple[tuple[int, int], ...]
    title: str | None
    as_json: bool
    quiet: bool
    typed: Invocation


@dataclass(frozen=True)
class Outcome:
    """What came of a fit."""

    n_rows: int
    n_cols: tuple[int, int]
    seconds: float
    test: "Measured | None"


def run(request: Request) -> None:
    """Fit, save, measure, report, say."""
    console = remarks(request.quiet)
    _check_outputs(request)
    with ExitStack() as opened:
        pairs = opened.enter_context(open_pairs(request.x, request.y, USAGE))
        train, test = _parts(request, pairs, opened)
        shown = _shown(request, pairs, test)
        model = request.model
        if request.components is None:
            model.set_params(n_components=min(DEFAULT_COMPONENTS, *pairs.n_cols))
        seconds = _fit(request, model, train, test, console)
        if "verbose" in model.get_params(deep=False):
            model.set_params(verbose=None)  # how this run was watched is no part of the model
        model.save(request.output)
        outcome = Outcome(train.n_rows, train.n_cols, seconds, _measure(model, test))
        if shown is not None and request.report is not None:
            say(console, "Writing the report")
            facts = _facts(request, outcome)
            shown.write(request.report, model, train, facts, request.typed.command())
    if request.as_json:
        print_json(_document(request, model, outcome))
    else:
        _tell(request, model, outcome)


def _check_outputs(request: Request) -> None:
    test = request.test or (None, None)
    inputs = (request.x, request.y, *test, request.labels)
    check_model_output(request.output, "--output", inputs)
    if request.report is None:
        return
    from knoi.cli.reporting import check_report

    check_report(request.report, inputs)
    if os.path.realpath(request.report) == os.path.realpath(request.output):
        raise typer.BadParameter(
            "it is the file of the model, too. Give another name.", param_hint="'--report'"
        )


def _parts(
    request: Request, pairs: "PairSource", opened: ExitStack
) -> tuple["PairSource", "PairSource | None"]:
    """Pairs to fit to, and pairs to measure on."""
    from knoi.arrays.random import FIT_SPLIT, Purpose, derived_seed

    test = None
    if request.test is not None:
        with about("--test"):
            test = opened.enter_context(open_pairs(*request.test, "--test X_TEST Y_TEST"))
            check_columns(test.n_cols, pairs.n_cols)
    count = request.held_out
    if count is None:
        small = pairs.n_rows < FEWEST_TO_SPLIT or test is not None
        count = 0 if small else min(int(HELD_OUT * pairs.n_rows), MOST_HELD_OUT)
    if not count:
        return pairs, test
    with about("--held-out"):
        train, held_out = pairs.split(count, derived_seed(request.seed, Purpose.PARTS, FIT_SPLIT))
    # With both, the rows of --test are what is measured; those held out are only left out.
    return train, held_out if test is None else test


def _shown(request: Request, pairs: "PairSource", test: "PairSource | None") -> "Shown | None":
    if request.report is None:
        return None
    from knoi.cli.reporting import Shown

    return Shown.checked(
        pairs,
        test,
        held_out=request.test is None and test is not None,
        labels=request.labels,
        images=request.images,
        title=request.title,
        seed=request.seed,
    )


def _fit(
    request: Request,
    model: "BaseCCA",
    train: "PairSource",
    test: "PairSource | None",
    console: Console,
) -> float:
    """Fit and return the seconds it took."""
    what = (
        f"Fitting {type(model).__name__}: {model.n_components} components of {train.n_rows:,} "
        f"pairs, {train.n_cols[0]} + {train.n_cols[1]} columns"
    )
    if test is not None:
        what += f"; {test.n_rows:,} more to measure on"
    x, y = train.views()
    began = perf_counter()
    if request.method in STEPWISE:
        say(console, what)
        with _heard(console), _told_to_stop(request):
            _say_of_checkpoint(request, console)
            more = {"resume": True} if request.resume else {}
            model.fit(x, y, **more)
    else:
        from knoi.cli.watched import Watched

        told = None if x.random_access else train.n_rows
        with counting_rows(console, what, told, then="solving") as tell:
            model.fit(Watched(x, tell), y)
    return perf_counter() - began


def _say_of_checkpoint(request: Request, console: Console) -> None:
    from knoi.callbacks.checkpoint import FILE_NAME

    directory = request.model.get_params(deep=False).get("checkpoint")
    if directory is None:
        return
    there = (Path(directory) / FILE_NAME).exists()
    if there and not request.resume:
        say(console, f"A run in {directory} is given up for this one; --resume would go on with it")
    if request.resume and not there:
        say(console, f"There is no checkpoint in {directory} yet: starting from the beginning")


@contextmanager
def _told_to_stop(request: Request) -> Iterator[None]:
    """Say how to go on where a run that has a checkpoint is ended by Ctrl-C or SIGTERM."""
    from knoi.callbacks.checkpoint import FILE_NAME

    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stopped:
        code = stopped.code if isinstance(stopped, SystemExit) else 130
        directory = request.model.get_params(deep=False).get("checkpoint")
        if directory is None:
            message = "interrupted; nothing is saved. With --checkpoint DIR a run can go on later."
        elif (Path(directory) / FILE_NAME).exists():
            message = f"interrupted; to go on: {request.typed.command('--resume')}"
        else:
            message = f"interrupted before the first step; nothing is in {directory} to go on from."
        raise Stopped(message, code if isinstance(code, int) else 1) from None


@contextmanager
def _heard(console: Console) -> Iterator[None]:
    """Pass on what the library logs, such as why it takes one approximation and not another."""
    logger = logging.getLogger("knoi")
    handler, level = _Saying(console), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Saying(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        say(self._console, record.getMessage())


def _measure(model: "BaseCCA", test: "PairSource | None") -> "Measured | None":
    from knoi.cli.measured import measure

    return None if test is None else measure(model, *test.views())


def _facts(request: Request, outcome: Outcome) -> list[tuple[str, str]]:
    return [
        ("X", str(request.x)),
        ("Y", str(request.y)),
        ("model", str(request.output)),
        ("time to fit", clock(outcome.seconds)),
    ]


def _document(request: Request, model: "BaseCCA", outcome: Outcome) -> dict[str, Any]:
    from knoi.arrays.backend import peak_memory
    from knoi.estimators.base import portable

    parameters = model.get_params(deep=False)
    made: dict[str, Any] = {
        "model": str(request.output),
        "report": None if request.report is None else str(request.report),
        "command": request.typed.command(),
        "method": type(model).__name__,
        "parameters": {name: portable(value) for name, value in parameters.items()},
        "rows": outcome.n_rows,
        "columns": list(outcome.n_cols),
        "seconds": outcome.seconds,
        "peak_memory_bytes": peak_memory(),
        "training": {
            "total_correlation": float(model.correlations_.sum()),
            "correlations": model.correlations_,
        },
        "held_out": None if outcome.test is None else outcome.test.document(),
    }
    for name in ("stopped_", "n_samples_seen_", "history_"):
        if hasattr(model, name):
            made[name.rstrip("_")] = getattr(model, name)
    return made


def _tell(request: Request, model: "BaseCCA", outcome: Outcome) -> None:
    from knoi.cli.measured import correlation_table

    console = results(request.quiet)
    columns = {"training": model.correlations_}
    refit = {}
    if outcome.test is not None:
        name = f"{outcome.test.n_rows:,} other pairs"
        columns[name] = outcome.test.fitted
        refit[name] = float(outcome.test.refit.sum())
    console.print(correlation_table(columns, refit))
    say(console, f"Model:  {request.output} (fitted in {clock(outcome.seconds)})")
    if request.report is not None:
        say(console, f"Report: {request.report}")
    if outcome.test is None:
        say(
            console, "Training pairs flatter: knoi score MODEL X_TEST Y_TEST says what it is worth."
        )
    if getattr(model, "stopped_", None) == "out of time" and getattr(model, "checkpoint", None):
        say(console, f"Time was up; to train on: {request.typed.command('--resume')}")
