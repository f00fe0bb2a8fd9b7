"""`knoi score`: how well a model does on pairs it has not seen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from knoi.cli.files import check_columns, load_model, open_pairs
from knoi.cli.options import AsJson, Debug, Device, Jobs, Memory, Model, Seed, ViewX, ViewY
from knoi.cli.output import examples, messages, print_json, results, say, table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from knoi.estimators.base import BaseCCA
    from knoi.metrics import PermutationTest

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
        typer.Option(metavar="N", min=0, help="Permutations of the rows, to compute p-values."),
    ] = 0,
    seed: Seed = 0,
    memory: Memory = None,
    jobs: Jobs = None,
    device: Device = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score a model on pairs that were not used to fit it.

    The total correlation is the sum over components. "refit" first aligns the components by a
    linear CCA of these pairs, as the KNOI paper does. A p-value is the chance of a correlation as
    large if the rows were not related; "corrected" allows for several components.
    """
    fitted = load_model(model, x, y, usage=USAGE, memory_budget=memory, n_jobs=jobs, device=device)
    with open_pairs(x, y, USAGE) as pairs:
        check_columns(pairs.n_cols, (fitted.n_features_in_, fitted.n_features_y_))
        evaluation = evaluate(fitted, *pairs.views(), permutations, seed)
    if as_json:
        print_json({"model": str(model), "x": str(x), "y": str(y), **evaluation.document()})
        return
    results().print(_table(evaluation))
    if not permutations:
        say(messages(), "Could it be chance? --permutations 999 gives p-values.")


@dataclass(frozen=True)
class Evaluation:
    """Correlations of a model's components on given pairs.

    Attributes
    ----------
    n_rows : int
        Number of pairs.
    fitted : array of shape (L,)
        Correlation of each component as the model has it.
    refit : array of shape (L,)
        Canonical correlations of a linear CCA of the projections.
    test : PermutationTest or None
        The permutation test of the same pairs.
    """

    n_rows: int
    fitted: "NDArray[np.float64]"
    refit: "NDArray[np.float64]"
    test: "PermutationTest | None" = None

    @property
    def total(self) -> float:
        """Total correlation: the sum over components."""
        return float(self.fitted.sum())

    @property
    def total_refit(self) -> float:
        """Total correlation after a linear CCA of the projections."""
        return float(self.refit.sum())

    def document(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        document: dict[str, Any] = {
            "rows": self.n_rows,
            "components": len(self.fitted),
            "total_correlation": self.total,
            "total_correlation_refit": self.total_refit,
            "correlations": self.fitted,
            "correlations_refit": self.refit,
        }
        if self.test is not None:
            document["permutations"] = self.test.n_permutations
            document["p_values"] = self.test.p_values
            document["corrected_p_values"] = self.test.corrected_p_values
            document["total_p_value"] = self.test.total_p_value
        return document


def evaluate(
    model: "BaseCCA", X: Any, Y: Any, n_permutations: int = 0, seed: int | None = None
) -> Evaluation:
    """Project these pairs and correlate the projections."""
    from knoi.metrics import canonical_correlations, component_correlations, permutation_test

    Zx, Zy = model.transform(X, Y)
    return Evaluation(
        n_rows=len(Zx),
        fitted=component_correlations(Zx, Zy),
        refit=canonical_correlations(Zx, Zy),
        test=permutation_test(Zx, Zy, n_permutations, seed) if n_permutations else None,
    )


def _table(evaluation: Evaluation) -> Table:
    test, L = evaluation.test, len(evaluation.fitted)
    columns = [] if test is None else ["p", "p, corrected"]
    made = table("component", "correlation", *columns, title=f"{evaluation.n_rows:,} pairs")
    for i, rho in enumerate(evaluation.fitted):
        values = [] if test is None else [test.p_values[i], test.corrected_p_values[i]]
        made.add_row(str(i + 1), f"{rho:.3f}", *(f"{p:.2g}" for p in values))
    made.add_section()
    made.add_row(f"total, at most {L}", f"{evaluation.total:.3f}", *columns and ["", ""])
    last = [] if test is None else [f"{test.total_p_value:.2g}", ""]
    made.add_row("total, refit", f"{evaluation.total_refit:.3f}", *last, style="bold")
    return made
