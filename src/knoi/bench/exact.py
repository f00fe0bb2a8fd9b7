"""Closed forms at several regularisers from one pass over the data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from knoi.arrays.backend import pick_backend
from knoi.bench.peak import Clock
from knoi.data.pairs import PairSource
from knoi.engine import Threads, worker_count
from knoi.estimators.primal import MomentCCA
from knoi.features import FeatureMap


@dataclass(frozen=True)
class ExactFit:
    """A fitted model, and what a fit at its regulariser alone would have taken."""

    reg: float
    model: MomentCCA
    seconds: float
    cpu_seconds: float


def fits_by_reg(
    model: MomentCCA,
    X: Any,
    Y: Any,
    regs: Sequence[float],
    make_maps: Callable[[], tuple[FeatureMap, FeatureMap]] | None = None,
) -> Iterator[ExactFit]:
    """`model` fitted at each of `regs`, one after the other: the same object each time.

    The moments, by far the dearer part, are added up once; each fit is said to have taken the
    feature maps, the moments and its own solution. Maps are the model's own unless given.
    """
    model.set_params(reg=regs[0])
    with PairSource.open(X, Y) as pairs, Threads(worker_count(model.n_jobs)) as engine:
        model._remember_columns(X, pairs)
        clock = Clock()
        maps = model._fit_maps(pairs) if make_maps is None else make_maps()
        backend = pick_backend(model.device, pairs.dtype)
        moments = model._accumulate(pairs, maps, backend, engine, keep=True)
        wall, cpu = clock.wall, clock.cpu
        for reg in regs:
            model.set_params(reg=reg)
            clock = Clock()
            model._keep(model._finish(maps, moments, consume=False))
            yield ExactFit(reg, model, wall + clock.wall, cpu + clock.cpu)
