"""`knoi score`: how well a model does on pairs it has not seen."""

from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from knoi.cli.files import check_columns, load_model, open_pairs
from knoi.cli.options import AsJson, Debug, Device, Jobs, Memory, Model, Seed, ViewX, ViewY, option
from knoi.cli.output import examples, messages, print_json, results, say, table

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

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
        int, option("N", "Permutations of the rows, to compute p-values.", min=0)
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
        print_json({"model": str(model), "x": str(x), "y": str(y), **evaluation})
        return
    results().print(_table(evaluation))
    if not permutations:
        say(messages(), "Could it be chance? --permutations 999 gives p-values.")


def evaluate(
    model: "BaseCCA", X: Any, Y: Any, n_permutations: int = 0, seed: int | None = None
) -> dict[str, Any]:
    """Correlate the components on these pairs; "refit" is by a linear CCA of the projections."""
    from knoi.metrics import canonical_correlations, component_correlations, permutation_test

    Zx, Zy = model.transform(X, Y)
    fitted, refit = component_correlations(Zx, Zy), canonical_correlations(Zx, Zy)
    evaluation: dict[str, Any] = {
        "rows": len(Zx),
        "components": len(fitted),
        "total_correlation": float(fitted.sum()),
        "total_correlation_refit": float(refit.sum()),
        "correlations": fitted,
        "correlations_refit": refit,
    }
    if n_permutations:
        test = permutation_test(Zx, Zy, n_permutations, seed)
        evaluation["permutations"] = test.n_permutations
        for name in ("p_values", "corrected_p_values", "total_p_value"):
            evaluation[name] = getattr(test, name)
    return evaluation


def _table(evaluation: dict[str, Any]) -> Table:
    tested = "permutations" in evaluation
    columns = ["p", "p, corrected"] if tested else []
    made = table("component", "correlation", *columns, title=f"{evaluation['rows']:,} pairs")
    for i, rho in enumerate(evaluation["correlations"]):
        p_values = [evaluation[name][i] for name in ("p_values", "corrected_p_values") if tested]
        made.add_row(str(i + 1), f"{rho:.3f}", *(f"{p:.2g}" for p in p_values))
    made.add_section()
    made.add_row(
        f"total, at most {evaluation['components']}", f"{evaluation['total_correlation']:.3f}"
    )
    last = [f"{evaluation['total_p_value']:.2g}"] if tested else []
    refit = f"{evaluation['total_correlation_refit']:.3f}"
    made.add_row("total, refit", refit, *last, style="bold")
    return made
