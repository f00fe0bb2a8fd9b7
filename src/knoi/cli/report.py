"""`knoi report`: an HTML page about a fitted model; also what `knoi fit --report` needs for it."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knoi.cli import options
from knoi.cli.files import (
    check_columns,
    check_output,
    load_model,
    open_pairs,
    open_test_pairs,
    read_texts,
)
from knoi.cli.output import examples, messages, results, say
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA

EXAMPLES = examples(
    "knoi report model.knoi X.npy Y.npy -o report.html --test X_test.npy Y_test.npy",
    "knoi report model.knoi X.npy Y.npy -o report.html --labels digits.npy --images 28x14",
    "knoi report model.knoi X.npz Y.npz -o report.html --texts rows.csv:title --x-names words.txt",
)
USAGE = "knoi report MODEL X Y -o report.html"


def report(
    context: typer.Context,
    model: options.Model,
    x: options.ViewX,
    y: options.ViewY,
    output: Annotated[Path, options.option("HTML", "The page to write.", "--output", "-o")],
    seed: options.Seed = 0,
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
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write an HTML page about a model, to open in any browser.

    X and Y are the pairs it was fitted to. Use --test to add pairs that it was not fitted to:
    without them the page can show in-sample results only.
    """
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    inputs = (model, x, y, *(test or ()), labels, *(texts or ()), x_names, y_names)
    check_report(output, "--output", inputs)
    columns = fitted.n_features_in_, fitted.n_features_y_
    with ExitStack() as opened:
        pairs = opened.enter_context(open_pairs(x, y, USAGE))
        check_columns(pairs.n_cols, columns)
        others = open_test_pairs(test, columns, opened)
        shown = report_inputs(context, pairs, others)
        say(messages(quiet), f"Writing the report on {model}")
        facts = [("model", str(model)), ("X", str(x)), ("Y", str(y))]
        write_report(output, fitted, pairs, facts=facts, **shown)
    say(results(quiet), f"Report: {output}")


def check_report(path: Path, option: str, inputs: Sequence[Path | None]) -> None:
    """Check that a report can be made and written there."""
    from knoi.report import require_report_extra

    check_output(path, option, inputs)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} {path}: it is a web page. Give a name that ends in .html.")
    require_report_extra()


def report_inputs(
    context: typer.Context,
    pairs: "PairSource",
    test: "PairSource | None",
    *,
    held_out: bool = False,
) -> dict[str, Any]:
    """Return arguments of `model_report` from the options, checked before any long work.

    `held_out` means that `test` is part of `pairs`. Labels and texts are those of `pairs` then, or
    if there is no `test`; otherwise those of `test`.
    """
    from knoi.report.images import check_image_shapes

    given, rows, of_test = context.params, pairs.n_rows, ""
    if test is not None and not held_out:
        rows, of_test = test.n_rows, " of --test"

    def of_rows(option: str, path: Path, view: str, **how: Any) -> Any:
        values = read_texts(option, path, rows, f"{view}{of_test}", **how)
        return values[test.row_numbers()] if test is not None and held_out else values

    labels, names = given["labels"], (given["x_names"], given["y_names"])
    images = given["images"] or None
    if images is not None and len(images) == 1:
        images = images * 2
    return {
        "test": None if test is None else test.views(),
        "labels": None if labels is None else of_rows("--labels", labels, "X", labels=True),
        "images": check_image_shapes(images, pairs.n_cols),
        "texts": [
            path and of_rows("--texts", path, view)
            for view, path in zip("XY", options.text_files(given["texts"]), strict=True)
        ],
        "names": [
            path and read_texts(f"--{view.lower()}-names", path, n, view, "column")
            for view, path, n in zip("XY", names, pairs.n_cols, strict=True)
        ],
        "command": options.command_line(context),
        "title": given["title"],
        "random_state": given["seed"],
    }


def write_report(path: Path, model: "BaseCCA", train: "PairSource", **inputs: Any) -> None:
    """Make the report of a model that is saved already, and write it."""
    from knoi.report import model_report

    try:
        model_report(model, *train.views(), **inputs).write(path)
    except Exception as error:
        error.add_note("The model file is complete; only the report failed.")
        raise
