"""HOW GOOD TWO PROJECTED VIEWS ARE: total and component correlations, cross-view retrieval."""

from knoi.metrics.correlation import (
    canonical_correlations,
    component_correlations,
    total_correlation,
)
from knoi.metrics.retrieval import (
    RetrievalScores,
    cross_view_retrieval,
    retrieval_ranks,
    top_matches,
)

__all__ = [
    "RetrievalScores",
    "canonical_correlations",
    "component_correlations",
    "cross_view_retrieval",
    "retrieval_ranks",
    "top_matches",
    "total_correlation",
]
