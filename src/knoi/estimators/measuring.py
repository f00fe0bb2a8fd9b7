"""The pass after a fit that relates the columns of both views to the variates of both.

What `predict`, `inverse_transform` and the loadings need, d x 2 L numbers a view, from a sample of
the training rows: reading and mapping all of them again could cost as much as the fit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import compute_dtype, numpy_backend, pick_backend
from knoi.arrays.blocks import even_slices, rows_that_fit
from knoi.arrays.random import View
from knoi.data.pairs import PairSource
from knoi.engine import Engine
from knoi.exceptions import NotKeptError
from knoi.metrics.structure import JointMoments, Redundancy, Structure, Variables
from knoi.projection import Projection

# All rows up to this many; then a sixteenth of them, so that the pass costs a sixteenth of another
# look at the data at most; and never more than the larger number. By it the error of a regression
# on L variates grows by about L / rows of itself, and correlations are good to 1 / sqrt(rows).
WHOLE_ROWS = 8192
MOST_ROWS = 65_536
# A view is left out where its columns times components are more: a million columns, 20 components.
MOST_NUMBERS = 20_000_000
# Where `split` draws the sample: not the seed of a fit, whose rows held out are drawn there too.
_SAMPLE_SEED = 0x6B6E6F69


def sample_of(pairs: PairSource) -> PairSource:
    """The rows to measure on: all of few, a random part of many; always the same."""
    n = min(MOST_ROWS, max(WHOLE_ROWS, pairs.n_rows // 16))
    return pairs if n >= pairs.n_rows else pairs.split(n, _SAMPLE_SEED)[1]


def measure(
    projection: Projection,
    pairs: PairSource,
    engine: Engine,
    *,
    device: str | None,
    budget: int,
    piece_rows: int,
    held: int = 0,
) -> Structure:
    """Joint moments of columns and variates over all rows of `pairs`.

    Takes `budget` bytes less those `held` elsewhere, or raises `MemoryBudgetError`; `piece_rows`
    are projected by a thread at a time.
    """
    L = int(projection.x.weights.shape[1])
    kept = [view for view in View if pairs.n_cols[view] * L <= MOST_NUMBERS]
    n_columns = tuple(pairs.n_cols[view] for view in kept)
    placed = []
    scratch = 0
    for view, own in zip(View, (projection.x, projection.y), strict=True):
        precision = compute_dtype(pairs.stored_dtypes[view], own.features.dtype)
        backend = pick_backend(device, precision)
        placed.append((own.folded.to(backend), backend))
        numbers = own.folded.numbers_per_row()
        scratch += pairs.bytes_on(backend)[view] + numbers * backend.itemsize
    rows = rows_that_fit(
        budget,
        fixed=held
        + JointMoments.fixed_bytes(n_columns, 2 * L)
        + min(engine.n_workers * piece_rows, pairs.n_rows) * scratch,
        # In use and read ahead, and scaled and centred in float64.
        per_row=2 * pairs.row_bytes + sum(pairs.bytes_on(numpy_backend("float64"))) + 48 * L,
        n_rows=pairs.n_rows,
        purpose="relating columns to variates",
        remedy="Raise memory_budget.",
    )
    moments = JointMoments(n_columns, 2 * L)

    def project(piece: slice, chunks: tuple[Any, Any], Z: NDArray[np.float64]) -> None:
        for view, (own, backend) in zip(View, placed, strict=True):
            found = backend.to_numpy(own(backend.asarray(chunks[view][piece])))
            Z[piece, view * L : (view + 1) * L] = found

    with pairs.iterate(rows) as read:
        for chunks in read:
            n = int(chunks[0].shape[0])
            Z = np.empty((n, 2 * L))
            engine.map(project, even_slices(n, piece_rows), chunks, Z)
            moments.add(Z, tuple(chunks[view] for view in kept))
    variates = moments.variates()
    found = dict(zip(kept, moments.variables(pairs.dtype), strict=True))
    return Structure(variates, found.get(View.X), found.get(View.Y))


def variates_of(view: View, structure: Structure) -> slice:
    """Where the variates of a view stand among those of both."""
    L = len(structure.variates.mean) // 2
    return slice(view * L, (view + 1) * L)


def structure_of(model: Any) -> Structure:
    """What was measured when the model was fitted, or why there is nothing."""
    name = type(model).__name__
    if not hasattr(model, "structure_"):
        raise NotKeptError(
            f"This {name} was saved, or learned by partial_fit or solve, without what relates its "
            "variates to the columns of the views, which predict, inverse_transform and loadings "
            "need. Fit it again with fit."
        )
    structure: Structure | None = model.structure_
    if structure is None:
        raise NotKeptError(
            f"This {name} was fitted within a memory_budget too small to relate its variates to "
            "the columns of the views, which predict, inverse_transform and loadings need. Fit it "
            "again with a larger memory_budget."
        )
    return structure


def variables_of(model: Any, structure: Structure, view: View) -> Variables:
    """What was measured of the columns of a view, or why there is nothing."""
    variables = (structure.x, structure.y)[view]
    if variables is None:
        n_columns = (model.n_features_in_, model.n_features_y_)[view]
        raise NotKeptError(
            f"{view.name} has {n_columns} columns, which times {model.n_components} components is "
            f"more than the {MOST_NUMBERS} numbers kept to predict a view or give its loadings. "
            "Lower n_components, pass fewer columns, or regress those you need on what transform "
            "returns."
        )
    return variables


def regressed(model: Any, view: View, Z: Any, given: View) -> NDArray[Any]:
    """The columns of `view` by least squares from variates Z (n, L) of the view `given`."""
    structure = structure_of(model)
    variables, which = variables_of(model, structure, view), variates_of(given, structure)
    Z = np.asarray(Z)
    return variables.regress(Z, structure.variates, which, compute_dtype(Z.dtype))


def loadings(model: Any, view: View, given: View) -> NDArray[Any]:
    """Correlations of the columns of `view` with the variates of the view `given`, (d, L)."""
    structure = structure_of(model)
    variables = variables_of(model, structure, view)
    return variables.correlations(variates_of(given, structure))


def redundancies(model: Any, structure: Structure) -> tuple[Redundancy, Redundancy]:
    """Of the columns of each view given the variates of the other."""
    of_x, of_y = (
        variables_of(model, structure, view).redundancy(
            structure.variates, variates_of(given, structure)
        )
        for view, given in ((View.X, View.Y), (View.Y, View.X))
    )
    return of_x, of_y
