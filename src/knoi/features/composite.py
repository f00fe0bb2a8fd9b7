"""Maps made of maps: sums and products of kernels, and chains of two maps.

- The features of a sum of kernels are those of its parts, side by side (`ConcatenatedMap`).
- The features of a product are products of those of its factors: all M1 M2 of them (`TensorMap`);
  or M products of independent random features, which do as well (`ProductMap`).
- `Chain` is phi(x) = second(first(x)). Exponential chi2 is RBF on features of additive chi2, since
  those keep its distance (`fit_chi2`; Sreekanth et al. 2010). A stationary kernel of a million
  sparse columns is about the same kernel of their count sketch (`fit_sketched`): Fourier features
  of the rows themselves would need a million numbers per frequency.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays.backend import Array
from knoi.arrays.random import Purpose, View, derived_seed
from knoi.arrays.sparse import PreparedParts, is_sparse
from knoi.exceptions import InputError
from knoi.features.additive import Additive
from knoi.features.base import FeatureMap, Fit, output, require_kernel
from knoi.features.fourier import RandomFourier
from knoi.features.sketch import CountSketch
from knoi.kernels import RBF, AdditiveChi2, Chi2, Kernel, Linear, Matern, ProductKernel, SumKernel

# Length of a run of columns of one part, on average over the parts of a concatenated map.
RUN = 64


class _PartsMap(FeatureMap):
    """What maps of several parts on the same rows share."""

    parts: tuple[FeatureMap, ...]

    def prepare(self, X: Array) -> PreparedParts:
        """Rows prepared by each part."""
        return PreparedParts(tuple(part.prepare(X) for part in self.parts))

    def scratch_per_row(self) -> int:
        """What the parts take."""
        return sum(part.scratch_per_row() for part in self.parts)


def check_parts(parts: tuple[FeatureMap, ...]) -> None:
    """`InputError` if there are no maps, or maps of different columns."""
    if not parts:
        raise InputError("a map made of maps needs at least one of them. Pass a fitted map.")
    if len({part.n_cols for part in parts}) > 1:
        raise InputError(
            f"the maps take rows of {[part.n_cols for part in parts]} columns: they must be of the "
            "same view. Fit them on the same rows."
        )


@dataclass(frozen=True)
class ConcatenatedMap(_PartsMap):
    """phi(x) = (sqrt(w_1) phi_1(x), sqrt(w_2) phi_2(x), ...), for the kernel w_1 k_1 + w_2 k_2...

    The columns of the parts take turns, each part with runs in proportion to its rank: so the first
    columns are a fair sample of all, which the warm start of training assumes.
    """

    kind: ClassVar[str] = "concatenated"
    parts: tuple[FeatureMap, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        check_parts(self.parts)
        SumKernel(tuple(part.kernel for part in self.parts), self.weights)  # checks the weights

    @cached_property
    def _runs(self) -> list[tuple[int, int, int, int]]:
        """Runs of columns: the first, how many, of which part, the first of them there."""
        ranks = [part.rank for part in self.parts]
        shares = [max(1, round(RUN * len(ranks) * rank / sum(ranks))) for rank in ranks]
        runs = []
        done = [0] * len(ranks)
        while done != ranks:
            for part, (share, rank) in enumerate(zip(shares, ranks, strict=True)):
                size = min(share, rank - done[part])
                if size:
                    runs.append((sum(done), size, part, done[part]))
                    done[part] += size
        return runs

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The weighted sum of those of the parts."""
        return SumKernel(tuple(part.kernel for part in self.parts), self.weights)

    @property
    def rank(self) -> int:
        """Number of features: those of all parts."""
        return sum(part.rank for part in self.parts)

    @property
    def grain(self) -> int:
        """Columns among which every part has as many as it computes together."""
        grains = [-(-p.grain * self.rank // p.rank) for p in self.parts if p.grain > 1]
        return max(grains, default=1)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Each part computes its columns among these, which then take their places."""
        start, stop = columns.start, columns.stop
        out = output(prepared, stop - start, out)
        for i, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            places = self._places(i, start, stop)
            if not places:
                continue
            first, (last, size, _) = places[0][0], places[-1]
            Phi = part.block(prepared.parts[i], slice(first, last + size))
            for own, size, at in places:
                target = out[:, at : at + size]
                target[...] = Phi[:, own - first : own - first + size]
                if weight != 1.0:
                    target *= math.sqrt(weight)
        return out

    def _places(self, part: int, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Runs of columns of a part among `start` to `stop`: (column of it, how many, where)."""
        places = []
        first = bisect_right(self._runs, start, key=itemgetter(0)) - 1
        for begin, size, of, own in islice(self._runs, first, None):
            if begin >= stop:
                break
            if of == part:
                cut = max(start - begin, 0)
                places.append((own + cut, min(size, stop - begin) - cut, max(begin - start, 0)))
        return places

    def scratch_per_row(self) -> int:
        """What the parts take, and the columns of one of them."""
        return super().scratch_per_row() + max(part.rank for part in self.parts)


@dataclass(frozen=True)
class ProductMap(_PartsMap):
    """phi_i(x) = M^((k-1)/2) phi_1,i(x) phi_2,i(x) ... phi_k,i(x), for the kernel k_1 k_2 ...

    E phi_i(x) phi_i(z) = M^(k-1) prod_j k_j(x, z) / M, so the map is unbiased if parts are drawn
    independently and every single feature of a part is unbiased: E phi_j,i(x) phi_j,i(z) =
    k_j(x, z) / M. So are arc-cosine features and random Fourier features with random phases,
    however the frequencies are drawn. Not so are pairs of cosine and sine, of which only the sum of
    two is unbiased; Nystrom features and monomials, which are not random; Maclaurin features, which
    are sorted by degree and of which one is the whole constant term. The features of a sketch are,
    but few of them can hold most of the kernel, and the error would not fall with M. `TensorMap`
    takes all of these; and one part may be pairs, as each of the two has the others' k_j / M.
    """

    kind: ClassVar[str] = "product"
    kernel: Kernel
    parts: tuple[FeatureMap, ...]

    def __post_init__(self) -> None:
        check_parts(self.parts)
        if len({part.rank for part in self.parts}) > 1:
            raise InputError(
                f"the maps of a product have ranks {[part.rank for part in self.parts]}: to be "
                "multiplied elementwise they must have the same. Fit them with the same rank, or "
                "use TensorMap."
            )
        if not elementwise(self.parts):
            kinds = {part.kind for part in self.parts if not part.features_iid}
            raise InputError(
                f"the features of these maps ({', '.join(sorted(kinds))}) cannot be multiplied "
                "elementwise: they are not draws of one distribution, each unbiased on its own. "
                "Use TensorMap, which multiplies each with each."
            )

    @classmethod
    def of(cls, parts: tuple[FeatureMap, ...]) -> Self:
        """The product of maps that were drawn independently.

        Random Fourier maps become one whose frequencies are the sums of theirs: the spectral
        measure of a product of kernels is the convolution of those of its factors.
        """
        return cls(ProductKernel(tuple(part.kernel for part in parts)), joined(parts))

    @property
    def rank(self) -> int:
        """Number of features, as many as every part has."""
        return self.parts[0].rank

    @property
    def features_iid(self) -> bool:
        """Whether those of all parts are."""
        return all(part.features_iid for part in self.parts)

    @property
    def grain(self) -> int:
        """The largest of a part."""
        return max(part.grain for part in self.parts)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The features of the parts, multiplied."""
        first, *others = prepared.parts
        Phi = self.parts[0].block(first, columns, out)
        for part, rows in zip(self.parts[1:], others, strict=True):
            Phi *= part.block(rows, columns)
        if others:
            Phi *= self.rank ** (len(others) / 2)
        return Phi

    def scratch_per_row(self) -> int:
        """What the parts take, and one more block."""
        return super().scratch_per_row() + (self.rank if len(self.parts) > 1 else 0)


def elementwise(parts: tuple[FeatureMap, ...]) -> bool:
    """Whether the features of `parts` may be multiplied elementwise: see `ProductMap`."""
    others = [part for part in parts if not part.features_iid]
    one_of_pairs = len(others) == 1 and isinstance(others[0], RandomFourier)
    return len(parts) == 1 or not others or one_of_pairs


def joined(parts: tuple[FeatureMap, ...]) -> tuple[FeatureMap, ...]:
    """The maps, with those of Fourier features joined to one for the product of their kernels."""
    fourier = [part for part in parts if isinstance(part, RandomFourier)]
    if len(fourier) < 2 or len({part.rank for part in fourier}) > 1:
        return parts
    like = next((one for one in fourier if not one.paired), fourier[0])
    turns = sum(one.turns for one in fourier)
    turns[-1, :] = like.turns[-1, :]
    # Its `kernel` is only one of the factors: `ProductMap` has the product.
    one = replace(like, turns=turns)
    return (one, *(part for part in parts if not isinstance(part, RandomFourier)))


@dataclass(frozen=True)
class TensorMap(FeatureMap):
    """phi_ij(x) = phi_1,i(x) phi_2,j(x) for all i and j: inner products of features multiply.

    With M1 <= M2 features the columns are the diagonals: (i, i + s modulo M2), i = 0 ... M1 - 1,
    for s = 0, 1, ... So the first columns are a fair sample of all, and of both maps.
    """

    kind: ClassVar[str] = "tensor"
    parts: tuple[FeatureMap, FeatureMap]  # of M1 <= M2 features, whatever order they come in

    def __post_init__(self) -> None:
        check_parts(self.parts)
        few, many = sorted(self.parts, key=lambda part: part.rank)
        object.__setattr__(self, "parts", (few, many))

    @classmethod
    def of(cls, parts: tuple[FeatureMap, ...]) -> FeatureMap:
        """Of any number of maps, two by two."""
        product = parts[0]
        for part in parts[1:]:
            product = cls((product, part))
        return product

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The product of those of the parts."""
        return ProductKernel(tuple(part.kernel for part in self.parts))

    @property
    def rank(self) -> int:
        """Number of features, M1 M2."""
        return self.parts[0].rank * self.parts[1].rank

    @property
    def features_iid(self) -> bool:
        """Whether those of both parts are."""
        return all(part.features_iid for part in self.parts)

    def prepare(self, X: Array) -> Array:
        """All features of both, (b, M1 + M2)."""
        both = [p.block(p.prepare(X), slice(0, p.rank)) for p in self.parts]
        return array_namespace(*both).concat(both, axis=1)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Parts of diagonals, each a product of two runs of columns."""
        out = output(prepared, columns.stop - columns.start, out)
        M1, M2 = self.parts[0].rank, self.parts[1].rank
        few, many = prepared[:, :M1], prepared[:, M1:]
        at = columns.start
        while at < columns.stop:
            diagonal, i = divmod(at, M1)
            j = (i + diagonal) % M2
            size = min(M1 - i, M2 - j, columns.stop - at)
            target = out[:, at - columns.start : at - columns.start + size]
            target[...] = few[:, i : i + size]
            target *= many[:, j : j + size]
            at += size
        return out

    def scratch_per_row(self) -> int:
        """What the parts take, and their features twice."""
        return sum(part.scratch_per_row() + 2 * part.rank for part in self.parts)


def fit_sum(
    fit_one: Fit, sample: Array, kernel: SumKernel, rank: int, seed: int, view: View
) -> ConcatenatedMap:
    """The map of a sum: `rank` split among the parts, each drawn on its own.

    A part gets features in proportion to its share of the trace, w_i E k_i(x, x). The error of a
    part of M_i random features is about w_i E k_i(x, x) / sqrt(M_i), and this split of a given
    number makes their sum of squares least; all features then have about the same length.
    """
    n_parts = len(kernel.parts)
    if rank < n_parts:
        raise InputError(
            f"rank={rank} is below the {n_parts} kernels of {kernel!r}: each needs at least "
            f"one feature. Raise rank to {n_parts} or more (a few thousand is usual)."
        )
    shares = [
        weight * float(np.mean(np.asarray(part.diag(sample), dtype=np.float64)))
        for part, weight in zip(kernel.parts, kernel.weights, strict=True)
    ]
    left, open_parts = rank, list(range(n_parts))
    maps: dict[int, FeatureMap] = {}
    while True:
        ranks = split_rank([shares[i] for i in open_parts], left)
        given = dict(zip(open_parts, ranks, strict=True))
        for i, own in given.items():
            own_seed = derived_seed(seed, Purpose.PARTS, i)
            maps[i] = fit_one(sample, kernel.parts[i], own, own_seed, view)
        # A part that has fewer features (linear, of few columns) leaves the rest to others.
        full = [i for i in open_parts if maps[i].rank >= given[i]]
        if len(full) in (0, len(open_parts)):
            break
        left -= sum(maps[i].rank for i in open_parts if i not in full)
        open_parts = full
    return ConcatenatedMap(tuple(maps[i] for i in range(n_parts)), kernel.weights)


def fit_product(
    fit_one: Fit, sample: Array, kernel: ProductKernel, rank: int, seed: int, view: View
) -> FeatureMap:
    """The map of a product, from maps of its factors that are drawn independently.

    Where the features of all factors can be multiplied elementwise (`ProductMap`), it has `rank` of
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


@dataclass(frozen=True)
class Chain(FeatureMap):
    """phi(x) = second(first(x)), features of `kernel`."""

    kind: ClassVar[str] = "chain"
    first: FeatureMap
    second: FeatureMap
    kernel: Kernel

    def __post_init__(self) -> None:
        if self.first.rank != self.second.n_cols:
            raise InputError(
                f"the first map of a chain has {self.first.rank} features, but the second takes "
                f"{self.second.n_cols} columns. Fit the second on features of the first."
            )

    @property
    def rank(self) -> int:
        """Number of features, those of the second map."""
        return self.second.rank

    @property
    def grain(self) -> int:
        """That of the second map."""
        return self.second.grain

    @property
    def features_iid(self) -> bool:
        """Whether those of the second map are."""
        return self.second.features_iid

    def prepare(self, X: Array) -> Array:
        """The first map, whole, and what the second prepares from it."""
        return self.second.prepare(all_features(self.first, X))

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """A block of the second map."""
        return self.second.block(prepared, columns, out)

    @property
    def kernel_columns(self) -> Any:
        """Those of the second map."""
        return self.second.kernel_columns

    def kernel_rows(self, X: Array) -> Array:
        """Features of the first map."""
        return self.second.kernel_rows(all_features(self.first, X))

    def gradient(self, X: Array, C: Array) -> Array:
        """The chain rule."""
        return self.first.gradient(X, self.second.gradient(all_features(self.first, X), C))

    def folded(self, mean: Array, weights: Array) -> tuple[FeatureMap, Array, Array]:
        """The second map in its cheapest form."""
        second, mean, weights = self.second.folded(mean, weights)
        return Chain(self.first, second, self.kernel), mean, weights

    def scratch_per_row(self) -> int:
        """The features in between, and what both maps take."""
        return self.first.scratch_per_row() + self.first.rank + self.second.scratch_per_row()


def all_features(features: FeatureMap, X: Array) -> Array:
    """All features of the rows of X, (b, M); sparse if the map keeps sparse rows sparse."""
    sparse = features.sparse_features(X) if is_sparse(X) else None
    if sparse is not None:
        return sparse
    return features.block(features.prepare(X), slice(0, features.rank))


def fit_chi2(
    sample: Array, kernel: Kernel, rank: int, seed: int, view: View, *, per_column: int = 5
) -> Chain:
    """Fourier features of the exponential chi2 kernel exp(-chi2(x, z) / width).

    With psi(x).psi(z) = sum_j 2 x_j z_j / (x_j + z_j), |psi(x) - psi(z)|^2 = chi2(x, z), so the
    kernel is RBF(sqrt(width / 2)) on psi. The error of psi, which has `per_column` features per
    column (an odd number; 5 keep distances to 1 %), stays however large the rank is.
    """
    kernel = require_kernel(kernel, Chi2, "exponential chi2 features")
    if per_column < 1 or per_column % 2 == 0:
        raise InputError(f"per_column={per_column} cannot be used: it must be odd, 1, 3, 5, ...")
    gaussian = RBF(math.sqrt(kernel.decided_width / 2))
    first = Additive.fit(sample, AdditiveChi2(), per_column * sample.shape[1], seed, view)
    second = RandomFourier.fit(all_features(first, sample), gaussian, rank, seed, view)
    return Chain(first, second, kernel)


def fit_sketched(
    sample: Array, kernel: Kernel, rank: int, seed: int, view: View, *, buckets: int
) -> Chain:
    """Fourier features of RBF or Matern, after a count sketch to `buckets` columns.

    Both are kernels of Euclidean distance, which the sketch keeps: a squared distance is off by
    sqrt(2 / buckets) of itself, about, whatever the rank.
    """
    require_kernel(kernel, (RBF, Matern), "features of sketched rows")
    first = CountSketch.fit(sample, Linear(), buckets, seed, view)
    second = RandomFourier.fit(all_features(first, sample), kernel, rank, seed, view)
    return Chain(first, second, kernel)
