"""Closed forms of several sizes and regularisers from one pass over the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from knoi.bench.peak import Clock
from knoi.data.pairs import PairSource
from knoi.estimators.primal import MomentCCA


@dataclass(frozen=True)
class ExactFit:
    """A fitted model, and what this fit alone would have taken."""

    rows: int
    reg: float
    model: MomentCCA
    seconds: float
    cpu_seconds: float


def exact_fits(
    model: MomentCCA, X: Any, Y: Any, regs: Sequence[float], sizes: Sequence[int] = ()
) -> Iterator[ExactFit]:
    """`model` fitted to the first rows, of each of the rising `sizes`, at each of `regs`.

    The same object each time; without `sizes` to all rows. The moments, by far the dearer part, are
    added up once; each fit is said to have taken the feature maps, the moments of its rows and its
    own solution. Feature maps are chosen from the rows of the first size.
    """
    wall = cpu = 0.0
    with PairSource.open(X, Y) as pairs:
        for start, stop in pairwise((0, *(sizes or (pairs.n_rows,)))):
            clock = Clock()
            model.partial_fit(*pairs.part(start, stop).views(), solve=False)
            wall, cpu = wall + clock.wall, cpu + clock.cpu
            for reg in regs:
                clock = Clock()
                model.set_params(reg=reg).solve()
                yield ExactFit(stop, reg, model, wall + clock.wall, cpu + clock.cpu)
