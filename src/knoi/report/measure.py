"""What a report measures: variates of sampled rows, correlations, retrieval, loadings, labels.

Functions named `..._data` return JSON for the scripts of the page.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.random import Purpose, derived_seed, generator
from knoi.data.pairs import PairSource
from knoi.estimators.base import BaseCCA
from knoi.metrics import (
    component_correlations,
    cross_view_retrieval,
    permutation_test,
    retrieval_ranks,
    top_matches,
)
from knoi.metrics.retrieval import Direction, Similarity
from knoi.report.images import Shape, shrink
from knoi.report.page import pack_table, round_values

Rows = NDArray[np.int64]

# Rows that correlations are computed on: enough for an accuracy of 0.01.
MEASURED_ROWS = 10_000
# Rows drawn as points and searched for matches: as many as an SVG plot can show.
POINTS = 2000
# Components shown one by one; the others only count in totals.
MAX_COMPONENTS = 100
# Bytes of data read at a time.
_CHUNK_BYTES = 64 << 20

# Corrected p-values below it are called significant.
LEVEL = 0.05
# Multiplications that a permutation test may take, about a second.
_TEST_EFFORT = 4e9
_MIN_PERMUTATIONS, _MAX_PERMUTATIONS = 199, 999

N_MATCHES = 10
RECALL_DEPTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)

# Columns shown of a view whose rows are not images; numbers in all loading images of a view.
_MAX_COLUMNS = 15
_MAX_IMAGE_NUMBERS = 500_000

# Categories with a colour each, the last one being "other"; numbers with more distinct values get
# a colour scale.
MAX_CATEGORIES = 10
_MAX_DISTINCT_NUMBERS = 20


@dataclass(frozen=True)
class ProjectedRows:
    """Rows of both views and their variates."""

    rows: Rows  # (n,), sorted
    Zx: NDArray[np.float64]  # (n, L)
    Zy: NDArray[np.float64]  # (n, L)
    n_available: int  # rows they were drawn from

    def __len__(self) -> int:
        return len(self.rows)

    def leading(self) -> "ProjectedRows":
        """Keep the first `MAX_COMPONENTS` components."""
        return replace(self, Zx=self.Zx[:, :MAX_COMPONENTS], Zy=self.Zy[:, :MAX_COMPONENTS])


def project_rows(model: BaseCCA, pairs: PairSource, seed: int) -> ProjectedRows:
    """Project all rows, or `MEASURED_ROWS` drawn at random."""
    sample = pairs
    if pairs.n_rows > MEASURED_ROWS:
        sample = pairs.split(MEASURED_ROWS, derived_seed(seed, Purpose.REPORT_ROWS))[1]
    with warnings.catch_warnings():
        # The report may be given arrays for a model of data frames.
        warnings.filterwarnings("ignore", message=". does not have valid feature names")
        Zx, Zy = model.transform(*sample.views())
    Zx, Zy = (np.asarray(Z, dtype=np.float64) for Z in (Zx, Zy))
    return ProjectedRows(sample.row_numbers(), Zx, Zy, pairs.n_rows)


def read_rows(pairs: PairSource, rows: Rows, view: int) -> Iterator[Any]:
    """Read the given rows of one view in chunks."""
    step = max(1, _CHUNK_BYTES // max(1, pairs.row_bytes))
    return (pairs.take(rows[start : start + step])[view] for start in range(0, len(rows), step))


def choose_points(projected: ProjectedRows, seed: int) -> ProjectedRows:
    """Return all rows, or `POINTS` of them drawn at random, in order."""
    if len(projected) <= POINTS:
        return projected
    drawn = generator(seed, Purpose.REPORT_POINTS).choice(len(projected), POINTS, replace=False)
    drawn.sort()
    return replace(
        projected, rows=projected.rows[drawn], Zx=projected.Zx[drawn], Zy=projected.Zy[drawn]
    )


def measure_correlations(
    model: BaseCCA, evaluated: ProjectedRows, is_held_out: bool, seed: int
) -> dict[str, Any]:
    """Correlations of the components, in-sample and of held-out rows, and a test of the latter.

    The rows `evaluated` are held out, or some of the training rows, which show what chance gives:
    in-sample correlations are those of the model.
    """
    shown = evaluated.leading()
    n, L = shown.Zx.shape
    effort = np.clip(_TEST_EFFORT / (n * L * L), _MIN_PERMUTATIONS, _MAX_PERMUTATIONS)
    test = permutation_test(shown.Zx, shown.Zy, int(effort), seed)
    in_sample = model.correlations_
    held_out = component_correlations(evaluated.Zx, evaluated.Zy) if is_held_out else None
    correlations = in_sample if held_out is None else held_out
    return {
        "in_sample": in_sample[:L],
        "held_out": None if held_out is None else held_out[:L],
        "evaluated": correlations[:L],
        "total_in_sample": float(in_sample.sum()),
        "total": float(correlations.sum()),  # of all components
        "test": test,
        "chance": test.null_quantiles[-1],  # 95% of random pairings correlate less
        "significant": test.significant(LEVEL),
    }


def correlation_chart(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chart of `measure_correlations`."""
    chart = correlation_data({"in-sample": measured["in_sample"]})
    chart["chance"] = round_values(measured["chance"])
    if measured["held_out"] is not None:
        chart["series"] += correlation_data({"held out": measured["held_out"]})["series"]
        chart["series"][1]["significant"] = measured["significant"].tolist()
    return chart


