"""Closed forms at several regularisers from one pass over the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from knoi.bench.peak import Clock
from knoi.estimators.primal import MomentCCA


@dataclass(frozen=True)
class ExactFit:
    """A fitted model, and what a fit at its regulariser alone would have taken."""

    reg: float
    model: MomentCCA
    seconds: float
    cpu_seconds: float


def fits_by_reg(model: MomentCCA, X: Any, Y: Any, regs: Sequence[float]) -> Iterator[ExactFit]:
    """`model` fitted at each of `regs`, one after the other: the same object each time.

    The moments, by far the dearer part, are added up once; each fit is said to have taken the
    feature maps, the moments and its own solution.
    """
    clock = Clock()
    model.partial_fit(X, Y, solve=False)
    wall, cpu = clock.wall, clock.cpu
    for reg in regs:
        clock = Clock()
        model.set_params(reg=reg).solve()
        yield ExactFit(reg, model, wall + clock.wall, cpu + clock.cpu)
