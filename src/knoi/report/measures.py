"""What a report says in numbers: correlations beside chance, retrieval, the learning curve."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.estimators.base import BaseCCA
from knoi.metrics import (
    PermutationTest,
    component_correlations,
    cross_view_retrieval,
    permutation_test,
    retrieval_ranks,
    top_matches,
)
from knoi.metrics.retrieval import Direction
from knoi.metrics.similarity import Similarity
from knoi.report.packing import packed, rounded
from knoi.report.rows import Variates

# Components after these are only added up.
MOST_COMPONENTS = 100
# Matches shown for a row, and depths of the recall curve.
N_MATCHES = 10
_DEPTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
# Multiplications that a permutation test may take: about a second.
_TEST_EFFORT = 4e9
_FEWEST_SHUFFLES, _MOST_SHUFFLES = 199, 999
# Corrected p-values below it are called beyond chance.
LEVEL = 0.05


@dataclass(frozen=True)
class Correlations:
    """Of each component, on training rows and on rows held out, beside shuffled pairs."""

    training: NDArray[np.float64]  # (L,)
    held_out: NDArray[np.float64] | None  # (L,)
    chance: PermutationTest  # of rows held out where there are any, else of training rows

    @property
    def judged(self) -> NDArray[np.float64]:
        """Held out where there are such rows."""
        return self.training if self.held_out is None else self.held_out

    @property
    def beyond_chance(self) -> NDArray[np.bool_]:
        """Components that agree, and more than shuffled pairs; only rows held out can tell."""
        return np.asarray((self.chance.corrected_p_values < LEVEL) & (self.judged > 0.0))

    def data(self) -> dict[str, Any]:
        """For the page."""
        return {
            "training": rounded(self.training),
            "held_out": None if self.held_out is None else rounded(self.held_out),
            "chance": rounded(self.chance.null_quantiles[-1]),
            "beyond": [bool(b) for b in self.beyond_chance],
        }


def correlations(training: Variates, held_out: Variates | None, seed: int) -> Correlations:
    """Measure the leading components, and shuffle the rows they are judged on."""
    judged = (training if held_out is None else held_out).leading(MOST_COMPONENTS)
    n, L = judged.Zx.shape
    shuffles = int(np.clip(_TEST_EFFORT / (n * L * L), _FEWEST_SHUFFLES, _MOST_SHUFFLES))
    own = training.leading(MOST_COMPONENTS)
    return Correlations(
        training=component_correlations(own.Zx, own.Zy),
        held_out=None if held_out is None else component_correlations(judged.Zx, judged.Zy),
        chance=permutation_test(judged.Zx, judged.Zy, shuffles, seed),
    )


@dataclass(frozen=True)
class Retrieval:
    """Rows that find each other across the views, in both directions."""

    similarity: Similarity
    matches: tuple[NDArray[np.int64], NDArray[np.int64]]  # (n, k): from X to Y, from Y to X
    similarities: tuple[NDArray[np.float64], NDArray[np.float64]]  # (n, k)
    ranks: tuple[NDArray[np.float64], NDArray[np.float64]]  # (n,), of the partner
    depths: tuple[int, ...]
    recall: tuple[tuple[float, ...], tuple[float, ...]]  # at the depths

    def data(self) -> dict[str, Any]:
        """For the page."""
        n = len(self.ranks[0])
        return {
            "similarity": self.similarity,
            "matches": [packed(matches, whole=True) for matches in self.matches],
            "similarities": [packed(values) for values in self.similarities],
            # Tied rows share the mean of their ranks: halves stay halves.
            "ranks": [packed(2.0 * ranks[:, None], whole=True) for ranks in self.ranks],
            "depths": list(self.depths),
            "recall": [rounded(recall) for recall in self.recall],
            "chance": rounded(k / n for k in self.depths),
        }


def retrieval(variates: Variates) -> Retrieval:
    """Every row's nearest rows of the other view, among these."""
    Zx, Zy = variates.Zx, variates.Zy
    n, L = Zx.shape
    # The cosine of two numbers is a sign.
    similarity: Similarity = "cosine" if L > 1 else "euclidean"
    depths = tuple(k for k in _DEPTHS if k <= max(1, n // 2))
    matches, similarities, ranks, recall = [], [], [], []
    directions: tuple[Direction, Direction] = ("x_to_y", "y_to_x")
    for direction in directions:
        queries, gallery = (Zx, Zy) if direction == "x_to_y" else (Zy, Zx)
        found, near = top_matches(queries, gallery, min(N_MATCHES, n), similarity=similarity)
        matches.append(found)
        similarities.append(near)
        ranks.append(retrieval_ranks(Zx, Zy, similarity=similarity, direction=direction))
        scores = cross_view_retrieval(Zx, Zy, ks=depths, similarity=similarity, direction=direction)
        recall.append(tuple(scores.recall[k] for k in depths))
    return Retrieval(
        similarity,
        (matches[0], matches[1]),
        (similarities[0], similarities[1]),
        (ranks[0], ranks[1]),
        depths,
        (recall[0], recall[1]),
    )


def learning_curve(model: BaseCCA) -> dict[str, Any] | None:
    """The history of a model that has one, for the page."""
    history: dict[str, list[Any]] | None = getattr(model, "history_", None)
    if not history or not history["step"]:
        return None
    curve: dict[str, Any] = {
        name: rounded(history[name], 5) for name in ("samples", "seconds", "correlation")
    }
    held_out = rounded(history["held_out"], 5)
    curve["held_out"] = None if all(value is None for value in held_out) else held_out
    curve["undone"] = [bool(undone) for undone in history["undone"]]
    return curve
