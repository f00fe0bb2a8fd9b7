"""Everything a report shows, measured: what sections and scripts are made from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from knoi.estimators.base import BaseCCA
from knoi.estimators.structure import in_sample_warning
from knoi.exceptions import InputError
from knoi.metrics import component_correlations
from knoi.report.images import Sprite, checked_shapes, sprite
from knoi.report.importance import Importance, importance
from knoi.report.labels import checked_labels, label_data
from knoi.report.measures import (
    MOST_COMPONENTS,
    Correlations,
    Retrieval,
    correlations,
    learning_curve,
    retrieval,
)
from knoi.report.packing import packed
from knoi.report.rows import Names, Variates, Views, measured, opened, read_view, shown

T = TypeVar("T")


@dataclass(frozen=True)
class Content:
    """A fitted model and what was measured of it."""

    model: BaseCCA
    n_cols: tuple[int, int]
    training: Variates
    held_out: Variates | None
    shown: Variates  # rows to look at: of those held out if there are any
    labels: dict[str, Any] | None  # of the rows shown, as `label_data` has them
    sprites: tuple[Sprite | None, Sprite | None]
    correlations: Correlations
    totals: tuple[float, float | None]  # over all components: training, held out
    retrieval: Retrieval
    curve: dict[str, Any] | None
    importance: tuple[Importance, Importance]
    in_sample_warning: str | None  # why the correlations of training rows mean nothing, if so

    @property
    def n_components(self) -> int:
        """Components the model has; the page shows at most `MOST_COMPONENTS` one by one."""
        return int(self.training.Zx.shape[1])

    @property
    def judged(self) -> Variates:
        """The rows numbers are of: held out if there are any."""
        return self.training if self.held_out is None else self.held_out

    def data(self) -> dict[str, Any]:
        """For the scripts of the page."""
        leading = self.shown.leading(MOST_COMPONENTS)
        return {
            "rows": [int(row) for row in self.shown.rows],
            "labels": self.labels,
            "variates": [packed(leading.Zx), packed(leading.Zy)],
            "pictures": [None if one is None else one.placement() for one in self.sprites],
            "correlations": self.correlations.data(),
            "curve": self.curve,
            "retrieval": self.retrieval.data(),
            "importance": [one.data for one in self.importance],
        }


def gather(
    model: BaseCCA,
    X: Any,
    Y: Any,
    test: tuple[Any, Any] | None,
    labels: Any,
    images: Any,
    seed: int,
) -> Content:
    """Measure the model on its training rows, and on rows held out if `test` has them."""
    with opened(X, Y) as views:
        shapes = checked_shapes(images, views.pairs.n_cols)
        if test is None:
            labels = checked_labels(labels, views.pairs.n_rows, "training")
        training = measured(model, views.pairs, seed)
        warning = in_sample_warning(model.projection_, views.pairs, getattr(model, "reg", None))
        names, n_cols = _names(model, views), views.pairs.n_cols
        if test is None:
            looked_at = shown(training, seed)
            sprites = _sprites(views, looked_at, shapes)
    held_out = None
    if test is not None:
        with opened(*test) as views:
            labels = checked_labels(labels, views.pairs.n_rows, "test")
            if views.pairs.n_rows < 2:
                raise InputError("test has 1 row: a correlation needs at least 2. Pass more rows.")
            held_out = measured(model, views.pairs, seed)
            looked_at = shown(held_out, seed)
            sprites = _sprites(views, looked_at, shapes)
    return Content(
        model=model,
        n_cols=n_cols,
        training=training,
        held_out=held_out,
        shown=looked_at,
        labels=None if labels is None else label_data(labels[looked_at.rows]),
        sprites=sprites,
        correlations=correlations(training, held_out, seed),
        totals=(_total(training), None if held_out is None else _total(held_out)),
        retrieval=retrieval(looked_at),
        curve=learning_curve(model),
        importance=_both(lambda view: importance(model, view, shapes[view], names[view])),
        in_sample_warning=warning,
    )


def _sprites(
    views: Views, rows: Variates, shapes: tuple[Any, Any]
) -> tuple[Sprite | None, Sprite | None]:
    def one(view: int) -> Sprite | None:
        if shapes[view] is None:
            return None
        return sprite(read_view(views.pairs, rows.rows, view), shapes[view], len(rows))

    return _both(one)


def _names(model: BaseCCA, views: Views) -> tuple[Names, Names]:
    x, y = views.names
    remembered = getattr(model, "feature_names_in_", None)
    return (x if remembered is None else tuple(str(name) for name in remembered)), y


def _total(variates: Variates) -> float:
    return float(np.sum(component_correlations(variates.Zx, variates.Zy)))


def _both(of: Callable[[int], T]) -> tuple[T, T]:
    return of(0), of(1)
