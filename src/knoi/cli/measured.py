"""How good a model is on given pairs, as a document and as a table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from knoi.cli.screen import table
from knoi.metrics import (
    PermutationTest,
    canonical_correlations,
    component_correlations,
    permutation_test,
)

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

Float64 = NDArray[np.float64]

# Components listed on the screen; all of them are in the JSON document.
LISTED = 10


@dataclass(frozen=True)
class Measured:
    """Both measures of total correlation, and what they are the sums of.

    Attributes
    ----------
    n_rows : int
        Pairs measured on.
    fitted : array of shape (L,)
        Correlation of each component as the model has it.
    refit : array of shape (L,)
        Canonical correlations of a fresh linear CCA of the projections.
    test : PermutationTest or None
        The same pairs shuffled, if that was asked for.
    """

    n_rows: int
    fitted: Float64
    refit: Float64
    test: PermutationTest | None = None

    def document(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        made: dict[str, Any] = {
            "rows": self.n_rows,
            "components": len(self.fitted),
            "total_correlation": float(self.fitted.sum()),
            "total_correlation_refit": float(self.refit.sum()),
            "correlations": self.fitted,
            "correlations_refit": self.refit,
        }
        if self.test is not None:
            made["permutations"] = self.test.n_permutations
            made["p_values"] = self.test.p_values
            made["corrected_p_values"] = self.test.corrected_p_values
            made["total_p_value"] = self.test.total_p_value
        return made


def measure(
    model: "BaseCCA", X: Any, Y: Any, n_permutations: int = 0, seed: int | None = None
) -> Measured:
    """Project these pairs and measure how well the views agree on them."""
    Zx, Zy = model.transform(X, Y)
    return Measured(
        n_rows=len(Zx),
        fitted=component_correlations(Zx, Zy),
        refit=canonical_correlations(Zx, Zy),
        test=permutation_test(Zx, Zy, n_permutations, seed) if n_permutations else None,
    )


def correlation_table(columns: dict[str, Float64], refit: dict[str, float]) -> Table:
    """Correlations a component, of one or more sets of pairs, and their totals.

    Parameters
    ----------
    columns : dict
        Fitted correlations (L,) by the name of the column.
    refit : dict
        Refit totals, for the columns that have one.
    """
    L = len(next(iter(columns.values())))
    made = table("component", *columns)
    for i in range(min(L, LISTED)):
        made.add_row(str(i + 1), *(f"{rho[i]:.3f}" for rho in columns.values()))
    if L > LISTED:
        made.add_row("...", *("" for _ in columns), style="dim")
    made.add_section()
    totals = (f"{rho.sum():.2f}" for rho in columns.values())
    made.add_row(f"total, at most {L}", *totals, style="bold")
    if refit:
        made.add_row("total, refit", *(_or_dash(refit.get(name)) for name in columns))
    return made


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
