"""`knoi fit`: fit a model to two files, save it, and report how well it does."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from knoi.cli import options
from knoi.cli.files import (
    ProgressSource,
    check_model_output,
    hold_out,
    open_pairs,
    open_test_pairs,
)
from knoi.cli.output import (
    Interrupted,
    clock,
    examples,
    messages,
    print_json,
    results,
    say,
    show_rows,
    table,
)
from knoi.cli.report import check_report, report_inputs, write_report
from knoi.cli.score import evaluate

if TYPE_CHECKING:
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi fit X.npy Y.npy -o model.knoi",
    "knoi fit X.npy Y.npy -o model.knoi --components 50 --rank 20000 --report report.html",
    "knoi fit data.h5:/left data.h5:/right -o model.knoi --images 28x14 --report report.html",
    "knoi fit X.npy Y.npy -o model.knoi --time 10m --checkpoint run   (Ctrl-C, then --resume)",
    "knoi fit X.csv Y.csv -o model.knoi --method nystrom --kernel laplacian --reg 1e-5",
)
USAGE = "knoi fit X Y -o MODEL"
# By default this fraction of the pairs is held out, up to a number, if there are enough pairs.
HELD_OUT, MOST_HELD_OUT, FEWEST_TO_SPLIT = 0.1, 10_000, 1000
# Components listed on the screen; all of them are in the JSON document.
LISTED = 10

_OUTPUT, _LONG_RUNS = "Output", "Long runs"
_MODEL = "The model file to write; an existing model is replaced."
_HELD_OUT = (
    "Pairs held out of the fit to score the model on: a fraction (0.1) or a number; 0 for none. By "
    "default a tenth, at most 10,000, if there are 1,000 pairs or more and no --test."
)
_REPORT = "Write a page with correlations, variates, retrieval and important inputs."
_CHECKPOINT = "Save the run here every minute, and when it is interrupted."


def fit(
    context: typer.Context,
    x: options.ViewX,
    y: options.ViewY,
    output: Annotated[Path, options.option("MODEL", _MODEL, "--output", "-o", panel=_OUTPUT)],
    components: options.Components = None,
    method: options.MethodName = "auto",
    held_out: Annotated[
        Any, options.option("SIZE", _HELD_OUT, parser=options.held_out_size)
    ] = None,
    seed: options.Seed = 0,
    report: Annotated[Path | None, options.option("HTML", _REPORT, panel=_OUTPUT)] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    rank: options.Rank = None,
    kernel: options.Kernel = None,
    metric: options.Metric = None,
    scale: options.Scale = None,
    width: options.Width = None,
    reg: options.Reg = None,
    approximation: options.Approximation = None,
    landmarks: options.Landmarks = None,
    epochs: options.Epochs = None,
    time: options.Seconds = None,
    settings: options.Settings = None,
    checkpoint: Annotated[Path | None, options.option("DIR", _CHECKPOINT, panel=_LONG_RUNS)] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue from the checkpoint.", rich_help_panel=_LONG_RUNS),
    ] = False,
    test: options.Test = None,
    labels: options.Labels = None,
    images: options.Images = None,
    texts: options.Texts = None,
    x_names: options.XNames = None,
    y_names: options.YNames = None,
    title: options.Title = None,
    memory: options.Memory = None,
    jobs: options.Jobs = None,
    device: options.Device = None,
    debug: options.Debug = False,
) -> None:
    """Fit a model to two files whose rows are paired, and print how well it does.

    Files of any size are streamed. By default KNOI learns a kernel CCA until the score on held-out
    pairs no longer improves; the scores printed are computed on other held-out pairs.
    """
    from knoi.arrays.random import FIT_SPLIT

    if resume and checkpoint is None:
        raise options.usage_error(
            "resume", "there is nothing to resume from. Add --checkpoint DIR, of the earlier run."
        )
    for name in ("labels", "images", "texts", "x_names", "y_names", "title"):
        if context.params[name] and report is None:
            option = name.replace("_", "-")
            raise options.usage_error(option, "it is for the report. Add --report report.html.")
    # The options of the estimator, from `components` to `device`, are taken from the context.
    chosen, others = options.estimator_options(context), dict(settings or ())
    method = options.resolve_method(method, chosen)
    model = options.make_model(method, chosen, others, verbose=not quiet)
    console = messages(quiet)
    inputs = (x, y, *(test or ()), labels, *(texts or ()), x_names, y_names)
    check_model_output(output, "--output", inputs)
    if report is not None:
        check_report(report, "--report", inputs)
        if os.path.realpath(report) == os.path.realpath(output):
            raise options.usage_error("report", "it is also the model file. Give another name.")
    with ExitStack() as opened:
        pairs = opened.enter_context(open_pairs(x, y, USAGE))
        test_pairs = open_test_pairs(test, pairs.n_cols, opened)
        if held_out is None:
            few = pairs.n_rows < FEWEST_TO_SPLIT or test_pairs is not None
            held_out = 0 if few else min(int(HELD_OUT * pairs.n_rows), MOST_HELD_OUT)
        train, rest = hold_out(pairs, held_out, seed, FIT_SPLIT) if held_out else (pairs, None)
        # With both, the pairs of --test are scored; those held out are only left out of the fit.
        scored = rest if test_pairs is None else test_pairs
        if report is not None:
            shown = report_inputs(context, pairs, scored, held_out=test_pairs is None)
        if components is None and "n_components" not in others:
            model.set_params(n_components=min(options.MOST_COMPONENTS, *pairs.n_cols))
        seconds = _train(model, train, scored, method, context, console)
        if "verbose" in model.get_params(deep=False):
            model.set_params(verbose=None)  # how this run was shown is not part of the model
        model.save(output)
        evaluation = None if scored is None else evaluate(model, *scored.views())
        if report is not None:
            say(console, "Writing the report")
            facts = [("X", str(x)), ("Y", str(y)), ("model", str(output))]
            facts.append(("time to fit", clock(seconds)))
            write_report(report, model, train, facts=facts, **shown)
    document = {
        "model": str(output),
        "report": None if report is None else str(report),
        "command": options.command_line(context),
        **_describe(model),
        "rows": train.n_rows,
        "columns": list(train.n_cols),
        "seconds": seconds,
        "held_out": evaluation,
    }
    if as_json:
        print_json(document)
    else:
        _print(document, results(quiet), context)


def _train(
    model: "BaseCCA",
    train: "PairSource",
    scored: "PairSource | None",
    method: str,
    context: typer.Context,
    console: Console,
) -> float:
    """Fit the model and return the seconds it took."""
    what = (
        f"Fitting {type(model).__name__}: {model.n_components} components of {train.n_rows:,} "
        f"pairs, {train.n_cols[0]} + {train.n_cols[1]} columns"
    )
    if scored is not None:
        what += f"; {scored.n_rows:,} more to score it on"
    if hasattr(model, "kernel") and model.n_components > min(train.n_cols):
        what += (
            f"\nThese are more components than columns: linear CCA has {min(train.n_cols)} at "
            "most, and of those that a kernel adds few may hold on other pairs; "
            "knoi tune --components auto says how many do"
        )
    X, Y = train.views()
    began = perf_counter()
    if options.METHODS[method].minibatches:
        say(console, what)
        with log_to_console(console), _explain_checkpoint(model, context, console):
            model.fit(X, Y, **({"resume": True} if context.params["resume"] else {}))
    else:
        n_rows = None if X.random_access else train.n_rows
        with show_rows(console, what, n_rows, then="solving") as show:
            model.fit(ProgressSource(X, show), Y)
    return perf_counter() - began


@contextmanager
def _explain_checkpoint(
    model: "BaseCCA", context: typer.Context, console: Console
) -> Iterator[None]:
    """Print what becomes of an earlier run, and how to continue after Ctrl-C or SIGTERM."""
    from knoi.callbacks.checkpoint import FILE_NAME

    directory, resume = model.get_params(deep=False).get("checkpoint"), context.params["resume"]
    file = None if directory is None else Path(directory) / FILE_NAME
    if file is not None and file.exists() and not resume:
        say(console, f"Replacing the run in {directory}; --resume would continue it")
    elif file is not None and resume and not file.exists():
        say(console, f"There is no checkpoint in {directory} yet: starting from the beginning")
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        code = stop.code if isinstance(stop, SystemExit) else 130
        if file is None:
            message = "interrupted; nothing was saved. Use --checkpoint DIR to be able to resume."
        elif file.exists():
            message = f"interrupted; to continue: {options.command_line(context, '--resume')}"
        else:
            message = f"interrupted before the first step; no checkpoint was saved in {directory}."
        raise Interrupted(message, code if isinstance(code, int) else 1) from None


@contextmanager
def log_to_console(console: Console) -> Iterator[None]:
    """Print what the library logs, such as which approximation it chooses and why."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(console, record.getMessage())

    logger = logging.getLogger("knoi")
    handler, level = Handler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _describe(model: "BaseCCA") -> dict[str, Any]:
    """Return what a fitted model says about itself, for JSON."""
    from knoi.arrays.backend import peak_memory
    from knoi.estimators.base import portable
    from knoi.estimators.plotting import model_facts

    facts, training = model_facts(model), ("stopped_", "n_samples_seen_", "history_")
    return {
        "method": type(model).__name__,
        "parameters": {k: portable(v) for k, v in model.get_params(deep=False).items()},
        "peak_memory_bytes": peak_memory(),
        "views": facts["views"],
        "in_sample": facts["in_sample"],
        **{name.rstrip("_"): getattr(model, name) for name in training if hasattr(model, name)},
    }


