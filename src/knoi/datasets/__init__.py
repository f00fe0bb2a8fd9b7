"""Data sets that need no download: views of known correlations, endless handwritten digits."""

from knoi.datasets.digits import EndlessDigits, endless_digits
from knoi.datasets.synthetic import TwoViews, make_two_views, two_view_sources

__all__ = [
    "EndlessDigits",
    "TwoViews",
    "endless_digits",
    "make_two_views",
    "two_view_sources",
]
