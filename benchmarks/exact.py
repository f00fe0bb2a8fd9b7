"""Closed forms at several regularisers from one pass over the data."""

import time
from dataclasses import dataclass

from knoi import NystromCCA
from knoi.arrays.backend import pick_backend
from knoi.data.pairs import PairSource
from knoi.engine import Threads, worker_count


@dataclass(frozen=True)
class ExactFit:
    """A fitted model, and what a fit at its regulariser alone would have taken."""

    model: object
    seconds: float


def nystrom_by_reg(n_components, maps, X, Y, regs, *, memory_budget=None, seconds_before=0.0):
    """`NystromCCA` with the given feature maps at each of `regs`, one after the other.

    The moments, by far the dearer part, are added up once; each fit is said to have taken the
    moments, its own solution and `seconds_before`, what the maps took.
    """
    model = NystromCCA(
        n_components, rank=max(m.rank for m in maps), memory_budget=memory_budget, reg=regs[0]
    )
    with PairSource.open(X, Y) as pairs, Threads(worker_count(None)) as engine:
        model._remember_columns(X, pairs)
        backend = pick_backend(None, pairs.dtype)
        start = time.perf_counter()
        moments = model._accumulate(pairs, maps, backend, engine, keep=True)
        adding = time.perf_counter() - start
        for reg in regs:
            model.set_params(reg=reg)
            start = time.perf_counter()
            model._keep(model._finish(maps, moments, consume=False))
            solving = time.perf_counter() - start
            yield reg, ExactFit(model, seconds_before + adding + solving)
