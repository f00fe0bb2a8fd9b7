"""Metrics of two projected views: correlation, redundancy, permutation test, retrieval."""

from knoi.metrics.correlation import (
    canonical_correlations,
    component_correlations,
    total_correlation,
)
from knoi.metrics.permutation import PermutationTest, permutation_test
from knoi.metrics.redundancy import Redundancy, redundancy
from knoi.metrics.retrieval import (
    RetrievalScores,
    cross_view_retrieval,
    retrieval_ranks,
    top_matches,
)

__all__ = [
    "PermutationTest",
    "Redundancy",
    "RetrievalScores",
    "canonical_correlations",
    "component_correlations",
    "cross_view_retrieval",
    "permutation_test",
    "redundancy",
    "retrieval_ranks",
    "top_matches",
    "total_correlation",
]
