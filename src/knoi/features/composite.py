"""Maps of sums and products of kernels, fitted from maps of their parts."""

import math
from collections.abc import Callable

import numpy as np

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, derived_seed
from knoi.exceptions import InputError
from knoi.features.base import FeatureMap
from knoi.features.concatenated import ConcatenatedMap
from knoi.features.multiplied import ProductMap, TensorMap, elementwise, joined
from knoi.kernels import Kernel, ProductKernel, SumKernel

FitOne = Callable[[Array, Kernel, int, int, View], FeatureMap]
"""`fit_one(sample, kernel, rank, seed, view)`: a map of one part."""


def fit_sum(
    fit_one: FitOne, sample: Array, kernel: SumKernel, rank: int, seed: int, view: View
) -> ConcatenatedMap:
    """The map of a sum: `rank` split among the parts, each drawn on its own.

    A part gets features in proportion to its share of the trace, w_i E k_i(x, x). The error of a
    part of M_i random features is about w_i E k_i(x, x) / sqrt(M_i), and this split of a given
    number makes their sum of squares least; all features then have about the same length.
    """
    n_parts = len(kernel.parts)
    if rank < n_parts:
        raise InputError(
            f"rank={rank} is below the {n_parts} kernels of {kernel!r}: each needs a feature at "
            f"least. Raise rank to {n_parts} or more (a few thousand is usual)."
        )
    shares = [
        weight * float(np.mean(np.asarray(part.diag(sample), dtype=np.float64)))
        for part, weight in zip(kernel.parts, kernel.weights, strict=True)
    ]
    left, open_parts = rank, list(range(n_parts))
    maps: dict[int, FeatureMap] = {}
    while open_parts:
        given = dict(
            zip(open_parts, split_rank([shares[i] for i in open_parts], left), strict=True)
        )
        for i, own in given.items():
            maps[i] = fit_one(
                sample, kernel.parts[i], own, derived_seed(seed, Purpose.PARTS, i), view
            )
        # A part that has no more features, as a linear kernel of few columns, leaves its to others.
        full = [i for i in open_parts if maps[i].rank >= given[i]]
        if len(full) in (0, len(open_parts)):
            break
        left -= sum(maps[i].rank for i in open_parts if i not in full)
        open_parts = full
    return ConcatenatedMap(tuple(maps[i] for i in range(n_parts)), kernel.weights)


def fit_product(
    fit_one: FitOne, sample: Array, kernel: ProductKernel, rank: int, seed: int, view: View
) -> FeatureMap:
    """The map of a product, from maps of its factors that are drawn independently.

    Where the features of all factors can be multiplied one by one (`ProductMap`), it has `rank` of
    them. Else it has all products of fewer, at most `rank` (`TensorMap`): exact where the maps of
    the factors are, but of random maps of rank^(1/2) features each it has their error.
    """
    seeds = [derived_seed(seed, Purpose.PARTS, i) for i in range(len(kernel.parts))]

    def fit_all(ranks: list[int]) -> tuple[FeatureMap, ...]:
        return tuple(
            fit_one(sample, part, own, own_seed, view)
            for part, own, own_seed in zip(kernel.parts, ranks, seeds, strict=True)
        )

    parts = fit_all([rank] * len(seeds))
    if elementwise(joined(parts)):
        return ProductMap.of(parts)
    return TensorMap.of(fit_all(factor_rank(rank, len(seeds))))


def split_rank(shares: list[float], rank: int) -> list[int]:
    """`rank` in whole numbers >= 1 that add up to it, in proportion to `shares` >= 0."""
    total = sum(shares)
    n = len(shares)
    exact = [rank * share / total if total > 0 else rank / n for share in shares]
    ranks = [math.floor(number) for number in exact]
    by_remainder = sorted(range(n), key=lambda i: (ranks[i] - exact[i], i))
    for i in by_remainder[: rank - sum(ranks)]:
        ranks[i] += 1
    while 0 in ranks:
        ranks[ranks.index(max(ranks))] -= 1
        ranks[ranks.index(0)] += 1
    return ranks


def factor_rank(rank: int, n: int) -> list[int]:
    """`n` whole numbers >= 1, as equal as can be, whose product is at most `rank`."""
    factors = [1] * n
    while True:
        least = factors.index(min(factors))
        larger = [factor + (i == least) for i, factor in enumerate(factors)]
        if math.prod(larger) > rank:
            return factors
        factors = larger
