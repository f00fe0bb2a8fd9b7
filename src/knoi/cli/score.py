"""`knoi score`: what a model is worth on pairs it has not seen."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from knoi.cli.files import check_columns, load_model, open_pairs
from knoi.cli.options import AsJson, Debug, Device, Jobs, Memory, Model, Seed, ViewX, ViewY
from knoi.cli.screen import examples, print_json, remarks, results, say, table

if TYPE_CHECKING:
    from knoi.cli.measured import Measured

EXAMPLES = examples(
    "knoi score model.knoi X_test.npy Y_test.npy",
    "knoi score model.knoi data.h5:/x_test data.h5:/y_test --permutations 999",
    "knoi score model.knoi X_test.npy Y_test.npy --json | jq .total_correlation",
)
USAGE = "knoi score MODEL X Y"


def score(
    model: Model,
    x: ViewX,
    y: ViewY,
    permutations: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Shuffles of the rows to get p-values from."),
    ] = 0,
    seed: Seed = 0,
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure how well a model's components agree on pairs that were not used to fit it.

    The total correlation is the sum over components. "refit" lets a linear CCA align the components
    anew first, as the KNOI paper does. A p-value is the chance of a correlation as large if rows
    had nothing to do with each other; "corrected" allows for there being several components.
    """
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    from knoi.cli.measured import measure

    with open_pairs(x, y, USAGE) as pairs:
        check_columns(pairs.n_cols, (fitted.n_features_in_, fitted.n_features_y_))
        found = measure(fitted, *pairs.views(), permutations, seed)
    if as_json:
        print_json({"model": str(model), "x": str(x), "y": str(y), **found.document()})
        return
    results().print(_table(found))
    if not permutations:
        say(remarks(), "Is it chance? --permutations 999 gives p-values.")


def _table(found: "Measured") -> Table:
    test, L = found.test, len(found.fitted)
    columns = [] if test is None else ["p", "p, corrected"]
    made = table("component", "correlation", *columns, title=f"{found.n_rows:,} pairs")
    for i, rho in enumerate(found.fitted):
        values = [] if test is None else [test.p_values[i], test.corrected_p_values[i]]
        made.add_row(str(i + 1), f"{rho:.3f}", *(f"{p:.2g}" for p in values))
    made.add_section()
    made.add_row(f"total, at most {L}", f"{found.fitted.sum():.3f}", *columns and ["", ""])
    last = [] if test is None else [f"{test.total_p_value:.2g}", ""]
    made.add_row("total, refit", f"{found.refit.sum():.3f}", *last, style="bold")
    return made
