"""`knoi report`: a page about a model that is there already."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from knoi.cli.files import about, check_columns, load_model, open_pairs
from knoi.cli.options import (
    Debug,
    Device,
    Images,
    Jobs,
    Labels,
    Memory,
    Model,
    Quiet,
    Seed,
    Test,
    Title,
    ViewX,
    ViewY,
    invocation,
)
from knoi.cli.screen import examples, remarks, results, say

EXAMPLES = examples(
    "knoi report model.knoi X.npy Y.npy -o report.html --test X_test.npy Y_test.npy",
    "knoi report model.knoi X.npy Y.npy -o report.html --labels digits.npy --images 28x14",
)
USAGE = "knoi report MODEL X Y -o report.html"


def report(
    context: typer.Context,
    model: Model,
    x: ViewX,
    y: ViewY,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="HTML", show_default=False, help="The page to write."
        ),
    ],
    seed: Seed = 0,
    test: Test = None,
    labels: Labels = None,
    images: Images = None,
    title: Title = None,
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a page about a model, to look at in any browser.

    X and Y are the pairs it was fitted to. Give --test pairs that it was not fitted to: without
    them the page can show only how well the model knows what it has seen.
    """
    from knoi.cli.reporting import Shown, check_report

    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    check_report(output, (model, x, y, *(test or ()), labels))
    columns = fitted.n_features_in_, fitted.n_features_y_
    with ExitStack() as opened:
        pairs = opened.enter_context(open_pairs(x, y, USAGE))
        check_columns(pairs.n_cols, columns)
        others = None
        if test is not None:
            with about("--test"):
                others = opened.enter_context(open_pairs(*test, "--test X_TEST Y_TEST"))
                check_columns(others.n_cols, columns)
        shown = Shown.checked(
            pairs,
            others,
            held_out=False,
            labels=labels,
            images=tuple(images or ()),
            title=title,
            seed=seed,
        )
        say(remarks(quiet), f"Writing the report of {model}")
        facts = [("model", str(model)), ("X", str(x)), ("Y", str(y))]
        shown.write(output, fitted, pairs, facts, invocation(context).command())
    say(results(quiet), f"Report: {output}")