def _print(document: dict[str, Any], console: Console, context: typer.Context) -> None:
    """Print correlations, what was chosen, files written, and what to do next."""
    from knoi.estimators.plotting import describe_views

    console.print(_table(document["in_sample"], document["held_out"]))
    for view, text in describe_views(document["views"]):
        say(console, f"View {view}: {text}")
    say(console, f"Model:  {document['model']} (fitted in {clock(document['seconds'])})")
    if document["report"] is not None:
        say(console, f"Report: {document['report']}")
    if document["held_out"] is None:
        say(
            console,
            "In-sample correlations are optimistic. To score the model on other pairs: "
            f"knoi score {document['model']} X_TEST Y_TEST",
        )
    if document.get("stopped") == "out of time" and document["parameters"].get("checkpoint"):
        say(console, f"Time is up; to train on: {options.command_line(context, '--resume')}")


def _table(in_sample: dict[str, Any], held_out: dict[str, Any] | None) -> Table:
    columns = {"in-sample": in_sample["correlations"]}
    if held_out is not None:
        columns[f"{held_out['rows']:,} held-out pairs"] = held_out["correlations"]
    L = len(in_sample["correlations"])
    made = table("component", *columns)
    for i in range(min(L, LISTED)):
        made.add_row(str(i + 1), *(f"{rho[i]:.3f}" for rho in columns.values()))
    if L > LISTED:
        made.add_row("...", style="dim")
    made.add_section()
    totals = (f"{sum(rho):.2f}" for rho in columns.values())
    made.add_row(f"total, at most {L}", *totals, style="bold")
    if held_out is not None:
        made.add_row("total, refit", "-", f"{held_out['total_correlation_refit']:.2f}")
    return made