def correlation_data(series: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return the chart of correlations per component, one line per series."""
    lines = [{"name": name, "values": round_values(values)} for name, values in series.items()]
    return {"series": lines, "chance": None}


def recall_data(
    depths: Sequence[int], series: Mapping[str, Sequence[float]], n_rows: int
) -> dict[str, Any]:
    """Return the chart of recall@k among `n_rows` candidates, one line per series."""
    return {
        "depths": list(depths),
        "series": [{"name": name, "values": round_values(v)} for name, v in series.items()],
        "chance": round_values(k / n_rows for k in depths),
    }


def retrieval_data(points: ProjectedRows) -> dict[str, Any]:
    """Find the nearest rows of the other view for each row, in both directions."""
    Zx, Zy = points.Zx, points.Zy
    n, L = Zx.shape
    # With one component every cosine is 1 or -1.
    similarity: Similarity = "cosine" if L > 1 else "euclidean"
    depths = tuple(k for k in RECALL_DEPTHS if k <= max(1, n // 2))
    matches, similarities, ranks, recall = [], [], [], {}
    directions: tuple[tuple[Direction, str], ...] = (("x_to_y", "X to Y"), ("y_to_x", "Y to X"))
    for direction, name in directions:
        queries, gallery = (Zx, Zy) if direction == "x_to_y" else (Zy, Zx)
        indices, near = top_matches(queries, gallery, min(N_MATCHES, n), similarity=similarity)
        matches.append(pack_table(indices, integers=True))
        similarities.append(pack_table(near))
        # Tied rows share the mean of their ranks, so that twice a rank is an integer.
        twice = 2.0 * retrieval_ranks(Zx, Zy, similarity=similarity, direction=direction)
        ranks.append(pack_table(twice[:, None], integers=True))
        scores = cross_view_retrieval(Zx, Zy, ks=depths, similarity=similarity, direction=direction)
        recall[name] = [scores.recall[k] for k in depths]
    return {
        "similarity": similarity,
        "matches": matches,
        "similarities": similarities,
        "ranks": ranks,
        "recall": recall_data(depths, recall, n),
    }


def learning_curve_data(model: BaseCCA) -> dict[str, Any] | None:
    """Return the training history of a model that has one."""
    history: dict[str, list[Any]] | None = getattr(model, "history_", None)
    if not history or not history["step"]:
        return None
    names = ("samples", "seconds", "correlation", "held_out")
    curve: dict[str, Any] = {name: round_values(history[name], 5) for name in names}
    if all(value is None for value in curve["held_out"]):
        curve["held_out"] = None
    curve["rolled_back"] = [bool(value) for value in history["rolled_back"]]
    return curve


def loadings_data(
    loadings: NDArray[Any], shape: Shape | None, names: Sequence[str] | None
) -> dict[str, Any]:
    """Return loadings (d, L) as images if columns are pixels, else of the strongest columns."""
    loadings = loadings[:, :MAX_COMPONENTS]
    d, L = loadings.shape
    if shape is not None:
        images = loadings.T.reshape(L, *shape)
        images = shrink(images, math.ceil(math.sqrt(images.size / _MAX_IMAGE_NUMBERS)))
        _, height, width = images.shape
        values = pack_table(images.reshape(L, -1).T)
        return {"kind": "image", "height": height, "width": width, "values": values}
    strongest = np.argsort(-np.abs(loadings), axis=0, kind="stable")[:_MAX_COLUMNS].T  # (L, n)
    texts = [
        [shorten(f"column {j}" if names is None else str(names[j]), 40) for j in columns]
        for columns in strongest
    ]
    return {
        "kind": "columns",
        "n_columns": d,
        "names": texts,
        "values": [round_values(loadings[columns, k], 3) for k, columns in enumerate(strongest)],
    }


def label_data(labels: NDArray[Any]) -> dict[str, Any]:
    """Return labels as numbers for a colour scale, or as categories."""
    if labels.dtype.kind in "iuf" and len(np.unique(labels)) > _MAX_DISTINCT_NUMBERS:
        values = labels.astype(np.float64)
        if np.isfinite(values).all():
            return {"kind": "number", "values": pack_table(values[:, None])}
    texts = [f"{v:g}" if isinstance(v, float) else str(v) for v in labels.tolist()]
    names, codes, counts = np.unique(
        [shorten(text, 60) for text in texts], return_inverse=True, return_counts=True
    )
    try:  # numbers in numerical order
        order = np.argsort(names.astype(np.float64), kind="stable").tolist()
    except ValueError:
        order = list(range(len(names)))
    if len(names) > MAX_CATEGORIES:
        frequent = set(np.argsort(-counts, kind="stable")[: MAX_CATEGORIES - 1].tolist())
        order = [k for k in order if k in frequent]
    group = np.full(len(names), len(order))
    group[order] = np.arange(len(order))
    groups = names[order].tolist()
    return {
        "kind": "category",
        "names": names.tolist(),
        "codes": pack_table(codes[:, None], integers=True),
        "groups": groups if len(groups) == len(names) else [*groups, "other"],
        "group_of": group.tolist(),
    }


def shorten(text: str, length: int) -> str:
    """Cut a text to `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"
